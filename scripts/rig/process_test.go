package rig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// shell starts a script that the test's end kills.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the scripts are for a Unix shell")
	}
	p, err := Start(t.TempDir(), os.Environ(), "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

// TestKill ends a program with its children: none goes on to hold the pipes.
func TestKill(t *testing.T) {
	p := shell(t, "sleep 1000 & echo begun; wait")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Await(ctx, "a sign of life", func() (bool, error) { return strings.Contains(p.Out.String(), "begun"), nil }); err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Error("it is not alive")
	}
	began := time.Now()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if p.Alive() || p.Ended.Before(began) {
		t.Errorf("alive %v, ended at %v", p.Alive(), p.Ended)
	}
	if code, err := p.Wait(ctx); code != -1 || err != nil {
		t.Errorf("exit code %d, %v, want -1", code, err)
	}
	if err := p.Signal(15); err != nil {
		t.Errorf("a signal to what has ended: %v", err)
	}
}

func TestOutputs(t *testing.T) {
	p := shell(t, "echo out; echo err >&2; exit 3")
	code, err := p.Wait(t.Context())
	if code != 3 || err != nil {
		t.Fatalf("exit code %d, %v, want 3", code, err)
	}
	if got := p.Stdout.String(); got != "out\n" {
		t.Errorf("stdout %q", got)
	}
	for _, want := range []string{"out\n", "err\n"} {
		if !strings.Contains(p.Out.String(), want) {
			t.Errorf("both streams %q lack %q", p.Out.String(), want)
		}
	}
}

// TestAwaitFile fails at once when the process that should make the file is
// gone, and with the deadline's cause when it only takes too long.
func TestAwaitFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made")
	gone := shell(t, "echo no file from me; exit 1")
	err := AwaitFile(t.Context(), file, gone)
	if err == nil || !strings.Contains(err.Error(), "no file from me") {
		t.Errorf("got %v, want what the process printed", err)
	}
	late := errors.New("it took too long")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	slow := shell(t, "sleep 1000")
	if err := AwaitFile(ctx, file, slow); !errors.Is(err, late) {
		t.Errorf("got %v, want %v", err, late)
	}
	if _, err := slow.Wait(ctx); !errors.Is(err, late) {
		t.Errorf("got %v, want %v", err, late)
	}
	maker := shell(t, "echo x > "+file)
	if err := AwaitFile(t.Context(), file, maker); err != nil {
		t.Error(err)
	}
}

func TestCleanEnv(t *testing.T) {
	t.Setenv("TF_HTTP_PASSWORD", "secret")
	t.Setenv("KL_TOKEN", "secret")
	t.Setenv("OTHER", "kept")
	t.Setenv(AuthorityEnv, "pem")
	env := CleanEnv("/home/nobody")
	if slices.ContainsFunc(env, func(kv string) bool { return strings.Contains(kv, "secret") }) {
		t.Error("what would redirect a client is left")
	}
	for _, want := range []string{"OTHER=kept", "HOME=/home/nobody", AuthorityEnv + "=pem"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestFlatten(t *testing.T) {
	if got, want := Flatten("│ Error message: the\n│ state is  locked\n╵"), "Error message: the state is locked"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
