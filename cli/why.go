package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
)

func (a *app) whyCmd() *cobra.Command {
	return a.online(&cobra.Command{
		Use:   "why REQUEST_ID",
		Short: "Tell why a request was refused",
		Long: `Tell why a request was refused. Terraform prints only "HTTP error: 409" when a write is
refused; the server remembers the rest under the request's id, which stands in its
log, in the answer's KL-Request-Id, and in what kl recover show prints.`,
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
			pairs := [][2]string{
				{"request", r.RequestID},
				{"time", when(r.Time) + " (" + a.ago(r.Time) + ")"},
				{"asked", r.Method + " " + r.Route},
				{"answer", fmt.Sprintf("%d %s (%s)", r.Status, r.Code, r.Class)},
				{"because", r.Detail},
				{"next", r.NextStep},
			}
			for _, p := range [][2]string{{"by", r.Principal}, {"workspace", r.Workspace}, {"environment", r.Environment}, {"state", r.State}, {"lock id", r.LockID}} {
				if p[1] != "" {
					pairs = append(pairs, p)
				}
			}
			for _, k := range slices.Sorted(maps.Keys(r.Members)) {
				text, ok := r.Members[k].(string)
				if !ok {
					b, err := json.Marshal(r.Members[k])
					if err != nil {
						return fmt.Errorf("write member %s: %w", k, err)
					}
					text = string(b)
				}
				pairs = append(pairs, [2]string{k, text})
			}
			return a.printPairs(pairs)
		},
	})
}
