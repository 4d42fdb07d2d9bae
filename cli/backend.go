package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// backendBlock is what Terraform needs to know to keep a state here.
type backendBlock struct {
	Address       string `json:"address"`
	LockAddress   string `json:"lock_address"`
	UnlockAddress string `json:"unlock_address"`
	Username      string `json:"username"`
	Password      string `json:"password,omitempty"`
}

func newBackend(base, workspace, environment, state, password string) backendBlock {
	addr := base + wire.StatePath(workspace, environment, state)
	return backendBlock{Address: addr, LockAddress: addr, UnlockAddress: addr, Username: workspace, Password: password}
}

func (b backendBlock) settings() [][2]string {
	s := [][2]string{
		{"address", b.Address}, {"lock_address", b.LockAddress}, {"unlock_address", b.UnlockAddress}, {"username", b.Username},
	}
	if b.Password != "" {
		s = append(s, [2]string{"password", b.Password})
	}
	return s
}

// hcl is the block as it stands in a configuration.
func (b backendBlock) hcl() string {
	var s strings.Builder
	s.WriteString("terraform {\n  backend \"http\" {\n")
	for _, p := range b.settings() {
		fmt.Fprintf(&s, "    %-14s = %s\n", p[0], hclString(p[1]))
	}
	if b.Password == "" {
		s.WriteString("    # password: set TF_HTTP_PASSWORD to an automation token or PAT\n")
	}
	s.WriteString("  }\n}\n")
	return s.String()
}

// arguments are the block as lines for terraform init.
func (b backendBlock) arguments() string {
	var s strings.Builder
	for _, p := range b.settings() {
		fmt.Fprintf(&s, "-backend-config=%s=%s\n", p[0], p[1])
	}
	return s.String()
}

// hclString writes a quoted string in which nothing is evaluated.
func hclString(s string) string {
	q := strconv.Quote(s)
	q = strings.ReplaceAll(q, "${", "$${")
	return strings.ReplaceAll(q, "%{", "%%{")
}

func (a *app) backendCmd() *cobra.Command {
	var lines, secret bool
	cmd := &cobra.Command{
		Use:   "backend [STATE]",
		Short: "Print the backend block for a state",
		Long: `Print the backend "http" block for a state, to be pasted into a configuration. The
state need not exist yet.

The password is left to the environment variable TF_HTTP_PASSWORD, because
Terraform copies what stands in the block into .terraform and into saved plans.
--with-secret puts it into the block all the same.`,
		Example: `  kl backend demo > backend.tf
  terraform init $(kl backend demo --flags)`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			if err := t.findWorkspace(cmd.Context()); err != nil {
				return err
			}
			password := ""
			if secret {
				if password, err = t.dataSecret(); err != nil {
					return err
				}
			}
			b := newBackend(t.base, t.workspace, t.environment, t.state, password)
			switch {
			case a.asJSON:
				err = a.printJSON(b)
			case lines:
				err = a.printf("%s", b.arguments())
			default:
				err = a.printf("%s", b.hcl())
			}
			if err == nil && !secret {
				a.note("the password is not in it: export TF_HTTP_PASSWORD=TOKEN, with an automation token or PAT")
			}
			return err
		},
		ValidArgsFunction: a.completeState,
	}
	cmd.Flags().BoolVar(&lines, "flags", false, "print -backend-config arguments for terraform init")
	cmd.Flags().BoolVar(&secret, "with-secret", false, "put the password into it")
	return a.online(cmd)
}

// dataSecret is the secret that Terraform can use as its password.
func (t *target) dataSecret() (string, error) {
	for _, s := range []string{t.password, t.token} {
		if k, ok := auth.KindOf(s); ok && k != auth.Control {
			return s, nil
		}
	}
	return "", fault.New(fault.ParameterInvalid, "no automation token or PAT is known here that could be the password").
		WithNext("give it with --password (KL_PASSWORD, TF_HTTP_PASSWORD), or leave out --with-secret")
}
