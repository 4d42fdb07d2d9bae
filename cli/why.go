package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) whyCmd() *cobra.Command {
	return a.online(&cobra.Command{
		Use:   "why REQUEST_ID",
		Short: "Tell why a request was refused",
		Long: `Tell the story of a refused request: what was tried, what stood in the way, who changed
which address, where what was sent is, and what to type next. Terraform prints only
"HTTP error: 409" when a write is refused; the server remembers the rest under the
request's id, which stands in its log, in the answer's KL-Request-Id, and in what
kl recover show prints.`,
		Example: "  kl why req_0123456789abcdef",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			r, err := t.Request(cmd.Context(), args[0])
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
	})
}
