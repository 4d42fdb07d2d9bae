package cli

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"kl/fault"
)

func (a *app) initCmd() *cobra.Command {
	var data, listen, external string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a data file without serving it",
		Long: `Create a data file with an operator, a workspace, an environment and an automation
token, as the first kl serve does, and print them once. The address in the answer is
that of --external-url, or else of --listen.`,
		Example: "  kl init --data kl.db\n  kl init --data kl.db --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			base, remark, err := baseAddress(external, listen, false)
			if err != nil {
				return err
			}
			if _, err := os.Lstat(data); !errors.Is(err, fs.ErrNotExist) {
				return fault.Wrap(fault.FileInvalid, err, "%s is there already; init does not touch it", data).
					WithNext("serve it with: kl serve --data %s; or name another file", data)
			}
			d, err := a.openData(data, 0)
			if err != nil {
				return err
			}
			b, _, err := d.bootstrap(cmd.Context(), base)
			if err == nil {
				err = a.printBootstrap(data, base, remark, b)
			}
			if err != nil {
				return errors.Join(err, d.discard())
			}
			return d.Close()
		},
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", defaultData, "data file to create")
	f.StringVar(&listen, "listen", defaultListen, "address that kl serve will listen on")
	f.StringVar(&external, "external-url", "", "address under which clients will reach the server")
	return cmd
}
