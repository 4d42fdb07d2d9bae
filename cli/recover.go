package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kl/client"
	"kl/fault"
	"kl/wire"
)

func (a *app) recoverCmd() *cobra.Command {
	g := group("recover", "Look after writes that were refused and kept",
		a.recoverListCmd(), a.recoverShowCmd(), a.recoverDiffCmd(), a.recoverMergeCmd(), a.recoverDiscardCmd())
	g.Long = `Look after writes that were refused and kept, byte for byte.

A refused write may tell of objects that exist but are in no state. While such a one is
open, the next apply of the same credentials is held back, because it would create them
again. Settle it with kl recover merge, which brings it into the state beside what others
have written since, or give it up with kl recover discard.

With --file it begins from the errored.tfstate that Terraform wrote, whether or not the
server has heard of it: it is found among the refused writes, or brought in as one, what a
merge would do is shown, and after a confirmation it is merged.`
	g.Example = `  kl recover list --state demo
  kl recover diff rw_… --state demo
  kl recover merge rw_… --state demo --take disjoint
  kl recover --file errored.tfstate`
	var f fileOptions
	g.Flags().StringVar(&f.name, "file", "", "an errored.tfstate, or any state file, to bring in")
	g.Flags().BoolVar(&f.yes, "yes", false, "with --file: merge without asking")
	f.merge.add(g)
	g.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return noCommand(cmd, args)
		case f.name == "":
			return usage(cmd, "%s needs a command, or --file", cmd.CommandPath())
		}
		return a.recoverFile(cmd, f)
	}
	return a.online(g)
}

var refusedHead = []string{"ID", "REFUSED", "CODE", "STATUS", "HOLDS APPLY", "SERIAL", "BYTES", "BY"}

func refusedRow(r wire.Refused) []string {
	holds := "no"
	if r.Holds && r.Status == "open" {
		holds = "yes"
	}
	return []string{r.ID, when(r.CreatedAt), r.Code, r.Status, holds, fmt.Sprint(r.Serial), amount(r.Bytes), r.Principal}
}

// openRefused lists the refused writes that wait for recovery.
func (t *target) openRefused(ctx context.Context) ([]wire.Refused, error) {
	all, err := client.Collect(t.RefusedList(ctx, t.environment, t.state), 0)
	return slices.DeleteFunc(all, func(r wire.Refused) bool { return r.Status != "open" }), err
}

func (a *app) recoverListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the refused writes of a state",
		Example: "  kl recover list --state demo",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.forState(cmd.Context(), "")
			if err != nil {
				return err
			}
			rs, err := client.Collect(t.RefusedList(cmd.Context(), t.environment, t.state), 0)
			if err != nil {
				return err
			}
			return printList(a, rs, refusedHead, refusedRow, "no refused write of "+t.state+" is kept")
		},
	}
}

func (a *app) recoverShowCmd() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Tell why a write was refused, or print its bytes",
		Example: "  kl recover show rw_… --state demo\n  kl recover show rw_… --state demo --raw > errored.tfstate",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), "")
			if err != nil {
				return err
			}
			if raw {
				b, err := t.RefusedBody(cmd.Context(), t.environment, t.state, args[0])
				if err != nil {
					return err
				}
				return a.copyOut(b)
			}
			for r, err := range t.RefusedList(cmd.Context(), t.environment, t.state) {
				if err != nil {
					return err
				}
				if r.ID == args[0] {
					return a.printRefused(t.state, r)
				}
			}
			return fault.New(fault.NotFound, "the state %s has no refused write %s", t.state, args[0]).
				WithNext("kl recover list --state %s", t.state)
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the exact bytes that were refused")
	return cmd
}

func (a *app) printRefused(state string, r wire.Refused) error {
	if a.asJSON {
		return a.printJSON(r)
	}
	pairs := [][2]string{
		{"id", r.ID},
		{"state", state},
		{"status", r.Status},
		{"refused", when(r.CreatedAt) + " (" + a.ago(r.CreatedAt) + ")"},
		{"because", r.Detail},
		{"code", r.Code},
		{"by", r.Principal},
		{"serial", fmt.Sprint(r.Serial)},
		{"lineage", r.Lineage},
		{"lock id", r.LockID},
		{"size", amount(r.Bytes)},
		{"sha256", r.SHA256},
		{"head then", "version " + fmt.Sprint(r.BaseVersion)},
		{"request", r.RequestID},
	}
	if len(r.ConflictingAddresses) > 0 {
		pairs = append(pairs, [2]string{"in conflict", strings.Join(r.ConflictingAddresses, ", ")})
	}
	if len(r.UnknownToHead) > 0 {
		pairs = append(pairs, [2]string{"only in here", strings.Join(r.UnknownToHead, ", ")})
	}
	if r.Holds && r.Status == "open" {
		pairs = append(pairs, [2]string{"holds", "the next apply of these credentials, until this is settled"})
	}
	return a.printPairs(pairs)
}

func (a *app) recoverDiscardCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "discard ID",
		Short:   "Give a refused write up",
		Long:    "Give a refused write up: it holds nothing back any more. Its bytes stay until the environment's limits drop them.",
		Example: "  kl recover discard rw_… --state demo",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.forState(cmd.Context(), "")
			if err != nil {
				return err
			}
			if err := t.DiscardRefused(cmd.Context(), t.environment, t.state, args[0]); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]string{"id": args[0], "status": "discarded"})
			}
			return a.printf("discarded %s of %s\n", args[0], t.state)
		},
	}
}

// copyOut writes exact bytes to standard output, whole or with an error.
func (a *app) copyOut(b *client.Bytes) (err error) {
	defer func() { _ = b.Close() }()
	if _, err := io.Copy(a.env.Stdout, b); err != nil {
		if fault.Of(err) != nil {
			return err
		}
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
