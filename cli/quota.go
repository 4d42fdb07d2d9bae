package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/terraform"
	"kl/tfstate"
	"kl/wire"
)

func (a *app) quotaCmd() *cobra.Command {
	g := group("quota", "Tell what a state and its environment may hold, check a plan, set limits",
		a.quotaRemainingCmd(), a.quotaCheckCmd(), a.quotaSetCmd())
	g.Long = `Limits count managed resource instances: data sources and deposed objects do not count. A
soft limit warns; a write that would leave more than a hard limit allows is refused with
403, and kept. A count equal to the limit passes, and what does not grow a count always does.`
	return a.online(g)
}

func (a *app) quotaRemainingCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "remaining [STATE]",
		Short: "Print what a state and its environment hold and may still add",
		Long: `Print what a state and its environment hold and may still add, how they have grown over
the last 30 days, and when a limit would be met if that went on. The state need not exist
yet.`,
		Example: "  kl quota remaining\n  kl quota remaining demo --json",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			q, err := t.Quota(cmd.Context(), t.environment, t.state)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(q)
			}
			return a.printQuota(t.state, q)
		},
		ValidArgsFunction: a.completeState,
	}
}

func (a *app) printQuota(state string, q wire.Quota) error {
	rows := [][]string{{"", "NOW", "SOFT LIMIT", "HARD LIMIT", "MAY BE ADDED", "GROWTH", "LIMIT MET"}}
	add := func(what string, u wire.QuotaUse, number func(int64) string) {
		growth, met := foretold(u)
		rows = append(rows, []string{what, number(u.Current), limitText(u.SoftLimit, number), limitText(u.HardLimit, number), remainingText(u, number), growth, met})
	}
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	add("state "+state, q.State, count)
	add("its environment", q.Environment, count)
	for _, b := range []struct {
		what string
		use  wire.QuotaUse
	}{{"bytes of the state", q.Bytes}, {"bytes of its history", q.HistoryBytes}} {
		if b.use.SoftLimit+b.use.HardLimit > 0 {
			add(b.what, b.use, amount)
		}
	}
	if err := a.printTable(rows); err != nil {
		return err
	}
	if q.Opaque {
		a.note("the document is opaque to the server (encrypted, or not of version 4): its instances are not counted")
	}
	return nil
}

func limitText(n int64, number func(int64) string) string {
	if n == 0 {
		return "none"
	}
	return number(n)
}

func remainingText(u wire.QuotaUse, number func(int64) string) string {
	left, which := u.RemainingHard, ""
	if left == nil {
		left, which = u.RemainingSoft, ", then a warning"
	}
	switch {
	case left == nil:
		return "any number"
	case *left < 0:
		return "nothing: " + number(-*left) + " above the limit"
	}
	return number(*left) + which
}

// foretold puts a forecast into words.
func foretold(u wire.QuotaUse) (growth, met string) {
	f := u.Forecast
	switch {
	case f == nil:
		return "", ""
	case f.TooShort:
		return "too early to tell", ""
	}
	growth = fmt.Sprintf("%+d since %s", f.Growth, day(f.Since))
	if f.PerDay >= 0.05 {
		growth += fmt.Sprintf(" (%.1f a day)", f.PerDay)
	}
	switch {
	case !f.HardAt.IsZero():
		met = "hard: " + day(f.HardAt)
		if !f.SoftAt.IsZero() {
			met = "soft: " + day(f.SoftAt) + ", " + met
		}
	case !f.SoftAt.IsZero():
		met = "soft: " + day(f.SoftAt)
	case u.SoftLimit+u.HardLimit > 0:
		met = "not in sight"
	}
	return growth, met
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func (a *app) quotaCheckCmd() *cobra.Command {
	var f terraformFlags
	var plan string
	var delta int64
	cmd := &cobra.Command{
		Use:   "check [STATE] --tf-plan FILE",
		Short: "Tell whether a saved plan would exceed a limit",
		Long: `Tell whether a saved plan, or a growth by --delta, would exceed a limit. FILE is what terraform
plan -out=FILE made, which is read through terraform show -json, or the output of that. Creates
and imports add, deletes and forgotten resources take away, moves and replacements do
neither. Nothing of the plan but the number goes to the server.

Exit code 0: within the limits, or above a soft one (which is warned of); 4: above a hard
one.`,
		Example: "  terraform plan -out=tf.plan && kl quota check --tf-plan tf.plan\n  kl quota check demo --delta 12",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (plan == "") == !cmd.Flags().Changed("delta") {
				return usage(cmd, "%s: give --tf-plan FILE or --delta N", cmd.CommandPath())
			}
			counts := &tfstate.PlanCounts{Delta: delta, Peak: delta}
			if plan != "" {
				var err error
				if counts, err = a.countPlan(cmd.Context(), f, plan); err != nil {
					return err
				}
			}
			if counts.Errored {
				a.note("warning: planning failed, so the plan tells of a part of the changes only, and terraform does not apply it")
			}
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			q, err := t.CheckQuota(cmd.Context(), t.environment, t.state, wire.QuotaQuestion{Delta: &counts.Delta, Peak: &counts.Peak})
			if err != nil {
				return err
			}
			if a.asJSON {
				answer := struct {
					wire.QuotaCheck
					Plan *tfstate.PlanCounts `json:"plan,omitempty"`
				}{QuotaCheck: q}
				if plan != "" {
					answer.Plan = counts
				}
				return errors.Join(a.printJSON(answer), hardBreach(q))
			}
			return errors.Join(a.printVerdict(t.state, q), hardBreach(q))
		},
		ValidArgsFunction: a.completeState,
	}
	f.add(cmd)
	cmd.Flags().StringVar(&plan, "tf-plan", "", "a saved plan, or its JSON; - reads JSON from standard input")
	cmd.Flags().Int64Var(&delta, "delta", 0, "so many more instances, or fewer")
	return cmd
}

