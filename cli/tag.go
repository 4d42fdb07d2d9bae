package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) tagCmd() *cobra.Command {
	return a.online(group("tag", "Name versions of a state",
		a.tagSetCmd(), a.tagUnsetCmd(), a.tagListCmd()))
}

func (a *app) tagSetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "set STATE TAG REF",
		Short: "Name a version",
		Long: `Name a version, so that it can be referred to by the name wherever a version is asked
for, and is never pruned. A tag that exists moves to the version. REF is a version number,
@N for N back from the newest, serial:N, another tag, or head.`,
		Example: "  kl tag set demo before-upgrade head\n  kl rollback demo --to before-upgrade",
		Args:    between(3, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			tag, err := t.SetTag(cmd.Context(), t.environment, t.state, args[1], wire.VersionRef(args[2]))
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(tag)
			}
			return a.printf("%s of %s is version %d, serial %d\n", tag.Tag, t.state, tag.Version, tag.Serial)
		},
		ValidArgsFunction: a.completeState,
	}
}

func (a *app) tagUnsetCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "unset STATE TAG",
		Short:   "Remove a tag; the version stays",
		Example: "  kl tag unset demo before-upgrade",
		Args:    between(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := t.UnsetTag(cmd.Context(), t.environment, t.state, args[1]); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]any{"name": t.state, "tag": args[1], "removed": true})
			}
			return a.printf("%s is no tag of %s any more\n", args[1], t.state)
		},
		ValidArgsFunction: a.completeState,
	}
}

func (a *app) tagListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list [STATE]",
		Short:   "List the tags of a state",
		Example: "  kl tag list demo",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			tags, err := client.Collect(t.Tags(cmd.Context(), t.environment, t.state), 0)
			if err != nil {
				return err
			}
			return printList(a, tags, []string{"TAG", "VERSION", "SERIAL", "WRITTEN"}, func(g wire.Tag) []string {
				return []string{g.Tag, fmt.Sprint(g.Version), fmt.Sprint(g.Serial), when(g.CreatedAt)}
			}, t.state+" has no tags")
		},
		ValidArgsFunction: a.completeState,
	}
}
