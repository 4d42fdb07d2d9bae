package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kl/client"
	"kl/kltest"
	"kl/scripts/rig"
	"kl/wire"
)

// audited runs the program and reads its reports.
func audited(t *testing.T, args ...string) (code int, rep report, markdown, screen string) {
	t.Helper()
	dir := t.TempDir()
	out, asJSON := filepath.Join(dir, "audit.md"), filepath.Join(dir, "audit.json")
	var stdout, stderr bytes.Buffer
	code = Main(t.Context(), append([]string{"--terraform", kltest.Terraform(t), "--out", out, "--json", asJSON}, args...), &stdout, &stderr)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	b, err := os.ReadFile(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &rep); err != nil {
		t.Fatal(err)
	}
	return code, rep, string(text), stderr.String()
}

// TestAudit plays all scenarios against a server of the audit's own.
func TestAudit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes over a minute; runs without -short")
	}
	t.Parallel()
	code, rep, markdown, screen := audited(t)
	if code != 0 || rep.Counts[fail] != 0 || rep.Counts[unclear] != 0 {
		t.Errorf("exit code %d, %v, want everything to pass\n%s", code, rep.Counts, screen)
	}
	for i, s := range scenarios {
		if i >= len(rep.Records) || rep.Records[i].ID != s.id {
			t.Fatalf("record %d is not that of %s", i, s.id)
		}
		r := rep.Records[i]
		if r.Result != pass {
			t.Errorf("%s: %s: %s", r.ID, r.Result, strings.Join(r.Notes, "\n"))
		}
		if s.play != nil && (len(r.Did) == 0 || len(r.Log) == 0 || len(r.HTTP) == 0) {
			t.Errorf("%s: %d things done, %d log lines, %d requests; want some of each", r.ID, len(r.Did), len(r.Log), len(r.HTTP))
		}
		if !strings.Contains(markdown, "\n### "+s.id+" ") {
			t.Errorf("the report for people has no %s", s.id)
		}
	}
	if strings.Contains(markdown, "kl_env_") || strings.Contains(markdown, "kl_pat_") || strings.Contains(markdown, "kl_ctl_") {
		t.Error("a token is in the report")
	}
}

// TestAuditElsewhere plays some scenarios against a running server, and nothing
// is left behind there.
func TestAuditElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("builds kl; runs without -short")
	}
	t.Parallel()
	dir := t.TempDir()
	bin, err := rig.BuildKL(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := rig.StartServer(t.Context(), bin, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	code, rep, _, screen := audited(t, "--address", s.Base, "--token", s.Boot.ControlToken, "--only", "1a,2A,3B,6B")
	if code != 0 || rep.Counts[fail] != 0 {
		t.Fatalf("exit code %d, want 0\n%s", code, screen)
	}
	if got := rep.Records[0]; got.Result != pass || !strings.Contains(strings.Join(got.Notes, "\n"), "not looked at") {
		t.Errorf("%s: %s with the notes %q; want a pass that says that the log was not looked at", got.ID, got.Result, got.Notes)
	}
	nothingLeft(t, s.Base, s.Boot)
}

// nothingLeft demands that a server has no more than what it had at first.
func nothingLeft(t *testing.T, base string, boot wire.Bootstrap) {
	t.Helper()
	c, err := client.New(client.Options{Base: base, Bearer: boot.ControlToken})
	if err != nil {
		t.Fatal(err)
	}
	for w, err := range c.Workspaces(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if w.WorkspaceID != boot.WorkspaceID {
			t.Errorf("the workspace %s is left", w.Name)
		}
	}
	for u, err := range c.Users(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if u.Status != wire.UserDeleted {
			t.Errorf("the user %s is left", u.Name)
		}
	}
}

// TestAuditInterrupted ends the audit while an apply holds the lock of a state
// that was never written.
func TestAuditInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("builds kl; runs without -short")
	}
	t.Parallel()
	s := kltest.Start(t)
	args := []string{"--terraform", kltest.Terraform(t), "--address", s.URL, "--token", s.Bootstrap.ControlToken, "--only", "5A"}
	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	var stdout, stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() { ended <- Main(ctx, args, &stdout, &stderr) }()
	err := rig.Await(t.Context(), "the apply to have its lock", func() (bool, error) {
		select {
		case code := <-ended:
			return false, fmt.Errorf("the audit has ended with exit code %d\n%s", code, stderr.String())
		default:
		}
		for line := range strings.Lines(s.Log.String()) {
			if strings.Contains(line, `"method":"LOCK"`) && strings.Contains(line, `"status":200`) {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	interrupt(errors.New("interrupted"))
	if code := <-ended; code != 1 || !strings.Contains(stdout.String(), "\n### 5A ") || !strings.HasSuffix(stderr.String(), "\ninterrupted\n") {
		t.Errorf("exit code %d, want 1, a report, and to be told of the interruption alone\n%s", code, stderr.String())
	}
	nothingLeft(t, s.URL, s.Bootstrap)
}

// TestAuditPrivateAuthority audits a server behind TLS, whose authority only the
// environment names, by a state's address.
func TestAuditPrivateAuthority(t *testing.T) {
	if testing.Short() {
		t.Skip("builds kl; runs without -short")
	}
	s := kltest.Start(t)
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(base))
	t.Cleanup(front.Close)
	t.Setenv(rig.AuthorityEnv, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})))
	address := front.URL + wire.StatePath(s.Bootstrap.WorkspaceID, s.Bootstrap.EnvPublicID, "demo")
	code, rep, _, screen := audited(t, "--address", address, "--token", s.Bootstrap.ControlToken, "--only", "1A,2A")
	if code != 0 || rep.Counts[pass] != 2 {
		t.Errorf("exit code %d, %v, want two passes\n%s", code, rep.Counts, screen)
	}
}

