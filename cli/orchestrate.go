package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/terraform"
	"kl/wire"
)

// maxReplans is how often a plan is made again because others have changed what
// it relies on; with its reservation held nobody can from the second time on.
const maxReplans = 10

// planInRun is kl plan of a part: made in a run, so that it can be applied
// later, beside others.
func (a *app) planInRun(cmd *cobra.Command, f terraformFlags, s scopeFlags, out string, theirs []string) (err error) {
	ctx := cmd.Context()
	opts := optionsOf(theirs)
	if _, operand := take(opts, ""); operand != nil {
		return usage(cmd, "kl plan takes no argument %q", operand.value)
	}
	r, err := a.newInRun(ctx, f, &s, theirs, "kl plan", 0)
	if err != nil {
		return err
	}
	defer r.close()
	defer func() { err = r.end(ctx, err) }()
	if err := r.makePlan(ctx); err != nil {
		return err
	}
	sp := r.spec(&s)
	if out != "" {
		if err := sp.write(out); err != nil {
			return err
		}
	}
	if a.asJSON {
		if err := a.printJSON(sp); err != nil {
			return err
		}
	} else if err := cmp.Or(a.printf("%s", r.summary()), r.show(r.verdict)); err != nil {
		return err
	}
	if e := outsideErr(outside(r.scope, r.planned)); e != nil {
		a.note("warning: %s; kl apply would refuse that", e)
	}
	if out != "" {
		a.note("the spec is in %s; apply it with: kl apply --orchestrated %s", out, out)
	}
	if err := r.verdict.err(); err != nil {
		return err
	}
	if _, detailed := take(r.opts, "detailed-exitcode"); detailed.on() && r.verdict.Changes {
		return exitStatus(ExitConflict)
	}
	return nil
}

// applied is the answer of kl apply --orchestrated --json.
type applied struct {
	Run     wire.Run           `json:"run"`
	Changes []terraform.Change `json:"changes"`
	Quota   *wire.QuotaCheck   `json:"quota"`
}

// applyInRun is kl apply --orchestrated.
func (a *app) applyInRun(cmd *cobra.Command, f applyFlags, theirs []string) (err error) {
	ctx := cmd.Context()
	s := f.scope
	sp, theirs, err := takeSpec(cmd, &s, theirs)
	if err != nil {
		return err
	}
	if f.wait < 0 {
		return usage(cmd, "--wait must not be negative")
	}
	r, err := a.newInRun(ctx, f.terraformFlags, &s, theirs, "kl apply", f.wait)
	if err != nil {
		return err
	}
	defer r.close()
	err = r.end(ctx, r.apply(ctx, f, sp))
	if err == nil && a.asJSON {
		return a.printJSON(applied{r.run, r.planned.Changes, r.verdict.Quota})
	}
	if err == nil {
		r.report()
	}
	return err
}

// takeSpec reads the spec, if one is named, and makes its scope and options
// those of the command.
func takeSpec(cmd *cobra.Command, s *scopeFlags, theirs []string) (*spec, []string, error) {
	opts, operand, err := takeOperand(cmd, optionsOf(theirs))
	if err != nil {
		return nil, nil, err
	}
	var files []string
	if operand != nil {
		files = append(files, operand.value)
	}
	s.files = slices.DeleteFunc(slices.Clone(s.files), func(file string) bool {
		if isSpec(file) {
			files = append(files, file)
		}
		return isSpec(file)
	})
	switch {
	case len(files) == 0:
		return nil, theirs, nil
	case len(files) > 1 || s.any():
		return nil, nil, usage(cmd, "a spec says itself what it is about: name it alone, without -f and --target")
	}
	sp, err := readSpec(files[0])
	if err != nil {
		return nil, nil, err
	}
	s.targets = sp.Scope
	return sp, append(slices.Clone(sp.Args), join(opts)...), nil
}

// apply plans, reserves and applies.
func (r *inRun) apply(ctx context.Context, f applyFlags, sp *spec) error {
	if sp != nil {
		if err := sp.applies(r.target, r.as.Base()); err != nil {
			return err
		}
	}
	_, approve := take(r.opts, "auto-approve")
	yes := f.yes || approve.on()
	r.confirms = !yes
	agreed := map[terraform.Change]bool{}
	for range maxReplans {
		if err := r.makePlan(ctx); err != nil {
			return err
		}
		if err := r.mayApply(ctx, sp, yes, agreed); err != nil || !r.verdict.Changes {
			return err
		}
		ready, err := r.reserve(ctx)
		if err != nil {
			return err
		}
		if ready {
			return r.applyPlan(ctx)
		}
	}
	return fault.New(fault.OverlapConflict, "others change what the plan relies on faster than it can be made (tried %d times)", maxReplans).
		WithNext("run it again")
}

