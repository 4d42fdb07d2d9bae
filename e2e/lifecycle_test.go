package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestFirstUse does what the README asks of a newcomer: one command, one pasted
// block, and the questions of the first five minutes.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "kl.db")
	serve := startProcess(t, dir, cleanEnv(), klBinary(t), "serve", "--data", data, "--listen", "127.0.0.1:0")
	serve.awaitOutput("listening on http://")

	if info, err := os.Stat(data); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("data file: mode %v, %v; want 0600", info.Mode(), err)
	}
	// the line above is on stderr: stdout comes by another pipe, perhaps later
	var block, control string
	await(t, "a backend block and a control token on stdout", func() bool {
		printed := serve.main.String()
		block = regexp.MustCompile(`(?s)terraform \{.*?\n\}\n`).FindString(printed)
		control = regexp.MustCompile(`KL_TOKEN=(kl_ctl_\w+)`).FindString(printed)
		return block != "" && control != ""
	}, serve.out.String)

	w := initWorkdir(t, block+item("hello", `"world"`), nil)
	wantText(t, w.must("apply"), "Apply complete! Resources: 1 added")
	w.must("plan", "-detailed-exitcode")

	address := listening.FindStringSubmatch(serve.out.String())
	serve.signal(syscall.SIGINT)
	if code := serve.wait(patience); code != 0 {
		t.Errorf("kl serve: exit %d after Ctrl-C, want 0", code)
	}
	again := startProcess(t, dir, cleanEnv(), klBinary(t), "serve", "--data", data, "--listen", address[2])
	again.awaitOutput("listening on http://")
	if text := again.out.String(); strings.Contains(text, "kl_ctl_") || strings.Contains(text, "kl_env_") {
		t.Errorf("a second start prints secrets:\n%s", text)
	}
	w.must("plan", "-detailed-exitcode")

	// in the Terraform directory nothing has to be named but the token
	env := append(cleanEnv(), control)
	for _, verb := range [][]string{{"history"}, {"lock", "show"}, {"state", "show"}, {"state", "list"}} {
		r := startProcess(t, w.dir, env, klBinary(t), verb...).result(patience)
		if r.code != 0 || r.stdout == "" {
			t.Errorf("kl %s: exit %d, stdout %q\n%s", strings.Join(verb, " "), r.code, r.stdout, r.out)
		}
	}
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	two := httpBackend + item("a", `"1"`) + item("b", "terraform_data.a.id")
	w := newWorkdir(t, two, s.env("prod"))

	w.must("init")
	if got := s.versions("prod"); len(got) != 0 {
		t.Fatalf("init made versions: %+v", got)
	}
	w.must("apply")
	first := s.head("prod")
	if first.Version != 1 || first.Serial != 1 || first.ResourceCount != 2 || first.Added != 2 || first.Source != "write" {
		t.Errorf("first version: got %+v", first)
	}

	t.Log("a second apply changes nothing and makes no version")
	wantText(t, w.must("apply"), "No changes.")
	w.must("plan", "-detailed-exitcode")
	if got := s.head("prod"); got.Version != 1 {
		t.Errorf("after a no-op apply: head is version %d, want 1", got.Version)
	}

	t.Log("-detailed-exitcode tells of changes")
	w.write("main.tf", strings.Replace(two, `"1"`, `"2"`, 1))
	if r := w.run("plan", "-detailed-exitcode"); r.code != 2 {
		t.Errorf("plan -detailed-exitcode: exit %d, want 2\n%s", r.code, r.out)
	}

	t.Log("a saved plan")
	w.must("plan", "-out=saved.tfplan")
	w.must("apply", "saved.tfplan")
	changed := s.head("prod")
	if changed.Version != 2 || changed.Serial != 2 || changed.Changed == 0 || changed.Lineage != first.Lineage {
		t.Errorf("after the saved plan: got %+v", changed)
	}
	w.fails([]string{"apply", "saved.tfplan"}, "Saved plan is stale")

	t.Log("state rm, state pull, state push")
	w.must("state", "rm", "terraform_data.b")
	wantNames(t, s.pull("prod"), "a")
	pulled := w.must("state", "pull")
	if !bytes.Equal(bytes.TrimSpace([]byte(pulled)), bytes.TrimSpace(s.pull("prod"))) {
		t.Errorf("state pull differs from what is stored")
	}
	w.write("edited.tfstate", string(withSerial(t, []byte(pulled), 20)))
	w.must("state", "push", "edited.tfstate")
	if got := s.head("prod"); got.Serial != 21 || got.Version != 4 {
		t.Errorf("after state push: got version %d serial %d, want 4 and 21", got.Version, got.Serial)
	}
	w.write("old.tfstate", string(withSerial(t, []byte(pulled), 2)))
	w.fails([]string{"state", "push", "old.tfstate"}, "cannot import state with serial 2 over newer state with serial 21")

	t.Log("an unlocked apply, destroy, apply again")
	w.must("apply", "-lock=false")
	wantNames(t, s.pull("prod"), "a", "b")
	w.must("destroy")
	wantNames(t, s.pull("prod"))
	if got := s.head("prod"); got.ResourceCount != 0 {
		t.Errorf("after destroy: %d resources", got.ResourceCount)
	}
	w.must("apply")
	w.must("plan", "-detailed-exitcode")
	wantNames(t, s.pull("prod"), "a", "b")

	s.wantUnlocked("prod")
	if got := s.refused("prod"); len(got) != 0 {
		t.Errorf("writes were refused: %+v", got)
	}
	noFile(t, w.path("errored.tfstate"))
	wantChain(t, s, "prod")
}

