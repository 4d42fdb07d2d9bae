//go:build linux || darwin || freebsd

package store_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"kl/fault"
	"kl/store"
)

// A server that runs as a user of its own must find its file again after root
// has compacted or restored it, and on the disk where it was.
func TestReplacedFileStaysWhereAndWhoseItWas(t *testing.T) {
	f := newFixture(t, store.Options{})
	if err := f.s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, dir := context.Background(), t.TempDir()
	link, backup := filepath.Join(dir, "link.db"), filepath.Join(dir, "backup.db")
	if err := os.Symlink(f.path, link); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(backup, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // others may not give files away
		if err := os.Chown(f.path, 4242, 4243); err != nil {
			t.Fatal(err)
		}
	}
	owner := func() (uid, gid uint32) {
		t.Helper()
		fi, err := os.Stat(f.path)
		if err != nil {
			t.Fatal(err)
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatalf("%T", fi.Sys())
		}
		return st.Uid, st.Gid
	}
	uid, gid := owner()
	for what, do := range map[string]func() error{
		"compact": func() error { _, err := store.Compact(ctx, link); return err },
		"restore": func() error { _, err := store.Restore(ctx, backup, link, true, func(int, int) {}); return err },
	} {
		was, err := os.Stat(f.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if to, err := os.Readlink(link); err != nil || to != f.path {
			t.Errorf("%s: the link is %q, %v", what, to, err)
		}
		if now, err := os.Stat(f.path); err != nil || os.SameFile(was, now) {
			t.Errorf("%s: the file was not replaced: %v", what, err)
		}
		if u, g := owner(); u != uid || g != gid {
			t.Errorf("%s: the file belongs to %d:%d, before to %d:%d", what, u, g, uid, gid)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe, "", filepath.Join(dir, "none", "kl.db")} {
		if _, err := store.Restore(ctx, backup, path, true, func(int, int) {}); !fault.Is(err, fault.FileInvalid) {
			t.Errorf("restored to %q: %v", path, err)
		}
	}
	for _, from := range []string{dir, pipe, "", filepath.Join(dir, "none")} {
		if _, err := store.Restore(ctx, from, link, true, func(int, int) {}); !fault.Is(err, fault.FileInvalid) {
			t.Errorf("restored from %q: %v", from, err)
		}
	}
	f.open()
}
