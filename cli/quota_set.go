package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"kl/wire"
)

// limit is a flag's limit. It sets what it points to only when it is given.
type limit struct {
	to      **int64
	bytes   bool
	inherit bool // the word inherit gives the limit back to the environment
}

// String writes the limit, "" for none given.
func (l limit) String() string {
	if l.to == nil || *l.to == nil {
		return ""
	}
	return strconv.FormatInt(**l.to, 10)
}

// Type names the kind of value in help texts.
func (l limit) Type() string {
	if l.bytes {
		return "size"
	}
	return "number"
}

// Set reads a number, where bytes are meant with or without a unit.
func (l limit) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && l.bytes {
		var s size
		err = s.Set(text)
		n = int64(s)
	}
	switch {
	case text == "inherit" && l.inherit:
		n = wire.InheritLimit
	case err != nil || n < 0:
		what := "a number such as 100"
		if l.bytes {
			what = "a size such as 64MiB"
		}
		return fmt.Errorf("%q is not %s, or 0 for no limit", text, what)
	}
	*l.to = &n
	return nil
}

// addLimits adds the flags of an environment's limits.
func addLimits(cmd *cobra.Command, p *wire.LimitsPatch) {
	fs := cmd.Flags()
	fs.Var(limit{to: &p.StateSoftLimit}, "state-soft-limit", "resource instances in each state above which writes are warned of; 0 for no limit")
	fs.Var(limit{to: &p.StateHardLimit}, "state-hard-limit", "resource instances that no state may exceed; 0 for no limit")
	fs.Var(limit{to: &p.EnvironmentSoftLimit}, "environment-soft-limit", "resource instances in all active states together above which writes are warned of; 0 for no limit")
	fs.Var(limit{to: &p.EnvironmentHardLimit}, "environment-hard-limit", "resource instances that all active states together may not exceed; 0 for no limit")
	fs.Var(limit{to: &p.StateBytesSoftLimit, bytes: true}, "state-bytes-soft-limit", "size of each state above which writes are warned of; 0 for no limit")
	fs.Var(limit{to: &p.StateBytesHardLimit, bytes: true}, "state-bytes-hard-limit", "size that no state may exceed; 0 for no limit")
	fs.Var(limit{to: &p.HistoryBytesSoftLimit, bytes: true}, "history-bytes-soft-limit", "stored size of each state's kept versions above which writes are warned of; 0 for no limit")
	fs.Var(limit{to: &p.HistoryBytesHardLimit, bytes: true}, "history-bytes-hard-limit", "stored size that no state's kept versions may exceed; 0 for no limit")
}

func (a *app) quotaSetCmd() *cobra.Command {
	var all wire.LimitsPatch
	var own wire.StateLimits
	cmd := &cobra.Command{
		Use:   "set [STATE]",
		Short: "Set the limits of an environment, or those of one state",
		Long: `Set limits. --state-… and --environment-… are the environment's: of each of its states, and of
all active ones together. --soft-limit, --hard-limit and the rest without that word are one
state's own, which count instead of those that its environment sets for each; "inherit"
gives them back. What is not named stays, and 0 is no limit.

A limit may be set below what is there: then nothing may be added, and all that shrinks or
changes goes on. It takes a control token of who manages the workspace.`,
		Example: `  kl quota set --state-soft-limit 80 --state-hard-limit 100
  kl quota set --environment-hard-limit 1000 --state-bytes-hard-limit 64MiB
  kl quota set demo --hard-limit 500
  kl quota set demo --hard-limit inherit`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hasAll, hasOwn := all != (wire.LimitsPatch{}), own != (wire.StateLimits{})
			switch {
			case hasAll && hasOwn:
				return usage(cmd, "limits of the environment and of one state are set one after the other")
			case hasAll && len(args) > 0:
				return usage(cmd, "--state-… and --environment-… limits are the environment's; for %s alone give --soft-limit or --hard-limit", args[0])
			case hasAll:
				return a.setLimits(cmd, all)
			case hasOwn:
				return a.setOwnLimits(cmd, first(args), own)
			}
			return usage(cmd, "there is nothing to set: give --state-hard-limit, --environment-hard-limit, or for one state --hard-limit")
		},
		ValidArgsFunction: a.completeState,
	}
	addLimits(cmd, &all)
	fs := cmd.Flags()
	for _, f := range []struct {
		name, what string
		to         **int64
		bytes      bool
	}{
		{"soft-limit", "the state's own soft limit of resource instances", &own.SoftLimit, false},
		{"hard-limit", "the state's own hard limit of resource instances", &own.HardLimit, false},
		{"bytes-soft-limit", "its own soft limit of its size", &own.BytesSoftLimit, true},
		{"bytes-hard-limit", "its own hard limit of its size", &own.BytesHardLimit, true},
		{"history-soft-limit", "its own soft limit of the stored size of its versions", &own.HistoryBytesSoftLimit, true},
		{"history-hard-limit", "its own hard limit of the stored size of its versions", &own.HistoryBytesHardLimit, true},
	} {
		fs.Var(limit{to: f.to, bytes: f.bytes, inherit: true}, f.name, f.what+`; 0 for none, or "inherit"`)
	}
	return cmd
}

func (a *app) setLimits(cmd *cobra.Command, p wire.LimitsPatch) error {
	t, err := a.forEnvironment(cmd.Context())
	if err != nil {
		return err
	}
	e, err := t.PatchEnvironment(cmd.Context(), t.environment, wire.EnvironmentPatch{LimitsPatch: p})
	if err != nil {
		return err
	}
	return a.printEnvironment(e)
}

func (a *app) setOwnLimits(cmd *cobra.Command, state string, p wire.StateLimits) error {
	t, err := a.forState(cmd.Context(), state)
	if err != nil {
		return err
	}
	st, err := t.PatchState(cmd.Context(), t.environment, t.state, wire.StatePatch{Quota: &p})
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(st)
	}
	q, err := t.Quota(cmd.Context(), t.environment, t.state)
	if err != nil {
		return err
	}
	return a.printQuota(t.state, q)
}

// limitPairs are an environment's limits for people; without any there is one
// line that says so.
func limitPairs(e wire.Environment) [][2]string {
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	var out [][2]string
	for _, l := range []struct {
		name       string
		soft, hard int64
		number     func(int64) string
	}{
		{"limit of each state", e.StateSoftLimit, e.StateHardLimit, count},
		{"limit of all states", e.EnvironmentSoftLimit, e.EnvironmentHardLimit, count},
		{"limit of a state's size", e.StateBytesSoftLimit, e.StateBytesHardLimit, amount},
		{"limit of its history", e.HistoryBytesSoftLimit, e.HistoryBytesHardLimit, amount},
	} {
		if l.soft+l.hard > 0 {
			out = append(out, [2]string{l.name, "soft " + limitText(l.soft, l.number) + ", hard " + limitText(l.hard, l.number)})
		}
	}
	if out == nil {
		out = [][2]string{{"limits", "none"}}
	}
	return out
}
