package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"kl/fault"
)

// Restore puts a backup in the place of a data file while no server has that
// open. The backup is checked as Check does first, and one that is not whole is
// not restored. A file that is there is replaced only with force. Codes:
// file_invalid, file_in_use, disk_full.
func Restore(ctx context.Context, backup, path string, force bool, progress func(done, total int)) (CheckReport, error) {
	if _, err := os.Stat(backup); errors.Is(err, fs.ErrNotExist) {
		return CheckReport{}, fault.New(fault.FileInvalid, "there is no backup %s", backup).WithNext("name the file of a backup: kl restore BACKUP --data %s", path)
	}
	if _, err := Target(path); err != nil {
		return CheckReport{}, err
	}
	switch _, err := os.Stat(path); {
	case err == nil && !force:
		return CheckReport{}, fault.New(fault.FileInvalid, "%s is there already; it is not overwritten", path).
			WithNext("restore to another name, or add --force to replace it")
	case err == nil:
		if err := notInUse(path); err != nil {
			return CheckReport{}, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return CheckReport{}, fault.Wrap(fault.FileInvalid, err, "%s cannot be looked at", path).WithNext("see that the directory is there and may be written to")
	}
	s, err := Open(Options{Path: backup, ReadOnly: true})
	if err != nil {
		return CheckReport{}, err
	}
	defer func() { _ = s.Close() }()
	r, err := s.Check(ctx, progress)
	if err != nil {
		return r, err
	}
	if n := len(r.Problems); n > 0 {
		return r, fault.New(fault.FileInvalid, "the backup %s is damaged: %s%s; nothing was changed", backup, r.Problems[0], andMore(n-1)).
			WithNext("restore another backup; what is whole in this one: kl export --data %s --out DIR", backup)
	}
	return r, replaceFile(path, func(to *os.File) error {
		from, err := os.Open(backup)
		if err != nil {
			return fmt.Errorf("read the backup: %w", err)
		}
		defer func() { _ = from.Close() }()
		fi, err := from.Stat()
		if err != nil {
			return fmt.Errorf("read the backup: %w", err)
		}
		if err := roomFor(filepath.Dir(path), fi.Size()); err != nil {
			return err
		}
		if _, err := io.Copy(&whileWanted{ctx, to}, from); err != nil {
			return mapCopyError(err)
		}
		return nil
	})
}

// notInUse makes sure that no process has the file open for writing. A file
// that cannot be opened for another reason is not in use.
func notInUse(path string) error {
	err := guarded(func() error {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, ReadOnly: true})
		if err != nil {
			return err
		}
		return db.Close()
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return openError(path, err)
	}
	return nil
}

// Compacted is the size of a file before and after Compact, in bytes.
type Compacted struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// OlderRoot says that one copy of the file's root was damaged, and that the
	// new file is what the other tells.
	OlderRoot bool `json:"older_root,omitempty"`
}

// Compact writes a file anew without its free pages, while no server has it
// open. The old file stays until the new one is whole and on disk. Codes:
// file_invalid, file_in_use, disk_full.
func Compact(ctx context.Context, path string) (c Compacted, err error) {
	s, err := Open(Options{Path: path, ReadOnly: true})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.damage != nil {
		if !s.damage.oneRoot {
			return c, fault.New(fault.FileInvalid, "the data file %s is damaged: %s", path, s.damage.problems[0]).
				WithNext("see what is whole with: kl check --data %s", path)
		}
		c.OlderRoot = true
	}
	fi, err := os.Stat(path)
	if err != nil {
		return c, fmt.Errorf("compact: %w", err)
	}
	c.Before = fi.Size()
	err = replaceFile(path, func(f *os.File) error {
		if err := s.compactInto(ctx, f.Name()); err != nil {
			return mapCopyError(err)
		}
		fi, err := os.Stat(f.Name())
		if err != nil {
			return fmt.Errorf("compact: %w", err)
		}
		c.After = fi.Size()
		return nil
	})
	return c, err
}

// compactTx bounds the transactions that a compacted file is written in.
const compactTx = 16 << 20

func (s *Store) compactInto(ctx context.Context, path string) error {
	var size int64
	if err := s.view(func(tx *bbolt.Tx) error { size = tx.Size(); return nil }); err != nil {
		return err
	}
	if err := roomFor(filepath.Dir(path), s.inUse); err != nil { // free pages are not written
		return err
	}
	return guarded(func() error {
		to, err := bbolt.Open(path, 0o600, &bbolt.Options{
			NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, NoSync: true, // replaceFile syncs
			InitialMmapSize: int(size),
		})
		if err != nil {
			return err
		}
		err = errors.Join(bbolt.Compact(to, s.db, compactTx), ctx.Err())
		if err == nil {
			// bbolt takes more of the disk than it needs
			err = to.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil })
		}
		if err = errors.Join(err, to.Close()); err != nil {
			return err
		}
		return os.Truncate(path, size)
	})
}
