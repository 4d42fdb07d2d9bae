package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"kl/fault"
)

func (a *app) initCmd() *cobra.Command {
	var data, listen, external string
	var newToken bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a data file without serving it",
		Long: `Create a data file with an operator, a workspace, an environment and an automation
token, as the first kl serve does, and print them once. The address in the answer is
that of --external-url, or else of --listen.

With --new-operator-token it issues a new control token of the operator's in a file that is
there, while no server runs, and prints it once: for when the token was lost. The one from
before ends; nothing else changes.`,
		Example: "  kl init --data kl.db\n  kl init --data kl.db --json\n  kl init --data kl.db --new-operator-token",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if newToken {
				return a.newOperatorToken(cmd.Context(), data)
			}
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
	f.BoolVar(&newToken, "new-operator-token", false, "issue a new control token of the operator's in a file that is there")
	return cmd
}

// newOperatorToken is break-glass: who may write the file is the operator.
func (a *app) newOperatorToken(ctx context.Context, data string) (err error) {
	if _, err := os.Lstat(data); err != nil {
		return fault.Wrap(fault.FileInvalid, err, "there is no data file %s", data).WithNext("name it with --data")
	}
	d, err := a.openData(data, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	secret, err := d.NewOperatorToken(ctx)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(map[string]string{"control_token": secret})
	}
	a.note("the operator's control token from before has ended; keep this one with: kl login --address ADDRESS")
	return a.printPairs([][2]string{{"control token", secret}})
}
