package terraform_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/fault"
	"kl/terraform"
	"kl/tfstate"
)

func addresses(s *terraform.Scope) []string {
	out := []string{}
	for _, a := range s.Targets {
		out = append(out, a.String())
	}
	return out
}

func TestScopeOf(t *testing.T) {
	config := map[string]string{
		"main.tf":   "terraform {\n  backend \"http\" {}\n}\nprovider \"x\" {\n  alias = \"west\"\n}\nlocals {\n  n = 3\n}\nvariable \"v\" {}\n",
		"net.tf":    "resource \"aws_vpc\" \"main\" {\n  cidr = local.n\n}\nresource \"aws_subnet\" \"each\" {\n  for_each = var.v\n  depends_on = [module.db]\n  provider = x.west\n}\ndata \"aws_ami\" \"base\" {}\n",
		"db.tf":     "module \"db\" {\n  source = \"./modules/db\"\n  count = 2\n}\noutput \"o\" {\n  value = 1\n}\n",
		"mixed.tf":  "locals {\n  m = 1\n}\nresource \"aws_x\" \"mixed\" {}\n",
		"plain.tf":  "resource \"aws_x\" \"new\" {}\n",
		"moves.tf":  "moved {\n  from = aws_x.old\n  to   = aws_x.new\n}\nmoved {\n  from = aws_x.older\n  to = aws_x.old\n}\nmoved {\n  from = module.old[\"a\"].aws_y.z[0]\n  to = module.db[1].aws_y.z\n}\n",
		"gone.tf":   "removed {\n  from = aws_x.gone\n  lifecycle {\n    destroy = false\n  }\n}\nremoved {\n  from = module.left.aws_x.gone\n}\n",
		"import.tf": "import {\n  to = aws_x.imported[\"a\"]\n  id = \"1\"\n}\nimport {\n  for_each = toset([\"a\"])\n  to = module.db[0].aws_x.many[each.key]\n  id = each.value\n}\n",
		"json.tf.json": `{"//":"written by a program","resource":{"aws_x":{"j":{"count":2}}},"data":{"aws_ami":{"d":[{}]}},"module":{"jm":{"source":"./modules/outer"}},` +
			`"moved":[{"from":"aws_x.jold","to":"aws_x.j"}],"import":{"to":"aws_x.ji[each.key]","for_each":"${local.x}","id":"${each.value}"}}`,
		"z_override.tf":         "resource \"aws_vpc\" \"main\" {\n  cidr = 2\n}\n",
		"main.tofu":             "resource \"aws_x\" \"tofu\" {}\n",
		"terraform.tfvars":      "v = 1\n",
		"modules/db/main.tf":    "resource \"aws_y\" \"z\" {}\n",
		"modules/outer/main.tf": "module \"inner\" {\n  source = \"../inner\"\n}\nmodule \"again\" {\n  source = \"../outer\"\n}\n",
		"modules/inner/main.tf": "resource \"aws_y\" \"deep\" {}\n",
		"modules/lone/main.tf":  "resource \"aws_y\" \"lone\" {}\n",
	}
	for name, tc := range map[string]struct {
		files, targets []string
		tofu           bool
		want           []string
		notes          []string // part of each note, in order
		fails          string   // part of the sentence
	}{
		"nothing named":            {want: []string{}},
		"resources and data":       {files: []string{"net.tf"}, want: []string{"aws_subnet.each", "aws_vpc.main", "data.aws_ami.base"}},
		"module beside an output":  {files: []string{"db.tf"}, want: []string{"module.db", `module.old["a"].aws_y.z[0]`}, notes: []string{"moves.tf:9 moves module.old"}},
		"locals beside a resource": {files: []string{"mixed.tf"}, want: []string{"aws_x.mixed"}, notes: []string{"mixed.tf also has locals"}},
		"moves reach the scope": {
			files: []string{"plain.tf"}, want: []string{"aws_x.new", "aws_x.old", "aws_x.older"},
			notes: []string{"moves aws_x.old to aws_x.new", "moves aws_x.older to aws_x.old"},
		},
		"a file of moves": {files: []string{"moves.tf"}, want: []string{"aws_x.new", "aws_x.old", "aws_x.older", "module.db[1].aws_y.z", `module.old["a"].aws_y.z[0]`}},
		"removed":         {files: []string{"gone.tf"}, want: []string{"aws_x.gone", "module.left"}, notes: []string{"all of module.left"}},
		"imports": {
			files: []string{"import.tf"}, want: []string{`aws_x.imported["a"]`, "module.db[0].aws_x.many"},
			notes: []string{"all of module.db[0].aws_x.many"},
		},
		"JSON":          {files: []string{"json.tf.json"}, want: []string{"aws_x.j", "aws_x.ji", "aws_x.jold", "data.aws_ami.d", "module.jm"}, notes: []string{"all of aws_x.ji"}},
		"override":      {files: []string{"z_override.tf"}, want: []string{"aws_vpc.main"}},
		"a module's":    {files: []string{"modules/inner/main.tf"}, want: []string{"module.jm"}, notes: []string{"all of module.jm"}},
		"targets alone": {targets: []string{`module.db["é\"x"].aws_y.z[0]`, "data.aws_ami.base"}, want: []string{"data.aws_ami.base", `module.db["é\"x"].aws_y.z[0]`}},
		"a target pulls its move": {
			targets: []string{"aws_x.old"}, want: []string{"aws_x.new", "aws_x.old", "aws_x.older"},
			notes: []string{"moves aws_x.old to aws_x.new", "moves aws_x.older"},
		},
		"two files":           {files: []string{"mixed.tf", "./net.tf"}, want: []string{"aws_subnet.each", "aws_vpc.main", "aws_x.mixed", "data.aws_ami.base"}, notes: []string{"locals"}},
		"only locals":         {files: []string{"main.tf"}, fails: "declares nothing that can be applied on its own: only locals, provider, terraform, variable blocks"},
		"tofu's file":         {files: []string{"main.tofu"}, tofu: true, want: []string{"aws_x.tofu"}},
		"shadowed by tofu's":  {files: []string{"main.tf"}, tofu: true, fails: "not a file that is loaded"},
		"tofu's in terraform": {files: []string{"main.tofu"}, fails: "not a file that is loaded"},
		"variables":           {files: []string{"terraform.tfvars"}, fails: "not a file that is loaded"},
		"absent":              {files: []string{"absent.tf"}, fails: "absent.tf cannot be read: no such file"},
		"a directory":         {files: []string{"modules"}, fails: "modules is a directory"},
		"a module not called": {files: []string{"modules/lone/main.tf"}, fails: "belongs neither to the configuration"},
		"not an address":      {targets: []string{"aws_x"}, fails: `"aws_x" is not the address`},
		"an attribute":        {targets: []string{"aws_x.y.id"}, fails: "is not the address"},
		"a splat":             {targets: []string{"aws_x.y[*]"}, fails: "is not the address"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, config)
			var files []string
			for _, f := range tc.files {
				files = append(files, filepath.Join(dir, f))
			}
			s, err := terraform.ScopeOf(dir, files, tc.targets, tc.tofu)
			if tc.fails != "" {
				if !fault.Is(err, fault.ParameterInvalid) || !strings.Contains(strings.ReplaceAll(err.Error(), dir+"/", ""), tc.fails) {
					t.Fatalf("got %+v, %v; want an error with %q", s, err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, addresses(s)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if len(s.Notes) != len(tc.notes) {
				t.Fatalf("notes: %q, want %d", s.Notes, len(tc.notes))
			}
			for i, n := range tc.notes {
				if !strings.Contains(s.Notes[i], n) {
					t.Errorf("note %q does not say %q", s.Notes[i], n)
				}
			}
		})
	}
}

// What the file alone cannot tell is refused and never left out.
func TestScopeRefusesWhatItCannotTell(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown block":   "resource \"a\" \"b\" {}\nnovelty \"x\" {}\n",
		"a broken file":      "resource \"a\" \"b\" {\n",
		"a computed move":    "moved {\n  from = local.x\n  to = a.b\n}\n",
		"half a move":        "moved {\n  from = a.b\n}\n",
		"a function":         "import {\n  to = lookup(a, b)\n  id = \"x\"\n}\n",
		"resource, no label": "resource \"a\" {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"main.tf": text})
			s, err := terraform.ScopeOf(dir, []string{filepath.Join(dir, "main.tf")}, nil, false)
			if !fault.Is(err, fault.ParameterInvalid) || !strings.Contains(err.Error(), "main.tf:") {
				t.Errorf("got %+v, %v; want a refusal that names the file", s, err)
			}
		})
	}
}

// Whatever stands in a file, its scope is found or refused with a code, and
// every address of it can be read back.
func FuzzScopeOf(f *testing.F) {
	f.Add("resource \"a\" \"b\" {}\nmoved {\n from = a.c[\"x\"]\n to = module.m[0].a.b\n}", false)
	f.Add(`{"resource":{"a":{"b":{}}},"import":[{"to":"a.b[each.key]","id":"x"}]}`, true)
	f.Add("removed {\n from = module.x.a.b\n}\nmodule \"x\" {\n source = \"./\"\n}", false)
	f.Fuzz(func(t *testing.T, text string, json bool) {
		name := filepath.Join(t.TempDir(), "main.tf")
		if json {
			name += ".json"
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := terraform.ScopeOf(filepath.Dir(name), []string{name}, nil, false)
		if err != nil {
			if fault.Of(err) == nil {
				t.Errorf("unclassified: %v", err)
			}
			return
		}
		for _, a := range s.Targets {
			if back, err := tfstate.ParseScope(a.String()); err != nil || back.String() != a.String() {
				t.Errorf("%q is read back as %q, %v", a, back, err)
			}
		}
	})
}
