package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"kl/kltest"
	"kl/store"
)

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// The newest scheduled backups stay, each is a data file, and what else is in
// the directory is left alone.
func TestScheduledBackups(t *testing.T) {
	st := kltest.Store(t)
	dir := t.TempDir()
	for _, name := range []string{"kl-notes.db", "other.db"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := schedule{dir: dir, every: time.Hour, keep: 2}
	day := time.Date(2026, 1, 30, 12, 0, 0, 0, time.UTC)
	for i := range 4 {
		s.once(context.Background(), st, day.Add(time.Duration(i)*24*time.Hour), zerolog.New(io.Discard))
	}
	want := []string{"kl-20260201T120000Z.db", "kl-20260202T120000Z.db", "kl-notes.db", "other.db"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Fatalf("the directory has %v, want %v", got, want)
	}
	if err := store.VerifyFile(filepath.Join(dir, want[1])); err != nil {
		t.Error(err)
	}

	// one that is not an hour old is soon enough; it is made at its time
	now := day.Add(3*24*time.Hour + 30*time.Minute)
	a := &app{env: Env{Now: func() time.Time { return now }}}
	stop, err := a.scheduleBackups(context.Background(), st, s, zerolog.New(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the directory has %v, want %v", got, want)
	}
}

// A clock that was wrong once must not end the backups, and a server that was
// killed must not fill the disk with halves of them.
func TestScheduledBackupsAfterAccidents(t *testing.T) {
	st, dir := kltest.Store(t), t.TempDir()
	now := time.Date(2026, 1, 30, 12, 0, 0, 0, time.UTC)
	future := []string{"kl-20990101T000000Z.db", "kl-20990102T000000Z.db", "kl-20990103T000000Z.db"}
	half, growing := "kl-20260129T120000Z.db.tmp-123", "kl-20260130T110000Z.db.tmp-45"
	for _, name := range append(future, half, growing) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * unfinishedAge)
	if err := os.Chtimes(filepath.Join(dir, half), old, old); err != nil {
		t.Fatal(err)
	}
	s := schedule{dir: dir, every: time.Hour, keep: 2}
	there, err := s.list()
	if err != nil || len(there) != len(future) {
		t.Fatalf("%v, %v", there, err)
	}
	if wait := s.wait(there, now); wait != 0 {
		t.Errorf("the first backup is made in %s", wait)
	}
	for i := range 2 {
		s.once(context.Background(), st, now.Add(time.Duration(i)*time.Hour), zerolog.New(io.Discard))
	}
	want := []string{"kl-20260130T110000Z.db.tmp-45", "kl-20260130T120000Z.db", "kl-20260130T130000Z.db"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the directory has %v, want %v", got, want)
	}
}