// TestAuditFails audits a server that is not what it should be: credentials that
// are no operator's.
func TestAuditFails(t *testing.T) {
	bin := kltest.Terraform(t)
	var stderr bytes.Buffer
	code := Main(t.Context(), []string{"--terraform", bin, "--address", "http://127.0.0.1:1", "--token", "kl_ctl_x"}, &bytes.Buffer{}, &stderr)
	if code != 1 {
		t.Errorf("exit code %d, want 1\n%s", code, stderr.String())
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no token": {[]string{"--address", "http://127.0.0.1:1"}, "--address needs --token"},
		"scenario": {[]string{"--only", "1A,77"}, `there is no scenario "77"`},
		"argument": {[]string{"all"}, `"all" is no flag`},
		"folder":   {[]string{"--out", "/nowhere/audit.md", "--json", "/nowhere/audit.json"}, "/nowhere/audit.json cannot be written"},
		"deadline": {[]string{"--deadline", "0s"}, "--deadline is a time above zero"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KL_TOKEN", "")
			var stderr bytes.Buffer
			if code := Main(t.Context(), append([]string{"--terraform", bin}, c.args...), &bytes.Buffer{}, &stderr); code != 3 {
				t.Errorf("exit code %d, want 3", code)
			}
			if !strings.Contains(stderr.String(), c.want) {
				t.Errorf("got %q, want %q", stderr.String(), c.want)
			}
		})
	}
}

// TestInterrupted ends a scenario by the deadline: nobody takes what was not seen
// for a pass, or for a bug.
func TestInterrupted(t *testing.T) {
	a := &audit{o: options{stderr: &bytes.Buffer{}}, folder: t.TempDir()}
	ctx, cancel := context.WithCancelCause(t.Context())
	r := a.scenario(ctx, scenario{id: "1A", play: func(ctx context.Context, _ *audit, _ *record) error {
		cancel(errors.New("the deadline is over"))
		return ctx.Err()
	}})
	if r.Result != unclear || bucketOf(r) != surprising || !strings.Contains(strings.Join(r.Notes, ""), "the deadline is over") {
		t.Errorf("%s, %s, %q; want unclear, surprising, and the deadline in the notes", r.Result, bucketOf(r), r.Notes)
	}
}

// TestRule holds the rule's application to its words.
func TestRule(t *testing.T) {
	q := wire.Request{
		Code: "locked", Detail: "the state prod is locked by ana", NextStep: "wait with -lock-timeout=5m",
		Members: map[string]any{"ID": "0a1b-2c3d"},
	}
	for name, c := range map[string]struct {
		out  string
		q    wire.Request
		want string
	}{
		"the sentence, wrapped": {"│ Error message: the state prod is\n│ locked by ana", q, clear},
		"the next step":         {"next: wait with -lock-timeout=5m", q, clear},
		"the holder":            {"already locked: ID=0a1b-2c3d", q, clear},
		"a fixed text":          {"Error saving state: HTTP error: 409", q, partial},
		"nobody explains it":    {"Error saving state: HTTP error: 409", wire.Request{}, poor},
		"nothing":               {"giving up after 3 attempt(s)", q, poor},
	} {
		if got, why := shows(c.out, c.q); got != c.want {
			t.Errorf("%s: got %s (%s), want %s", name, got, why, c.want)
		}
	}
}

// TestFailureIsSaved keeps what is left of a scenario that failed, and counts it
// as a likely bug.
func TestFailureIsSaved(t *testing.T) {
	dir := t.TempDir()
	a := &audit{folder: dir}
	r := newRecord("6B")
	r.a = a
	r.failed("made to fail")
	r.Log = []string{`{"status":409}`}
	r.ids["refused_write"] = "rw_000000000000"
	if err := os.MkdirAll(filepath.Join(dir, "6b", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "6b", "b", "errored.tfstate"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	rep := newReport(a)
	rep.Records = []*record{r}
	rep.conclude(nil)
	if rep.Counts[fail] != 1 || len(rep.Buckets[bug]) != 1 {
		t.Errorf("counts %v, buckets %v, want one failure and one likely bug", rep.Counts, rep.Buckets)
	}
	if err := rep.save(options{out: filepath.Join(dir, "report.md")}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b.errored.tfstate", "kl.log", "ids.json"} {
		if _, err := os.Stat(filepath.Join(dir, "report.failures", "6B", name)); err != nil {
			t.Error(err)
		}
	}
}
