//go:build unix

package terraform_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kl/fault"
	"kl/terraform"
)

// script makes a program out of shell lines.
func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "client")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	named := script(t, "")
	dir := filepath.Dir(named)
	for _, name := range []string{"terraform", "tofu"} {
		if err := os.Symlink(named, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	for _, c := range []struct{ flag, env, want string }{
		{"", "", filepath.Join(dir, "terraform")},
		{"", "tofu", filepath.Join(dir, "tofu")},
		{"client", "tofu", named},
		{"", named, named},
	} {
		got, err := terraform.Find(c.flag, func(string) string { return c.env })
		if err != nil || got != c.want {
			t.Errorf("Find(%q) with KL_TERRAFORM=%q: got %q, %v, want %q", c.flag, c.env, got, err, c.want)
		}
	}
	if _, err := terraform.Find("nowhere", os.Getenv); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("a program that is not there: got %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "terraform")); err != nil {
		t.Fatal(err)
	}
	none := func(string) string { return "" }
	if got, err := terraform.Find("", none); err != nil || filepath.Base(got) != "tofu" {
		t.Errorf("without terraform: got %q, %v", got, err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := terraform.Find("", none); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("with an empty PATH: got %v", err)
	}
}

func TestRunPassesAllOn(t *testing.T) {
	var out, errs bytes.Buffer
	c := terraform.Command{
		Path: script(t, `echo "$@ in $(basename $PWD) with $X"; read a; echo "got $a"; echo oops >&2; exit 2`), Dir: t.TempDir(), Chdir: "sub",
		Env: []string{"X=y", "PATH=" + os.Getenv("PATH")}, Stdin: terraform.NewInput(strings.NewReader("one\ntwo\n")), Stdout: &out, Stderr: &errs,
	}
	code, err := c.Run(t.Context(), "plan", "-var", "a b")
	want := "-chdir=sub plan -var a b in " + filepath.Base(c.Dir) + " with y\ngot one\n"
	if err != nil || code != 2 || out.String() != want || errs.String() != "oops\n" {
		t.Errorf("got exit %d, %v\n%q\n%q\nwant 2\n%q", code, err, out.String(), errs.String(), want)
	}
	printed, code, err := c.Output(t.Context(), "show")
	if err != nil || code != 2 || !strings.HasPrefix(string(printed), "-chdir=sub show") {
		t.Errorf("Output: got %q, exit %d, %v", printed, code, err)
	}
}

func TestInputIsShared(t *testing.T) {
	r, w := io.Pipe()
	in := terraform.NewInput(r)
	var out bytes.Buffer
	// it ends without having read: what comes later is the next one's
	c := terraform.Command{Path: script(t, `exit 0`), Stdin: in}
	if code, err := c.Run(t.Context()); code != 0 || err != nil {
		t.Fatalf("exit %d, %v", code, err)
	}
	go func() {
		_, _ = w.Write([]byte("first\nsecond"))
		_ = w.Close()
	}()
	if line, err := in.Line(t.Context()); line != "first" || err != nil {
		t.Errorf("Line: got %q, %v", line, err)
	}
	c = terraform.Command{Path: script(t, `cat`), Stdin: in, Stdout: &out}
	if _, err := c.Run(t.Context()); err != nil || out.String() != "second" {
		t.Errorf("the next command read %q, %v", out.String(), err)
	}
	if _, err := in.Line(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := terraform.NewInput(strings.NewReader("x")).Line(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: got %v", err)
	}
}

// watched tells when a text was written to it.
type watched struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	wake chan string
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(b)
	w.wake <- string(b)
	return len(b), nil
}

func TestInterrupts(t *testing.T) {
	// the child of a shell that waits cannot be interrupted alone
	polite := `trap 'n=$((n+1)); echo "interrupt $n"; [ $n = 2 ] && exit 3' INT; n=0; echo ready; while :; do sleep 0.01; done`
	for name, c := range map[string]struct {
		body    string
		signals int
		ctx     bool
		code    int
		killed  bool
		said    string

		terminal bool
	}{
		"the context ends": {body: `trap 'echo bye; exit 1' INT; echo ready; while :; do sleep 0.01; done`, ctx: true, code: 1, said: "bye"},
		"twice":            {body: polite, signals: 2, code: 3, said: "interrupt 2"},
		// what the terminal has sent to both is not sent again; others are
		"at a terminal": {body: polite, signals: 2, code: 3, said: "interrupt 2", terminal: true},
		"three times":   {body: `trap 'echo no' INT; echo ready; while :; do sleep 0.01; done`, signals: 3, killed: true, said: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			out := &watched{wake: make(chan string, 100)}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd := terraform.Command{Path: script(t, c.body), Stdout: out, Terminal: c.terminal}
			interrupts := make(chan os.Signal)
			if !c.ctx {
				cmd.Interrupts = interrupts
			}
			go func() {
				for i := 0; ; i++ {
					<-out.wake
					switch {
					case c.ctx:
						cancel()
					case i < c.signals && c.terminal:
						interrupts <- os.Interrupt
						interrupts <- os.Interrupt
						interrupts <- syscall.SIGTERM
					case i < c.signals:
						interrupts <- os.Interrupt
					}
				}
			}()
			code, err := cmd.Run(ctx)
			if code != c.code || (err != nil) != c.killed || !strings.Contains(out.buf.String(), c.said) {
				t.Errorf("got exit %d, %v\n%s", code, err, out.buf.String())
			}
		})
	}
}
