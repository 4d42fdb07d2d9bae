package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kl/scripts/rig"
	"kl/wire"
)

//go:embed config/main.tf
var configuration string

// says is what every client prints when it has to wait for a lock
// (internal/command/clistate, Terraform 1.11).
const says = "Acquiring state lock. This may take a few moments"

// contest is one run of the experiment.
type contest struct {
	*run
	place     place
	terraform string
	helper    string // this program
	gates     string // folder of markers and releases
	longest   time.Duration
	stdout    io.Writer
	clients   []*clientProcess
}

// clientProcess is a client that was started, and where.
type clientProcess struct {
	*rig.Process
	directory string
}

// contend runs all steps on one backend, and ends every process that it started.
func contend(ctx context.Context, o options, backend, parent string) (_ *run, err error) {
	r := &run{Backend: backend, Directories: []string{}, Steps: []step{}, Processes: []processFacts{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", backend, err)
			r.Error = err.Error()
			r.OK = false
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, o.deadline, fmt.Errorf("the deadline of %s is over", o.deadline))
	defer cancel()
	folder := filepath.Join(parent, backend)
	c := &contest{run: r, terraform: o.terraform, gates: filepath.Join(folder, "gates"), longest: o.deadline, stdout: o.stdout}
	if err := os.MkdirAll(c.gates, 0o700); err != nil {
		return r, err
	}
	if c.helper, err = os.Executable(); err != nil {
		return r, err
	}
	if c.place, err = newPlace(ctx, backend, folder); err != nil {
		return r, err
	}
	defer func() {
		for _, p := range c.clients {
			err = errors.Join(err, p.Kill())
		}
		c.account()
		err = errors.Join(err, c.place.close(ctx))
	}()
	return r, c.play(ctx, folder)
}

// play goes through the steps in their order.
func (c *contest) play(ctx context.Context, folder string) error {
	first, err := c.directory(ctx, folder, "first")
	if err != nil {
		return err
	}
	second, err := c.directory(ctx, folder, "second")
	if err != nil {
		return err
	}
	// something to be replaced has to be there
	if err := c.gate("one").open(); err != nil {
		return err
	}
	if err := c.must(ctx, first, "apply", "-auto-approve", "-var", "round=one"); err != nil {
		return err
	}
	h, err := c.holding(ctx, first, "two")
	if err != nil {
		return err
	}
	for _, do := range []func(context.Context, *held, string) error{
		c.refused, c.shortWait, c.reading, c.longWait,
	} {
		if err := do(ctx, h, second); err != nil {
			return err
		}
	}
	if err := c.end(ctx, first, second); err != nil {
		return err
	}
	if p, ok := c.place.(*klPlace); ok {
		return c.playQueue(ctx, p, h, folder, first, second)
	}
	return nil
}

// held is an apply that stands at its gate with the lock in its hand.
type held struct {
	apply *clientProcess
	gate  gate
	lock  lockFacts
}

// holding starts the first apply and looks at its lock.
func (c *contest) holding(ctx context.Context, dir, round string) (*held, error) {
	h := &held{gate: c.gate(round)}
	var err error
	if h.apply, err = c.start(dir, "apply", "-auto-approve", "-var", "round="+round); err != nil {
		return nil, err
	}
	if err := rig.AwaitFile(ctx, h.gate.begun(), h.apply.Process); err != nil {
		return nil, err
	}
	active := activeFacts{MarkerSeen: h.gate.seen(), ProcessAlive: h.apply.Alive(), Resource: "terraform_data.work"}
	c.step("first_apply_active", "the first apply is at work: its resource has begun and is not done",
		active.MarkerSeen && active.ProcessAlive, active)

	err = rig.Await(ctx, "the lock information", func() (bool, error) {
		l, err := c.place.lock(ctx)
		if l == nil {
			return false, err
		}
		h.lock = *l
		return true, err
	})
	if err != nil {
		return nil, err
	}
	c.step("lock_information", "the lock tells its id, the client's version and the operation",
		h.lock.ID != "" && h.lock.Version != "" && h.lock.Operation != "", h.lock)
	return h, nil
}

// refused plans in the second directory and compares the state's bytes.
func (c *contest) refused(ctx context.Context, h *held, second string) error {
	before, err := c.place.bytes(ctx)
	if err != nil {
		return err
	}
	r, err := c.client(ctx, second, "plan", "-var", "round=two")
	if err != nil {
		return err
	}
	after, err := c.place.bytes(ctx)
	if err != nil {
		return err
	}
	f := refusal(r, h)
	c.step("second_plan_refused", "the second directory's plan is refused and names the lock of the first",
		f.ExitCode == 1 && f.NamesHolder, f)
	b := bytesFacts{SHA256Before: sum(before), SHA256After: sum(after), Bytes: len(after)}
	b.Identical = b.SHA256Before == b.SHA256After
	c.step("state_unchanged", "the refused attempt has not changed a byte of the state", b.Identical, b)
	return nil
}

// shortWait gives up after a second; the holder does not notice.
func (c *contest) shortWait(ctx context.Context, h *held, second string) error {
	const timeout = "1s"
	began := time.Now()
	r, err := c.client(ctx, second, "plan", "-var", "round=two", "-lock-timeout="+timeout)
	if err != nil {
		return err
	}
	took := time.Since(began)
	l, err := c.place.lock(ctx)
	if err != nil {
		return err
	}
	f := shortWaitFacts{
		refusedFacts: refusal(r, h), LockTimeout: timeout, Took: milliseconds(took),
		HolderAlive: h.apply.Alive(), ReleaseAsked: h.gate.released(), LockUnchanged: l != nil && l.ID == h.lock.ID,
	}
	c.step("short_wait_ends", "a waiter's timeout ends the waiter alone: the holder lives, its lock stands, nobody has asked for its release",
		f.ExitCode == 1 && f.NamesHolder && took >= time.Second && f.HolderAlive && !f.ReleaseAsked && f.LockUnchanged, f)
	return nil
}

// reading lists the state's resources while the apply stands.
func (c *contest) reading(ctx context.Context, h *held, second string) error {
	r, err := c.client(ctx, second, "state", "list")
	if err != nil {
		return err
	}
	f := readingFacts{
		ExitCode: r.Code, Resources: strings.Fields(r.Stdout), HolderAlive: h.apply.Alive(),
		Remark: "It proves that a lock does not keep anybody from reading. It does not prove what exists: what the apply has made or destroyed since its last write is not in the list.",
	}
	c.step("state_readable", "while the apply stands the state can be read", f.ExitCode == 0 && f.HolderAlive, f)
	return nil
}

// longWait lets a plan wait, sees it wait, and asks for the holder's release.
func (c *contest) longWait(ctx context.Context, h *held, second string) error {
	f := longWaitFacts{LockTimeout: c.longest.String()}
	began := time.Now()
	waiter, err := c.start(second, "plan", "-var", "round=two", "-detailed-exitcode", "-lock-timeout="+f.LockTimeout)
	if err != nil {
		return err
	}
	err = rig.Await(ctx, "the plan to wait", func() (bool, error) {
		f.BothAlive = waiter.Alive() && h.apply.Alive()
		f.SaidItWaits = strings.Contains(waiter.Out.String(), says)
		if !f.BothAlive {
			return false, fmt.Errorf("one of the two has ended:\n%s\n%s", h.apply.Out.String(), waiter.Out.String())
		}
		p, ok := c.place.(*klPlace)
		if !ok {
			return f.SaidItWaits, nil
		}
		l, err := p.show(ctx)
		// the place of the waiter that gave up before may still be kept
		f.Queue = slices.DeleteFunc(l.Queue, func(w wire.Waiter) bool { return w.Since.Before(began) })
		return f.SaidItWaits && len(f.Queue) == 1, err
	})
	if err != nil {
		return err
	}
	f.ReleasedAt = time.Now().UTC()
	if err := h.gate.open(); err != nil {
		return err
	}
	if f.HolderExitCode, err = h.apply.Wait(ctx); err != nil {
		return err
	}
	if f.WaiterExitCode, err = waiter.Wait(ctx); err != nil {
		return err
	}
	f.HolderEndedAt, f.WaiterEndedAt = h.apply.Ended.UTC(), waiter.Ended.UTC()
	f.NoOp = f.WaiterExitCode == 0 // 2 of -detailed-exitcode would be a change
	c.step("long_wait_goes_on", "a plan that waits longer goes on after the first apply has ended, and finds nothing to do",
		f.SaidItWaits && f.BothAlive && f.HolderExitCode == 0 && f.NoOp && f.WaiterEndedAt.After(f.ReleasedAt), f)
	return nil
}

// end compares what both directories read.
func (c *contest) end(ctx context.Context, first, second string) error {
	var f endFacts
	for dir, into := range map[string][2]*string{first: {&f.FirstID, &f.FirstFinished}, second: {&f.SecondID, &f.SecondFinished}} {
		r, err := c.client(ctx, dir, "output", "-json")
		if err != nil {
			return err
		}
		var outputs struct{ ID, Finished struct{ Value string } }
		if err := json.Unmarshal([]byte(r.Stdout), &outputs); err != nil {
			return fmt.Errorf("terraform output -json in %s: %w\n%s", filepath.Base(dir), err, r.Out)
		}
		*into[0], *into[1] = outputs.ID.Value, outputs.Finished.Value
	}
	l, err := c.place.lock(ctx)
	if err != nil {
		return err
	}
	f.LockGone, f.AllEnded = l == nil, true
	for _, p := range c.clients {
		f.AllEnded = f.AllEnded && !p.Alive()
	}
	c.step("both_read_the_same", "at the end both directories read the same id and finished value, the lock is gone and every process has ended",
		f.FirstID != "" && f.FirstID == f.SecondID && f.FirstFinished == "two is finished" && f.FirstFinished == f.SecondFinished && f.LockGone && f.AllEnded, f)
	return nil
}

// step records a claim and says it to the audience.
func (c *contest) step(id, claim string, holds bool, facts any) {
	c.OK = holds && (c.OK || len(c.Steps) == 0)
	c.Steps = append(c.Steps, step{ID: id, Claim: claim, Holds: holds, At: time.Now().UTC(), Facts: facts})
	mark := "ok  "
	if !holds {
		mark = "FAIL"
	}
	fmt.Fprintf(c.stdout, "%s  %-5s  %s\n", mark, c.Backend, claim)
}

// directory makes a working directory and initializes it.
func (c *contest) directory(ctx context.Context, folder, name string) (string, error) {
	dir := filepath.Join(folder, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	hold, err := json.Marshal(map[string]any{"hold": []string{c.helper, holdVerb, c.gates, c.longest.String()}})
	if err != nil {
		return "", err
	}
	for file, text := range map[string]string{"main.tf": configuration, "backend.tf": c.place.block(), "hold.auto.tfvars.json": string(hold)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	c.Directories = append(c.Directories, dir)
	return dir, c.must(ctx, dir, "init")
}

func (c *contest) gate(round string) gate { return gate{folder: c.gates, round: round} }

// start runs the client in a directory, beside this program.
func (c *contest) start(dir, verb string, args ...string) (*clientProcess, error) {
	args = append([]string{verb}, args...)
	if verb == "init" || verb == "plan" || verb == "apply" {
		args = append(args, "-no-color", "-input=false")
	}
	p, err := rig.Start(dir, append(rig.CleanEnv(filepath.Dir(dir)), c.place.env()...), c.terraform, args...)
	if err != nil {
		return nil, err
	}
	cp := &clientProcess{p, dir}
	c.clients = append(c.clients, cp)
	return cp, nil
}

// client runs the client to its end.
func (c *contest) client(ctx context.Context, dir, verb string, args ...string) (rig.Result, error) {
	p, err := c.start(dir, verb, args...)
	if err != nil {
		return rig.Result{}, err
	}
	code, err := p.Wait(ctx)
	return rig.Result{Code: code, Out: p.Out.String(), Stdout: p.Stdout.String()}, err
}

// must runs the client and demands that it succeeds.
func (c *contest) must(ctx context.Context, dir, verb string, args ...string) error {
	r, err := c.client(ctx, dir, verb, args...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("terraform %s in %s: exit code %d\n%s", verb, filepath.Base(dir), r.Code, r.Out)
	}
	return err
}

// account writes down every client that ran, and that none went round a lock.
func (c *contest) account() {
	for _, p := range c.clients {
		f := processFacts{Directory: filepath.Base(p.directory), Command: p.Name, PID: p.PID, StartedAt: p.Started.UTC(), Running: p.Alive()}
		if code, err := p.Wait(context.Background()); err == nil {
			f.ExitCode, f.EndedAt = code, p.Ended.UTC()
		}
		c.Processes = append(c.Processes, f)
		if strings.Contains(p.Name, "force-unlock") {
			c.Unused.ForceUnlock++
		}
		if strings.Contains(p.Name, "-lock=false") {
			c.Unused.LockFalse++
		}
	}
}

// refusal reads a client's screen.
func refusal(r rig.Result, h *held) refusedFacts {
	f := refusedFacts{ExitCode: r.Code, LockID: h.lock.ID, NamesHolder: strings.Contains(r.Out, h.lock.ID)}
	for line := range strings.Lines(r.Out) {
		line = strings.Trim(line, "│╷╵ \n")
		if strings.HasPrefix(line, "Error") || strings.Contains(line, h.lock.ID) {
			f.Says += line + "\n"
		}
	}
	return f
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func milliseconds(d time.Duration) string { return d.Round(time.Millisecond).String() }
