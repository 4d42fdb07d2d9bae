package terraform_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/fault"
	"kl/terraform"
)

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func httpBlock(addr string) string {
	return "terraform {\n  backend \"http\" {\n    address = \"" + addr + "\"\n  }\n}\n"
}

func TestFromConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  *terraform.Backend
		fails string // part of the sentence
	}{
		"no files":   {nil, nil, ""},
		"no backend": {map[string]string{"main.tf": "variable \"x\" {}\nterraform {\n  required_version = \">= 1\"\n}\n"}, nil, ""},
		"literals": {
			map[string]string{"main.tf": "resource \"a\" \"b\" {\n  x = 1\n}\nterraform {\n  backend \"http\" {\n    address = \"http://h/states/w/e/s\"\n    lock_address = var.x\n    username = \"ws_1\"\n    password = \"geheim\"\n  }\n}\n"},
			&terraform.Backend{Source: "main.tf:5", Type: "http", Address: "http://h/states/w/e/s", Username: "ws_1", Password: "geheim"}, "",
		},
		"empty block": {
			map[string]string{"b.tf": "terraform {\n  backend \"http\" {}\n}\n"},
			&terraform.Backend{Source: "b.tf:2", Type: "http"}, "",
		},
		"expressions": {
			map[string]string{"main.tf": "terraform {\n  backend \"http\" {\n    address = \"http://h/${var.env}\"\n    username = null\n    password = file(\"p\")\n  }\n}\n"},
			&terraform.Backend{Source: "main.tf:2", Type: "http", Expressions: []string{"address (main.tf:3)", "password (main.tf:5)"}}, "",
		},
		"number where text belongs": {
			map[string]string{"main.tf": "terraform {\n  backend \"http\" {\n    address = 7\n  }\n}\n"},
			&terraform.Backend{Source: "main.tf:2", Type: "http", Expressions: []string{"address (main.tf:3)"}}, "",
		},
		"other backend": {
			map[string]string{"main.tf": "terraform {\n  backend \"s3\" {\n    bucket = \"b\"\n  }\n}\n"},
			&terraform.Backend{Source: "main.tf:2", Type: "s3"}, "",
		},
		"cloud": {
			map[string]string{"main.tf": "terraform {\n  cloud {\n    organization = \"o\"\n  }\n}\n"},
			&terraform.Backend{Source: "main.tf:2", Type: "cloud"}, "",
		},
		"json": {
			map[string]string{"main.tf.json": `{"terraform":{"backend":{"http":{"address":"http://h/"}}}}`},
			&terraform.Backend{Source: "main.tf.json:1", Type: "http", Address: "http://h/"}, "",
		},
		"override wins": {
			map[string]string{"z.tf": httpBlock("http://z/"), "a_override.tf": httpBlock("http://override/")},
			&terraform.Backend{Source: "a_override.tf:2", Type: "http", Address: "http://override/"}, "",
		},
		"tofu wins over tf": {
			map[string]string{"main.tf": httpBlock("http://tf/"), "main.tofu": httpBlock("http://tofu/")},
			&terraform.Backend{Source: "main.tofu:2", Type: "http", Address: "http://tofu/"}, "",
		},
		"hidden, backup and module files do not count": {
			map[string]string{".x.tf": httpBlock("http://x/"), "main.tf~": httpBlock("http://y/"), "mod/main.tf": httpBlock("http://z/"), "main.tfvars": "a = 1"}, nil, "",
		},
		"broken":      {map[string]string{"main.tf": "terraform {\n  backend \"http\" {\n"}, nil, "main.tf:"},
		"broken json": {map[string]string{"main.tf.json": "{"}, nil, "main.tf.json:"},
		"no label":    {map[string]string{"main.tf": "terraform {\n  backend {}\n}\n"}, nil, "main.tf:2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := terraform.FromConfiguration(write(t, tc.files))
			if tc.fails != "" {
				if !fault.Is(err, fault.ParameterInvalid) || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("got %+v, %v; want an error with %q", got, err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
	if got, err := terraform.FromConfiguration(filepath.Join(t.TempDir(), "absent")); got != nil || err != nil {
		t.Errorf("absent directory: %+v, %v", got, err)
	}
}

func TestFromInitialised(t *testing.T) {
	path := filepath.Join(".terraform", "terraform.tfstate")
	for name, tc := range map[string]struct {
		text  string
		want  *terraform.Backend
		fails bool
	}{
		"http": {
			`{"version":3,"terraform_version":"1.11.4","backend":{"type":"http","config":{"address":"http://h/s","lock_address":"http://h/l","unlock_address":null,"username":"ws_1","password":"geheim","retry_max":null,"skip_cert_verification":null},"hash":1}}`,
			&terraform.Backend{Source: path, Type: "http", Address: "http://h/s", Username: "ws_1", Password: "geheim", LockAddress: "http://h/l"}, false,
		},
		"null settings": {
			`{"backend":{"type":"http","config":{"address":"http://h/s","username":null,"password":null}}}`,
			&terraform.Backend{Source: path, Type: "http", Address: "http://h/s"}, false,
		},
		"other backend": {
			`{"backend":{"type":"s3","config":{"address":{"x":1}}}}`, &terraform.Backend{Source: path, Type: "s3"}, false,
		},
		"no backend":  {`{"version":3}`, nil, false},
		"empty":       {``, nil, true},
		"wrong types": {`{"backend":{"type":"http","config":{"address":7}}}`, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{path: tc.text})
			got, err := terraform.FromInitialised(dir, "")
			if tc.fails != (err != nil) || (err != nil && !fault.Is(err, fault.ParameterInvalid)) {
				t.Fatalf("error %v, want one: %v", err, tc.fails)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Errorf("%q tells the password", err)
			}
		})
	}
	if got, err := terraform.FromInitialised(t.TempDir(), ""); got != nil || err != nil {
		t.Errorf("not initialised: %+v, %v", got, err)
	}
	dir := write(t, map[string]string{"elsewhere/terraform.tfstate": `{"backend":{"type":"http","config":{"address":"http://h/"}}}`})
	for _, dataDir := range []string{"elsewhere", filepath.Join(dir, "elsewhere")} {
		if got, err := terraform.FromInitialised(dir, dataDir); err != nil || got == nil || got.Address != "http://h/" {
			t.Errorf("TF_DATA_DIR=%s: %+v, %v", dataDir, got, err)
		}
	}
}

func TestFromEnvironment(t *testing.T) {
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	if got := terraform.FromEnvironment(env(nil)); got != nil {
		t.Errorf("nothing set: %+v", got)
	}
	want := &terraform.Backend{Source: "TF_HTTP_ADDRESS", Type: "http", Password: "p"}
	if d := cmp.Diff(want, terraform.FromEnvironment(env(map[string]string{"TF_HTTP_PASSWORD": "p"}))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Whatever stands in a file, reading it ends in a backend, in none, or in a
// classified error.
func FuzzFromConfiguration(f *testing.F) {
	f.Add("terraform {\n backend \"http\" {\n address = \"x\" \n}\n}", false)
	f.Add(`{"terraform":[{"backend":{"http":{"address":"${x}"}}}]}`, true)
	f.Add(`{"terraform":{"backend":"http"}}`, true)
	f.Fuzz(func(t *testing.T, text string, json bool) {
		name := "main.tf"
		if json {
			name += ".json"
		}
		if _, err := terraform.FromConfiguration(write(t, map[string]string{name: text})); err != nil && fault.Of(err) == nil {
			t.Errorf("unclassified: %v", err)
		}
	})
}
