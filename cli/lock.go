package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kl/wire"
)

func (a *app) lockCmd() *cobra.Command {
	return a.online(group("lock", "See who holds a state, and release a lock by force",
		a.lockShowCmd(), a.lockReleaseCmd()))
}

func (a *app) lockShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show [STATE]",
		Short: "Tell who holds a state and who waits for it",
		Long: `Tell who holds a state and who waits for it.

A lock is "stale" when nothing has come from its holder for long. It is not
released by itself unless the environment sets lock_idle_ttl: an apply may be
busy for long without a word.

Of each session the version is shown that its client has seen last (BASE): the head when
the lock was taken, then its own last write. In optimistic mode there may be several
sessions, and what others change meanwhile is merged.`,
		Example: "  kl lock show demo\n  kl lock show demo --json",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			l, err := t.LockState(cmd.Context(), t.environment, t.state)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(l)
			}
			return a.printLock(t.state, l)
		},
		ValidArgsFunction: a.completeState,
	}
}

func (a *app) printLock(state string, l wire.Lock) error {
	if len(l.Holders) == 0 {
		if err := a.printf("%s is not locked\n", state); err != nil {
			return err
		}
	} else {
		rows := [][]string{{"LOCK ID", "WHO", "OPERATION", "SINCE", "LAST ACTIVITY", "CHECKPOINTS", "BASE", "CREDENTIAL", "STALE"}}
		for _, h := range l.Holders {
			stale := ""
			if h.Stale {
				stale = "stale"
			}
			base := "none"
			if h.BaseVersion > 0 {
				base = "version " + strconv.FormatUint(h.BaseVersion, 10)
			}
			rows = append(rows, []string{
				h.ID, h.Who, h.Operation, when(h.Since) + " (" + a.ago(h.Since) + ")", a.ago(h.LastActivity),
				strconv.FormatInt(h.Checkpoints, 10), base, h.Principal, stale,
			})
		}
		if err := a.printTable(rows); err != nil {
			return err
		}
	}
	if len(l.Runs) > 0 {
		rows := [][]string{{"RUN", "WHO", "STATUS", "SINCE", "LEASE ENDS", "RESERVES"}}
		for _, r := range l.Runs {
			what := strings.Join(r.Addresses[:min(len(r.Addresses), 3)], ", ")
			if n := len(r.Addresses) - 3; n > 0 {
				what += fmt.Sprintf(" and %d more", n)
			}
			rows = append(rows, []string{r.RunID, r.Actor, r.Status, when(r.Since) + " (" + a.ago(r.Since) + ")", when(r.LeaseExpiresAt), what})
		}
		if err := a.printTable(rows); err != nil {
			return err
		}
	}
	if len(l.Queue) == 0 {
		return nil
	}
	rows := [][]string{{"WAITING", "WHO", "OPERATION", "SINCE", "LAST SEEN", "LOCK ID"}}
	for _, w := range l.Queue {
		rows = append(rows, []string{fmt.Sprint(w.Position), w.Who, w.Operation, when(w.Since), a.ago(w.LastSeen), w.ID})
	}
	return a.printTable(rows)
}

func (a *app) lockReleaseCmd() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "release [STATE] --id ID",
		Short: "Release a lock by force, whoever took it",
		Long: `Release a lock by force, whoever took it. It is noted in the audit trail.

Make sure that its holder is gone: a holder that still runs can write no more,
and what it has built since its last checkpoint is kept as a refused write.`,
		Example: "  kl lock show demo\n  kl lock release demo --id 9c6b…",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if id == "" {
				return usage(cmd, "the lock's ID is missing").WithNext("see it with: kl lock show, then: kl lock release STATE --id ID")
			}
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			if err := t.ReleaseLock(cmd.Context(), t.environment, t.state, id); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"state": t.state, "released": id})
			}
			return a.printf("released lock %s of %s\n", id, t.state)
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().StringVar(&id, "id", "", "the lock's ID, as kl lock show prints it")
	return cmd
}
