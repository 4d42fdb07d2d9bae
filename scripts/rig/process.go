// Package rig runs kl and real clients as processes of their own, for the
// programs under scripts and examples. On a Unix each process has a process
// group of its own, so that nothing is left of it.
package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Output collects what a process prints and can be read meanwhile.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String is what was printed until now.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Process is a program that runs in a process group of its own.
type Process struct {
	Name string // the program and its arguments, without the folder
	PID  int
	// Out is what both streams print, as a terminal shows it; Stdout is the
	// one alone.
	Out, Stdout Output

	Started, Ended time.Time // Ended is valid once Done is closed
	Done           chan struct{}

	cmd *exec.Cmd
}

type tee struct{ a, b *Output }

func (t tee) Write(p []byte) (int, error) {
	_, _ = t.a.Write(p) // a buffer takes everything
	return t.b.Write(p)
}

// Start runs a program in dir with exactly that environment. It goes on until it
// ends by itself or Kill ends it.
func Start(dir string, env []string, bin string, args ...string) (*Process, error) {
	p := &Process{Name: strings.Join(append([]string{filepath.Base(bin)}, args...), " "), Done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), bin, args...)
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.Stdout, p.cmd.Stderr = tee{&p.Out, &p.Stdout}, &p.Out
	ownGroup(p.cmd)
	p.cmd.WaitDelay = time.Second // children of a killed client may keep its pipes open
	p.Started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", p.Name, err)
	}
	p.PID = p.cmd.Process.Pid
	go func() {
		_ = p.cmd.Wait() // the exit code is read from ProcessState
		p.Ended = time.Now()
		close(p.Done)
	}()
	return p, nil
}

// Alive tells whether the process runs. It asks the kernel too, so that it does
// not rest on this program's bookkeeping alone.
func (p *Process) Alive() bool {
	select {
	case <-p.Done:
		return false
	default:
		return there(p.PID)
	}
}

// Wait returns the exit code, -1 for a death by signal, or the context's error.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.Done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s does not end: %w; it printed:\n%s", p.Name, context.Cause(ctx), p.Out.String())
	}
}

// Signal sends a signal to the process and its children, as a terminal does. A
// process that has ended gets none.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := signalGroup(p.cmd.Process, sig); err != nil {
		return fmt.Errorf("%s: %s: %w", p.Name, sig, err)
	}
	return nil
}

// Kill ends the process with its children and waits until it is gone.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.Done
	return err
}

// Result is what a program that has ended left behind.
type Result struct {
	Code   int
	Out    string // both streams
	Stdout string
}

// Run runs a program to its end, and kills it when the context ends before.
func Run(ctx context.Context, dir string, env []string, bin string, args ...string) (Result, error) {
	p, err := Start(dir, env, bin, args...)
	if err != nil {
		return Result{}, err
	}
	code, err := p.Wait(ctx)
	if err != nil {
		return Result{}, errors.Join(err, p.Kill())
	}
	return Result{Code: code, Out: p.Out.String(), Stdout: p.Stdout.String()}, nil
}

// Await waits until cond holds, which it asks every few milliseconds.
func Await(ctx context.Context, what string, cond func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := cond()
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, context.Cause(ctx))
		}
	}
}

// AwaitFile waits until a file is there, and fails as soon as p, which should
// make it, has ended.
func AwaitFile(ctx context.Context, path string, p *Process) error {
	return Await(ctx, "the file "+filepath.Base(path), func() (bool, error) {
		alive := p.Alive() // before the look: it may make the file and end
		if _, err := os.Stat(path); err == nil {
			return true, nil
		}
		if !alive {
			return false, fmt.Errorf("%s has ended:\n%s", p.Name, p.Out.String())
		}
		return false, nil
	})
}

// Flatten takes away how a client wraps and frames its lines, so that a sentence
// can be looked for.
func Flatten(screen string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(screen)), " ")
}
