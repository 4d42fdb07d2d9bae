package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"kl/wire"
)

func (a *app) envCmd() *cobra.Command {
	return a.online(group("env", "See and change an environment's settings", a.envShowCmd(), a.envSetCmd()))
}

// envArg lets the environment be named by an argument as well as by --env.
func (a *app) envArg(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if a.flags.env != "" && a.flags.env != args[0] && !a.fromEnv["env"] {
		return usage(cmd, "two environments are named: %q, and %q by --env", args[0], a.flags.env)
	}
	a.flags.env = args[0]
	return nil
}

func (a *app) envShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "show [ENV]",
		Short:   "Print an environment's settings",
		Example: "  kl env show\n  kl env show env_… --json",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.envArg(cmd, args); err != nil {
				return err
			}
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			e, err := t.Environment(cmd.Context(), t.environment)
			if err != nil {
				return err
			}
			return a.printEnvironment(e)
		},
	}
}

func (a *app) printEnvironment(e wire.Environment) error {
	if a.asJSON {
		return a.printJSON(e)
	}
	ttl, newest, hold := "off: locks never expire by themselves", "any", "off"
	if e.LockIdleTTL > 0 {
		ttl = time.Duration(e.LockIdleTTL).String()
	}
	if e.MaxTerraformVersion != "" {
		newest = e.MaxTerraformVersion
	}
	if e.RecoveryHold {
		hold = "on: an apply waits until refused writes are settled"
	}
	return a.printPairs([][2]string{
		{"environment", e.EnvPublicID},
		{"slug", e.Slug},
		{"workspace", e.WorkspaceID},
		{"lock mode", e.LockMode},
		{"recovery hold", hold},
		{"lock idle ttl", ttl},
		{"max terraform version", newest},
		{"refused writes kept", strconv.FormatInt(e.RefusedKeepLast, 10) + ", for " + plural(e.RefusedKeepDays, "day", "days") + ", " + amount(e.RefusedKeepBytes)},
		{"created", when(e.CreatedAt)},
	})
}

func (a *app) envSetCmd() *cobra.Command {
	var hold bool
	var ttl time.Duration
	var newest string
	cmd := &cobra.Command{
		Use:   "set [ENV]",
		Short: "Change an environment's settings and print them all",
		Example: `  kl env set --lock-idle-ttl 2h
  kl env set env_… --max-terraform-version 1.11.4
  kl env set --recovery-hold=false`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.envArg(cmd, args); err != nil {
				return err
			}
			var p wire.EnvironmentPatch
			changed := cmd.Flags().Changed
			if changed("recovery-hold") {
				p.RecoveryHold = &hold
			}
			if changed("lock-idle-ttl") {
				if ttl < 0 {
					return usage(cmd, "--lock-idle-ttl must not be negative")
				}
				d := wire.Duration(ttl)
				p.LockIdleTTL = &d
			}
			if changed("max-terraform-version") {
				p.MaxTerraformVersion = &newest
			}
			if p == (wire.EnvironmentPatch{}) {
				return usage(cmd, "there is nothing to set")
			}
			t, err := a.forEnvironment(cmd.Context())
			if err != nil {
				return err
			}
			e, err := t.PatchEnvironment(cmd.Context(), t.environment, p)
			if err != nil {
				return err
			}
			return a.printEnvironment(e)
		},
	}
	cmd.Flags().BoolVar(&hold, "recovery-hold", true, "hold an apply back while a refused write of its credentials is open")
	cmd.Flags().DurationVar(&ttl, "lock-idle-ttl", 0, "release locks from whose holder nothing came for that long, such as 2h; 0 for never")
	cmd.Flags().StringVar(&newest, "max-terraform-version", "", "newest Terraform version that may lock; empty for any")
	return cmd
}
