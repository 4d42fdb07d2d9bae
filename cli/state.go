package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/fault"
	"kl/wire"
)

func (a *app) stateCmd() *cobra.Command {
	return a.online(group("state", "List, read, write and remove states",
		a.stateListCmd(), a.stateShowCmd(), a.statePullCmd(), a.statePushCmd(),
		a.stateSetCmd(), a.stateArchiveCmd(), a.stateDeleteCmd(), a.stateRestoreCmd(), a.statePurgeCmd(), a.stateAllowCmd()))
}

// completeState offers the names of the environment's states to the shell. It
// must neither fail nor write.
func (a *app) completeState(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || a.bind(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	t, err := a.forEnvironment(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	states, err := client.Collect(t.States(cmd.Context(), t.environment), 1000)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = s.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) stateListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the states of an environment",
		Example: "  kl state list\n  kl state list --env default --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			states, err := client.Collect(t.States(cmd.Context(), t.environment), 0)
			if err != nil {
				return err
			}
			head := []string{"NAME", "LIFECYCLE", "SERIAL", "VERSION", "RESOURCES", "BYTES", "LOCKS", "REFUSED", "UPDATED"}
			return printList(a, states, head, func(s wire.State) []string {
				return []string{
					s.Name, s.Lifecycle, fmt.Sprint(s.Serial), fmt.Sprint(s.Version), resources(s), amount(s.Bytes),
					strconv.Itoa(s.Sessions), strconv.Itoa(s.RefusedOpen), when(s.UpdatedAt),
				}
			}, t.environment+" has no states yet")
		},
	}
}

func resources(s wire.State) string {
	if s.Opaque {
		return "opaque"
	}
	return strconv.FormatInt(s.ResourceCount, 10)
}

func (a *app) stateShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show [STATE]",
		Short: "Print a state's counts, version and lock",
		Long: `Print a state's counts, serial and version, each open session (who, since when, what it
does, the version it has seen, its checkpoints and last activity), who waits, and the
refused writes that wait for recovery. The bytes are printed by kl state pull.`,
		Example: "  kl state show demo\n  kl state show demo --json",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			s, err := t.State(cmd.Context(), t.environment, t.state)
			if err != nil {
				return err
			}
			l, err := t.LockState(cmd.Context(), t.environment, t.state)
			if err != nil {
				return err
			}
			open := []wire.Refused{}
			if s.RefusedOpen > 0 {
				if open, err = t.openRefused(cmd.Context()); err != nil {
					return err
				}
			}
			q, err := t.Quota(cmd.Context(), t.environment, t.state)
			if err != nil && !fault.Is(err, fault.NotFound) { // a server from before there were limits
				return err
			}
			if a.asJSON {
				return a.printJSON(struct {
					wire.State
					Lock    wire.Lock      `json:"lock"`
					Refused []wire.Refused `json:"refused"`
					Counts  wire.Quota     `json:"counts"` // against the limits that hold
				}{s, l, open, q})
			}
			return a.printState(s, l, q, open)
		},
		ValidArgsFunction: a.completeState,
	}
}

func (a *app) printState(s wire.State, l wire.Lock, q wire.Quota, open []wire.Refused) error {
	count := plural(s.ResourceCount, "resource", "resources")
	if s.InstanceCount != s.ResourceCount {
		count += ", with data sources and deposed ones " + plural(s.InstanceCount, "instance", "instances")
	}
	if s.Opaque {
		count = "not known: the document is opaque to the server (encrypted, or not of version 4)"
	}
	version := "none written yet"
	if s.Version > 0 {
		version = fmt.Sprintf("%d (%d kept)", s.Version, s.VersionCount)
	}
	pairs := [][2]string{
		{"state", s.Name},
		{"lifecycle", s.Lifecycle},
		{"serial", fmt.Sprint(s.Serial)},
		{"version", version},
		{"lineage", s.Lineage},
		{"holds", count},
		{"size", amount(s.Bytes)},
		{"updated", strings.TrimSpace(when(s.UpdatedAt) + " (" + a.ago(s.UpdatedAt) + ")")},
		{"lock mode", modeText(s.LockMode)},
	}
	if text := quotaText(q); text != "" {
		pairs = append(pairs, [2]string{"quota", text})
	}
	if s.RefusedOpen > 0 {
		pairs = append(pairs, [2]string{"refused", plural(int64(s.RefusedOpen), "write waits", "writes wait") + " for recovery: kl recover list --state " + s.Name})
	}
	if len(l.Holders) == 0 {
		pairs = append(pairs, [2]string{"lock", "free"})
	}
	if err := a.printPairs(pairs); err != nil {
		return err
	}
	if len(l.Holders)+len(l.Queue)+len(l.Runs) > 0 {
		if err := errors.Join(a.printf("\n"), a.printLock(s.Name, l)); err != nil {
			return err
		}
	}
	if len(open) == 0 {
		return nil
	}
	rows := [][]string{refusedHead}
	for _, r := range open {
		rows = append(rows, refusedRow(r))
	}
	return errors.Join(a.printf("\n"), a.printTable(rows))
}

