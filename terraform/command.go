package terraform

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"kl/fault"
)

// maxOutput bounds what Output keeps of a command's answer. The JSON of a plan
// is the longest, at some ten times the size of the state.
const maxOutput = 4 << 30

// killDelay is how long a client that was interrupted twice may take to end.
// Terraform itself gives up waiting for providers after five seconds then.
const killDelay = 15 * time.Second

// Find returns the path of the client to run: name when it is not "", as
// --terraform-bin gives it, else what KL_TERRAFORM names, else terraform, else
// tofu. The path is absolute, so that it is good in every directory. The code of
// a failure is parameter_invalid.
func Find(name string, getenv func(string) string) (string, error) {
	if name = cmp.Or(name, getenv("KL_TERRAFORM")); name != "" {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return "", fault.Wrap(fault.ParameterInvalid, err, "the program %s cannot be run", name).
				WithNext("check --terraform-bin (KL_TERRAFORM)")
		}
		return path, nil
	}
	for _, name := range []string{"terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fault.New(fault.ParameterInvalid, "neither terraform nor tofu is in the PATH").
		WithNext("install one of them, or name it with --terraform-bin (KL_TERRAFORM)")
}

// Command runs terraform or tofu in one directory, as a shell would: with its
// own environment and streams. It is a value that may be copied and changed.
//
// A Ctrl-C comes to the client once: it takes a second one for the wish to give
// up at once. At a terminal it comes from there, for the client is in the
// foreground as it must be to ask for anything; everywhere else the client runs
// in a process group of its own, and interrupts are passed on.
type Command struct {
	Path  string   // of the program, from Find
	Dir   string   // where it runs; "" for here
	Chdir string   // its option -chdir, "" for none
	Env   []string // NAME=value; nil for that of this process
	Stdin *Input   // nil for none
	// Terminal says that this process runs at a terminal, which sends its
	// interrupts to the client too; others, such as SIGTERM, are passed on.
	Terminal bool
	// Keyboard is standard input where that is a terminal: the client gets it as
	// it is, in the place of Stdin.
	Keyboard *os.File
	Stdout   io.Writer
	Stderr   io.Writer
	// Hold is a file that the client has open as long as it lives, also when it
	// outlives this process; nil for none. Windows knows no such thing.
	Hold *os.File
	// Interrupts are passed on: the first lets the client end in an orderly
	// way, the second lets it give up, a third kills it. When it is nil the end
	// of the context counts as the first.
	Interrupts <-chan os.Signal
}

// Run runs the client to its end and returns its exit code. An error means that
// it could not be run at all, with the code parameter_invalid, or that it was
// killed; a client that says no is none.
func (c *Command) Run(ctx context.Context, args ...string) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if c.Chdir != "" {
		args = append([]string{"-chdir=" + c.Chdir}, args...)
	}
	cmd := exec.Command(c.Path, args...) //nolint:noctx // its end is asked for, not forced, when the context ends
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, c.Stdout, c.Stderr
	if !c.Terminal {
		ownGroup(cmd)
	}
	if c.Hold != nil {
		cmd.ExtraFiles = []*os.File{c.Hold}
	}
	feed := func(context.Context) {}
	if c.Keyboard != nil {
		cmd.Stdin = c.Keyboard
	} else if c.Stdin != nil {
		w, err := cmd.StdinPipe()
		if err != nil {
			return 0, fmt.Errorf("run %s: %w", c.Path, err)
		}
		feed = func(ctx context.Context) { c.Stdin.copyTo(ctx, w) }
	}
	if err := cmd.Start(); err != nil {
		return 0, fault.Wrap(fault.ParameterInvalid, err, "the program %s cannot be run", c.Path).
			WithNext("check --terraform-bin (KL_TERRAFORM)")
	}
	fed, stop := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	helpers.Go(func() { feed(fed) })
	ended := make(chan struct{})
	helpers.Go(func() { c.interrupt(ctx, cmd.Process, ended) })
	err := cmd.Wait()
	close(ended)
	stop()
	helpers.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	}
	return 0, fmt.Errorf("run %s: %w", c.Path, err)
}

