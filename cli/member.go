package cli

import (
	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) memberCmd() *cobra.Command {
	var workspace string
	g := group("member", "See and change who is a member of a workspace",
		a.memberAddCmd(&workspace), a.memberRemoveCmd(&workspace), a.memberListCmd(&workspace), a.memberLeaveCmd(&workspace))
	g.PersistentFlags().StringVar(&workspace, "workspace", "", "the workspace, by id or name; may be left out when there is one")
	return a.online(g)
}

func (a *app) memberAddCmd(workspace *string) *cobra.Command {
	var q wire.MemberRequest
	cmd := &cobra.Command{
		Use:   "add USER",
		Short: "Make a user a member, or change a member's role",
		Long: `Make a user, named by id or name, a member of a workspace, or change a member's role.
Owners and admins manage members, environments, tokens and grants; owners also other owners.
A member may do nothing with states until there is a grant (kl grant add).`,
		Example: "  kl member add ana\n  kl member add ben --role admin --workspace platform",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.User = args[0]
			t, id, err := a.forWorkspace(cmd, *workspace)
			if err != nil {
				return err
			}
			m, err := t.AddMember(cmd.Context(), id, q)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(m)
			}
			return a.printf("%s is %s of %s\n", m.Name, m.Role, id)
		},
	}
	cmd.Flags().StringVar(&q.Role, "role", "", "owner, admin, or member (default)")
	return cmd
}

func (a *app) memberRemoveCmd(workspace *string) *cobra.Command {
	return &cobra.Command{
		Use:   "remove USER",
		Short: "End a membership, and all grants that came with it, at once",
		Long: `End a membership, and all grants that came with it, at once. They do not come back when
the user becomes a member again.`,
		Example: "  kl member remove ana",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, id, err := a.forWorkspace(cmd, *workspace)
			if err != nil {
				return err
			}
			if err := t.RemoveMember(cmd.Context(), id, args[0]); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"workspace_id": id, "user": args[0], "status": "removed"})
			}
			return a.printf("%s is no longer a member of %s\n", args[0], id)
		},
	}
}

func (a *app) memberListCmd(workspace *string) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the members of a workspace",
		Example: "  kl member list\n  kl member list --workspace platform --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, id, err := a.forWorkspace(cmd, *workspace)
			if err != nil {
				return err
			}
			all, err := client.Collect(t.Members(cmd.Context(), id), 0)
			if err != nil {
				return err
			}
			return printList(a, all, []string{"USER", "NAME", "ROLE", "SINCE"}, func(m wire.Member) []string {
				return []string{m.UserID, m.Name, m.Role, when(m.Since)}
			}, id+" has no members")
		},
	}
}

func (a *app) memberLeaveCmd(workspace *string) *cobra.Command {
	return &cobra.Command{
		Use:     "leave",
		Short:   "End your own membership of a workspace, and your grants there",
		Long:    "End your own membership of a workspace, and your grants there, at once. The last owner cannot leave.",
		Example: "  kl member leave --workspace platform",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *workspace == "" {
				return usage(cmd, "say which workspace to leave").WithNext("kl member leave --workspace WORKSPACE")
			}
			t, id, err := a.forWorkspace(cmd, *workspace)
			if err != nil {
				return err
			}
			if err := t.Leave(cmd.Context(), id); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"workspace_id": id, "status": "left"})
			}
			return a.printf("you are no longer a member of %s\n", id)
		},
	}
}
