package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kl/wire"
)

func (a *app) pruneCmd() *cobra.Command {
	var q wire.PruneRequest
	cmd := &cobra.Command{
		Use:   "prune [STATE]",
		Short: "Remove versions that are no longer kept, or show which these are",
		Long: `Remove the versions of an environment's states, or of one state, that its rules no longer
keep: keep-last and keep-days of kl env set. The server does the same by itself every few
minutes; --dry-run shows what would go.

A version stays if either rule keeps it. Without a rule all stay, but for checkpoints: of
an apply that has ended only the last write is kept, a day after it. The newest version,
and what a tag, an open lock, an open refused write or a run needs, always stay.`,
		Example: "  kl prune --dry-run\n  kl prune demo\n  kl prune --env staging --json",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			// the state of the directory is not meant: all are, unless one is named
			if q.State = first(args); q.State == "" && !a.fromEnv["state"] {
				q.State = a.flags.state
			}
			r, err := t.Prune(cmd.Context(), t.environment, q)
			if err != nil {
				return err
			}
			return a.printPrune(r)
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false, "show what would go, and remove nothing")
	return a.online(cmd)
}

func (a *app) printPrune(r wire.PruneResult) error {
	if a.asJSON {
		return a.printJSON(r)
	}
	if len(r.States) == 0 {
		a.note("nothing is to be removed; versions kept: %s", keepText(r.KeepLast, r.KeepDays))
		return nil
	}
	rows := [][]string{{"STATE", "REMOVED", "KEPT", "OLDEST", "BYTES", "WHICH"}}
	for _, s := range r.States {
		rows = append(rows, []string{s.Name, fmt.Sprint(s.Versions), fmt.Sprint(s.Kept), fmt.Sprint(s.Oldest), amount(s.Bytes), ranges(s.Removed, s.Versions)})
	}
	if err := a.printTable(rows); err != nil {
		return err
	}
	for _, s := range r.States {
		for _, h := range s.Held {
			a.note("version %d of %s stays: it is needed by %s", h.Version, s.Name, h.By)
		}
	}
	if r.DryRun && r.Versions > 0 {
		a.note("nothing was removed; kl prune removes %s", plural(r.Versions, "version", "versions"))
	}
	return nil
}

// ranges writes numbers that rise as 1-4,7. total is how many there are.
func ranges(numbers []uint64, total int64) string {
	var out []string
	for i := 0; i < len(numbers); {
		k := i
		for k+1 < len(numbers) && numbers[k+1] == numbers[k]+1 {
			k++
		}
		if k == i {
			out = append(out, fmt.Sprint(numbers[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", numbers[i], numbers[k]))
		}
		i = k + 1
	}
	const most = 12
	if len(out) > most || int64(len(numbers)) < total {
		out = append(out[:min(len(out), most)], "…")
	}
	return strings.Join(out, ",")
}
