package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/wire"
)

func (a *app) whyCmd() *cobra.Command {
	var last bool
	cmd := &cobra.Command{
		Use:   "why [REQUEST_ID]",
		Short: "Tell why a request was refused",
		Long: `Tell the story of a refused request: what was tried, what stood in the way, who changed
which address, where what was sent is, and what to type next. Terraform prints only
"HTTP error: 409" when a write is refused; the server remembers the rest under the
request's id, which stands in its log, in the answer's KL-Request-Id, and in what
kl recover show prints. --last tells of the last refusal of your own: of the credentials that
this command uses, which in a Terraform directory are Terraform's.`,
		Example: "  kl why req_0123456789abcdef\n  kl why --last",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if last == (first(args) != "") {
				return usage(cmd, "%s: give a REQUEST_ID or --last (usage: %s)", cmd.CommandPath(), cmd.UseLine())
			}
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			var r wire.Request
			if last {
				r, err = t.lastRequest(cmd.Context())
			} else {
				r, err = t.Request(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(r)
			}
			lines := r.Story
			if len(lines) == 0 { // a server that tells no stories
				lines = []string{r.Detail, "Next: " + r.NextStep}
			}
			lines = append(lines, fmt.Sprintf("(request %s: %s %s)", r.RequestID, r.Method, r.Route))
			return a.printf("%s\n", strings.Join(lines, "\n"))
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "the last refusal of these credentials")
	return a.online(cmd)
}

// lastRequest is the last refusal of the caller's. Where there is a control
// token beside Terraform's credentials, both are the caller's, and the later
// refusal is meant.
func (t *target) lastRequest(ctx context.Context) (wire.Request, error) {
	r, err := t.LastRequest(ctx)
	if t.token == "" || t.username == "" || t.password == "" || err != nil && !fault.Is(err, fault.NotFound) {
		return r, err
	}
	other, err2 := t.WithoutBearer().LastRequest(ctx)
	if err2 != nil || err == nil && r.Time.After(other.Time) {
		return r, err
	}
	return other, nil
}
