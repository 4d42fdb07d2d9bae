package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kl/wire"
)

// scoped is a configuration with what can stand between files: locals and
// variables of other files, provider aliases, modules in modules, for_each,
// count, data sources, depends_on across files.
var scoped = map[string]string{
	"main.tf": httpBackend + "provider \"terraform\" {\n  alias = \"second\"\n}\nvariable \"size\" {\n  default = 2\n}\nlocals {\n  tag = \"t-${var.size}\"\n}\n" +
		"output \"all\" {\n  value = [terraform_data.net.id, module.app[\"x\"].id]\n}\n",
	"net.tf": item("net", "local.tag") + "resource \"terraform_data\" \"subnet\" {\n  count = var.size\n  provider = terraform.second\n  input = terraform_data.net.output\n}\n",
	"app.tf": "module \"app\" {\n  for_each = toset([\"x\", \"y\"])\n  source = \"./modules/app\"\n  net = terraform_data.subnet[0].output\n}\n" +
		"data \"terraform_remote_state\" \"other\" {\n  backend = \"local\"\n  config = { path = \"${path.module}/other.tfstate\" }\n}\n",
	"job.tf":                "resource \"terraform_data\" \"job\" {\n  for_each = { a = 1, b = 2 }\n  input = each.value\n  depends_on = [module.app, terraform_data.lone]\n}\n",
	"lone.tf":               item("lone", `"l"`),
	"extra.tf.json":         `{"resource":{"terraform_data":{"extra":{"input":"${local.tag}"}}}}`,
	"modules/app/main.tf":   "variable \"net\" {}\nmodule \"part\" {\n  source = \"../part\"\n  net = var.net\n}\nresource \"terraform_data\" \"app\" {\n  input = module.part.id\n}\noutput \"id\" {\n  value = terraform_data.app.id\n}\n",
	"modules/part/main.tf":  "variable \"net\" {}\nresource \"terraform_data\" \"part\" {\n  input = var.net\n}\noutput \"id\" {\n  value = terraform_data.part.id\n}\n",
	"modules/other/main.tf": "resource \"terraform_data\" \"x\" {}\n",
	"other.tfstate":         otherState,
}

// writeIn is write for files in folders.
func (w *workdir) writeIn(name, text string) {
	w.tb.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o700); err != nil {
		w.tb.Fatal(err)
	}
	w.write(name, text)
}

type planned struct {
	Changes []struct{ Address, Action string }
	Write   []string `json:"write_set"`
	Read    []string `json:"read_set"`
}

func (p planned) lines() []string {
	out := []string{}
	for _, c := range p.Changes {
		out = append(out, c.Action+" "+c.Address)
	}
	slices.Sort(out)
	return out
}

