package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"

	"kl/client"
	"kl/fault"
	"kl/terraform"
	"kl/wire"
)

// inRun is the client at work in a run of the server: it sees the state as the
// run does, and what it writes is merged into the state at once.
type inRun struct {
	*tfRun
	as     *client.Client // whose credentials the run and the client use
	at     terraform.At   // but for the address
	scope  *terraform.Scope
	tool   string // the client's name and version
	reason string
	// deadline is until when others are waited for.
	deadline time.Time
	run      wire.Run
	scratch  *terraform.Scratch
	planned  *terraform.Plan
	verdict  *verdict
	tell     *progress

	passed chan os.Signal // interrupts for the client
	done   chan struct{}  // closed when all is over
	beats  sync.WaitGroup
	mu     sync.Mutex
	lost   error // why the run is over, when others have ended it
}

// maxBeat is the longest time between two signs of life, and so the longest
// that a run which others have aborted goes on unaware.
const maxBeat = 15 * time.Second

// newInRun begins a run and makes the client ready in it. Where err is nil the
// caller calls end and then close.
func (a *app) newInRun(ctx context.Context, f terraformFlags, s *scopeFlags, theirs []string, reason string, wait time.Duration) (_ *inRun, err error) {
	tf, err := a.newRun(ctx, f, theirs)
	if err != nil {
		return nil, err
	}
	r := &inRun{
		tfRun: tf, reason: reason, deadline: a.env.Now().Add(wait), done: make(chan struct{}),
		tell: &progress{w: a.env.Stderr, live: terminal(a.env.Stderr) && !a.asJSON},
	}
	defer func() {
		if err != nil {
			err = r.end(ctx, err)
			r.close()
		}
	}()
	if r.trouble != nil {
		return nil, r.trouble
	}
	r.opts = s.takeTargets(r.opts)
	for _, no := range []string{"out", "state", "state-out", "backup"} {
		if _, o := take(r.opts, no); o != nil {
			return nil, fault.New(fault.ParameterInvalid, "terraform's option -%s does not go with a run, which has a plan and a state of its own", no).
				WithNext("leave it out")
		}
	}
	if r.tool, err = r.version(ctx); err != nil {
		return nil, err
	}
	if r.scope, err = s.resolve(a, isTofu(r.tool)); err != nil {
		return nil, err
	}
	if err := terraform.CheckBackend(a.env.Dir); err != nil {
		return nil, err
	}
	if err := r.credentials(ctx); err != nil {
		return nil, err
	}
	r.relay(ctx)
	return r, r.begin(ctx)
}

// credentials finds those that can own a run: a run is written to as a state
// is, for which a control token is not enough.
func (r *inRun) credentials(ctx context.Context) error {
	t := r.target
	if _, err := t.dataRef(ctx); err != nil {
		return err
	}
	r.as, r.at = t.Client, terraform.At{Username: t.username, Password: t.password}
	if t.username != "" && t.password != "" {
		r.as = t.WithoutBearer()
	} else {
		r.at = terraform.At{Username: t.workspace, Password: cmp.Or(t.password, t.token)}
	}
	if file := r.app.flags.caFile; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return fault.Wrap(fault.ParameterInvalid, err, "the certificate file %s cannot be read", file)
		}
		r.at.CA = string(pem)
	}
	return nil
}

// relay passes interrupts on to the client; the second one also aborts the run,
// so that nothing of it is waited for.
func (r *inRun) relay(ctx context.Context) {
	came := r.command.Interrupts
	r.passed = make(chan os.Signal, 4)
	r.command.Interrupts = r.passed
	r.beats.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-r.done:
				return
			case sig := <-came:
				r.pass(sig)
			}
			switch n {
			case 1:
				r.tell.say("interrupted: the client may end in order; once more aborts the run")
			case 2:
				asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
				_, err := r.as.AbortRun(asked, r.target.environment, r.target.state, r.runID(), "interrupted twice")
				cancel()
				if err == nil {
					r.tell.say("the run %s is aborted", r.runID())
				}
			}
		}
	})
}

func (r *inRun) pass(sig os.Signal) {
	select {
	case r.passed <- sig:
	default: // it has got more than it looks at
	}
}

func (r *inRun) runID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run.ID
}

// setRun notes what the server says of the run.
func (r *inRun) setRun(run wire.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run = run
}

// begin starts a run, and readies a data directory that points the client at it.
func (r *inRun) begin(ctx context.Context) error {
	run, err := r.startRun(ctx)
	if err != nil {
		return err
	}
	r.setRun(run)
	// others may use the same credentials, and be refused what this run has
	r.refused = func(ctx context.Context) (wire.Request, error) { return r.as.LastRequestIn(ctx, run.ID) }
	r.beat(ctx, run)
	at := r.at
	at.Address = r.as.Base() + run.StatePath
	if r.scratch, err = terraform.NewScratch(r.app.env.Dir, os.Environ(), at); err != nil {
		return err
	}
	_ = os.RemoveAll(r.tmp) // the plan goes where a killed run's is swept up
	r.tmp, r.command.Env, r.command.Hold = r.scratch.Dir, r.scratch.Env, r.scratch.Owner
	r.tell.set("run %s on %s: terraform init", run.ID, onVersion(run))
	var out bytes.Buffer
	c := r.command
	c.Stdout = &out
	code, err := c.Run(ctx, r.scratch.InitArgs()...)
	if err == nil && code != 0 {
		_, _ = r.tell.over(r.app.env.Stderr).Write(out.Bytes())
		err = r.explain(ctx, "init")
	}
	return err
}

