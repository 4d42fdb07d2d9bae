package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/fault"
)

const (
	wsA, envA = "ws_aaaaaaaaaaaa", "env_aaaaaaaaaaaa"
	stateURL  = "http://h:1/states/" + wsA + "/" + envA + "/demo"
)

func block(addr, password string) string {
	return "terraform {\n  backend \"http\" {\n    address = \"" + addr + "\"\n    password = \"" + password + "\"\n  }\n}\n"
}

func initialised(addr, password string) string {
	return `{"backend":{"type":"http","config":{"address":"` + addr + `","username":"ws_init","password":"` + password + `"}}}`
}

// what is compared of a target
type found struct {
	Base, Username, Password, Token, Workspace, Environment, State string
}

func TestResolve(t *testing.T) {
	const tfstate = ".terraform/terraform.tfstate"
	for name, tc := range map[string]struct {
		flags  targetFlags
		env    map[string]string
		files  map[string]string
		config map[string]string
		arg    string
		want   found
		fails  string
		note   string
	}{
		"flags": {
			flags: targetFlags{address: "http://h:1/", token: "t", env: "e", state: "s"},
			want:  found{Base: "http://h:1", Token: "t", Environment: "e", State: "s"},
		},
		"state address": {
			flags: targetFlags{address: stateURL, password: "p"},
			want:  found{Base: "http://h:1", Password: "p", Token: "p", Workspace: wsA, Environment: envA, State: "demo"},
		},
		"state address below a path, with credentials, of the alias": {
			flags: targetFlags{address: "https://u:p@h/kl/locks/w/e/s"},
			want:  found{Base: "https://h/kl", Username: "u", Password: "p", Workspace: "w", Environment: "e", State: "s"},
		},
		"argument over state address": {
			flags: targetFlags{address: stateURL, token: "t"}, arg: "other",
			want: found{Base: "http://h:1", Token: "t", Workspace: wsA, Environment: envA, State: "other"},
		},
		"other environment than the address's": {
			flags: targetFlags{address: stateURL, token: "t", env: "prod"},
			want:  found{Base: "http://h:1", Token: "t", Environment: "prod", State: "demo"},
		},
		"terraform's variables": {
			env:  map[string]string{"TF_HTTP_ADDRESS": stateURL, "TF_HTTP_USERNAME": wsA, "TF_HTTP_PASSWORD": "p"},
			want: found{Base: "http://h:1", Username: wsA, Password: "p", Workspace: wsA, Environment: envA, State: "demo"},
		},
		"initialised directory over block": {
			files: map[string]string{tfstate: initialised(stateURL, "p"), "main.tf": block("http://h:1/states/w/e/other", "q")},
			want:  found{Base: "http://h:1", Username: "ws_init", Password: "p", Workspace: wsA, Environment: envA, State: "demo"},
		},
		"block, password from the environment": {
			env:   map[string]string{"TF_HTTP_PASSWORD": "p"},
			files: map[string]string{"main.tf": block(stateURL, "")},
			want:  found{Base: "http://h:1", Password: "p", Token: "p", Workspace: wsA, Environment: envA, State: "demo"},
		},
		"token of the configuration file for the block's server": {
			files:  map[string]string{"main.tf": block(stateURL, "p")},
			config: map[string]string{"address": "http://h:1", "token": "t"},
			want:   found{Base: "http://h:1", Password: "p", Token: "t", Workspace: wsA, Environment: envA, State: "demo"},
		},
		"configuration file alone": {
			config: map[string]string{"address": "https://kl.example", "token": "t", "env": "prod"},
			want:   found{Base: "https://kl.example", Token: "t", Environment: "prod"},
		},
		// a directory from elsewhere must not draw the user's control token
		"token of the configuration file stays away from another server": {
			files:  map[string]string{"main.tf": block("http://evil/states/w/e/s", "q")},
			config: map[string]string{"address": "https://kl.example", "token": "t", "password": "p"},
			want:   found{Base: "http://evil", Password: "q", Token: "q", Workspace: "w", Environment: "e", State: "s"},
			note:   "the credentials in config.toml are for https://kl.example and are not sent to http://evil",
		},
		"credentials of the directory stay away from another server": {
			flags: targetFlags{address: "http://other"},
			files: map[string]string{tfstate: initialised(stateURL, "p"), "main.tf": block(stateURL, "q")},
			fails: "there are no credentials for http://other: the credentials in .terraform/terraform.tfstate are for http://h:1",
		},
		"default ports are the same server": {
			flags: targetFlags{address: "https://H:443"},
			files: map[string]string{"main.tf": block("https://h/states/w/e/s", "q")},
			want:  found{Base: "https://H:443", Password: "q", Token: "q", Workspace: "w", Environment: "e", State: "s"},
		},
		"broken configuration, not needed": {
			flags: targetFlags{address: stateURL, token: "t"},
			files: map[string]string{"main.tf": "terraform {"},
			want:  found{Base: "http://h:1", Token: "t", Workspace: wsA, Environment: envA, State: "demo"},
		},
		"broken configuration, needed": {
			files: map[string]string{"main.tf": "terraform {"}, fails: "main.tf:1 cannot be read for its backend block",
		},
		"expression": {
			files: map[string]string{"main.tf": "terraform {\n  backend \"http\" {\n    address = var.a\n  }\n}\n"},
			fails: "no server is named: address (main.tf:3) is an expression",
		},
		"other backend": {
			files: map[string]string{"main.tf": "terraform {\n  backend \"s3\" {}\n}\n"},
			fails: `no server is named: main.tf:2 has a backend of type "s3"`,
		},
		"state path cut short": {flags: targetFlags{address: "http://h/states/w/e"}, fails: "neither a server's nor a state's"},
		"no credentials":       {flags: targetFlags{address: "http://h"}, fails: "there are no credentials for http://h"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, text := range tc.files {
				p := filepath.Join(dir, f)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			a := &app{
				env:    Env{Getenv: func(k string) string { return tc.env[k] }, Dir: dir},
				config: &config{path: "config.toml", values: tc.config}, flags: tc.flags,
			}
			got, err := a.resolve(tc.arg)
			if tc.fails != "" {
				if fault.Of(err) == nil || !strings.Contains(fault.Of(err).Detail, tc.fails) {
					t.Fatalf("got %+v, %v; want an error with %q", got, err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			g := found{got.base, got.username, got.password, got.token, got.workspace, got.environment, got.state}
			if d := cmp.Diff(tc.want, g); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if !strings.Contains(strings.Join(got.notes, "\n"), tc.note) {
				t.Errorf("notes %q, want %q", got.notes, tc.note)
			}
		})
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "512MiB": 512 << 20, "2 GiB": 2 << 30, "7B": 7, "1000": 1000, "3TiB": 3 << 40} {
		var s size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("Set(%q) = %d, %v; want %d", text, s, err, want)
		}
		var again size
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%q is written %q and read %d, %v", text, s.String(), again, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "MiB", "1.5GiB", "99999999999999999999", "9000000000GiB", "1 KB"} {
		if err := new(size).Set(text); err == nil {
			t.Errorf("Set(%q) succeeded", text)
		}
	}
}

// What the configuration file may set must be flags.
func TestConfigKeysAreFlags(t *testing.T) {
	flags := map[string]bool{}
	root := (&app{}).root()
	for _, c := range root.Commands() {
		for _, key := range configKeys {
			name := strings.ReplaceAll(key, "_", "-")
			if c.Flags().Lookup(name) != nil || c.PersistentFlags().Lookup(name) != nil || root.PersistentFlags().Lookup(name) != nil {
				flags[key] = true
			}
		}
	}
	for _, key := range configKeys {
		if !flags[key] {
			t.Errorf("%s is no flag of any command", key)
		}
	}
}

func TestBackendBlock(t *testing.T) {
	b := newBackend("http://h/${x}", wsA, envA, "demo", `a"b\%{`)
	for _, part := range []string{`"http://h/$${x}/states/`, `password       = "a\"b\\%%{"`, "lock_address   = ", `username       = "` + wsA + `"`} {
		if !strings.Contains(b.hcl(), part) {
			t.Errorf("block lacks %s:\n%s", part, b.hcl())
		}
	}
	if got := newBackend("http://h", wsA, envA, "demo", "").hcl(); strings.Contains(got, "password   ") || !strings.Contains(got, "TF_HTTP_PASSWORD") {
		t.Errorf("block without secret:\n%s", got)
	}
}
