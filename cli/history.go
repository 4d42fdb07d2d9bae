package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) historyCmd() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history [STATE]",
		Short: "List the versions of a state, newest first",
		Long: `List the versions of a state, newest first: who wrote them, with which version of
Terraform, and how many instances were added, changed and removed.

kl state pull STATE --version N prints the bytes of one.`,
		Example: "  kl history demo\n  kl history demo --limit 5 --json",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usage(cmd, "--limit must not be negative")
			}
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			vs, err := client.Collect(t.Versions(cmd.Context(), t.environment, t.state), limit)
			if err != nil {
				return err
			}
			head := []string{"VERSION", "SERIAL", "WRITTEN", "BY", "WITH", "SOURCE", "RESOURCES", "CHANGES", "BYTES", "TAGS"}
			return printList(a, vs, head, versionRow, "no version of "+t.state+" is kept")
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "list that many versions, 0 for all")
	return a.online(cmd)
}

func versionRow(v wire.Version) []string {
	by := v.Principal
	if v.Who != "" {
		by = v.Who + " (" + v.Principal + ")"
	}
	resources, changes := strconv.FormatInt(v.ResourceCount, 10), "+"+num(v.Added)+" ~"+num(v.Changed)+" -"+num(v.Removed)
	if v.Opaque {
		resources, changes = "opaque", ""
	}
	source := v.Source
	if v.RollbackTo > 0 {
		source += fmt.Sprintf(" to %d", v.RollbackTo)
	}
	if v.RollbackAddress != "" {
		source += " of " + v.RollbackAddress
	}
	return []string{
		fmt.Sprint(v.Version), fmt.Sprint(v.Serial), when(v.CreatedAt), by, v.TerraformVersion, source,
		resources, changes, amount(v.Bytes), strings.Join(v.Tags, ","),
	}
}

// num writes a count that the server may not know.
func num(n int64) string {
	if n < 0 {
		return "?"
	}
	return strconv.FormatInt(n, 10)
}

// first is the first argument, "" when it was left out.
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
