package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// Backups made while several states are written without a pause are each of
// one moment: every version that is in one has its bytes, of each state all up
// to some version are there, and a write that was acknowledged before the backup
// was asked for is in it.
func TestBackupUnderLoad(t *testing.T) {
	f := newFixture(t, store.Options{})
	const states, backups, most = 3, 3, 400
	var mu sync.Mutex
	want := map[string][][32]byte{} // digests of the versions that were acknowledged
	stop := make(chan struct{})
	var writers sync.WaitGroup
	ready := make(chan struct{}, states)
	for i := range states {
		writers.Go(func() {
			name := fmt.Sprintf("s%d", i)
			st := kltest.NewState(8, uint64(i)+1)
			for n := uint64(1); n <= most; n++ {
				st.Mutate(3)
				body := withNextSerial(st.Bytes(), st, n)
				mu.Lock()
				want[name] = append(want[name], sha256.Sum256(body))
				mu.Unlock()
				if _, err := f.write(name, "", body); err != nil {
					t.Error(err)
					return
				}
				if n == 3 {
					ready <- struct{}{}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range states {
		<-ready
	}
	dir := t.TempDir()
	for i := range backups {
		mu.Lock()
		least := map[string]int{}
		for name, v := range want {
			least[name] = len(v) - 1 // the last may not be acknowledged yet
		}
		mu.Unlock()
		b, err := f.s.Backup(context.Background(), f.actor)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, fmt.Sprintf("%d.db", i))
		var copied bytes.Buffer
		_, err = io.Copy(&copied, b)
		b.Close()
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(copied.Bytes()); hex.EncodeToString(sum[:]) != b.SHA256 || int64(copied.Len()) != b.Size {
			t.Fatalf("the backup has %d bytes that are not those of its digest", copied.Len())
		}
		if err := os.WriteFile(path, copied.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, fmt.Sprintf("restored-%d.db", i))
		if _, err := store.Restore(context.Background(), path, to, false, nil); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(store.Options{Path: to})
		if err != nil {
			t.Fatal(err)
		}
		for name := range least {
			l, err := s.Versions(context.Background(), f.ref(name), "", 1000)
			if err != nil {
				t.Fatal(err)
			}
			if len(l.Items) < least[name] {
				t.Errorf("backup %d has %d versions of %s, and %d were acknowledged", i, len(l.Items), name, least[name])
			}
			mu.Lock()
			for k, v := range l.Items {
				n := len(l.Items) - k
				if sum := want[name][n-1]; v.Version != uint64(n) || v.SHA256 != hex.EncodeToString(sum[:]) {
					t.Errorf("backup %d has another version %d of %s than was written", i, n, name)
				}
			}
			mu.Unlock()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	writers.Wait()
	left, err := filepath.Glob(f.path + ".copy-*")
	if err != nil || len(left) > 0 {
		t.Errorf("copies are left behind: %v %v", left, err)
	}
}

// While a backup is read no transaction is open, and only so many are made at a
// time.
func TestBackupHoldsNothing(t *testing.T) {
	f := newFixture(t, store.Options{})
	if _, err := f.write("s", "", kltest.NewState(50, 1).Bytes()); err != nil {
		t.Fatal(err)
	}
	one, err := f.s.Backup(context.Background(), f.actor)
	if err != nil {
		t.Fatal(err)
	}
	if n := f.s.OpenTransactions(); n != 0 {
		t.Errorf("%d transactions are open while a backup is read", n)
	}
	two, err := f.s.Backup(context.Background(), f.actor)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Backup(context.Background(), f.actor); !fault.Is(err, fault.Busy) {
		t.Errorf("a third backup: %v", err)
	}
	one.Close()
	two.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.s.Backup(ctx, f.actor); err == nil {
		t.Error("a backup that nobody waits for was made")
	}
	three, err := f.s.Backup(context.Background(), f.actor)
	if err != nil {
		t.Fatal(err)
	}
	three.Close()
}

// Compact gives the disk back what was pruned, and changes nothing else.
func TestCompact(t *testing.T) {
	f := newFixture(t, store.Options{})
	st := kltest.NewState(400, 5)
	var last []byte
	for n := range 40 {
		st.Mutate(60)
		last = withNextSerial(st.Bytes(), st, uint64(n)+1)
		if _, err := f.write("s", "", last); err != nil {
			t.Fatal(err)
		}
	}
	f.patch(wire.EnvironmentPatch{KeepLast: ptr(int64(2))})
	f.prune(false)
	if _, err := store.Compact(context.Background(), f.path); !fault.Is(err, fault.FileInUse) {
		t.Fatalf("a file that is open was compacted: %v", err)
	}
	if err := f.s.Close(); err != nil {
		t.Fatal(err)
	}
	// a disk that is nearly full has room for what is left, if not for a second file
	room, err := store.RoomToCompact(f.path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := store.Compact(context.Background(), f.path)
	if err != nil {
		t.Fatal(err)
	}
	if room < c.After/2 || room > 2*c.After || 2*room > c.Before {
		t.Errorf("compacting from %d to %d asks for %d", c.Before, c.After, room)
	}
	fi, err := os.Stat(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if c.After != fi.Size() || 2*c.After > c.Before || fi.Mode().Perm() != 0o600 {
		t.Errorf("compacted from %d to %d, the file has %d and mode %v", c.Before, c.After, fi.Size(), fi.Mode())
	}
	f.open()
	if got := f.get("s", "head"); !bytes.Equal(got, last) {
		t.Error("the head has other bytes")
	}
	st.Mutate(3)
	if _, err := f.write("s", "", withNextSerial(st.Bytes(), st, 41)); err != nil {
		t.Fatal(err)
	}
}

// When one copy of the root is damaged, which of two commits was the last is
// not known: a server does not guess, compact does when it is asked to.
func TestDamagedRoot(t *testing.T) {
	f := newFixture(t, store.Options{})
	body := kltest.NewState(20, 1).Bytes()
	if _, err := f.write("s", "", body); err != nil {
		t.Fatal(err)
	}
	f.finish()
	whole, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []int{0, 1} {
		path := filepath.Join(t.TempDir(), "kl.db")
		b := bytes.Clone(whole)
		b[page*os.Getpagesize()+40] ^= 4
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Open(store.Options{Path: path}); !fault.Is(err, fault.FileInvalid) {
			t.Fatalf("root %d: %v", page, err)
		}
		c, err := store.Compact(context.Background(), path)
		if err != nil || !c.OlderRoot {
			t.Fatalf("root %d: %+v, %v", page, c, err)
		}
		s, err := store.Open(store.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.Check(context.Background(), nil); err != nil || len(r.Problems) > 0 {
			t.Errorf("root %d: %v, %v", page, r.Problems, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