// A plan of files changes what they declare, takes in what that depends on, and
// leaves the rest alone, whatever is pending there.
func TestScopeOfFiles(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := newWorkdir(t, "", s.env("prod"))
	files := map[string]string{}
	for name, text := range scoped {
		files[name] = text
	}
	put := func() {
		for name, text := range files {
			w.writeIn(name, text)
		}
	}
	put()
	w.must("init")
	w.wantKL(0, inRun())
	w.wantNoChanges()
	change := func(name, old, text string) {
		t.Helper()
		if !strings.Contains(files[name], old) {
			t.Fatalf("%s has no %q", name, old)
		}
		files[name] = strings.Replace(files[name], old, text, 1)
		w.writeIn(name, files[name])
	}
	plan := func(args ...string) planned {
		t.Helper()
		r := w.wantKL(0, append([]string{"plan", "--json", "-no-color"}, args...))
		var p planned
		if err := json.Unmarshal([]byte(r.stdout), &p); err != nil {
			t.Fatalf("%v\n%s", err, r.stdout)
		}
		return p
	}
	want := func(p planned, read []string, lines ...string) {
		t.Helper()
		if got := p.lines(); !slices.Equal(got, lines) {
			t.Errorf("changes: got %q, want %q", got, lines)
		}
		if !slices.Equal(p.Read, read) {
			t.Errorf("read set: got %q, want %q", p.Read, read)
		}
	}

	change("lone.tf", `"l"`, `"changed"`)
	change("job.tf", "{ a = 1, b = 2 }", "{ a = 1, c = 3 }")
	change("extra.tf.json", `"${local.tag}"`, `"changed ${local.tag}"`)
	want(plan("-f", "net.tf"), []string{})
	want(plan("-f", "extra.tf.json"), []string{}, "update terraform_data.extra")
	want(plan("-f", "lone.tf"), []string{}, "update terraform_data.lone")
	// depends_on reaches over files: what is pending there comes along
	want(plan("-f", "job.tf"), []string{"module.app"}, `create terraform_data.job["c"]`, `delete terraform_data.job["b"]`, "update terraform_data.lone")
	// the module's file stands for its calls
	change("modules/part/main.tf", "input = var.net", "input = [var.net]")
	part := []string{`update module.app["x"].module.part.terraform_data.part`, `update module.app["y"].module.part.terraform_data.part`}
	want(plan("-f", "app.tf"), []string{"terraform_data.subnet"}, part...)
	want(plan("-f", "modules/part/main.tf"), []string{"terraform_data.subnet"}, part...)
	want(plan("--target", `module.app["x"]`), []string{"terraform_data.subnet"}, part[0])
	w.wantKL(3, []string{"plan", "-f", "modules/other/main.tf"}, "belongs neither to the configuration")
	w.wantKL(3, []string{"plan", "-f", "main.tf"}, "declares nothing that can be applied on its own: only locals, output, provider, terraform, variable blocks")

	// fewer subnets: the plan of the file destroys one and asks; the apply of
	// another file takes nothing of that with it
	w.wantKL(3, inRun("-f", "net.tf", "-var", "size=1"), "would be destroyed or replaced", "delete terraform_data.subnet[1]", "nothing was applied")
	w.wantKL(0, inRun("-f", "lone.tf", "-var", "size=1"))
	r := w.wantKL(3, inRun("-f", "app.tf", "-var", "size=1", "--yes"), "would delete terraform_data.subnet[1], which lies outside what was named", "--target 'terraform_data.subnet[1]'")
	if !strings.Contains(r.out, "nothing was applied") {
		t.Errorf("it does not say that nothing was applied:\n%s", r.out)
	}
	w.wantKL(3, []string{"apply", "-f", "app.tf", "-var", "size=1", "--yes", "-no-color"}, "nothing was applied: the plan would delete terraform_data.subnet[1], which lies outside")
	w.wantKL(0, []string{"apply", "-f", "app.tf", "-f", "net.tf", "-var", "size=1", "--yes", "-no-color"}, "0 added, 4 changed, 1 destroyed")
	want(plan("-f", "net.tf", "-f", "app.tf", "-var", "size=1"), []string{})
	w.wantKL(0, inRun("-f", "job.tf", "-f", "extra.tf.json", "-var", "size=1", "--yes"))
	if r := w.run("plan", "-detailed-exitcode", "-var", "size=1"); r.code != 0 {
		t.Errorf("something is left to do:\n%s", r.out)
	}
}

// Blocks that move, remove and import count with the addresses that they name.
func TestScopeOfRefactorings(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := initWorkdir(t, httpBackend+item("old", `"o"`)+item("left", `"l"`)+item("still", `"s"`), s.env("prod"))
	w.must("apply")
	w.write("main.tf", httpBackend+item("still", `"s"`))
	w.write("new.tf", item("new", `"o"`))
	w.write("moves.tf", "moved {\n  from = terraform_data.old\n  to = terraform_data.new\n}\n")
	w.write("gone.tf", "removed {\n  from = terraform_data.left\n  lifecycle {\n    destroy = false\n  }\n}\n")
	w.write("in.tf", "import {\n  to = terraform_data.in\n  id = \"known\"\n}\nresource \"terraform_data\" \"in\" {}\n")
	// a move that lies outside keeps the client from planning a part, and it says how to go on
	r := w.wantKL(1, inRun("-f", "in.tf"), "Moved resource instances excluded by targeting", `-target="terraform_data.old"`)
	if len(s.runsOf("prod", true)) != 0 {
		t.Errorf("the run goes on:\n%s", r.out)
	}
	w.wantKL(0, inRun("-f", "new.tf"), "moves.tf:1 moves terraform_data.old to terraform_data.new; both are part of this plan")
	wantNames(t, s.pull("prod"), "new", "left", "still")
	w.wantKL(0, inRun("-f", "in.tf"))
	w.wantKL(0, inRun("-f", "gone.tf"))
	wantNames(t, s.pull("prod"), "new", "still", "in")
	w.wantNoChanges()
	// outputs alone
	w.write("out.tf", "output \"o\" {\n  value = terraform_data.new.output\n}\n")
	w.wantKL(0, inRun(), "done")
	w.wantNoChanges()
	// who may only plan can plan a part
	w.write("more.tf", item("more", "1"))
	var tok wire.Token
	if err := json.Unmarshal([]byte(s.mustKL("token", "create", "planner", "--role", "plan", "--json")), &tok); err != nil {
		t.Fatal(err)
	}
	w.setenv("TF_HTTP_PASSWORD=" + tok.Secret)
	w.wantKL(0, []string{"plan", "-f", "more.tf", "-no-color"}, "create terraform_data.more")
	w.wantKL(5, inRun("-f", "more.tf"), "nothing was applied")
	if len(s.runsOf("prod", true)) != 0 {
		t.Error("a run goes on")
	}
}