// interrupt passes interrupts on until the process has ended.
func (c *Command) interrupt(ctx context.Context, p *os.Process, ended <-chan struct{}) {
	done := ctx.Done()
	if c.Interrupts != nil {
		done = nil // what ends the context is among the interrupts
	}
	for n := 1; ; n++ {
		select {
		case <-ended:
			return
		case <-done:
			done = nil
		case sig := <-c.Interrupts:
			if c.Terminal && sig == os.Interrupt {
				n-- // it has come to the client as well
				continue
			}
		}
		if n > 2 {
			_ = p.Kill() // it may have ended just now
			return
		}
		_ = p.Signal(os.Interrupt)
		if n == 2 {
			t := time.AfterFunc(killDelay, func() { _ = p.Kill() })
			defer t.Stop()
		}
	}
}

// Output runs the client and returns what it printed to standard output, at
// most 4 GiB, instead of passing it on. What goes to standard error is passed
// on as ever.
func (c *Command) Output(ctx context.Context, args ...string) ([]byte, int, error) {
	var out limited
	quiet := *c
	quiet.Stdin, quiet.Keyboard, quiet.Stdout = nil, nil, &out
	code, err := quiet.Run(ctx, args...)
	if err == nil && out.cut {
		err = fault.New(fault.ParameterInvalid, "%s printed more than %d bytes", c.Path, int64(maxOutput))
	}
	return out.buf.Bytes(), code, err
}

// limited keeps what is written to it, up to maxOutput.
type limited struct {
	buf bytes.Buffer
	cut bool
}

// Write never fails: a client that cannot write would not end in order.
func (l *limited) Write(b []byte) (int, error) {
	if l.cut = l.cut || int64(l.buf.Len())+int64(len(b)) > maxOutput; !l.cut {
		l.buf.Write(b)
	}
	return len(b), nil
}

// Input is standard input shared by several commands and questions, one after
// the other: a command that ends leaves what it has not taken to the next. It
// reads only what somebody waits for.
type Input struct {
	r     io.Reader
	start sync.Once
	want  chan struct{}
	got   chan []byte // closed at the end
	mu    sync.Mutex
	asked bool   // a piece is on its way
	rest  []byte // of a piece of which a line was taken
}

// NewInput makes an Input of r, which nobody else may read from then on.
func NewInput(r io.Reader) *Input {
	return &Input{r: r, want: make(chan struct{}, 1), got: make(chan []byte)}
}

func (in *Input) read() {
	defer close(in.got)
	for range in.want {
		buf := make([]byte, 32<<10)
		n, err := in.r.Read(buf)
		if n > 0 {
			in.got <- buf[:n]
		} else if err == nil {
			in.got <- nil
		}
		if err != nil {
			return
		}
	}
}

// piece waits for the next piece; false at the end of the input or of ctx.
func (in *Input) piece(ctx context.Context) ([]byte, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.rest) > 0 {
		b := in.rest
		in.rest = nil
		return b, true
	}
	if ctx.Err() != nil {
		return nil, false
	}
	in.start.Do(func() { go in.read() })
	if !in.asked {
		select {
		case in.want <- struct{}{}:
		default: // the end was read, got is closed
		}
		in.asked = true
	}
	select {
	case b, ok := <-in.got:
		in.asked = false
		return b, ok
	case <-ctx.Done():
		return nil, false
	}
}

// copyTo feeds w until the input or ctx ends, and closes it.
func (in *Input) copyTo(ctx context.Context, w io.WriteCloser) {
	defer func() { _ = w.Close() }()
	for {
		b, ok := in.piece(ctx)
		if !ok {
			return
		}
		if _, err := w.Write(b); err != nil {
			return // the command has closed its end
		}
	}
}

// Line waits for one line of the input, without its end; at most 64 KiB. io.EOF
// comes when there is none.
func (in *Input) Line(ctx context.Context) (string, error) {
	var line []byte
	for {
		b, ok := in.piece(ctx)
		head, tail, found := bytes.Cut(b, []byte("\n"))
		line = append(line, head...)
		if found {
			in.mu.Lock()
			in.rest = tail
			in.mu.Unlock()
		}
		switch {
		case found, !ok && len(line) > 0 && ctx.Err() == nil, len(line) > 64<<10:
			return string(bytes.TrimSuffix(line, []byte("\r"))), nil
		case !ok:
			return "", cmp.Or(ctx.Err(), io.EOF)
		}
	}
}
