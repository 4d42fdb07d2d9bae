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
