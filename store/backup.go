package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/wire"
)

// maxBackups is how many copies may be on their way at a time: each takes the
// file's size of the disk until its client has read it.
const maxBackups = 2

// Backup is a copy of the data file as of one moment. Close must be called.
type Backup struct {
	Size   int64
	SHA256 string // in hexadecimal

	f    *os.File
	done func()
}

// Read reads the copy.
func (b *Backup) Read(p []byte) (int, error) {
	n, err := b.f.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("read the copy of the data file: %w", err)
	}
	return n, err // io.EOF as it is
}

// Close removes the copy.
func (b *Backup) Close() { b.done() }

// Backup makes a copy of the file as of this moment, beside it, and opens it.
// Others write meanwhile; the copy is of one moment between two of their writes.
// Codes: disk_full when the disk has no room for the copy, busy when too many
// are on their way, data_damaged.
func (s *Store) Backup(ctx context.Context, by Actor) (*Backup, error) {
	if s.backups.Add(1) > maxBackups {
		s.backups.Add(-1)
		return nil, fault.New(fault.Busy, "%d backups are being read at this moment", maxBackups)
	}
	b := &Backup{done: func() { s.backups.Add(-1) }}
	err := s.makeCopy(ctx, b)
	if err != nil {
		b.done()
		return nil, err
	}
	s.commit.try(func(tx *bbolt.Tx) error {
		return broken(s.event(tx, wire.Event{
			Kind: "backup_made", Principal: by.Display(), RequestID: by.RequestID, Detail: map[string]any{"bytes": b.Size, "sha256": b.SHA256},
		}))
	})
	return b, nil
}

func (s *Store) makeCopy(ctx context.Context, b *Backup) error {
	dir := filepath.Dir(s.opt.Path)
	f, err := os.CreateTemp(dir, filepath.Base(s.opt.Path)+".copy-*")
	if err != nil {
		return fault.Wrap(fault.DiskFull, err, "no copy can be made beside the data file").WithNext("see that the server may write to the directory of the data file")
	}
	// where the system allows it the copy has no name from here on, so that none is left behind
	gone := os.Remove(f.Name()) == nil
	release := b.done
	b.f, b.done = f, func() {
		_ = f.Close()
		if !gone {
			_ = os.Remove(f.Name())
		}
		release()
	}
	b.Size, b.SHA256, err = s.copyTo(ctx, f, dir)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return err
}

// copyTo writes the whole file as of one moment to f, which lies in dir. The
// transaction is open as long as that takes: freed pages are not used again
// meanwhile.
func (s *Store) copyTo(ctx context.Context, f *os.File, dir string) (size int64, sum string, err error) {
	h := sha256.New()
	err = s.view(func(tx *bbolt.Tx) error {
		if err := roomFor(dir, tx.Size()); err != nil {
			return err
		}
		n, err := tx.WriteTo(io.MultiWriter(&whileWanted{ctx, f}, h))
		size = n
		return err
	})
	if err != nil {
		return 0, "", mapCopyError(err)
	}
	return size, hex.EncodeToString(h.Sum(nil)), nil
}

// roomFor makes sure that a disk has room for so many bytes.
func roomFor(dir string, n int64) error {
	if free, ok := freeSpace(dir); ok && free < n {
		return fault.New(fault.DiskFull, "the copy needs %d bytes, and the disk of %s has %d", n, dir, free)
	}
	return nil
}

func mapCopyError(err error) error {
	if errors.Is(err, context.Canceled) || fault.Of(err) != nil {
		return err
	}
	if diskFull(err) {
		return fault.Wrap(fault.DiskFull, err, "the disk is full; no copy was made")
	}
	return fmt.Errorf("copy the data file: %w", err)
}

// whileWanted is a writer that fails when nobody waits any more.
type whileWanted struct {
	ctx context.Context
	w   io.Writer
}

func (w *whileWanted) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

// BackupTo makes a copy of the file as of this moment under path: whole and
// verified, or not at all. It returns the copy's size. Codes: those of Backup.
func (s *Store) BackupTo(ctx context.Context, path string) (size int64, err error) {
	err = replaceFile(path, func(f *os.File) error {
		size, _, err = s.copyTo(ctx, f, filepath.Dir(path))
		return err
	})
	return size, err
}

// Target is where a copy goes that is to have the name path: a symbolic link is
// not replaced, but the file that it points to. Code: file_invalid when there is
// something that is no file.
func Target(path string) (string, error) {
	if path == "" {
		return "", fault.New(fault.FileInvalid, "the name of the file is empty").WithNext("name a file")
	}
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		return "", fault.New(fault.FileInvalid, "%s is a directory", path).WithNext("name a file in it")
	} else if err == nil && !fi.Mode().IsRegular() {
		return "", fault.New(fault.FileInvalid, "%s is a pipe or a device; a data file must lie on a disk", path).WithNext("name another file")
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path, nil // what else hinders the copy is told when it is made
}

// replaceFile makes a file with what fill writes: under another name first,
// verified as a data file, on disk, and only then under path. A file that is
// replaced leaves its owner to the new one, where the system allows it.
func replaceFile(path string, fill func(f *os.File) error) (err error) {
	if path, err = Target(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*") // mode 0600
	if err != nil {
		return fault.Wrap(fault.FileInvalid, err, "no file can be made beside %s", path).
			WithNext("name a file in a directory that is there and that you may write to")
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := VerifyFile(f.Name()); err != nil {
		return err
	}
	keepOwner(f, path)
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return mapCopyError(err)
	}
	return Place(f.Name(), path)
}

// Place gives a file that is on disk another name in its directory, and makes
// that last.
func Place(from, path string) error {
	if err := os.Rename(from, path); err != nil {
		return fmt.Errorf("put the file in place: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	_ = d.Sync() // some systems cannot, and then need not
	return d.Close()
}

// VerifyFile makes sure that a file is a data file whose structure is whole,
// without looking into every version, which Check does. Code: file_invalid.
func VerifyFile(path string) error {
	s, err := Open(Options{Path: path, ReadOnly: true})
	if err != nil {
		return err
	}
	d := s.damage
	if err := s.Close(); err != nil {
		return err
	}
	if d != nil {
		return fault.New(fault.FileInvalid, "%s is damaged: %s%s", path, d.problems[0], andMore(len(d.problems)-1)).
			WithNext("make the copy again; if that fails too: kl check --data FILE")
	}
	return nil
}