// wantChain demands that versions are numbered without a gap, that serials
// rise, and that each one's bytes are those that were sent.
func wantChain(t *testing.T, s *server, state string) {
	t.Helper()
	var serial uint64
	for i, v := range s.versions(state) {
		if v.Version != uint64(i+1) || v.Serial <= serial && i > 0 {
			t.Errorf("version %d of %s: number %d, serial %d after %d", i+1, state, v.Version, v.Serial, serial)
		}
		serial = v.Serial
		b, err := s.client().VersionBytes(s.ctx(), s.boot.EnvPublicID, state, itoa(v.Version))
		if data := s.read("version", b, err); sum(data) != v.SHA256 || parseState(t, data).Serial != v.Serial {
			t.Errorf("version %d of %s: the bytes are not those of its record", v.Version, state)
		}
	}
}

// TestMigrate moves a state with init -migrate-state: from a local file to kl,
// from there to another state, and back into a file.
func TestMigrate(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	body := item("a", `"1"`) + item("b", "terraform_data.a.id")
	credentials := []string{"TF_HTTP_USERNAME=" + s.boot.WorkspaceID, "TF_HTTP_PASSWORD=" + s.boot.AutomationToken}
	w := initWorkdir(t, body, credentials)
	w.must("apply")
	moveTo := func(backend string) {
		t.Helper()
		w.write("backend.tf", backend)
		w.must("init", "-migrate-state", "-force-copy")
		w.must("plan", "-detailed-exitcode")
	}

	moveTo(s.block("first"))
	wantNames(t, s.pull("first"), "a", "b")
	moveTo(s.block("second"))
	wantNames(t, s.pull("second"), "a", "b")
	if one, two := s.head("first"), s.head("second"); one.Version != 1 || two.Version != 1 {
		t.Errorf("after migration: first has version %d, second %d, want 1 and 1", one.Version, two.Version)
	}
	moveTo("terraform {\n  backend \"local\" {}\n}\n")
	wantNames(t, readFile(t, w.path("terraform.tfstate")), "a", "b")

	t.Log("into a state that has versions already")
	w.must("state", "rm", "terraform_data.b")
	w.write("main.tf", item("a", `"1"`))
	moveTo(s.block("second"))
	wantNames(t, s.pull("second"), "a")
	if got := s.head("second"); got.Version != 2 {
		t.Errorf("second has version %d, want 2", got.Version)
	}
	s.wantUnlocked("first")
	s.wantUnlocked("second")
}

func TestRemoteState(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := initWorkdir(t, httpBackend+item("a", `"1"`)+"output \"answer\" {\n  value = 42\n}\n", s.env("producer"))
	w.must("apply")

	consumer := initWorkdir(t, httpBackend+`
variable "state" { type = string }
data "terraform_remote_state" "producer" {
  backend = "http"
  config = {
    address  = var.state
    username = "`+s.boot.WorkspaceID+`"
    password = "`+s.boot.AutomationToken+`"
  }
}
output "twice" {
  value = 2 * data.terraform_remote_state.producer.outputs.answer
}
`, s.env("consumer"))
	consumer.must("apply", "-var", "state="+s.stateURL("producer"))
	if got := strings.TrimSpace(consumer.must("output", "twice")); got != "84" {
		t.Errorf("output: got %q, want 84", got)
	}
	consumer.fails([]string{"apply", "-var", "state=" + s.stateURL("never-written")}, "No stored state was found")
}

// TestStandardMethods locks by POST and DELETE, and by PUT, on the alias that
// exists for proxies which know no LOCK.
func TestStandardMethods(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for state, methods := range map[string][]string{
		"post": {"TF_HTTP_LOCK_METHOD=POST", "TF_HTTP_UNLOCK_METHOD=DELETE"},
		"put":  {"TF_HTTP_LOCK_METHOD=PUT", "TF_HTTP_UNLOCK_METHOD=DELETE", "TF_HTTP_UPDATE_METHOD=PUT"},
	} {
		t.Run(state, func(t *testing.T) {
			env := append(s.env(state), "TF_HTTP_LOCK_ADDRESS="+s.lockURL(state), "TF_HTTP_UNLOCK_ADDRESS="+s.lockURL(state))
			w := initWorkdir(t, gated("x"), append(env, methods...))
			apply := w.start("apply")
			w.awaitGate("x_gate", apply)
			holder := s.holder(state)

			other := initWorkdir(t, httpBackend, w.env)
			other.fails([]string{"apply"}, "already locked: ID="+holder.ID)

			w.openGate("x_gate")
			if r := apply.result(clientPatience); r.code != 0 {
				t.Fatalf("apply: exit %d\n%s", r.code, r.out)
			}
			wantNames(t, s.pull(state), "x_before", "x_behind", "x_gate")
			s.wantUnlocked(state)
		})
	}
}
