package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) grantCmd() *cobra.Command {
	return a.online(group("grant", "See and change what members may do on an environment",
		a.grantAddCmd(), a.grantRemoveCmd(), a.grantListCmd()))
}

func (a *app) grantAddCmd() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:   "add USER",
		Short: "Give a member a role on an environment, or another one",
		Long: `Give a member of the workspace, named by id or name, a role on an environment, or another
one. The member's personal access tokens (kl pat create) then open the environment.

A grant ends when it is removed, when the membership ends, and when the member's last
token is revoked. It does not come back by itself.`,
		Example: "  kl grant add ana --env prod\n  kl grant add ben --env prod --role plan",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			g, err := t.Grant(cmd.Context(), t.environment, args[0], role)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(g)
			}
			return a.printf("%s has the role %s on %s\n", g.Name, g.Role, g.EnvPublicID)
		},
	}
	cmd.Flags().StringVar(&role, "role", "write", "what it allows: write, plan (read, and lock for plans), read, or outputs")
	return cmd
}

func (a *app) grantRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "remove USER",
		Short:   "End a member's grant on an environment at once",
		Long:    "End a member's grant on an environment at once. What an apply still sends is refused.",
		Example: "  kl grant remove ana --env prod",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			if err := t.EndGrant(cmd.Context(), t.environment, args[0]); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"env_public_id": t.environment, "user": args[0], "status": wire.GrantEnded})
			}
			return a.printf("%s has no grant on %s any more\n", args[0], t.environment)
		},
	}
}

func (a *app) grantListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List each member's tokens and grant on an environment",
		Long: `List for each member of the workspace whether there is a personal access token, the grant
on this environment, and how many grants the member has in the whole workspace.`,
		Example: "  kl grant list --env prod\n  kl grant list --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			all, err := client.Collect(t.Access(cmd.Context(), t.environment), 0)
			if err != nil {
				return err
			}
			head := []string{"USER", "NAME", "MEMBER", "TOKEN", "GRANT", "ROLE", "GRANTS"}
			return printList(a, all, head, func(x wire.Access) []string {
				return []string{x.UserID, x.Name, x.MemberRole, x.PATStatus, x.GrantStatus, x.GrantRole, strconv.Itoa(x.GrantCount)}
			}, "the workspace of "+t.environment+" has no members")
		},
	}
}
