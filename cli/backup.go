package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/store"
)

func (a *app) backupCmd() *cobra.Command {
	var rate rate
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the server's data file while it serves",
		Long: `Copy the server's data file while it serves, as it is at one moment. The copy is verified
against the server's digest and read through once; only then it gets its name, and a copy
of that name from before is replaced. With - it goes to standard output.

It needs the operator's control token, and the copy holds every state of every workspace:
keep it as you keep secrets. The server needs room for a second copy of the file beside it
while this runs.`,
		Example: `  kl backup kl-$(date +%F).db
  kl backup - --rate 10MiB | gzip > kl.db.gz`,
		Args: between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && terminal(a.env.Stdout) {
				return usage(cmd, "the copy is no text for a terminal").WithNext("send it on, as in: kl backup - | gzip > kl.db.gz")
			}
			t, err := a.resolve("")
			if err != nil {
				return err
			}
			return a.backup(cmd.Context(), t, args[0], int64(rate.size))
		},
	}
	cmd.Flags().Var(&rate, "rate", "bytes a second at most, such as 10MiB; 0 for no limit")
	return a.online(cmd)
}

// rate is a size a second, 0 for no limit.
type rate struct{ size }

// Set reads what String writes.
func (r *rate) Set(text string) error {
	if text == "0" {
		r.size = 0
		return nil
	}
	return r.size.Set(text)
}

// backedUp is the answer to kl backup.
type backedUp struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

func (a *app) backup(ctx context.Context, t *target, path string, rate int64) error {
	step, done := a.progress("copying")
	defer done()
	progress := func(done, total int64) { step(int(done>>10), int(total>>10)) }
	if path == "-" {
		_, err := t.Backup(ctx, a.env.Stdout, rate, progress)
		return err
	}
	to, err := store.Target(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".tmp-*") // mode 0600
	if err != nil {
		return fault.Wrap(fault.ParameterInvalid, err, "no file can be made beside %s", path).WithNext("name a file in a directory that you may write to")
	}
	b := backedUp{File: path}
	if b.Bytes, err = t.Backup(ctx, f, rate, progress); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = store.VerifyFile(f.Name())
	}
	if err == nil {
		err = store.Place(f.Name(), to)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	done()
	if a.asJSON {
		return a.printJSON(b)
	}
	return a.printf("copied %s to %s; try it with: kl check --data %s\n", amount(b.Bytes), path, path)
}

func (a *app) restoreCmd() *cobra.Command {
	var data string
	var force bool
	cmd := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Put a backup in the data file's place, while no server runs",
		Long: `Put a backup in the data file's place, while no server runs. First the backup is checked
as kl check does, every version in it; a damaged one is not restored. What was written after
the backup is not in it: refused writes, locks and tokens are as they were then.`,
		Example: `  kl restore kl-2026-01-31.db --data kl.db
  kl restore kl-2026-01-31.db --data kl.db --force`,
		Args: between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			step, done := a.progress("checking")
			r, err := store.Restore(cmd.Context(), args[0], data, force, step)
			done()
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]any{"file": data, "states": r.States, "versions": r.Versions})
			}
			return a.printf("restored %s: %s, %s; start it with: kl serve --data %s\n", data,
				plural(int64(r.States), "state", "states"), plural(int64(r.Versions), "version", "versions"), data)
		},
	}
	cmd.Flags().StringVar(&data, "data", defaultData, "data file to put the backup in the place of")
	cmd.Flags().BoolVar(&force, "force", false, "replace the data file if it is there")
	return cmd
}

func (a *app) compactCmd() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Write the data file anew without its free pages, while no server runs",
		Long: `Write the data file anew without its free pages, while no server runs. A server uses free
pages again, so this is needed only when much was pruned or purged and the disk's space is
wanted back. The old file stays until the new one is whole and on disk; both need room.`,
		Example: "  kl compact --data kl.db",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := store.Compact(cmd.Context(), data)
			if err != nil {
				return err
			}
			if c.OlderRoot {
				a.note("one copy of the file's root was damaged: the write that came last before the damage may be missing")
			}
			if a.asJSON {
				return a.printJSON(c)
			}
			return a.printf("%s: %s before, %s after\n", data, amount(c.Before), amount(c.After))
		},
	}
	cmd.Flags().StringVar(&data, "data", defaultData, "data file to compact")
	return cmd
}
