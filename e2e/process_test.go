package e2e

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a program that runs beside the test, in a process group of its
// own, which is killed when the test ends.
type process struct {
	tb   testing.TB
	name string
	cmd  *exec.Cmd
	out  output // both streams, as a terminal would show them
	main output // stdout alone
	done chan struct{}
}

func startProcess(tb testing.TB, dir string, env []string, bin string, args ...string) *process {
	tb.Helper()
	p := &process{tb: tb, name: bin + " " + strings.Join(args, " "), cmd: exec.Command(bin, args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.Stdout, p.cmd.Stderr = tee{&p.out, &p.main}, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = time.Second // children of a killed client may keep its pipes open
	if err := p.cmd.Start(); err != nil {
		tb.Fatalf("%s: %v", p.name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is read from ProcessState
	}()
	tb.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
	})
	return p
}

type tee struct{ a, b *output }

func (t tee) Write(p []byte) (int, error) {
	if n, err := t.a.Write(p); err != nil {
		return n, err
	}
	return t.b.Write(p)
}

// signal sends a signal to the process and its children, as a terminal does.
func (p *process) signal(sig syscall.Signal) {
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		p.tb.Errorf("%s: %v: %v", p.name, sig, err)
	}
}

// kill ends the process at once (its children go on) and waits until it is gone.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Errorf("%s: kill: %v", p.name, err)
	}
	<-p.done
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// wait returns the exit code, -1 for a death by signal. It fails the test when
// the process does not end.
func (p *process) wait(within time.Duration) int {
	p.tb.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.tb.Fatalf("%s does not end; it printed:\n%s", p.name, p.out.String())
		return -1
	}
}

// awaitOutput waits until the process has printed text.
func (p *process) awaitOutput(text string) {
	p.tb.Helper()
	await(p.tb, p.name+" prints "+text, func() bool { return strings.Contains(p.out.String(), text) || !p.running() }, p.out.String)
	if !strings.Contains(p.out.String(), text) {
		p.tb.Fatalf("%s ended without printing %q:\n%s", p.name, text, p.out.String())
	}
}

// result is what a program that has ended left behind.
type result struct {
	code   int
	out    string // both streams
	stdout string
}

func (p *process) result(within time.Duration) result {
	p.tb.Helper()
	code := p.wait(within)
	return result{code: code, out: p.out.String(), stdout: p.main.String()}
}