// mayApply judges a plan before anything is reserved, and asks where something
// would be destroyed that nobody has agreed to yet.
func (r *inRun) mayApply(ctx context.Context, sp *spec, yes bool, agreed map[terraform.Change]bool) error {
	if !r.verdict.Changes {
		return nil
	}
	if !r.app.asJSON {
		if err := r.show(r.verdict); err != nil {
			return err
		}
	}
	if err := r.verdict.err(); err != nil {
		return notApplied(err)
	}
	if sp != nil {
		if err := sp.permits(r.planned); err != nil {
			return notApplied(err)
		}
	}
	if err := outsideErr(outside(r.scope, r.planned)); err != nil {
		return notApplied(err)
	}
	var ends []terraform.Change
	for _, c := range r.planned.Changes {
		switch {
		case agreed[c]:
		case c.Destroys():
			ends = append(ends, c)
		case !r.scope.Contains(c.Scope()):
			r.app.note("note: the plan would also %s, which what was named depends on", c)
			agreed[c] = true
		}
	}
	if len(ends) > 0 && !yes {
		r.app.note("\nThese would be destroyed or replaced in the state %s:\n%s", r.target.state, changeLines(ends))
		if err := r.confirm(ctx, "Do you want that?"); err != nil {
			return err
		}
	}
	for _, c := range ends {
		agreed[c] = true
	}
	return nil
}

