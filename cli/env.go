package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) envCmd() *cobra.Command {
	return a.online(group("env", "Create and delete environments, see and change their settings",
		a.envCreateCmd(), a.envListCmd(), a.envShowCmd(), a.envSetCmd(), a.envDeleteCmd()))
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

// forNamed is forEnvironment for the environment that the argument names, else
// the flags.
func (a *app) forNamed(cmd *cobra.Command, args []string) (*target, error) {
	if err := a.envArg(cmd, args); err != nil {
		return nil, err
	}
	return a.forEnvironment(cmd.Context())
}

func (a *app) envShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "show [ENV]",
		Short:   "Print an environment's settings",
		Example: "  kl env show\n  kl env show env_… --json",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forNamed(cmd, args)
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
	pairs := [][2]string{
		{"environment", e.EnvPublicID},
		{"slug", e.Slug},
		{"workspace", e.WorkspaceID},
		{"lock mode", modeText(e.LockMode)},
		{"recovery hold", hold},
		{"lock idle ttl", ttl},
		{"max terraform version", newest},
		{"versions kept", keepText(e.KeepLast, e.KeepDays)},
		{"refused writes kept", strconv.FormatInt(e.RefusedKeepLast, 10) + ", for " + plural(e.RefusedKeepDays, "day", "days") + ", " + amount(e.RefusedKeepBytes)},
		{"created", when(e.CreatedAt)},
	}
	return a.printPairs(append(pairs, limitPairs(e)...))
}

// keepText says what an environment's rules of retention keep.
func keepText(last, days int64) string {
	switch {
	case last > 0 && days > 0:
		return fmt.Sprintf("the last %d, and all of the last %s", last, plural(days, "day", "days"))
	case last > 0:
		return fmt.Sprintf("the last %d", last)
	case days > 0:
		return "all of the last " + plural(days, "day", "days")
	}
	return "all"
}

// modeText says what a lock mode means.
func modeText(mode string) string {
	if mode == "optimistic" {
		return mode + ": several may apply at a time, their changes are merged"
	}
	return mode
}

// envFlags are the settings that create and set share.
type envFlags struct {
	mode, newest              string
	hold                      bool
	ttl                       time.Duration
	keepLast, keepBytes, days int64
	last, lastDays            int64
	limits                    wire.LimitsPatch
}

func (f *envFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.mode, "lock-mode", "", "exclusive (one apply at a time) or optimistic (several, their changes are merged)")
	fs.BoolVar(&f.hold, "recovery-hold", true, "hold an apply back while a refused write of its credentials is open")
	fs.DurationVar(&f.ttl, "lock-idle-ttl", 0, "release locks from whose holder nothing came for that long, such as 2h; 0 for never")
	fs.StringVar(&f.newest, "max-terraform-version", "", "newest Terraform version that may lock, such as 1.11.4, or 1.11 for all of it; empty for any")
	fs.Int64Var(&f.last, "keep-last", 0, "versions of a state to keep, the newest; 0 for no such rule")
	fs.Int64Var(&f.lastDays, "keep-days", 0, "days back to which every version of a state is kept; 0 for no such rule; without either rule all are kept")
	fs.Int64Var(&f.keepLast, "refused-keep-last", 0, "refused writes to keep, the newest; 0 for all")
	fs.Int64Var(&f.keepBytes, "refused-keep-bytes", 0, "stored bytes of refused writes to keep; 0 for all")
	fs.Int64Var(&f.days, "refused-keep-days", 0, "days to keep refused writes; 0 for ever")
	addLimits(cmd, &f.limits)
}

// patch is what was given on the command line.
func (f *envFlags) patch(cmd *cobra.Command) (wire.EnvironmentPatch, error) {
	p := wire.EnvironmentPatch{LimitsPatch: f.limits}
	changed := cmd.Flags().Changed
	if changed("lock-mode") {
		p.LockMode = &f.mode
	}
	if changed("recovery-hold") {
		p.RecoveryHold = &f.hold
	}
	if changed("lock-idle-ttl") {
		if f.ttl < 0 {
			return p, usage(cmd, "--lock-idle-ttl must not be negative")
		}
		d := wire.Duration(f.ttl)
		p.LockIdleTTL = &d
	}
	if changed("max-terraform-version") {
		p.MaxTerraformVersion = &f.newest
	}
	for name, to := range map[string]struct {
		from *int64
		to   **int64
	}{
		"refused-keep-last": {&f.keepLast, &p.RefusedKeepLast}, "refused-keep-bytes": {&f.keepBytes, &p.RefusedKeepBytes}, "refused-keep-days": {&f.days, &p.RefusedKeepDays},
		"keep-last": {&f.last, &p.KeepLast}, "keep-days": {&f.lastDays, &p.KeepDays},
	} {
		if changed(name) {
			*to.to = to.from
		}
	}
	return p, nil
}

