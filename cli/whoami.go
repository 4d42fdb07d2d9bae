package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) whoamiCmd() *cobra.Command {
	return a.online(&cobra.Command{
		Use:     "whoami",
		Short:   "Tell who the server takes you for",
		Example: "  kl whoami --address http://127.0.0.1:8080 --token \"$KL_TOKEN\"",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			w, err := t.Whoami(cmd.Context())
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(w)
			}
			pairs := [][2]string{{"server", t.base}, {"kind", w.Kind}, {"id", w.ID}}
			for _, p := range [][2]string{{"name", w.Name}, {"user", w.User}, {"workspace", w.Workspace}, {"environment", w.Environment}, {"role", w.Role}} {
				if p[1] != "" {
					pairs = append(pairs, p)
				}
			}
			if w.Operator {
				pairs = append(pairs, [2]string{"operator", "yes"})
			}
			return a.printPairs(pairs)
		},
	})
}
