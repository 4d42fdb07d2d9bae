package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kl/fault"
	"kl/store"
	"kl/wire"
)

func (a *app) exportCmd() *cobra.Command {
	var data, out string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write every state of a data file to a file of its own, without a server",
		Long: `Write the newest version of every state to a file of its own, byte for byte, without a
server and without a network:

  DIR/WORKSPACE_ID/ENVIRONMENT_SLUG/STATE.tfstate   and STATE.json, what is known of it

The data file must not be open in a server: stop it, or export a backup (kl backup). The
files hold the states' secrets; only you may read them. States in the trash are written
too; their STATE.json says so.

It works on a damaged file. A state whose newest version is damaged is written as of the
newest version that is whole, to STATE.vN.tfstate; the exit code is 1 then. Where a name
is taken, as where Net and net are the same file, it is STATE~2.tfstate.`,
		Example: "  kl export --data kl.db --out states",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if out == "" {
				return usage(cmd, "no directory is named to write to").WithNext("kl export --data %s --out DIR", data)
			}
			if left, err := os.ReadDir(out); err == nil && len(left) > 0 {
				return usage(cmd, "%s is not empty", out).WithNext("name a directory that is new or empty")
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fault.Wrap(fault.ParameterInvalid, err, "%s cannot be written to", out).WithNext("name a directory that is new or empty")
			}
			s, err := store.Open(store.Options{Path: data, ReadOnly: true, Now: a.env.Now})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			return a.export(cmd.Context(), s, out)
		},
	}
	cmd.Flags().StringVar(&data, "data", defaultData, "data file to read")
	cmd.Flags().StringVar(&out, "out", "", "directory to write to; new or empty")
	return cmd
}

// exported is what is told of an exported state, and its STATE.json.
type exported struct {
	Name          string `json:"name"`
	WorkspaceID   string `json:"workspace_id"`
	WorkspaceName string `json:"workspace_name"`
	EnvPublicID   string `json:"env_public_id"`
	EnvSlug       string `json:"env_slug"`
	Lifecycle     string `json:"lifecycle"`
	LockMode      string `json:"lock_mode,omitempty"` // "": the environment's
	File          string `json:"file,omitempty"`      // below the directory
	// Older says that this is not the newest version: that one is damaged.
	Older   bool          `json:"older,omitempty"`
	Problem string        `json:"problem,omitempty"`
	Head    *wire.Version `json:"head,omitempty"` // what was written
}

func (a *app) export(ctx context.Context, s *store.Store, dir string) error {
	all, listed := s.Inventory(ctx)
	step, done := a.progress("exporting")
	defer done()
	items := make([]exported, 0, len(all))
	bad := 0
	for i, l := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := exportState(ctx, s, dir, l)
		if err != nil {
			return err
		}
		if e.Problem != "" {
			bad++
		}
		items = append(items, e)
		step(i+1, len(all))
	}
	done()
	err := printList(a, items, []string{"STATE", "VERSION", "SERIAL", "LIFECYCLE", "FILE", "PROBLEM"}, func(e exported) []string {
		version, serial := "", ""
		if e.Head != nil {
			version, serial = fmt.Sprint(e.Head.Version), fmt.Sprint(e.Head.Serial)
		}
		return []string{e.Name, version, serial, e.Lifecycle, e.File, e.Problem}
	}, "there is no state in it")
	switch {
	case err != nil:
		return err
	case listed != nil:
		return fault.Wrap(fault.DataDamaged, listed, "not all states could be found; what was found is in %s", dir)
	case bad > 0:
		return fault.New(fault.DataDamaged, "%s could not be written as of the newest version", plural(int64(bad), "state", "states")).
			WithNext("restore these from a backup")
	}
	return nil
}

// exportState writes one state. A damaged one is told of in the answer; the
// error is one of writing.
func exportState(ctx context.Context, s *store.Store, dir string, l store.Located) (exported, error) {
	e := exported{
		Name: l.Name, WorkspaceID: l.Workspace, WorkspaceName: l.WorkspaceName, EnvPublicID: l.Environment, EnvSlug: l.Slug, Lifecycle: l.Lifecycle, LockMode: l.LockMode,
	}
	name := l.Name
	snap, err := s.ReadLocated(ctx, l, false)
	if err != nil {
		e.Problem = "the newest version is damaged"
		if snap, err = s.ReadLocated(ctx, l, true); err != nil {
			e.Problem = "no version is whole"
			return e, nil
		}
		e.Older, name = true, fmt.Sprintf("%s.v%d", l.Name, snap.Version.Version)
	}
	defer snap.Close()
	e.Head = &snap.Version
	below := filepath.Join(cmp.Or(l.Workspace, "unknown"), cmp.Or(l.Slug, l.Environment))
	if err := os.MkdirAll(filepath.Join(dir, below), 0o700); err != nil {
		return e, fmt.Errorf("export %s: %w", l.Name, err)
	}
	f, base, err := newFile(filepath.Join(dir, below), name)
	if err != nil {
		return e, fmt.Errorf("export %s: %w", l.Name, err)
	}
	e.File = filepath.Join(below, base+".tfstate")
	_, err = snap.WriteTo(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return e, fmt.Errorf("export %s: %w", l.Name, err)
	}
	b, err := json.MarshalIndent(e, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, below, base+".json"), append(b, '\n'), 0o600)
	}
	if err != nil {
		return e, fmt.Errorf("export %s: %w", l.Name, err)
	}
	return e, nil
}

// newFile makes the file of an exported state. Where another one has the name,
// as on a disk that does not tell capitals from small letters, a number follows
// it; no state's name has a tilde.
func newFile(dir, name string) (f *os.File, base string, err error) {
	base = name
	for n := 2; ; n++ {
		f, err = os.OpenFile(filepath.Join(dir, base+".tfstate"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) || n > maxImport {
			return f, base, err
		}
		base = fmt.Sprintf("%s~%d", name, n)
	}
}
