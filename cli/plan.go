package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/tfstate"
	"kl/wire"
)

// verdict is what is known of a plan: what it does, and whether the quota
// allows it.
type verdict struct {
	State   string             `json:"state,omitempty"`
	Changes bool               `json:"changes"` // of anything, outputs too
	Plan    tfstate.PlanCounts `json:"plan"`
	Quota   *wire.QuotaCheck   `json:"quota"` // null when no check was made
	// Unchecked says why no check was made.
	Unchecked string `json:"unchecked,omitempty"`
	File      string `json:"plan_file,omitempty"` // when it was to be kept

	trouble error // that Unchecked tells of
}

func (a *app) planCmd() *cobra.Command {
	var f terraformFlags
	var s scopeFlags
	var spec string
	cmd := &cobra.Command{
		Use:   "plan [-f FILE]… [--target ADDRESS]… [-o FILE] [TERRAFORM OPTIONS]",
		Short: "Plan with terraform, and tell whether the quota allows it",
		Long: `Run terraform plan (or tofu) in this directory and pass its output through; then count what
the plan would create and destroy and ask the server whether the state and its
environment may hold that many resource instances.

Options of terraform begin with one dash and are passed on: -var, -target, -destroy,
-out=FILE, -chdir=DIR and the rest. What follows -- is passed on as it is.

A plan above a soft limit is warned of; one above a hard limit ends with exit code 4, and
nothing was built yet. When the state's server is not known or does not answer, that is
said, and the exit code tells that no check was made. When terraform fails, what the
server had against it is printed. With -detailed-exitcode a plan with changes ends
with 2, as terraform's does.

With -f or --target only a part is planned: what the files declare, or the addresses, and
what these depend on. It is planned in a run of the server, and what it would change and
what it relies on is listed. -o FILE keeps all that is needed to apply it later, with
kl apply --orchestrated FILE. FILE has the values of -var in it.`,
		Example: "  kl plan\n  kl plan -var region=eu -out=tf.plan\n  kl plan -destroy --json\n  kl plan -f network.tf -o kl-plan.json",
	}
	f.add(cmd)
	s.add(cmd)
	cmd.Flags().StringVarP(&spec, "output", "o", "", "write what is needed to apply the plan later, beside others, to this file")
	return a.online(a.passing(cmd, func(cmd *cobra.Command, theirs []string) error {
		if s.any() || spec != "" {
			return a.planInRun(cmd, f, s, spec, theirs)
		}
		r, err := a.newRun(cmd.Context(), f, theirs)
		if err != nil {
			return err
		}
		defer r.close()
		opts, detailed := take(r.opts, "detailed-exitcode")
		opts, out := take(opts, "out")
		file := ""
		if out != nil {
			file = out.value
		}
		v, err := r.plan(cmd.Context(), file, join(opts))
		if err != nil {
			return err
		}
		v.File = file
		err = r.tell(v)
		if err == nil && detailed.on() && v.Changes {
			return exitStatus(ExitConflict)
		}
		return err
	}))
}

// plan runs terraform plan with args, which name no -out, and judges what comes
// out. The plan is left in file, or where planFile says when that is "". An
// error means that terraform failed or was interrupted, never that the quota is
// exceeded.
func (r *tfRun) plan(ctx context.Context, file string, args []string) (*verdict, error) {
	c := r.command
	if file == "" {
		file = r.planFile()
		c.Stdout = hiding{c.Stdout, file}
	}
	if r.asks() && !r.confirms {
		c.Stdin = r.input
	}
	args = append([]string{"plan", "-out=" + file, "-detailed-exitcode"}, args...)
	code, err := r.run(ctx, c, args...)
	if err != nil {
		return nil, err
	}
	v, err := r.judge(ctx, file)
	if err == nil {
		v.Changes = code == 2
	}
	return v, err
}

// planFile is where a plan is that nobody wants to keep.
func (r *tfRun) planFile() string { return filepath.Join(r.tmp, "plan") }

// judge counts what a saved plan does and asks the server whether the quota
// allows it. That the server cannot be asked is in the verdict.
func (r *tfRun) judge(ctx context.Context, file string) (*verdict, error) {
	b, code, err := r.command.Output(ctx, "show", "-json", file)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s show -json %s failed", filepath.Base(r.command.Path), file)
	}
	if err != nil {
		return nil, err
	}
	r.shown, r.values = b, hasEphemeral(b)
	v := &verdict{}
	if v.Plan, err = tfstate.CountPlan(bytes.NewReader(b)); err != nil {
		return nil, err
	}
	if v.trouble = r.trouble; r.target != nil {
		v.State = r.target.state
		q, err := r.target.CheckQuota(ctx, r.target.environment, r.target.state, wire.QuotaQuestion{Delta: &v.Plan.Delta, Peak: &v.Plan.Peak})
		if v.trouble = err; err == nil {
			v.Quota = &q
		}
	}
	if v.trouble != nil {
		v.Unchecked = v.trouble.Error()
	}
	return v, ctx.Err()
}

// tell prints a verdict. The error is that of a hard limit, or why no check was
// made.
func (r *tfRun) tell(v *verdict) error {
	if r.app.asJSON {
		if err := r.app.printJSON(v); err != nil {
			return err
		}
	} else if err := r.show(v); err != nil {
		return err
	}
	return v.err()
}

// show prints a verdict for people. Where the client's own output is for
// programs it goes to standard error.
func (r *tfRun) show(v *verdict) error {
	if v.Quota == nil {
		return nil
	}
	if _, machine := take(r.opts, "json"); !machine.on() {
		return r.app.printVerdict(v.State, *v.Quota)
	}
	r.app.note("%s", strings.TrimSuffix(verdictText(v.State, *v.Quota), "\n"))
	r.app.warnOf(*v.Quota)
	return nil
}

// err is why the plan should not be applied; nil when the quota allows it.
func (v *verdict) err() error {
	if v.Quota != nil {
		return hardBreach(*v.Quota)
	}
	e := fault.Of(v.trouble)
	if e == nil {
		e = fault.Wrap(fault.Unreachable, v.trouble, "the server could not be asked")
	}
	told := *e
	told.Detail = "the quota was not checked: " + e.Detail
	return &told
}

// hardBreach is the failure that a check's verdict hard is.
func hardBreach(q wire.QuotaCheck) error {
	if q.Status != "hard" {
		return nil
	}
	code, use, dimension := fault.StateQuota, q.State, "state"
	if q.State.Status != "hard" {
		code, use, dimension = fault.EnvironmentQuota, q.Environment, "environment"
	}
	e := fault.New(code, "%s", q.Refusal).WithNext("%s", q.NextStep).With("dimension", dimension).
		With("current_count", use.Current).With("soft_limit", use.SoftLimit).With("hard_limit", use.HardLimit)
	if use.Projected != nil {
		e = e.With("resulting_count", *use.Projected)
	}
	return e
}

// exitStatus ends the command with a code and without a word.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// silent is the code of an error that is not to be reported.
func silent(err error) (code int, ok bool) {
	var s exitStatus
	ok = errors.As(err, &s)
	return int(s), ok
}
