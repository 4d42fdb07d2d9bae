package cli

import (
	"time"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) tokenCmd() *cobra.Command {
	return a.online(group("token", "Issue and revoke an environment's automation tokens",
		a.tokenCreateCmd(), a.tokenListCmd(), a.tokenRevokeCmd()))
}

func (a *app) tokenCreateCmd() *cobra.Command {
	var q wire.TokenRequest
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Issue an automation token",
		Long: `Issue an automation token for an environment. It is the password of the backend block;
the workspace's id is the user name. The secret is printed once and cannot be had again.

Give each pipeline and each person a token of its own: its name stands beside all that it
does, and only who took a lock may use it.`,
		Example: "  kl token create ci\n  kl token create dashboards --role read --expires-in 720h\n  kl token create other-team --role outputs",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < 0 {
				return usage(cmd, "--expires-in must not be negative")
			}
			q.Name, q.ExpiresIn = args[0], wire.Duration(ttl)
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			tok, err := t.CreateToken(cmd.Context(), t.environment, q)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(tok)
			}
			a.note("the secret is shown only now")
			return a.printPairs([][2]string{
				{"token", tok.ID}, {"name", tok.Name}, {"environment", t.environment}, {"role", tok.Role}, {"expires", never(tok.ExpiresAt.Time)}, {"secret", tok.Secret},
			})
		},
	}
	cmd.Flags().StringVar(&q.Role, "role", "write", "what it may do: write, plan (read, and lock for plans), read, or outputs")
	cmd.Flags().BoolVar(&q.Sensitive, "sensitive", false, "with --role outputs: serve sensitive outputs too")
	cmd.Flags().DurationVar(&ttl, "expires-in", 0, "how long it is good, such as 720h; 0 for ever")
	return cmd
}

// tokenStatus says whether a token is still good.
func (a *app) tokenStatus(t wire.Token) string {
	switch {
	case !t.RevokedAt.IsZero():
		return "revoked"
	case !t.ExpiresAt.IsZero() && !a.env.Now().Before(t.ExpiresAt.Time):
		return "expired"
	}
	return "active"
}

func never(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return when(t)
}

func (a *app) tokenListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List an environment's automation tokens",
		Example: "  kl token list\n  kl token list --env ci --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			all, err := client.Collect(t.Tokens(cmd.Context(), t.environment), 0)
			if err != nil {
				return err
			}
			head := []string{"ID", "NAME", "ROLE", "STATUS", "CREATED", "EXPIRES", "LAST USED"}
			return printList(a, all, head, func(tok wire.Token) []string {
				role := tok.Role
				if tok.Sensitive {
					role += ", sensitive too"
				}
				return []string{tok.ID, tok.Name, role, a.tokenStatus(tok), when(tok.CreatedAt), never(tok.ExpiresAt.Time), a.ago(tok.LastUsedAt.Time)}
			}, t.environment+" has no tokens")
		},
	}
}

func (a *app) tokenRevokeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke an automation token at once",
		Long: `Revoke an automation token at once. Locks that it holds stay held; what their clients
still send is refused, and kept (kl recover list). Release them with kl lock release.`,
		Example: "  kl token list\n  kl token revoke tok_…",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			if err := t.RevokeToken(cmd.Context(), t.environment, args[0]); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"id": args[0], "status": "revoked"})
			}
			return a.printf("revoked %s\n", args[0])
		},
	}
}
