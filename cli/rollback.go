package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"kl/wire"
)

func (a *app) rollbackCmd() *cobra.Command {
	var to string
	var q wire.RollbackRequest
	cmd := &cobra.Command{
		Use:   "rollback [STATE]",
		Short: "Make the content of an earlier version the newest one",
		Long: `Make the content of an earlier version the newest one: all of the state or, with
--address, what is at one instance, resource or module. A new version is made, with a new
serial; none is lost, so that another rollback undoes it. No object is created, changed or
destroyed by this: plan afterwards.

A version is its number, @N for N back from the newest, serial:N, or a tag. While somebody
holds the lock, a state in exclusive mode is not rolled back; in optimistic mode the others
merge with it. --dry-run shows which instances come back, change and go, and who depends on
them, or why the rollback would be refused.`,
		Example: `  kl rollback demo --to @1 --dry-run
  kl rollback demo --to before-upgrade
  kl rollback demo --to 12 --address 'module.net["a"]'`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return usage(cmd, "it is not said which version to go back to: give --to").WithNext("list the versions with: kl history STATE")
			}
			q.To = wire.VersionRef(to)
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			r, err := t.Rollback(cmd.Context(), t.environment, t.state, q)
			if err != nil {
				return err
			}
			for _, w := range r.QuotaWarnings {
				a.note("warning: %s", w)
			}
			if a.asJSON {
				return a.printJSON(r)
			}
			return a.printRollback(t.state, r)
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().StringVar(&to, "to", "", "the version to go back to: its number, @N, serial:N, or a tag")
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false, "show what it would do, and do nothing")
	return a.onlineAbout(cmd, &q.Address, "only this instance, resource or module")
}

func (a *app) printRollback(state string, r wire.Rollback) error {
	c := a.canvas()
	where := state
	if r.Address != "" {
		where = r.Address + " in " + state
	}
	switch {
	case r.Unchanged:
		return a.printf("%s has the content of version %d already; nothing is done\n", where, r.To)
	case r.DryRun:
		c.line("", "Rolling %s back to version %d (serial %d) would do this to the newest version:", where, r.To, r.ToSerial)
	default:
		c.line("", "%s is back at version %d (serial %d), as version %d, serial %d.", where, r.To, r.ToSerial, r.Version, r.Serial)
	}
	if r.Opaque {
		c.line("", "  one of both documents cannot be looked into, so that it is not known which instances differ")
	}
	rest := 0
	for _, part := range []struct {
		mark, colour, text string
		list               []string
		n                  int
	}{
		{"+", green, "comes back", r.Added, r.Counts.Added}, {"~", yellow, "becomes what it was", r.Changed, r.Counts.Changed}, {"-", red, "goes; it was not there then", r.Removed, r.Counts.Removed},
	} {
		for _, address := range part.list[:min(len(part.list), maxShown)] {
			c.line(part.colour, "  %s %s  (%s)", part.mark, address, part.text)
		}
		rest += part.n - min(len(part.list), maxShown)
	}
	if rest > 0 {
		c.line("", "  and %d more; --json lists up to 1000 of each kind", rest)
	}
	if n := r.Counts.Outputs; n > 0 {
		c.line("", "  and %s", plural(int64(n), "output differs", "outputs differ"))
	}
	var twice []string
	for _, t := range r.Twice {
		twice = append(twice, t.Address+", also at "+t.AlsoAt)
	}
	c.warnings("Comes back or changes, and the same object is at another address too; Terraform would destroy it at one of them:", twice, r.Truncated)
	c.warnings(fmt.Sprintf("Stays as it is, and depends on what %s:", tense(r.DryRun, "would change or go", "changed or went")), dependents(r.Dependents), r.Truncated)
	c.warnings("Comes back or changes, and depends on what is not there:", dependents(r.Missing), r.Truncated)
	if err := a.printCanvas(c); err != nil {
		return err
	}
	if r.DryRun {
		a.note("nothing was done; without --dry-run it is")
	} else {
		a.note("what really exists has not changed: look at it with terraform plan; undo with: kl rollback %s --to %d", state, r.Version-1)
	}
	return nil
}

func tense(would bool, conditional, past string) string {
	if would {
		return conditional
	}
	return past
}

func dependents(list []wire.Dependent) (lines []string) {
	for _, d := range list {
		lines = append(lines, d.Address+", on "+d.DependsOn)
	}
	return lines
}

// warnings adds a list; cut says that the server may not have listed all.
func (c *canvas) warnings(head string, list []string, cut bool) {
	if len(list) == 0 {
		return
	}
	c.line("", "%s", head)
	for _, text := range list[:min(len(list), maxShown)] {
		c.line("", "  ! %s", text)
	}
	if more := len(list) - maxShown; more > 0 && cut {
		c.line("", "  and at least %d more", more)
	} else if more > 0 {
		c.line("", "  and %d more", more)
	}
}
