package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"

	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// fixture is a store with one environment, used directly.
type fixture struct {
	tb    testing.TB
	path  string
	opt   store.Options
	s     *store.Store
	env   string
	actor store.Actor

	finished bool
}

func newFixture(tb testing.TB, opt store.Options) *fixture {
	tb.Helper()
	opt.Path = filepath.Join(tb.TempDir(), "kl.db")
	f := &fixture{tb: tb, path: opt.Path, opt: opt}
	f.open()
	b, err := f.s.Bootstrap(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	p, err := f.s.Authenticate(context.Background(), b.AutomationToken)
	if err != nil {
		tb.Fatal(err)
	}
	f.env, f.actor = b.EnvPublicID, store.Actor{Principal: p, RequestID: "req_test"}
	tb.Cleanup(f.finish)
	return f
}

// finish checks and closes the store, once; a test that opens many calls it
// itself.
func (f *fixture) finish() {
	if f.finished {
		return
	}
	f.finished = true
	f.check()
	if err := f.s.Close(); err != nil {
		f.tb.Error(err)
	}
}

func (f *fixture) open() {
	f.tb.Helper()
	s, err := store.Open(f.opt)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.s = s
}

func (f *fixture) reopen() {
	f.tb.Helper()
	if err := f.s.Close(); err != nil {
		f.tb.Fatal(err)
	}
	f.open()
}

func (f *fixture) check() store.CheckReport {
	f.tb.Helper()
	r, err := f.s.Check(context.Background(), nil)
	if err != nil {
		f.tb.Fatal(err)
	}
	for _, p := range r.Problems {
		f.tb.Error("check:", p)
	}
	return r
}

func (f *fixture) ref(name string) store.Ref { return store.Ref{Environment: f.env, Name: name} }

func (f *fixture) lock(name, id, op string) error {
	return f.s.Lock(context.Background(), store.LockRequest{Ref: f.ref(name), Actor: f.actor, Info: wire.LockInfo{ID: id, Operation: op, Who: "test@host", Version: "1.11.4"}})
}

func (f *fixture) unlock(name, id string) error {
	return f.s.Unlock(context.Background(), store.UnlockRequest{Ref: f.ref(name), Actor: f.actor, ID: id})
}

func (f *fixture) write(name, lockID string, body []byte) (store.Written, error) {
	f.tb.Helper()
	return f.writeAs(f.actor, name, lockID, body)
}

func (f *fixture) writeAs(by store.Actor, name, lockID string, body []byte) (store.Written, error) {
	f.tb.Helper()
	b, err := f.s.ReadBody(context.Background(), bytes.NewReader(body), int64(len(body)), 1<<30)
	if err != nil {
		f.tb.Fatal(err)
	}
	defer b.Release()
	return f.s.Write(context.Background(), store.WriteRequest{Ref: f.ref(name), Actor: by, LockID: lockID, Body: b})
}

func (f *fixture) get(name, version string) []byte {
	f.tb.Helper()
	snap, err := f.s.Version(context.Background(), f.ref(name), version)
	if err != nil {
		f.tb.Fatalf("version %s of %s: %v", version, name, err)
	}
	defer snap.Close()
	var buf bytes.Buffer
	if _, err := snap.WriteTo(&buf); err != nil {
		f.tb.Fatalf("version %s of %s: %v", version, name, err)
	}
	return buf.Bytes()
}

// TestHistoryOfRandomEdits writes random edits of one state and reads every
// version back, with different chunk sizes, layouts and restarts in between.
func TestHistoryOfRandomEdits(t *testing.T) {
	for _, c := range []struct {
		size, steps, target int
		cache               int64
	}{
		{3, 25, 0, 0}, {60, 40, 512, 0}, {60, 40, 0, 1}, {400, 40, 2048, 0}, {400, 30, 0, 0}, {1500, 12, 0, 1},
	} {
		t.Run(fmt.Sprintf("%d/%d/%d", c.size, c.target, c.cache), func(t *testing.T) {
			f := newFixture(t, store.Options{ChunkTarget: c.target, CacheBytes: c.cache, CacheLargest: c.cache})
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			st := kltest.NewState(c.size, seed)
			var want [][]byte
			for i := range c.steps {
				switch r.IntN(8) {
				case 0:
					st.Delete(1 + r.IntN(1+st.Len()/4))
					st.SetSerial(st.Serial() + 1)
				case 1:
					f.reopen()
					st.Mutate(10)
				case 2:
					st.SetSerial(st.Serial() + 3) // nothing but the serial
				default:
					st.Mutate(1 + r.IntN(20))
				}
				if i == 0 {
					st.SetSerial(1)
				}
				body := st.Bytes()
				if r.IntN(10) == 0 {
					body = st.Compact()
				}
				w, err := f.write("s", "", withNextSerial(body, st, uint64(i)+1))
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				body = withNextSerial(body, st, uint64(i)+1)
				want = append(want, bytes.Clone(body))
				if w.Version != uint64(i)+1 {
					t.Fatalf("step %d made version %d", i, w.Version)
				}
				got, err := f.s.State(context.Background(), f.ref("s"))
				if err != nil {
					t.Fatal(err)
				}
				if got.ResourceCount != int64(st.Managed()) || got.InstanceCount != int64(st.Len()) {
					t.Fatalf("step %d counts %d managed of %d, want %d of %d", i, got.ResourceCount, got.InstanceCount, st.Managed(), st.Len())
				}
			}
			for i, b := range want {
				if got := f.get("s", strconv.Itoa(i+1)); sha256.Sum256(got) != sha256.Sum256(b) {
					t.Errorf("version %d has %d other bytes than the %d that were written", i+1, len(got), len(b))
				}
			}
			f.reopen()
			if got := f.get("s", "head"); !bytes.Equal(got, want[len(want)-1]) {
				t.Error("the head has other bytes after a restart")
			}
			f.check()
		})
	}
}

// withNextSerial sets the serial in a rendered document: writes without a lock
// must follow each other by one.
func withNextSerial(body []byte, st *kltest.State, serial uint64) []byte {
	for _, form := range []string{`"serial": %d,`, `"serial":%d,`} {
		old := []byte(fmt.Sprintf(form, st.Serial()))
		if bytes.Contains(body, old) {
			return bytes.Replace(body, old, []byte(fmt.Sprintf(form, serial)), 1)
		}
	}
	panic("no serial in the document")
}