// startRun starts a run. Of a state that has no version yet there can only be
// one, which the others wait for.
func (r *inRun) startRun(ctx context.Context) (wire.Run, error) {
	t := r.target
	for {
		run, err := r.as.StartRun(ctx, t.environment, t.state, wire.RunRequest{Actor: actor(), Reason: r.reason})
		if !fault.Is(err, fault.ReservedConflict) || !r.app.env.Now().Before(r.deadline) {
			return run, err
		}
		r.tell.set("waiting: %s", err)
		if err := pause(ctx, time.Second); err != nil {
			return run, err
		}
	}
}

func onVersion(r wire.Run) string {
	if r.BaseVersion == 0 {
		return "a state without a version"
	}
	return fmt.Sprintf("version %d", r.BaseVersion)
}

// actor names the person as Terraform does in locks.
func actor() string {
	name, host := "somebody", "somewhere"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// beat keeps the run alive until it is over. A run that others have ended stops
// the client, which could write nothing more.
func (r *inRun) beat(ctx context.Context, run wire.Run) {
	every := maxBeat
	if third := time.Duration(run.Lease) / 3; third > 0 {
		every = min(every, third)
	}
	r.beats.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-r.done:
				return
			case <-tick.C:
			}
			if r.runID() != run.ID {
				return // it was begun anew
			}
			asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
			_, err := r.as.RenewRun(asked, run.Environment, run.State, run.ID, wire.RunRenewal{})
			cancel()
			if fault.Is(err, fault.ReservedConflict) {
				r.mu.Lock()
				mine := r.run.ID == run.ID
				if mine {
					r.lost = err
				}
				r.mu.Unlock()
				if mine {
					r.tell.say("%s; the client is told to stop", err)
					r.pass(os.Interrupt)
				}
				return
			}
		}
	})
}

// end ends the run as err says, and returns err, or what kept it from ending.
func (r *inRun) end(ctx context.Context, err error) error {
	select {
	case <-r.done:
		return err // it has ended already
	default:
	}
	close(r.done)
	r.beats.Wait()
	r.tell.end()
	if r.run.ID != "" && r.lost == nil {
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
		run, err2 := r.as.FinishRun(asked, r.target.environment, r.target.state, r.run.ID, ending(ctx, err))
		cancel()
		switch {
		case err2 == nil:
			r.run = run
		case err == nil:
			err = err2
		case !fault.Is(err2, fault.ReservedConflict): // it was aborted, and err tells why
			r.app.note("the run %s could not be ended and lasts until its lease does: %s", r.run.ID, err2)
		}
	}
	if r.scratch != nil {
		err = errors.Join(err, r.scratch.Close())
	}
	if lost := r.lost; lost != nil && err != nil && !fault.Is(err, fault.ReservedConflict) {
		return lost // else err tells of the write that was refused for it
	}
	return err
}

// ending is how a run ends that ended with err.
func ending(ctx context.Context, err error) wire.RunEnd {
	var status exitStatus
	switch {
	case err == nil, errors.As(err, &status):
		return wire.RunEnd{Status: wire.RunFinished}
	case ctx.Err() != nil:
		return wire.RunEnd{Status: wire.RunFailed, Reason: "interrupted"}
	}
	why := err.Error()
	if e := fault.Of(err); e != nil {
		why = e.Detail
	}
	if len(why) > 200 {
		why = strings.ToValidUTF8(why[:200], "") + "…"
	}
	return wire.RunEnd{Status: wire.RunFailed, Reason: why}
}

// makePlan plans in the run, reads the plan and judges it.
func (r *inRun) makePlan(ctx context.Context) error {
	r.tell.set("run %s on %s: planning", r.run.ID, onVersion(r.run))
	r.tell.end() // the client may ask
	args := targetArgs(r.scope)
	opts, _ := take(r.opts, "detailed-exitcode", "auto-approve")
	v, err := r.plan(ctx, "", append(args, join(opts)...))
	if err != nil {
		return err
	}
	file, err := os.ReadFile(r.planFile())
	if err != nil {
		return fmt.Errorf("read the saved plan: %w", err)
	}
	view, err := r.view(ctx)
	if err != nil {
		return err
	}
	if r.planned, err = terraform.ReadPlan(r.shown, file, view); err != nil {
		return err
	}
	if r.planned.Errored {
		return fault.New(fault.ParameterInvalid, "the plan is only a part: planning failed")
	}
	v.State, r.verdict, r.shown = r.target.state, v, nil
	return nil
}

// view reads the state that the run sees; nil when there is none.
func (r *inRun) view(ctx context.Context) ([]byte, error) {
	b, err := r.as.RunView(ctx, r.run)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }()
	return io.ReadAll(b)
}
