package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/fault"
	"kl/wire"
)

func (a *app) runsCmd() *cobra.Command {
	var live bool
	cmd := &cobra.Command{
		Use:   "runs [STATE]",
		Short: "List runs: who has reserved what",
		Long: `List the runs of a state, newest first: those that go on and the last that have ended.
Without a state, those of all states of the environment.

A run is one kl plan of a part, or one kl apply --orchestrated. What it has reserved nobody
else can change until it ends, is aborted, or its lease ends because nothing comes from it.`,
		Example: "  kl runs\n  kl runs demo --live\n  kl runs show run_… --state demo",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.resolve(first(args))
			if err != nil {
				return err
			}
			if err := t.findEnvironment(cmd.Context()); err != nil {
				return err
			}
			seq := t.EnvironmentRuns(cmd.Context(), t.environment, live)
			what := "the environment"
			if t.state != "" {
				seq, what = t.Runs(cmd.Context(), t.environment, t.state, live), t.state
			}
			list, err := client.Collect(seq, 0)
			if err != nil {
				return err
			}
			return printList(a, list, []string{"RUN", "STATE", "STATUS", "WHO", "SINCE", "RESERVED", "WRITES", "LAST VERSION", "LEASE UNTIL"}, a.runRow, "no runs of "+what)
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().BoolVar(&live, "live", false, "only runs that go on")
	cmd.AddCommand(a.runsShowCmd())
	return a.online(cmd)
}

func (a *app) runRow(r wire.Run) []string {
	version, lease := "", ""
	if r.LastVersion > 0 {
		version = strconv.FormatUint(r.LastVersion, 10)
	}
	if wire.RunLive(r.Status) {
		lease = when(r.LeaseExpiresAt)
	}
	reserved := ""
	if n := len(r.WriteSet); n > 0 {
		reserved = someOfFew(r.WriteSet, 2)
	}
	return []string{r.ID, r.State, runStatus(r), r.Actor, when(r.CreatedAt), reserved, strconv.FormatInt(r.Checkpoints, 10), version, lease}
}

func someOfFew(list []string, n int) string {
	text := strings.Join(list[:min(len(list), n)], ", ")
	if more := len(list) - n; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func runStatus(r wire.Run) string {
	if r.Waiting {
		return fmt.Sprintf("%s, waits in place %d", r.Status, r.QueuePosition)
	}
	return r.Status
}

func (a *app) runsShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "show RUN",
		Short:   "Tell all about one run: what is reserved, by whom, since when",
		Example: "  kl runs show run_…\n  kl runs show run_… --state demo --json",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			r, err := t.findRun(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(r)
			}
			return a.printRun(r)
		},
	}
}

// findRun finds a run by its id, in the state that is known or, when it is not
// there, in all of the environment.
func (t *target) findRun(ctx context.Context, id string) (wire.Run, error) {
	if err := t.findEnvironment(ctx); err != nil {
		return wire.Run{}, err
	}
	if t.state != "" {
		r, err := t.Run(ctx, t.environment, t.state, id)
		if err == nil || !fault.Is(err, fault.NotFound) {
			return r, err
		}
	}
	for r, err := range t.EnvironmentRuns(ctx, t.environment, false) {
		if err != nil {
			return wire.Run{}, err
		}
		if r.ID == id {
			return t.Run(ctx, t.environment, r.State, id)
		}
	}
	return wire.Run{}, fault.New(fault.NotFound, "there is no run %s in this environment", id).WithNext("see those that there are: kl runs")
}

func (a *app) printRun(r wire.Run) error {
	pairs := [][2]string{
		{"run", r.ID},
		{"state", r.State},
		{"status", runStatus(r)},
		{"who", r.Actor + " (" + r.Principal + ")"},
		{"for", r.Reason},
		{"since", when(r.CreatedAt) + " (" + a.ago(r.CreatedAt) + ")"},
		{"sees", onVersion(r)},
	}
	if !r.ReservedAt.IsZero() {
		pairs = append(pairs, [2]string{"reserved", when(r.ReservedAt) + " (" + a.ago(r.ReservedAt) + ")"})
	}
	writes := strconv.FormatInt(r.Checkpoints, 10)
	if r.LastVersion > 0 {
		writes += fmt.Sprintf(", the last is version %d (%s)", r.LastVersion, a.ago(r.LastCheckpoint))
	}
	pairs = append(pairs, [2]string{"writes", writes})
	if wire.RunLive(r.Status) {
		pairs = append(pairs, [2]string{"last heard of", a.ago(r.LastActivity)}, [2]string{"lease until", when(r.LeaseExpiresAt)})
	} else {
		ended := when(r.EndedAt)
		if r.EndedBy != "" {
			ended += " by " + r.EndedBy
		}
		if r.EndReason != "" {
			ended += ": " + r.EndReason
		}
		pairs = append(pairs, [2]string{"ended", ended})
	}
	for _, set := range []struct {
		name string
		list []string
	}{{"writes to", r.WriteSet}, {"relies on", r.ReadSet}, {"moved", r.Moved}} {
		for _, address := range set.list {
			pairs = append(pairs, [2]string{set.name, address})
		}
	}
	return a.printPairs(pairs)
}

func (a *app) applyAbortCmd() *cobra.Command {
	var id, reason string
	var latest bool
	cmd := &cobra.Command{
		Use:   "abort --apply-id RUN | --state STATE --latest",
		Short: "End a run, whoever began it",
		Long: `End a run, whoever began it: what it has reserved is free, and what it still writes is
refused and kept (kl recover list). What it has written stays in the state.

To end another's run needs the role write, and is noted in the audit trail.`,
		Example: "  kl apply abort --apply-id run_… --reason 'laptop gone'\n  kl apply abort --state demo --latest",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (id == "") == !latest {
				return usage(cmd, "give --apply-id RUN, or --state STATE --latest").WithNext("see the runs with: kl runs --live")
			}
			var t *target
			var r wire.Run
			var err error
			if latest {
				if t, err = a.forState(cmd.Context(), ""); err == nil {
					r, err = t.latestRun(cmd.Context())
				}
			} else if t, err = a.resolve(""); err == nil {
				r, err = t.findRun(cmd.Context(), id)
			}
			if err != nil {
				return err
			}
			if r, err = t.AbortRun(cmd.Context(), t.environment, r.State, r.ID, reason); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(r)
			}
			written := "it has written nothing"
			if r.Checkpoints > 0 {
				written = "what it has written stays in the state (" + plural(r.Checkpoints, "write", "writes") + ")"
			}
			return a.printf("the run %s on %s is aborted; %s\n", r.ID, r.State, written)
		},
	}
	cmd.Flags().StringVar(&id, "apply-id", "", "the run's id, as kl runs prints it")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the others")
	cmd.Flags().BoolVar(&latest, "latest", false, "the newest run of the state that goes on")
	return cmd
}

// latestRun is the newest run of the state that goes on.
func (t *target) latestRun(ctx context.Context) (wire.Run, error) {
	list, err := client.Collect(t.Runs(ctx, t.environment, t.state, true), 1)
	if err != nil {
		return wire.Run{}, err
	}
	if len(list) == 0 {
		return wire.Run{}, fault.New(fault.NotFound, "no run of the state %s goes on", t.state).WithNext("see the last ones with: kl runs %s", t.state)
	}
	return list[0], nil
}
