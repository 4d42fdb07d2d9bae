package terraform_test

import (
	"archive/zip"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/fault"
	"kl/terraform"
	"kl/tfstate"
)

// client is the real terraform in a directory of its own, with its state beside
// the configuration.
type client struct {
	t   *testing.T
	dir string
	bin string
}

func newClient(t *testing.T, files map[string]string) *client {
	t.Helper()
	name := os.Getenv("KL_TERRAFORM")
	if name == "none" {
		t.Skip("KL_TERRAFORM=none: tests with a real client are left out")
	}
	if name == "" {
		name = "terraform"
	}
	bin, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("%v; CI needs a real client (KL_TERRAFORM=none leaves its tests out)", err)
	}
	if err != nil {
		t.Skipf("%v; set KL_TERRAFORM to run this with another client", err)
	}
	c := &client{t: t, dir: write(t, files), bin: bin}
	c.must("init")
	return c
}

func (c *client) run(args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), c.bin, args...)
	cmd.Dir = c.dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "TF_") })
	cmd.Env = append(cmd.Env, "CHECKPOINT_DISABLE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *client) must(args ...string) string {
	c.t.Helper()
	out, err := c.run(append([]string{args[0], "-no-color"}, args[1:]...)...)
	if err != nil {
		c.t.Fatalf("terraform %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *client) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) read(name string) []byte {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	return b
}

// plan makes a plan and reads it.
func (c *client) plan(args ...string) *terraform.Plan {
	c.t.Helper()
	c.must(append([]string{"plan", "-out=p.tfplan"}, args...)...)
	p, err := terraform.ReadPlan([]byte(c.must("show", "-json", "p.tfplan")), c.read("p.tfplan"), c.read("terraform.tfstate"))
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

func lines(p *terraform.Plan) []string {
	out := []string{}
	for _, c := range p.Changes {
		out = append(out, c.String())
	}
	return out
}

func data(name, input string) string {
	return "resource \"terraform_data\" \"" + name + "\" {\n  input = " + input + "\n}\n"
}

func TestPlanOfARealClient(t *testing.T) {
	c := newClient(t, map[string]string{"main.tf": data("keep", `"k"`) + data("change", `"1"`) + data("gone", `"1"`) + data("old", `"1"`) + data("left", `"1"`) +
		"resource \"terraform_data\" \"many\" {\n  count = 3\n  input = terraform_data.keep.output\n}\n" +
		"resource \"terraform_data\" \"new\" {\n  triggers_replace = \"1\"\n}\noutput \"o\" {\n  value = 1\n}\n"})
	c.must("apply", "-auto-approve")
	first := c.plan()
	if len(first.Changes)+len(first.Write)+len(first.Read)+first.Outputs > 0 {
		t.Errorf("nothing to do, and the plan is %+v", first)
	}
	c.write("main.tf", data("keep", `"k"`)+data("change", `"2"`)+data("moved", `"1"`)+
		"moved {\n  from = terraform_data.old\n  to   = terraform_data.moved\n}\n"+
		"removed {\n  from = terraform_data.left\n  lifecycle {\n    destroy = false\n  }\n}\n"+
		"import {\n  to = terraform_data.imported\n  id = \"x\"\n}\nresource \"terraform_data\" \"imported\" {}\n"+
		"resource \"terraform_data\" \"many\" {\n  count = 2\n  input = terraform_data.keep.output\n}\n"+
		"resource \"terraform_data\" \"new\" {\n  triggers_replace = \"2\"\n}\n"+data("made", `terraform_data.many[1].output`)+"output \"o\" {\n  value = 2\n}\n")
	p := c.plan()
	want := []string{
		"update terraform_data.change", "delete terraform_data.gone", "import terraform_data.imported", "forget terraform_data.left", "create terraform_data.made",
		"delete terraform_data.many[2]", "move terraform_data.moved (was terraform_data.old)", "replace terraform_data.new",
	}
	got := lines(p)
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("changes: -want +got:\n%s", d)
	}
	if d := cmp.Diff([]string{
		"terraform_data.change", "terraform_data.gone", "terraform_data.imported", "terraform_data.left", "terraform_data.made",
		"terraform_data.many[2]", "terraform_data.moved", "terraform_data.new", "terraform_data.old",
	}, p.Write); d != "" {
		t.Errorf("write set: -want +got:\n%s", d)
	}
	if d := cmp.Diff([]string{"terraform_data.many"}, p.Read); d != "" {
		t.Errorf("read set: -want +got:\n%s", d)
	}
	if p.Outputs != 1 || p.Digest == "" || p.Digest == first.Digest {
		t.Errorf("outputs %d, digests %q and %q", p.Outputs, first.Digest, p.Digest)
	}
}

// What a change depends on is found through everything that can stand between.
func TestReadSet(t *testing.T) {
	modules := map[string]string{
		"mod/inner/main.tf": "variable \"v\" {}\nresource \"terraform_data\" \"in\" {\n  input = var.v\n}\nresource \"terraform_data\" \"beside\" {}\noutput \"id\" {\n  value = terraform_data.in.id\n}\noutput \"other\" {\n  value = terraform_data.beside.id\n}\n",
		"mod/outer/main.tf": "variable \"w\" {}\nlocals {\n  through = { x = var.w }\n}\nmodule \"inner\" {\n  source = \"../inner\"\n  v = local.through.x\n}\noutput \"id\" {\n  value = module.inner.id\n}\noutput \"all\" {\n  value = module.inner\n}\n",
	}
	base := data("a", `"a"`) + data("b", `"b"`) + data("c", `"c"`) +
		"module \"m\" {\n  for_each = toset([\"x\", \"y\"])\n  source = \"./mod/outer\"\n  w = terraform_data.b.output\n}\n"
	for name, tc := range map[string]struct {
		config string
		args   []string
		want   []string
	}{
		"nothing":           {data("z", `"1"`), nil, []string{}},
		"directly":          {data("z", `terraform_data.a.output`), nil, []string{"terraform_data.a"}},
		"in a template":     {data("z", `"x-${terraform_data.a.output}-${terraform_data.c.id}"`), nil, []string{"terraform_data.a", "terraform_data.c"}},
		"a local":           {"locals {\n  l = { k = local.n }\n  n = [terraform_data.a.output]\n}\n" + data("z", `local.l["k"][0]`), nil, []string{"terraform_data.a"}},
		"depends_on":        {"resource \"terraform_data\" \"z\" {\n  depends_on = [terraform_data.c]\n}\n", nil, []string{"terraform_data.c"}},
		"on a module":       {"resource \"terraform_data\" \"z\" {\n  depends_on = [module.m]\n}\n", nil, []string{"module.m"}},
		"count":             {"resource \"terraform_data\" \"z\" {\n  count = length(terraform_data.a.output)\n}\n", nil, []string{"terraform_data.a"}},
		"a module's output": {data("z", `module.m["x"].id`), nil, []string{"module.m.module.inner.terraform_data.in"}},
		"all its outputs":   {data("z", `module.m`), nil, []string{"module.m.module.inner.terraform_data.beside", "module.m.module.inner.terraform_data.in"}},
		"a provisioner":     {"resource \"terraform_data\" \"z\" {\n  provisioner \"local-exec\" {\n    command = \"echo ${terraform_data.c.id}\"\n  }\n}\n", nil, []string{"terraform_data.c"}},
		"a data source": {"data \"terraform_remote_state\" \"d\" {\n  backend = \"local\"\n  config = { path = terraform_data.a.output == \"a\" ? \"terraform.tfstate\" : \"x\" }\n}\n" +
			data("z", `data.terraform_remote_state.d.outputs`), nil, []string{"terraform_data.a"}},
		"a module's variable": {"module \"z\" {\n  source = \"./mod/outer\"\n  w = terraform_data.a.output\n}\n", nil, []string{"terraform_data.a"}},
		"a module's count":    {"module \"z\" {\n  count = length(terraform_data.c.output)\n  source = \"./mod/outer\"\n  w = 1\n}\n", nil, []string{"terraform_data.c"}},
		"a module after another": {
			"module \"z\" {\n  depends_on = [terraform_data.c, module.m]\n  source = \"./mod/outer\"\n  w = 1\n}\n", nil,
			[]string{"module.m", "terraform_data.c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, merged(modules, map[string]string{"main.tf": base}))
			c.must("apply", "-auto-approve")
			c.write("z.tf", tc.config)
			c.must("init")
			p := c.plan(tc.args...)
			if d := cmp.Diff(tc.want, p.Read); d != "" {
				t.Errorf("-want +got:\n%s\nwrite set: %v", d, p.Write)
			}
		})
	}
}

func merged(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// A plan that cannot be looked into relies on everything that it looked at.
func TestPlanThatIsEncryptedReadsMore(t *testing.T) {
	c := newClient(t, map[string]string{"main.tf": data("a", `"1"`) + data("b", `"1"`)})
	c.must("apply", "-auto-approve")
	c.write("z.tf", "locals {\n  x = 1\n}\n"+data("z", "local.x"))
	c.must("plan", "-out=p.tfplan")
	shown := []byte(c.must("show", "-json", "p.tfplan"))
	p, err := terraform.ReadPlan(shown, []byte(`{"encrypted_data":""}`), c.read("terraform.tfstate"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"terraform_data.a", "terraform_data.b"}, p.Read); d != "" || p.Digest != "" {
		t.Errorf("digest %q, read set -want +got:\n%s", p.Digest, d)
	}
}

// What only the refresh has changed is written by an apply as well.
func TestPlanWritesWhatTheRefreshChanged(t *testing.T) {
	c := newClient(t, map[string]string{"main.tf": data("a", `"1"`) + data("b", `"1"`)})
	c.must("apply", "-auto-approve")
	// as an older client could have left it
	state := string(c.read("terraform.tfstate"))
	at := strings.LastIndex(state, `"schema_version"`)
	c.write("terraform.tfstate", state[:at]+`"dependencies": ["terraform_data.a"], `+state[at:])
	c.write("z.tf", data("z", `"1"`))
	p := c.plan()
	if d := cmp.Diff([]string{"terraform_data.b", "terraform_data.z"}, p.Write); d != "" {
		t.Errorf("write set: -want +got:\n%s", d)
	}
	if d := cmp.Diff([]string{"refresh terraform_data.b", "create terraform_data.z"}, lines(p)); d != "" {
		t.Errorf("changes: -want +got:\n%s", d)
	}
}

// Whatever is taken for a plan, reading it ends in a plan whose sets can be
// reserved, or in a classified error.
func FuzzReadPlan(f *testing.F) {
	shown := `{"format_version":"1.2","resource_changes":[{"address":"module.m[\"x\"].a.b[0]","previous_address":"a.c","mode":"managed","change":{"actions":["update"]}},` +
		`{"address":"a.d","mode":"managed","change":{"actions":["no-op"]}}],"configuration":{"provider_config":{"a":{"expressions":{"h":{"references":["local.x"]}}}},` +
		`"root_module":{"module_calls":{"m":{"expressions":{"v":{"references":["module.o.id","module.o"]}},"count_expression":{"references":["a.d[0].id","a.d"]},` +
		`"module":{"resources":[{"address":"a.b","mode":"managed","provider_config_key":"a","expressions":{"v":{"references":["var.v"]}},"depends_on":["data.e.f"]}]}}}}}}`
	var plan bytes.Buffer
	z := zip.NewWriter(&plan)
	for name, text := range map[string]string{"tfstate": emptyState, "tfconfig/m-/main.tf": "locals {\n  x = a.d.id\n}\n", "tfconfig/modules.json": "[]"} {
		w, err := z.Create(name)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			f.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(shown), plan.Bytes(), []byte(emptyState))
	f.Add([]byte(`{"resource_changes":null}`), []byte("PK"), []byte(""))
	f.Fuzz(func(t *testing.T, shown, plan, view []byte) {
		p, err := terraform.ReadPlan(shown, plan, view)
		if err != nil {
			if fault.Of(err) == nil {
				t.Errorf("unclassified: %v", err)
			}
			return
		}
		for _, a := range append(slices.Clone(p.Write), p.Read...) {
			if _, err := tfstate.ParseScope(a); err != nil {
				t.Errorf("%q cannot be reserved: %v", a, err)
			}
		}
	})
}

const emptyState = `{"version":4,"terraform_version":"1.11.4","serial":1,"lineage":"x","outputs":{},"resources":[],"check_results":null}`
