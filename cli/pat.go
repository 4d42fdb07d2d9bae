package cli

import (
	"time"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) patCmd() *cobra.Command {
	return a.online(group("pat", "Issue and revoke your own personal access tokens",
		a.patCreateCmd(), a.patListCmd(), a.patRevokeCmd()))
}

func (a *app) patCreateCmd() *cobra.Command {
	var q wire.PATRequest
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Issue a personal access token for terraform",
		Long: `Issue a personal access token: the password of the backend block, with the workspace's
id as the user name. The secret is printed once and cannot be had again.

By itself it opens nothing. It opens the environments on which you have a grant
(kl grant add, by an admin of the workspace), for as long as you have it.`,
		Example: "  kl pat create laptop\n  kl pat create laptop --expires-in 2160h",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < 0 {
				return usage(cmd, "--expires-in must not be negative")
			}
			q.Name, q.ExpiresIn = args[0], wire.Duration(ttl)
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			p, err := t.CreatePAT(cmd.Context(), q)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(p)
			}
			a.note("the secret is shown only now: export TF_HTTP_PASSWORD=SECRET")
			return a.printPairs([][2]string{{"token", p.ID}, {"name", p.Name}, {"expires", never(p.ExpiresAt.Time)}, {"secret", p.Secret}})
		},
	}
	cmd.Flags().DurationVar(&ttl, "expires-in", 0, "how long it is good, such as 2160h; 0 for ever")
	return cmd
}

func (a *app) patListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List your personal access tokens",
		Example: "  kl pat list\n  kl pat list --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			all, err := client.Collect(t.PATs(cmd.Context()), 0)
			if err != nil {
				return err
			}
			return printList(a, all, []string{"ID", "NAME", "STATUS", "CREATED", "EXPIRES", "LAST USED"}, func(p wire.Token) []string {
				return []string{p.ID, p.Name, a.tokenStatus(p), when(p.CreatedAt), never(p.ExpiresAt.Time), a.ago(p.LastUsedAt.Time)}
			}, "you have no personal access tokens")
		},
	}
}

func (a *app) patRevokeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a personal access token at once",
		Long: `Revoke a personal access token at once. With the last one your grants end too, and a new
token does not bring them back: an admin of the workspace has to add them again.`,
		Example: "  kl pat list\n  kl pat revoke pat_…",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			if err := t.RevokePAT(cmd.Context(), args[0]); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"id": args[0], "status": "revoked"})
			}
			return a.printf("revoked %s\n", args[0])
		},
	}
}
