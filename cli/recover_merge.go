package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kl/wire"
)

// mergeFlags say how a refused write is merged.
type mergeFlags struct {
	take   []string
	dryRun bool
}

func (f *mergeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.take, "take", nil,
		"which side wins where both changed an address: disjoint or theirs (the state's), mine (the refused write's), or ADDRESS=mine,ADDRESS=theirs,…")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what a merge would do, and do not merge")
}

// request is what was given on the command line.
func (f *mergeFlags) request(cmd *cobra.Command) (wire.MergeRequest, error) {
	q := wire.MergeRequest{DryRun: f.dryRun}
	bad := func(v string) (wire.MergeRequest, error) {
		return q, usage(cmd, "--take %q is not understood", v).WithNext("give --take disjoint, mine or theirs, or --take 'ADDRESS=mine,ADDRESS=theirs'")
	}
	if len(f.take) == 0 {
		return q, nil
	}
	if len(f.take) == 1 {
		switch v := f.take[0]; v {
		case wire.TakeDisjoint, wire.TakeMine, wire.TakeTheirs:
			q.Take = &wire.Take{All: v}
			return q, nil
		}
	}
	q.Take = &wire.Take{Address: map[string]string{}}
	for _, v := range f.take {
		for _, part := range splitOutsideQuotes(v) {
			i := strings.LastIndexByte(part, '=')
			if i <= 0 {
				return bad(v)
			}
			address, side := strings.TrimSpace(part[:i]), strings.TrimSpace(part[i+1:])
			if side != wire.TakeMine && side != wire.TakeTheirs || address == "" {
				return bad(v)
			}
			q.Take.Address[address] = side
		}
	}
	return q, nil
}

// splitOutsideQuotes splits at commas, but not within the quotes of an
// address such as aws_instance.a["x,y"].
func splitOutsideQuotes(s string) []string {
	var out []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ',' && !quoted:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

func (a *app) recoverMergeCmd() *cobra.Command {
	var f mergeFlags
	cmd := &cobra.Command{
		Use:   "merge ID",
		Short: "Bring a refused write into the state",
		Long: `Bring a refused write into the state as a new version, beside what others have written
since. What only one side has changed is taken from that side. Where both have changed an
address differently, or one depends on a resource that others have deleted, --take says
which side wins; without it nothing is merged.

  disjoint   what does not overlap comes back; where it does, the state stays as it is
  theirs     the same, without what depends on what is gone
  mine       the refused write wins
  A=mine     a side for each address: --take 'aws_instance.a=mine,aws_instance.b["x"]=theirs'

No object is created or changed by this: the state learns of what exists already. Plan
afterwards.`,
		Example: `  kl recover merge rw_… --state demo --dry-run
  kl recover merge rw_… --state demo --take disjoint
  kl recover merge rw_… --state demo --take 'terraform_data.a=mine'`,
		Args: between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := f.request(cmd)
			if err != nil {
				return err
			}
			t, err := a.forState(cmd.Context(), "")
			if err != nil {
				return err
			}
			m, err := t.MergeRefused(cmd.Context(), t.environment, t.state, args[0], q)
			if err != nil {
				return err
			}
			return a.printMerge(t.state, m)
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) recoverDiffCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "diff ID",
		Short: "Compare a refused write with the state, instance by instance",
		Long: `Compare a refused write with the state as it is now, instance by instance:

  +  only in the refused write: a merge would bring it back
  ~  changed in the refused write alone
  -  deleted in the refused write alone
  !  changed on both sides, and not to the same; or it depends on what others deleted
  =  changed in the state alone: a merge leaves it as it is`,
		Example: "  kl recover diff rw_… --state demo",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), "")
			if err != nil {
				return err
			}
			m, err := t.MergeRefused(cmd.Context(), t.environment, t.state, args[0], wire.MergeRequest{DryRun: true})
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(m)
			}
			var rows [][]string
			for _, part := range []struct {
				mark string
				list []string
				text string
			}{{"+", m.Added, "only in the refused write"}, {"~", m.Changed, "changed in the refused write"}, {"-", m.Removed, "deleted in the refused write"}} {
				for _, address := range part.list {
					rows = append(rows, []string{part.mark, address, part.text})
				}
			}
			for _, o := range m.Overlapping {
				rows = append(rows, []string{"!", o.Address, clash(o)})
			}
			for _, address := range m.Newer {
				rows = append(rows, []string{"=", address, "changed in the state"})
			}
			if len(rows) == 0 {
				a.note("no instance differs between %s and %s", args[0], t.state)
				return nil
			}
			return a.printTable(rows)
		},
	}
}