// countPlan counts what a plan in a file does.
func (a *app) countPlan(ctx context.Context, f terraformFlags, file string) (*tfstate.PlanCounts, error) {
	bad := func(err error) error {
		return fault.Wrap(fault.ParameterInvalid, err, "the plan %s cannot be read", file).WithNext("check --tf-plan")
	}
	var r io.Reader = a.env.Stdin
	if file != "-" {
		h, err := os.Open(file)
		if err != nil {
			return nil, bad(err)
		}
		defer func() { _ = h.Close() }()
		saved, err := isSavedPlan(h)
		if err != nil {
			return nil, bad(err)
		}
		if _, err := h.Seek(0, io.SeekStart); err != nil {
			return nil, bad(err)
		}
		if r = h; saved {
			bin, err := terraform.Find(f.bin, a.env.Getenv)
			if err != nil {
				return nil, err
			}
			c := terraform.Command{Path: bin, Dir: a.env.Dir, Stderr: a.env.Stderr}
			b, code, err := c.Output(ctx, "show", "-json", file)
			if err == nil && code != 0 {
				err = fault.New(fault.ParameterInvalid, "%s show -json cannot read the plan %s", bin, file).
					WithNext("run this in the directory where the plan was made, with the same version of terraform")
			}
			if err != nil {
				return nil, err
			}
			r = bytes.NewReader(b)
		}
	}
	p, err := tfstate.CountPlan(r)
	return &p, err
}

// isSavedPlan reports whether a file is for the client to read: a zip file, or
// the object in which OpenTofu puts what it has encrypted. The JSON of a plan is
// neither.
func isSavedPlan(r io.Reader) (bool, error) {
	text := bufio.NewReader(r)
	begin, err := text.Peek(1)
	if err != nil || begin[0] != '{' {
		return true, err
	}
	d := json.NewDecoder(io.LimitReader(text, maxEnvelope))
	_, _ = d.Token() // the brace
	name, err := d.Token()
	return err == nil && slices.Contains([]any{"meta", "encrypted_data", "encryption_version"}, any(name)), nil
}

// maxEnvelope bounds what is read of a file to tell what it is.
const maxEnvelope = 64 << 10

// printVerdict prints what a check has found; warnings go to standard error.
func (a *app) printVerdict(state string, q wire.QuotaCheck) error {
	if err := a.printf("%s", verdictText(state, q)); err != nil {
		return err
	}
	a.warnOf(q)
	return nil
}

func (a *app) warnOf(q wire.QuotaCheck) {
	for _, w := range q.Warnings {
		a.note("warning: %s", w)
	}
	if q.Opaque {
		a.note("warning: the state is opaque to the server, so what it holds is not counted")
	}
}

// verdictText is a line for the state and one for its environment.
func verdictText(state string, q wire.QuotaCheck) string {
	line := func(what string, u wire.QuotaUse) string {
		projected := u.Current
		if u.Projected != nil {
			projected = *u.Projected
		}
		limits := "no limit"
		switch {
		case u.SoftLimit > 0 && u.HardLimit > 0:
			limits = fmt.Sprintf("soft limit %d, hard limit %d", u.SoftLimit, u.HardLimit)
		case u.HardLimit > 0:
			limits = fmt.Sprintf("hard limit %d", u.HardLimit)
		case u.SoftLimit > 0:
			limits = fmt.Sprintf("soft limit %d", u.SoftLimit)
		}
		meaning := map[string]string{"ok": "ok", "soft": "above a limit, and allowed", "hard": "above the hard limit"}[u.Status]
		return fmt.Sprintf("quota of %s: %s now, %d afterwards (%+d); %s: %s\n", what, plural(u.Current, "resource instance", "resource instances"), projected, projected-u.Current, limits, cmp.Or(meaning, u.Status))
	}
	return line("the state "+state, q.State) + line("its environment", q.Environment)
}

// quotaText is the line about limits in what kl state show prints; "" when
// there are none.
func quotaText(q wire.Quota) string {
	var parts []string
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, u := range []struct {
		what   string
		use    wire.QuotaUse
		number func(int64) string
	}{{"", q.State, count}, {"environment ", q.Environment, count}, {"size ", q.Bytes, amount}, {"history ", q.HistoryBytes, amount}} {
		if u.use.SoftLimit+u.use.HardLimit == 0 {
			continue
		}
		text := u.what + u.number(u.use.Current) + " of " + u.number(cmp.Or(u.use.HardLimit, u.use.SoftLimit))
		switch n := u.use.Current; {
		case u.use.HardLimit > 0 && n > u.use.HardLimit:
			text += ", above the hard limit: it may only shrink"
		case u.use.SoftLimit > 0 && n > u.use.SoftLimit:
			text += ", above the soft limit of " + u.number(u.use.SoftLimit)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