func (a *app) envSetCmd() *cobra.Command {
	var f envFlags
	var slug string
	cmd := &cobra.Command{
		Use:   "set [ENV]",
		Short: "Change an environment's settings and print them all",
		Long: `Change an environment's settings and print them all. What is not named stays.

The lock mode may be changed while locks are held: none is lost. A session that began
beside others goes on being merged.`,
		Example: `  kl env set --lock-mode optimistic
  kl env set --lock-idle-ttl 2h
  kl env set env_… --max-terraform-version 1.11.4
  kl env set --recovery-hold=false
  kl env set --keep-last 20 --keep-days 30`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.envArg(cmd, args); err != nil {
				return err
			}
			p, err := f.patch(cmd)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("slug") {
				p.Slug = &slug
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
	f.add(cmd)
	cmd.Flags().StringVar(&slug, "slug", "", "another slug")
	return cmd
}

func (a *app) envCreateCmd() *cobra.Command {
	var f envFlags
	var workspace string
	cmd := &cobra.Command{
		Use:   "create SLUG",
		Short: "Add an environment to a workspace",
		Long: `Add an environment to a workspace and print its settings. It has no token yet: issue one
with kl token create.`,
		Example: `  kl env create staging
  kl env create ci --workspace ws_… --lock-mode optimistic`,
		Args: between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.patch(cmd)
			if err != nil {
				return err
			}
			p.Slug = &args[0]
			t, ws, err := a.forWorkspace(cmd, workspace)
			if err != nil {
				return err
			}
			e, err := t.CreateEnvironment(cmd.Context(), ws, p)
			if err != nil {
				return err
			}
			if err := a.printEnvironment(e); err != nil || a.asJSON {
				return err
			}
			a.note("it has no token yet: kl token create NAME --env %s", e.EnvPublicID)
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&workspace, "workspace", "", "the workspace, by id or name; may be left out when there is one")
	return cmd
}

// onlyWorkspace is the workspace that is meant when none is named.
func (t *target) onlyWorkspace(cmd *cobra.Command) (string, error) {
	if t.workspace != "" {
		return t.workspace, nil
	}
	all, err := client.Collect(t.Workspaces(cmd.Context()), 0)
	if err != nil {
		return "", err
	}
	if len(all) == 1 {
		return all[0].WorkspaceID, nil
	}
	if len(all) == 0 {
		return "", usage(cmd, "there is no workspace of yours").WithNext("kl workspace create NAME, or ask an owner of one: kl member add")
	}
	var names []string
	for _, w := range all {
		names = append(names, w.WorkspaceID+" ("+w.Name+")")
	}
	return "", usage(cmd, "no workspace is named, and there are %d", len(all)).WithNext("name one of: %s", strings.Join(names, ", "))
}

func (a *app) envListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the environments that the credentials may see",
		Example: "  kl env list\n  kl env list --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			all, err := t.environments(cmd.Context())
			if err != nil {
				return err
			}
			return printList(a, all, []string{"ENVIRONMENT", "SLUG", "WORKSPACE", "LOCK MODE", "CREATED"}, func(e wire.Environment) []string {
				return []string{e.EnvPublicID, e.Slug, e.WorkspaceID, e.LockMode, when(e.CreatedAt)}
			}, "there is no environment")
		},
	}
}

func (a *app) envDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "delete ENV",
		Short: "Delete an environment that has no states",
		Long: `Delete an environment, with its tokens and grants. It must have no states outside of the
trash; those in the trash go with it, for good.`,
		Example: "  kl env delete staging",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forNamed(cmd, args)
			if err != nil {
				return err
			}
			if err := t.DeleteEnvironment(cmd.Context(), t.environment); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"env_public_id": t.environment, "status": "deleted"})
			}
			return a.printf("deleted %s\n", args[0])
		},
	}
}