func changeLines(list []terraform.Change) string {
	var b strings.Builder
	for _, c := range list {
		b.WriteString("  " + c.String() + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// reserve reserves what the plan writes and relies on. False means that others
// have changed some of it since the run looked: the run now sees that, and the
// plan has to be made again.
func (r *inRun) reserve(ctx context.Context) (ready bool, err error) {
	if len(r.planned.Write)+len(r.planned.Read) == 0 {
		return true, nil // outputs alone, which nobody reserves
	}
	for first := true; ; first = false {
		asked := r.app.env.Now()
		left := max(r.deadline.Sub(asked), 0)
		q := wire.ReserveRequest{WriteSet: r.planned.Write, ReadSet: r.planned.Read}
		if !first { // the first answer comes at once, so that the user knows who is in the way
			q.Wait = wire.Duration(left)
		}
		run, err := r.as.Reserve(ctx, r.target.environment, r.target.state, r.run.ID, q)
		if err == nil {
			return r.reserved(ctx, run)
		}
		away := fault.ClassOf(err) == fault.Unavailable // a server that restarts knows the run again
		if !away && !waits(err) || left == 0 {
			return false, notApplied(err)
		}
		if !away && r.run.Status != wire.RunPlanning {
			return false, r.beginAgain(ctx)
		}
		r.tell.set("%s", ahead(err))
		if first {
			continue
		}
		// a server that answers at once is not asked without a pause
		if err := pause(ctx, time.Second-r.app.env.Now().Sub(asked)); err != nil {
			return false, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(0, d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// reserved looks whether the plan still stands, now that nobody can change what
// it is about.
func (r *inRun) reserved(ctx context.Context, run wire.Run) (ready bool, err error) {
	r.setRun(run)
	if !run.BaseMoved {
		r.tell.set("run %s: reserved %s", run.ID, plural(int64(len(r.planned.Write)), "address", "addresses"))
		return true, nil
	}
	r.tell.say("run %s: others have changed %s meanwhile: planning again", run.ID, someOf(run.Moved))
	if run, err = r.as.RebaseRun(ctx, run.Environment, run.State, run.ID); err == nil {
		r.setRun(run)
	}
	return false, err
}

// beginAgain ends the run, which holds something and so must not wait for more,
// and begins another that can wait for all of it.
func (r *inRun) beginAgain(ctx context.Context) error {
	r.tell.say("run %s: the new plan needs what others hold; all that was reserved is given back, to wait for it", r.run.ID)
	_, err := r.as.FinishRun(ctx, r.target.environment, r.target.state, r.run.ID, wire.RunEnd{Status: wire.RunFailed, Reason: "begun again, to wait for what others hold"})
	if err != nil {
		return err
	}
	r.setRun(wire.Run{})
	if err := r.scratch.Close(); err != nil {
		return err
	}
	return r.begin(ctx)
}

// blockers are the runs that a refusal names.
func blockers(err error) (runs []wire.RunBlock) {
	e := fault.Of(err)
	if e == nil {
		return nil
	}
	b, _ := json.Marshal(e.Details["blocking_runs"]) // it came as JSON
	_ = json.Unmarshal(b, &runs)
	return runs
}

// waits reports whether a refusal is one that ends by itself.
func waits(err error) bool {
	if !fault.Is(err, fault.ReservedConflict) {
		return false
	}
	e := fault.Of(err)
	return len(blockers(err)) > 0 || e.Details["ID"] != nil // of the holder of a lock
}

// ahead tells who is waited for.
func ahead(err error) string {
	e := fault.Of(err)
	place := ""
	if n, ok := e.Details["queue_position"].(float64); ok {
		place = fmt.Sprintf(" (place %d in the queue)", int(n))
	}
	runs := blockers(err)
	if len(runs) == 0 {
		return "waiting" + place + ": " + e.Detail
	}
	var who []string
	for _, b := range runs[:min(len(runs), 3)] {
		verb := "holds"
		if b.Waiting {
			verb = "is in front for"
		}
		who = append(who, fmt.Sprintf("run %s of %s %s %s since %s", b.RunID, b.Actor, verb, someOf(b.Addresses), when(b.Since)))
	}
	if more := len(runs) - 3; more > 0 {
		who = append(who, plural(int64(more), "other run", "other runs"))
	}
	return "waiting" + place + ": " + strings.Join(who, "; ") + "; if its owner is gone: kl apply abort --apply-id " + runs[0].RunID
}

// announce tells the server that the apply begins, for those who look at the
// run. What it cannot tell does not stop it, but a run that has been ended
// could write nothing of what it builds.
func (r *inRun) announce(ctx context.Context) error {
	run, err := r.as.RenewRun(ctx, r.target.environment, r.target.state, r.run.ID, wire.RunRenewal{Status: wire.RunApplying})
	switch {
	case err == nil:
		r.setRun(run)
	case fault.Is(err, fault.ReservedConflict):
		return notApplied(err)
	}
	return ctx.Err()
}

// applyPlan applies the saved plan.
func (r *inRun) applyPlan(ctx context.Context) error {
	total := 0
	for _, c := range r.planned.Changes {
		switch c.Action {
		case terraform.Replace:
			total += 2
		case terraform.Create, terraform.Update, terraform.Delete, terraform.Import:
			total++
		}
	}
	if err := r.announce(ctx); err != nil {
		return err
	}
	r.tell.set("%s", applying(r.run.ID, 0, total))
	c := r.command
	stdout, err := r.follow("stdout", &counting{p: r.tell, w: r.tell.over(c.Stdout), run: r.run.ID, total: total})
	if err != nil {
		return err
	}
	defer stdout.stop()
	stderr, err := r.follow("stderr", r.tell.over(c.Stderr))
	if err != nil {
		return err
	}
	defer stderr.stop()
	c.Stdout, c.Stderr = stdout.file, stderr.file
	code, err := r.tfRun.run(ctx, c, r.applyArgs(r.opts, r.planFile())...)
	stdout.stop()
	stderr.stop()
	if err == nil && code != 0 {
		err = fmt.Errorf("%s apply ended with exit code %d", filepath.Base(c.Path), code)
	}
	return r.kept(err)
}

// kept tells where what was built is, when the server has refused to store it.
func (r *inRun) kept(err error) error {
	e := fault.Of(err)
	if e == nil {
		return err
	}
	id, _ := e.Details["refused_write"].(string)
	if id == "" || strings.Contains(e.Next, "kl recover") {
		return err
	}
	told := *e
	return told.WithNext("what was built and could not be stored is kept: kl recover show %s --state %s; bring it in with: kl recover merge %s --state %s", id, r.target.state, id, r.target.state)
}

// report tells what came of it.
func (r *inRun) report() {
	switch {
	case !r.verdict.Changes:
		r.app.note("run %s: nothing to do", r.run.ID)
	case r.run.LastVersion == 0:
		r.app.note("run %s: done, and the state needed no new version", r.run.ID)
	default:
		r.app.note("run %s: done; its last write is version %d of %s (%s)", r.run.ID, r.run.LastVersion, r.target.state, plural(r.run.Checkpoints, "write", "writes"))
	}
}
