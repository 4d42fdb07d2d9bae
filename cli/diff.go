package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) diffCmd() *cobra.Command {
	var q client.DiffQuery
	cmd := &cobra.Command{
		Use:   "diff [FROM] [TO]",
		Short: "Compare two versions of a state",
		Long: `Compare two versions of a state, instance by instance and attribute by attribute. Without
arguments the newest version is compared with the one before it; with one, that version
with the newest. A version is its number, @N for N back from the newest, serial:N, a tag,
or head. The state is named by --state, or found as everywhere.

  +  an instance, attribute or output that only TO has
  -  one that only FROM has
  ~  one that differs
  >  the same object at another address

Sensitive values are masked. --reveal shows them, and the audit trail notes it.`,
		Example: `  kl diff --state demo
  kl diff 3 --state demo
  kl diff before-upgrade head --state demo --address 'module.net["a"]'`,
		Args: between(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			for i, ref := range args {
				*[]*wire.VersionRef{&q.From, &q.To}[i] = wire.VersionRef(ref)
			}
			t, err := a.forState(cmd.Context(), "")
			if err != nil {
				return err
			}
			d, err := t.Diff(cmd.Context(), t.environment, t.state, q)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(d)
			}
			return a.printDiff(t.state, d)
		},
	}
	cmd.Flags().BoolVar(&q.Reveal, "reveal", false, "show sensitive values; the audit trail notes it")
	return a.onlineAbout(cmd, &q.Address, "only this instance, resource or module")
}

func (a *app) printDiff(state string, d wire.Diff) error {
	c := a.canvas()
	c.line("", "%s: version %d (serial %d) to version %d (serial %d)", state, d.From, d.FromSerial, d.To, d.ToSerial)
	for _, i := range d.Added {
		c.line(green, "  + %s", i.Address)
	}
	for _, i := range d.Removed {
		c.line(red, "  - %s", i.Address)
	}
	for _, i := range d.Moved {
		c.line(cyan, "  > %s, before at %s", i.Address, i.From)
		c.item(i)
	}
	for _, i := range d.Changed {
		c.line(yellow, "  ~ %s", i.Address)
		c.item(i)
	}
	for _, part := range []struct {
		what   string
		values []wire.DiffValue
	}{{"output ", d.Outputs}, {"check result ", d.Checks}} {
		for _, v := range part.values {
			c.value("  ", part.what, v)
		}
	}
	c.line("", "%s", diffCounts(d))
	if d.Truncated {
		a.note("this is not all: lists, values or both were cut; see one address with --address")
	}
	return a.printCanvas(c)
}

func diffCounts(d wire.Diff) string {
	n := d.Counts
	parts := []string{fmt.Sprintf("%d added, %d changed, %d removed", n.Added, n.Changed, n.Removed)}
	if n.Moved > 0 {
		parts = append(parts, fmt.Sprintf("%d moved", n.Moved))
	}
	if n.Outputs > 0 {
		parts = append(parts, plural(int64(n.Outputs), "output", "outputs"))
	}
	if n.Checks > 0 {
		parts = append(parts, plural(int64(n.Checks), "check result", "check results"))
	}
	if n == (wire.DiffCounts{}) {
		return "no instance differs"
	}
	return strings.Join(parts, ", ")
}

// item adds what differs within an instance.
func (c *canvas) item(i wire.DiffItem) {
	for _, v := range i.Attributes {
		c.value("      ", "", v)
	}
	for _, v := range i.Members {
		if v.Path == "resource" {
			c.line(yellow, "      ~ what the state says of the resource as a whole")
			continue
		}
		c.value("      ", "state's ", v)
	}
	if i.Omitted > 0 {
		c.line("", "      and more that is not listed")
	}
}

// value adds a value that differs.
func (c *canvas) value(indent, what string, v wire.DiffValue) {
	colour, mark := yellow, "~"
	text := shown(v.Before) + " to " + shown(v.After)
	switch v.Change {
	case wire.DiffAdded:
		colour, mark, text = green, "+", shown(v.After)
	case wire.DiffRemoved:
		colour, mark, text = red, "-", shown(v.Before)
	}
	switch {
	case v.TooLarge:
		text = "(too large to show)"
	case v.Sensitive && null(v.Before) && null(v.After):
		text = "(sensitive)"
	}
	c.line(colour, "%s%s %s%s: %s", indent, mark, what, v.Path, text)
}

func null(b json.RawMessage) bool { return len(b) == 0 || string(b) == "null" }

// maxValue is how much of a value is shown to people, in characters.
const maxValue = 200

// shown is a JSON value in one line.
func shown(b json.RawMessage) string {
	var out bytes.Buffer
	if len(b) == 0 {
		return "null"
	}
	if err := json.Compact(&out, b); err != nil {
		return string(b)
	}
	if r := []rune(out.String()); len(r) > maxValue {
		return string(r[:maxValue]) + "…"
	}
	return out.String()
}