func (a *app) stateSetCmd() *cobra.Command {
	var mode string
	cmd := a.simple(&cobra.Command{
		Use:   "set [STATE]",
		Short: "Change a state's settings",
		Long: `Change a state's settings. Its lock mode is the environment's unless it is set here;
"inherit" gives it back to the environment.`,
		Example: "  kl state set demo --lock-mode optimistic\n  kl state set demo --lock-mode inherit",
	}, "%s is changed; see it with: kl state show", func(ctx context.Context, t *target) (any, error) {
		value := mode
		if mode == "inherit" {
			value = ""
		}
		return t.PatchState(ctx, t.environment, t.state, wire.StatePatch{LockMode: &value})
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if mode == "" {
			return usage(cmd, "there is nothing to set: give --lock-mode exclusive, optimistic or inherit")
		}
		return run(cmd, args)
	}
	cmd.Flags().StringVar(&mode, "lock-mode", "", "exclusive, optimistic, or inherit for the environment's")
	return cmd
}

func (a *app) statePullCmd() *cobra.Command {
	var ref string
	cmd := &cobra.Command{
		Use:   "pull [STATE]",
		Short: "Print the exact bytes of a state",
		Long: `Print the exact bytes of a state as its writer sent them, of the newest version or
of another: a version number, @N for N back from the newest, or serial:N. Of a state
in the trash only a version that is named is printed.`,
		Example: "  kl state pull demo > demo.tfstate\n  kl state pull demo --version @1",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			if ref == "" {
				// the versions of a state in the trash can be read, but only by
				// who asks for one: it must not look like a state in use
				if err := t.inUse(cmd.Context()); err != nil {
					return err
				}
				ref = "head"
			}
			b, err := t.VersionBytes(cmd.Context(), t.environment, t.state, ref)
			if err != nil {
				return err
			}
			return a.copyOut(b)
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().StringVar(&ref, "version", "", "version number, @N, serial:N, a tag, or head (default the newest)")
	return cmd
}

// inUse refuses a state that is in the trash.
func (t *target) inUse(ctx context.Context) error {
	s, err := t.State(ctx, t.environment, t.state)
	if err == nil && s.Lifecycle == "deleted" {
		err = fault.New(fault.StateDeleted, "the state %s is in the trash", t.state).
			WithNext("kl state restore %[1]s; or read a version with: kl state pull %[1]s --version head", t.state)
	}
	return err
}

// simple makes a command that does one thing to a state and says so. do returns
// the answer for --json.
func (a *app) simple(cmd *cobra.Command, said string, do func(context.Context, *target) (any, error)) *cobra.Command {
	cmd.Args = between(0, 1)
	cmd.ValidArgsFunction = a.completeState
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := a.forState(cmd.Context(), first(args))
		if err != nil {
			return err
		}
		answer, err := do(cmd.Context(), t)
		if err != nil {
			return err
		}
		if a.asJSON {
			return a.printJSON(answer)
		}
		return a.printf(said+"\n", t.state)
	}
	return cmd
}

func (a *app) stateArchiveCmd() *cobra.Command {
	return a.simple(&cobra.Command{
		Use:   "archive [STATE]",
		Short: "Make a state read-only",
		Long: `Make a state read-only: it can be read, not written or locked, until it is restored. Locks
can still be given back. What an apply sends that is running now is refused, and kept.`,
		Example: "  kl state archive demo\n  kl state restore demo",
	}, "%[1]s is archived; make it writable again with: kl state restore %[1]s", func(ctx context.Context, t *target) (any, error) {
		return t.ArchiveState(ctx, t.environment, t.state)
	})
}

func (a *app) stateDeleteCmd() *cobra.Command {
	return a.simple(&cobra.Command{
		Use:     "delete [STATE]",
		Short:   "Move a state to the trash",
		Long:    "Move a state to the trash. It can be restored until it is purged; its name stays taken.",
		Example: "  kl state delete demo",
	}, "%[1]s is in the trash; bring it back with: kl state restore %[1]s", func(ctx context.Context, t *target) (any, error) {
		return map[string]string{"name": t.state, "lifecycle": "deleted"}, t.DeleteState(ctx, t.environment, t.state)
	})
}

func (a *app) stateRestoreCmd() *cobra.Command {
	return a.simple(&cobra.Command{
		Use:     "restore [STATE]",
		Short:   "Bring a state back from the trash or the archive",
		Example: "  kl state restore demo",
	}, "%s is active again", func(ctx context.Context, t *target) (any, error) {
		st, err := t.RestoreState(ctx, t.environment, t.state)
		for _, w := range st.QuotaWarnings {
			a.note("warning: %s", w)
		}
		return st, err
	})
}

func (a *app) statePurgeCmd() *cobra.Command {
	return a.simple(&cobra.Command{
		Use:     "purge [STATE]",
		Short:   "Remove a state in the trash, with all its versions, for good",
		Example: "  kl state delete demo\n  kl state purge demo",
	}, "%s is gone; its name is free", func(ctx context.Context, t *target) (any, error) {
		return map[string]any{"name": t.state, "purged": true}, t.PurgeState(ctx, t.environment, t.state)
	})
}

func (a *app) stateAllowCmd() *cobra.Command {
	var allow wire.Allow
	cmd := a.simple(&cobra.Command{
		Use:   "allow [STATE]",
		Short: "Let the next write break a rule, once",
		Long: `Let the next write of a state through although its lineage is another state's
(--lineage) or its serial is not higher than the state's (--lower-serial). It holds for
one write and is noted in the audit trail.`,
		Example: "  kl state allow demo --lower-serial\n  kl state push demo old.tfstate --force",
	}, "the next write of %s may break the rule", func(ctx context.Context, t *target) (any, error) {
		return struct {
			Name string `json:"name"`
			wire.Allow
		}{t.state, allow}, t.Allow(ctx, t.environment, t.state, allow)
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if allow == (wire.Allow{}) {
			return usage(cmd, "say what to allow: --lineage, --lower-serial, or both")
		}
		return run(cmd, args)
	}
	cmd.Flags().BoolVar(&allow.Lineage, "lineage", false, "the lineage may be another state's")
	cmd.Flags().BoolVar(&allow.LowerSerial, "lower-serial", false, "the serial need not be higher than the state's")
	return cmd
}
