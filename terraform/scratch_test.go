//go:build unix

package terraform_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"kl/fault"
	"kl/terraform"
)

// A real client in a scratch directory talks to the run's address with the
// run's credentials, whatever the configuration says, and puts the credentials
// into no file; the directory it runs in and its .terraform stay as they are.
func TestScratchPointsARealClientElsewhere(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		mu.Lock()
		seen = append(seen, fmt.Sprintf("%s %s %s:%s", r.Method, r.URL.Path, user, password))
		mu.Unlock()
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	t.Setenv("TMPDIR", t.TempDir())
	config := "terraform {\n  backend \"http\" {\n    address = \"" + srv.URL + "/usual\"\n    lock_address = \"" + srv.URL + "/lock\"\n    unlock_address = \"" + srv.URL +
		"/lock\"\n    username = \"literal\"\n    password = \"literal-secret\"\n    update_method = \"PUT\"\n  }\n}\n" +
		"module \"m\" {\n  source = \"../mod\"\n}\nresource \"terraform_data\" \"z\" {\n  input = \"${path.cwd} ${abspath(path.module)} ${file(\"${path.module}/note.txt\")}\"\n}\n"
	root := write(t, map[string]string{"conf/main.tf": config, "conf/note.txt": "note", "mod/main.tf": data("in", `"1"`)})
	dir := filepath.Join(root, "conf")
	environ := append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "TF_") }), "CHECKPOINT_DISABLE=1",
		"TF_HTTP_LOCK_ADDRESS="+srv.URL+"/envlock", "TF_HTTP_UNLOCK_ADDRESS="+srv.URL+"/envlock", "TF_HTTP_PASSWORD=env-secret", "TF_VAR_x=1")
	bin := newClient(t, map[string]string{}).bin
	run := func(env []string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run(environ, "init", "-input=false")
	before := tree(t, dir)
	seen = nil

	s, err := terraform.NewScratch(dir, environ, terraform.At{Address: srv.URL + "/run", Username: "ws", Password: "run-secret"})
	if err != nil {
		t.Fatal(err)
	}
	planFile := filepath.Join(s.Dir, "plan")
	run(s.Env, s.InitArgs()...)
	run(s.Env, "plan", "-input=false", "-out="+planFile)
	shown := run(s.Env, "show", "-json", planFile)
	run(s.Env, "apply", "-input=false", planFile)
	for _, r := range seen {
		if !strings.HasSuffix(r, " /run ws:run-secret") {
			t.Errorf("a request to somewhere else, or as somebody else: %s", r)
		}
	}
	if !slices.Contains(seen, "POST /run ws:run-secret") {
		t.Errorf("no write among %v", seen)
	}
	if strings.Contains(shown, s.Dir) || !strings.Contains(shown, dir+" "+dir+" note") {
		t.Errorf("paths in the plan are not those of the configuration's directory:\n%s", shown)
	}
	for name, text := range tree(t, s.Dir) {
		if strings.Contains(text, "-secret") && !strings.Contains(text, "literal-secret") {
			t.Errorf("%s has a credential", name)
		}
	}
	if info, err := os.Stat(s.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the scratch directory is open to others: %v, %v", info, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", s.Dir, err)
	}
	after := tree(t, dir)
	for name, text := range after {
		if before[name] != text {
			t.Errorf("%s has changed", name)
		}
	}
}

// tree reads all files below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		out[p] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestScratchReusesWhatInitInstalled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	manifest := `{"Modules":[{"Key":"vpc","Source":"registry.example/vpc","Version":"1.0.0","Dir":".terraform/modules/vpc"}]}`
	dir := write(t, map[string]string{
		"main.tf": "terraform {\n  backend \"http\" {}\n}\n", ".terraform/modules/modules.json": manifest, ".terraform/providers/p/x": "provider",
		"data/modules/modules.json": "{}",
	})
	for env, want := range map[string]string{"TF_X=1": manifest, "TF_DATA_DIR=data": "{}", "TF_DATA_DIR=" + filepath.Join(dir, "absent"): ""} {
		s, err := terraform.NewScratch(dir, []string{env}, terraform.At{Address: "http://h/"})
		if err != nil {
			t.Fatal(err)
		}
		got, _ := os.ReadFile(filepath.Join(s.Dir, "modules", "modules.json"))
		if string(got) != want {
			t.Errorf("%s: the manifest is %q, want %q", env, got, want)
		}
		_, err = os.Stat(filepath.Join(s.Dir, "providers", "p", "x"))
		if (err == nil) != (env == "TF_X=1") {
			t.Errorf("%s: providers: %v", env, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, ".terraform", "providers", "p", "x")); err != nil {
			t.Fatalf("the installed providers are gone: %v", err)
		}
	}
}

// Directories of living runs stay, those of dead ones go.
func TestScratchSweepsWhatTheDeadLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := write(t, map[string]string{"main.tf": "terraform {\n  backend \"http\" {}\n}\n"})
	live, err := terraform.NewScratch(dir, nil, terraform.At{Address: "http://h/"})
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(os.TempDir(), "kl-run-dead")
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"owner", "run.tfplan"} {
		if err := os.WriteFile(filepath.Join(dead, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next, err := terraform.NewScratch(dir, nil, terraform.At{Address: "http://h/"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the dead one's directory: %v", err)
	}
	for _, s := range []*terraform.Scratch{live, next} {
		if _, err := os.Stat(s.Dir); err != nil {
			t.Errorf("a living one's directory: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestScratchNeedsAnHTTPBackend(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, text := range []string{"", "terraform {\n  backend \"s3\" {}\n}\n", "terraform {\n  cloud {}\n}\n"} {
		_, err := terraform.NewScratch(write(t, map[string]string{"main.tf": text}), nil, terraform.At{Address: "http://h/"})
		if !fault.Is(err, fault.ParameterInvalid) {
			t.Errorf("%q: got %v", text, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