// clash says why an address cannot be merged without choosing a side.
func clash(o wire.Overlap) string {
	if o.DependsOn != "" {
		return fmt.Sprintf("depends on %s, which was deleted from the state %s", o.DependsOn, by(o))
	}
	return "changed on both sides; in the state " + by(o)
}

// by says who changed an address in the state.
func by(o wire.Overlap) string {
	if o.Who == "" {
		return "it is not known by whom"
	}
	return fmt.Sprintf("by %s at %s in version %d", o.Who, when(o.When), o.Version)
}

// maxShown bounds the addresses of each kind that are printed for people.
const maxShown = 50

// printMerge tells what a merge did, or would do.
func (a *app) printMerge(state string, m wire.MergeResult) error {
	if a.asJSON {
		return a.printJSON(m)
	}
	for _, w := range m.QuotaWarnings {
		a.note("warning: %s", w)
	}
	if err := a.printf("%s", mergeText(state, m)); err != nil || !m.DryRun {
		return err
	}
	if m.Refusal != "" {
		a.note("now it would be refused: %s", m.Refusal)
	}
	if undecided(m) {
		a.note("to merge it, choose a side: kl recover merge %s --state %s --take disjoint|mine|theirs", m.ID, state)
	}
	return nil
}

// undecided reports whether something overlaps and no side was chosen for it.
func undecided(m wire.MergeResult) bool {
	for _, o := range m.Overlapping {
		if o.Side == "" {
			return true
		}
	}
	return false
}

func mergeText(state string, m wire.MergeResult) string {
	var b strings.Builder
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	tense := func(would, did string) string {
		if m.DryRun {
			return would
		}
		return did
	}
	switch {
	case m.DryRun:
		say("Merging %s into %s, which is at serial %d now:", m.ID, state, m.Serial)
	case m.Version == 0:
		say("%s is settled: %s has all of it already, and stays at serial %d.", m.ID, state, m.Serial)
	default:
		say("Merged %s into %s: version %d, serial %d.", m.ID, state, m.Version, m.Serial)
	}
	part := func(head, mark string, lines []string) {
		if len(lines) == 0 {
			return
		}
		say("  %s (%d):", head, len(lines))
		for _, l := range lines[:min(len(lines), maxShown)] {
			say("    %s %s", mark, l)
		}
		if more := len(lines) - maxShown; more > 0 {
			say("    and %d more (--json has all)", more)
		}
	}
	part(tense("would come back", "came back"), "+", m.Added)
	part(tense("would become as the refused write has it", "became as the refused write has it"), "~", m.Changed)
	part(tense("would go", "went"), "-", m.Removed)
	var overlaps, orphans []string
	for _, o := range m.Overlapping {
		side := map[string]string{
			wire.TakeMine: "taken from the refused write", wire.TakeTheirs: "left as the state has it", "": "no side is chosen",
		}[o.Side]
		if o.DependsOn != "" {
			orphans = append(orphans, o.Address+": "+clash(o)+"; "+side)
			continue
		}
		overlaps = append(overlaps, o.Address+": in the state "+by(o)+"; "+side)
	}
	part("overlaps, for both sides changed it", "!", overlaps)
	part("depends on what others deleted", "!", orphans)
	part(tense("is newer in the state and would stay", "is newer in the state and stays"), "=", m.Newer)
	if len(m.Added)+len(m.Changed)+len(m.Removed)+len(m.Overlapping) == 0 && (m.DryRun || m.Version != 0) {
		say("  no resource instance changes by it")
	}
	return b.String()
}
