package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/terraform"
)

// applyFlags are the flags of kl apply.
type applyFlags struct {
	terraformFlags
	yes          bool
	scope        scopeFlags
	orchestrated bool
	wait         time.Duration
}

// applyOptions are terraform's options that go with a saved plan; the others
// were for making it.
var applyOptions = []string{"backup", "compact-warnings", "input", "json", "lock", "lock-timeout", "no-color", "parallelism", "show-sensitive", "state", "state-out"}

func (a *app) applyCmd() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply [--orchestrated] [-f FILE]… [--target ADDRESS]… [TERRAFORM OPTIONS] [PLAN]",
		Short: "Plan, check the quota, confirm, and apply with terraform",
		Long: `Run terraform plan (or tofu) in this directory, ask the server whether the quota allows what
is planned, ask for a confirmation, and apply that very plan. With PLAN, a file made with
-out, that one is checked and applied. A plan above a hard limit is not applied (exit code
4), nor is one that could not be checked.

Options of terraform begin with one dash and are passed on: -var, -target, -destroy,
-lock-timeout, -chdir=DIR and the rest. What follows -- is passed on as it is.

When terraform fails because the server has refused something, the server's reason and
the next step are printed, which terraform itself cannot show, and the exit code tells of
which kind it was. What was sent is kept: kl recover list.

With -f or --target only a part is applied: what the files declare, or the addresses, and
what these depend on.

With --orchestrated the apply is a run of the server: what the plan changes and relies on
is reserved, others apply other parts of the same state meanwhile, and each write is merged
into the state at once. What somebody else has reserved is waited for with --wait, and the
plan made again when that changed anything; without --wait it is refused (exit code 2). A
question is asked only where something would be destroyed or replaced, which is named.
PLAN is then a spec that kl plan -o has made. Two plain applies that meet wait for each
other at the state's lock, as terraform does.`,
		Example: "  kl apply\n  kl apply --yes -var region=eu\n  kl apply tf.plan\n  kl apply -destroy\n  kl apply --orchestrated -f network.tf --wait 5m\n  kl apply --orchestrated kl-plan.json",
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.yes, "yes", false, "apply without asking; the same as -auto-approve")
	f.scope.add(cmd)
	cmd.Flags().BoolVar(&f.orchestrated, "orchestrated", false, "apply in a run, beside others who work elsewhere in the state")
	cmd.Flags().DurationVar(&f.wait, "wait", 0, "with --orchestrated: how long to wait for what others have reserved")
	cmd.AddCommand(a.applyAbortCmd())
	return a.online(a.passing(cmd, func(cmd *cobra.Command, theirs []string) error {
		if f.orchestrated {
			return a.applyInRun(cmd, f, theirs)
		}
		return a.apply(cmd, f, theirs)
	}))
}

// apply is the plain kl apply.
func (a *app) apply(cmd *cobra.Command, f applyFlags, theirs []string) error {
	ctx := cmd.Context()
	// in the environment or the configuration file it is for all applies
	if cmd.Flags().Changed("wait") && !a.fromEnv["wait"] && a.config.get("wait") == "" {
		return usage(cmd, "--wait is for what others have reserved, which takes --orchestrated").
			WithNext("add --orchestrated, or wait for the state's lock with terraform's own option: kl apply -lock-timeout=5m")
	}
	r, err := a.newRun(ctx, f.terraformFlags, theirs)
	if err != nil {
		return err
	}
	defer r.close()
	var scope *terraform.Scope
	if f.scope.any() {
		for _, file := range f.scope.files {
			if err := noSpec(file, file); err != nil {
				return err
			}
		}
		if scope, err = r.scoped(ctx, &f.scope); err != nil {
			return err
		}
		r.opts = append(r.opts, optionsOf(targetArgs(scope))...)
	}
	opts, approve := take(r.opts, "auto-approve")
	opts, saved, err := takeOperand(cmd, opts)
	if err != nil {
		return err
	}
	yes := f.yes || approve.on()
	if _, out := take(opts, "out"); out != nil {
		return usage(cmd, "kl apply keeps no plan").WithNext("kl plan -out=FILE; then: kl apply FILE")
	}
	r.confirms = !yes && saved == nil
	file := r.planFile()
	var v *verdict
	if saved == nil {
		v, err = r.plan(ctx, "", join(opts))
	} else {
		file, yes = saved.value, true // as terraform: who names a plan has seen it
		if err := a.isPlan(file); err != nil {
			return err
		}
		v, err = r.judge(ctx, file)
		r.values = true // what was given here is meant for this apply: terraform judges it
	}
	if err != nil {
		return err
	}
	if a.asJSON {
		return errors.Join(r.applyPlan(ctx, v, scope, opts, file, yes), a.printJSON(v))
	}
	if err := r.show(v); err != nil {
		return err
	}
	return r.applyPlan(ctx, v, scope, opts, file, yes)
}

