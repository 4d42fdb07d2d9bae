package cli

import (
	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) userCmd() *cobra.Command {
	return a.online(group("user", "Create, list and delete users (operator)",
		a.userCreateCmd(), a.userListCmd(), a.userTokenCmd(), a.userDeleteCmd()))
}

func (a *app) userCreateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Create a user and print the user's control token, once",
		Long: `Create a user. The control token that is printed is the user's, for kl login; it cannot be
had again. A user may do nothing until somebody adds them to a workspace (kl member add).`,
		Example: "  kl user create ana\n  kl member add ana --workspace ws_…",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			u, err := t.CreateUser(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(u)
			}
			a.note("the control token is shown only now; the user keeps it with: kl login --address %s", t.base)
			return a.printPairs([][2]string{{"user", u.UserID}, {"name", u.Name}, {"control token", u.ControlToken}})
		},
	}
}

func (a *app) userListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the users",
		Example: "  kl user list\n  kl user list --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			all, err := client.Collect(t.Users(cmd.Context()), 0)
			if err != nil {
				return err
			}
			return printList(a, all, []string{"USER", "NAME", "STATUS", "CREATED"}, func(u wire.User) []string {
				return []string{u.UserID, u.Name, u.Status, when(u.CreatedAt)}
			}, "there are no users")
		},
	}
}

func (a *app) userTokenCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "token USER",
		Short: "Print a new control token for a user who has lost theirs, once",
		Long: `Issue a new control token for a user, named by id or name, who has lost theirs, and print it
once. The one from before ends at once. Personal access tokens, memberships and grants stay.`,
		Example: "  kl user token ana",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			u, err := t.NewUserToken(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(u)
			}
			a.note("the control token from before has ended; the user keeps the new one with: kl login --address %s", t.base)
			return a.printPairs([][2]string{{"user", u.UserID}, {"name", u.Name}, {"control token", u.ControlToken}})
		},
	}
}

func (a *app) userDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "delete USER",
		Short: "Delete a user: all tokens, memberships and grants end at once",
		Long: `Delete a user, named by id or name. All their tokens, memberships and grants end at once.
What they did stays in the audit trail. Locks that they hold stay held: release them with
kl lock release.`,
		Example: "  kl user delete ana",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			if err := t.DeleteUser(cmd.Context(), args[0]); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"user": args[0], "status": wire.UserDeleted})
			}
			return a.printf("deleted %s\n", args[0])
		},
	}
}
