package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) queryResourcesCmd() *cobra.Command {
	var version, address string
	var limit int
	cmd := &cobra.Command{
		Use:   "resources [STATE]",
		Short: "List the resource instances of a state",
		Long: `List the resource instances of a state, of its newest version or of another, in the order
in which the state has them; or only those at or below an address.`,
		Example: `  kl query resources demo
  kl query resources demo --address 'module.net["a"]' --version @1
  kl query resources demo --json`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usage(cmd, "--limit must not be negative")
			}
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			list, err := client.Collect(t.Resources(cmd.Context(), t.environment, t.state, wire.VersionRef(version), address), limit)
			if err != nil {
				return err
			}
			return printList(a, list, []string{"ADDRESS", "ID", "STATUS", "PROVIDER"}, func(r wire.Resource) []string {
				return []string{r.Address, r.ID, r.Status, providerName(r.Provider)}
			}, t.state+" has no resources")
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().StringVar(&version, "version", "", "version number, @N, serial:N, a tag, or head (default the newest)")
	cmd.Flags().IntVar(&limit, "limit", 0, "list that many, 0 for all")
	return a.onlineAbout(cmd, &address, "only this instance, resource or module")
}

// providerName is the source of a provider, as a configuration names it.
func providerName(text string) string {
	_, source, found := strings.Cut(text, `provider["`)
	if !found {
		return text
	}
	source, alias, _ := strings.Cut(source, `"]`)
	return source + alias
}

func (a *app) queryHistoryCmd() *cobra.Command {
	var address string
	var limit int
	cmd := &cobra.Command{
		Use:   "history [STATE] --address ADDRESS | ADDRESS",
		Short: "Tell what happened to an instance, a resource or a module",
		Long: `Tell what happened to an instance, or to all at or below the address of a resource or a
module, the newest first: in which version it was created, changed, moved, removed or
restored, and by whom. What was there already in the oldest version that is kept is
present. kl diff shows what exactly a version has changed.`,
		Example: `  kl query history aws_instance.web
  kl query history demo --address aws_instance.web
  kl query history demo --address 'module.net["a"]' --json`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if address == "" && strings.Contains(first(args), ".") { // names of states seldom have a dot, addresses always
				address, args = args[0], nil
			}
			switch {
			case limit < 0:
				return usage(cmd, "--limit must not be negative")
			case address == "":
				return usage(cmd, "it is not said whose history is asked for: give --address").WithNext("list the addresses with: kl query resources")
			}
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			list, err := client.Collect(t.InstanceHistory(cmd.Context(), t.environment, t.state, address), limit)
			if err != nil {
				return err
			}
			return printList(a, list, []string{"VERSION", "WHEN", "EVENT", "ADDRESS", "BY", "SOURCE"}, instanceEventRow, "nothing has happened to it")
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "list that many, 0 for all")
	return a.onlineAbout(cmd, &address, "the instance, resource or module")
}

func instanceEventRow(e wire.InstanceEvent) []string {
	by, event := e.Principal, e.Event
	if e.Who != "" {
		by = e.Who + " (" + e.Principal + ")"
	}
	switch {
	case e.From != "":
		event += " here from " + e.From
	case e.To != "":
		event += " to " + e.To
	}
	return []string{fmt.Sprint(e.Version), when(e.CreatedAt), event, e.Address, by, e.Source}
}