// applyPlan applies the plan in file if its verdict and the user allow it.
func (r *tfRun) applyPlan(ctx context.Context, v *verdict, scope *terraform.Scope, opts []option, file string, yes bool) error {
	err := v.err()
	if err == nil && scope != nil {
		err = r.nothingOutside(scope)
	}
	if err != nil {
		return notApplied(err)
	}
	if !yes && v.Changes {
		if err := r.confirm(ctx, "Do you want to perform these actions in the state "+v.State+"?"); err != nil {
			return err
		}
	}
	code, err := r.run(ctx, r.command, r.applyArgs(opts, file)...)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s apply ended with exit code %d", filepath.Base(r.command.Path), code)
	}
	return err
}

// applyArgs are the arguments that apply the saved plan that was judged last,
// with those of opts that go with one.
func (r *tfRun) applyArgs(opts []option, file string) []string {
	names := applyOptions
	if r.values {
		names = append(slices.Clone(names), "var", "var-file")
	}
	args := []string{"apply"}
	for _, o := range opts {
		if slices.Contains(names, o.name) {
			args = append(args, o.args...)
		}
	}
	return append(args, file)
}

// hasEphemeral reports whether a plan was made with values of ephemeral
// variables. A plan keeps no such value, so its apply needs them again;
// before there were any, in Terraform 1.10, an apply of a saved plan took no
// values at all. terraform show -json lists the values of all variables but
// those (measured with Terraform 1.11).
func hasEphemeral(shown []byte) bool {
	var plan struct {
		Variables     map[string]struct{} `json:"variables"`
		Configuration struct {
			Root struct {
				Variables map[string]struct{} `json:"variables"`
			} `json:"root_module"`
		} `json:"configuration"`
	}
	if json.Unmarshal(shown, &plan) != nil {
		return false
	}
	for name := range plan.Configuration.Root.Variables {
		if _, kept := plan.Variables[name]; !kept {
			return true
		}
	}
	return false
}

// notApplied says that nothing was done.
func notApplied(err error) error {
	if e := fault.Of(err); e != nil {
		told := *e
		told.Detail = "nothing was applied: " + e.Detail
		return &told
	}
	return err
}

// noSpec refuses a spec where a run is needed; file is what the user has named.
func noSpec(path, file string) error {
	if _, err := readSpec(path); err != nil {
		return nil //nolint:nilerr // it is something else, which others look at
	}
	return fault.New(fault.ParameterInvalid, "%s is a spec of kl plan -o, which is applied in a run", file).
		WithNext("kl apply --orchestrated %s", file)
}

// isPlan refuses early what cannot be a saved plan: terraform takes a directory
// or a mistyped word for something else.
func (a *app) isPlan(file string) error {
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.env.Dir, path)
	}
	if err := noSpec(path, file); err != nil {
		return err
	}
	fi, err := os.Stat(path)
	if err == nil && !fi.IsDir() {
		return nil
	}
	return fault.New(fault.ParameterInvalid, "%q is not the file of a saved plan", file).WithNext("make one with: kl plan -out=FILE")
}
