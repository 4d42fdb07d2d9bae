package cli

import (
	"github.com/spf13/cobra"

	"kl/client"
	"kl/wire"
)

func (a *app) workspaceCmd() *cobra.Command {
	return a.online(group("workspace", "Create workspaces, see them, hold and release them",
		a.workspaceCreateCmd(), a.workspaceListCmd(), a.workspaceShowCmd(), a.workspaceSuspendCmd(), a.workspaceResumeCmd(), a.workspaceDeleteCmd()))
}

func (a *app) workspaceCreateCmd() *cobra.Command {
	var q wire.WorkspaceRequest
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a workspace",
		Long: `Create a workspace. It holds environments, and has members. A user who creates one is its
owner; the operator may name the owner. A personal workspace has exactly one member.`,
		Example: "  kl workspace create platform\n  kl workspace create ana-home --kind personal --owner ana",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Name = args[0]
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			w, err := t.CreateWorkspace(cmd.Context(), q)
			if err != nil {
				return err
			}
			if err := a.printWorkspace(w); err != nil || a.asJSON {
				return err
			}
			a.note("it has no environment yet: kl env create SLUG --workspace %s", w.WorkspaceID)
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Kind, "kind", "", "organization (default) or personal")
	cmd.Flags().StringVar(&q.Owner, "owner", "", "user who owns it, by id or name (operator only)")
	return cmd
}

func (a *app) printWorkspace(w wire.Workspace) error {
	if a.asJSON {
		return a.printJSON(w)
	}
	pairs := [][2]string{{"workspace", w.WorkspaceID}, {"name", w.Name}, {"kind", w.Kind}, {"status", w.Status}}
	if w.Status == "suspended" {
		pairs = append(pairs, [2]string{"reason", w.SuspendedReason}, [2]string{"suspended by", w.SuspendedBy}, [2]string{"suspended since", when(w.SuspendedAt)})
	}
	if w.MemberRole != "" {
		pairs = append(pairs, [2]string{"you are", w.MemberRole})
	}
	return a.printPairs(append(pairs, [2]string{"created", when(w.CreatedAt)}))
}

func (a *app) workspaceListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the workspaces that you are a member of; the operator sees all",
		Example: "  kl workspace list\n  kl workspace list --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			all, err := client.Collect(t.Workspaces(cmd.Context()), 0)
			if err != nil {
				return err
			}
			head := []string{"WORKSPACE", "NAME", "KIND", "STATUS", "YOU ARE", "CREATED"}
			return printList(a, all, head, func(w wire.Workspace) []string {
				return []string{w.WorkspaceID, w.Name, w.Kind, w.Status, w.MemberRole, when(w.CreatedAt)}
			}, "there is no workspace of yours")
		},
	}
}

// forWorkspace is resolve for commands that need a workspace. It may be named
// by id or name, and left out when there is one.
func (a *app) forWorkspace(cmd *cobra.Command, named string) (*target, string, error) {
	t, err := a.resolve("")
	if err != nil {
		return nil, "", err
	}
	if workspaceID.MatchString(named) {
		return t, named, nil
	}
	if named == "" {
		id, err := t.onlyWorkspace(cmd)
		return t, id, err
	}
	var found []string
	for w, err := range t.Workspaces(cmd.Context()) {
		if err != nil {
			return nil, "", err
		}
		if w.Name == named {
			found = append(found, w.WorkspaceID)
		}
	}
	switch len(found) {
	case 1:
		return t, found[0], nil
	case 0:
		return nil, "", usage(cmd, "there is no workspace %q here", named).WithNext("kl workspace list")
	}
	return nil, "", usage(cmd, "several workspaces are named %q", named).WithNext("give its id, one of those that kl workspace list prints")
}

// onWorkspace makes a command about the workspace that its argument names.
func (a *app) onWorkspace(cmd *cobra.Command, do func(*cobra.Command, *target, string) (wire.Workspace, error)) *cobra.Command {
	cmd.Args = between(0, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, id, err := a.forWorkspace(cmd, first(args))
		if err != nil {
			return err
		}
		w, err := do(cmd, t, id)
		if err != nil {
			return err
		}
		return a.printWorkspace(w)
	}
	return cmd
}

func (a *app) workspaceShowCmd() *cobra.Command {
	return a.onWorkspace(&cobra.Command{
		Use:     "show [WORKSPACE]",
		Short:   "Print a workspace, and why it is on hold",
		Example: "  kl workspace show\n  kl workspace show platform --json",
	}, func(cmd *cobra.Command, t *target, id string) (wire.Workspace, error) {
		return t.Workspace(cmd.Context(), id)
	})
}

func (a *app) workspaceSuspendCmd() *cobra.Command {
	var reason string
	cmd := a.onWorkspace(&cobra.Command{
		Use:   "suspend [WORKSPACE]",
		Short: "Hold a workspace: its states can be read, not written",
		Long: `Hold a workspace: its states can be read, not written or locked. Locks can still be given
back. What an apply sends that is running now is refused, and kept (kl recover list). The
reason is told to everybody who is refused.`,
		Example: "  kl workspace suspend platform --reason \"audit until Friday\"\n  kl workspace resume platform",
	}, func(cmd *cobra.Command, t *target, id string) (wire.Workspace, error) {
		return t.SuspendWorkspace(cmd.Context(), id, reason)
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if reason == "" {
			return usage(cmd, "a reason is missing: it is told to everybody who is refused").WithNext("kl workspace suspend WORKSPACE --reason TEXT")
		}
		return run(cmd, args)
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who are refused")
	return cmd
}

func (a *app) workspaceResumeCmd() *cobra.Command {
	return a.onWorkspace(&cobra.Command{
		Use:     "resume [WORKSPACE]",
		Short:   "End the hold on a workspace",
		Example: "  kl workspace resume platform",
	}, func(cmd *cobra.Command, t *target, id string) (wire.Workspace, error) {
		return t.ResumeWorkspace(cmd.Context(), id)
	})
}

func (a *app) workspaceDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "delete WORKSPACE",
		Short: "Delete a workspace that has no environments",
		Long: `Delete a workspace, with its memberships. It must have no environments: kl env delete. Its
entries in the audit trail stay.`,
		Example: "  kl workspace delete platform",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, id, err := a.forWorkspace(cmd, args[0])
			if err != nil {
				return err
			}
			if err := t.DeleteWorkspace(cmd.Context(), id); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"workspace_id": id, "status": "deleted"})
			}
			return a.printf("deleted %s\n", args[0])
		},
	}
}
