package store_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// library is a data file with some of everything, and the bytes of all its
// versions.
type library struct {
	path string
	env  string
	want map[store.Ref]map[uint64][]byte
	head map[store.Ref]uint64
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	f := newFixture(t, store.Options{ChunkTarget: 256})
	lib := &library{path: f.path, env: f.env, want: map[store.Ref]map[uint64][]byte{}, head: map[store.Ref]uint64{}}
	f.patch(wire.EnvironmentPatch{KeepLast: ptr(int64(4))})
	for i, size := range []int{1, 2, 8, 25} {
		name := fmt.Sprintf("s%d", i)
		lib.want[f.ref(name)] = map[uint64][]byte{}
		st := kltest.NewState(size, uint64(i)+1)
		for n := range 5 {
			if n > 0 {
				st.Mutate(1 + n%5)
			}
			body := withNextSerial(st.Bytes(), st, uint64(n)+1)
			if _, err := f.write(name, "", body); err != nil {
				t.Fatal(err)
			}
			lib.want[f.ref(name)][uint64(n)+1] = bytes.Clone(body)
		}
		lib.head[f.ref(name)] = 5
		if _, err := f.s.SetTag(context.Background(), f.actor, f.ref(name), "good", "3"); err != nil {
			t.Fatal(err)
		}
	}
	sealed := fmt.Appendf(nil, `{"serial":1,"lineage":%q,"encrypted_data":%q,"encryption_version":"v0"}`, modelLineage, bytes.Repeat([]byte("x"), 20_000))
	if _, err := f.write("sealed", "", sealed); err != nil {
		t.Fatal(err)
	}
	lib.want[f.ref("sealed")], lib.head[f.ref("sealed")] = map[uint64][]byte{1: sealed}, 1
	if _, err := f.write("s1", "never-taken", kltest.NewState(5, 9).Bytes()); err == nil {
		t.Fatal("a write with a lock that nobody holds was accepted")
	}
	if err := f.lock("s2", "held", wire.OperationApply); err != nil {
		t.Fatal(err)
	}
	f.prune(false)
	f.finish()
	return lib
}

// damage is one way to spoil a file.
func damage(r *rand.Rand, b []byte) ([]byte, string) {
	b = bytes.Clone(b)
	const page = 4096
	switch r.IntN(8) {
	case 0:
		n := r.IntN(len(b))
		return b[:n], fmt.Sprintf("cut after %d bytes", n)
	case 1:
		n := r.IntN(len(b)/page) * page
		return b[:n], fmt.Sprintf("cut after page %d", n/page)
	case 2:
		p := r.IntN(len(b) / page)
		clear(b[p*page : (p+1)*page])
		return b, fmt.Sprintf("page %d is zero", p)
	case 3:
		from, to := r.IntN(len(b)/page), r.IntN(len(b)/page)
		copy(b[to*page:(to+1)*page], b[from*page:(from+1)*page])
		return b, fmt.Sprintf("page %d is that of %d", to, from)
	case 4:
		p := r.IntN(len(b) / page)
		for i := range page {
			b[p*page+i] = byte(r.Uint32())
		}
		return b, fmt.Sprintf("page %d is noise", p)
	case 5: // in the first bytes of a page, where bbolt keeps what it trusts
		p := r.IntN(len(b) / page)
		at := p*page + r.IntN(64)
		b[at] ^= 1 << r.IntN(8)
		return b, fmt.Sprintf("a bit of byte %d of page %d", at%page, p)
	default:
		at := r.IntN(len(b))
		b[at] ^= 1 << r.IntN(8)
		return b, fmt.Sprintf("a bit of byte %d", at)
	}
}

// Whatever happens to a file on the disk: to open it or to check it ends in an
// answer, never in a panic, and no other bytes are read than were written. KL_DAMAGE
// is the number of files, 500 when it is not set.
func TestDamagedFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	lib := newLibrary(t)
	whole, err := os.ReadFile(lib.path)
	if err != nil {
		t.Fatal(err)
	}
	n := 500
	if v := os.Getenv("KL_DAMAGE"); v != "" {
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	seed, used := seedOf(t), whole[:lib.used(t)]
	var served, found atomic.Int32
	var workers sync.WaitGroup
	const parallel = 4 // most of the time is the disk's
	for w := range parallel {
		path := filepath.Join(t.TempDir(), "damaged.db")
		workers.Go(func() {
			for i := w; i < n; i += parallel {
				b, how := damage(rand.New(rand.NewPCG(seed, uint64(i))), used)
				how = fmt.Sprintf("file %d, %s", i, how)
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Error(err)
					return
				}
				if lib.checked(t, path, how) {
					found.Add(1)
				}
				if lib.served(t, path, how) {
					served.Add(1)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("of %d damaged files check complains of %d; %d are not served at all, of %d what is whole is", n, found.Load(), int32(n)-served.Load(), served.Load())
}

// used is where the part of the file ends that was ever in use.
func (lib *library) used(t *testing.T) int64 {
	t.Helper()
	s, err := store.Open(store.Options{Path: lib.path, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return st.FileBytes
}

// checked reports whether check finds anything. What it calls whole must be.
func (lib *library) checked(t *testing.T, path, how string) bool {
	t.Helper()
	s, err := store.Open(store.Options{Path: path, ReadOnly: true})
	if err != nil {
		sentence(t, how, err)
		return true
	}
	defer func() { _ = s.Close() }()
	report, err := s.Check(context.Background(), nil)
	if err != nil {
		t.Errorf("%s: check: %v", how, err)
	}
	all, _ := s.Inventory(context.Background()) // what it could not find is in its error
	for _, l := range all {
		snap, err := s.ReadLocated(context.Background(), l, false)
		if err != nil {
			continue
		}
		var got bytes.Buffer
		if _, err := snap.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), lib.want[l.Ref][lib.head[l.Ref]]) {
			if lib.want[l.Ref] != nil { // a damaged name is one of nobody
				t.Errorf("%s: the state %s is exported with %d other bytes: %v", how, l.Name, got.Len(), err)
			}
		}
		snap.Close()
	}
	return len(report.Problems) > 0
}

// sentence makes sure that a failure is one that people can act on.
func sentence(t *testing.T, how string, err error) {
	t.Helper()
	if f := fault.Of(err); f == nil || f.Code != fault.FileInvalid || f.Next == "" || strings.Contains(err.Error(), "goroutine") {
		t.Errorf("%s: the file cannot be opened: %v", how, err)
	}
}

// served opens a file as a server does and reads everything. It reports whether
// the file can be opened at all.
func (lib *library) served(t *testing.T, path, how string) bool {
	t.Helper()
	s, err := store.Open(store.Options{Path: path, CacheBytes: 1, CacheLargest: 1 << 20})
	if err != nil {
		sentence(t, how, err)
		return false
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", how, err)
		}
	}()
	ctx := context.Background()
	for ref, versions := range lib.want {
		for n, want := range versions {
			refs := []string{strconv.FormatUint(n, 10)}
			if n == lib.head[ref] {
				refs = append(refs, "head")
			}
			for _, v := range refs {
				snap, err := s.Version(ctx, ref, v)
				if err != nil {
					continue
				}
				var got bytes.Buffer
				if _, err := snap.WriteTo(&got); err == nil && !bytes.Equal(got.Bytes(), want) {
					t.Errorf("%s: version %s of %s is read with %d other bytes than the %d that were written", how, v, ref.Name, got.Len(), len(want))
				}
				snap.Close()
			}
		}
		if _, err := s.State(ctx, ref); err != nil {
			continue
		}
		_, _ = s.Versions(ctx, ref, "", 0)
		_, _ = s.RefusedList(ctx, ref)
		_, _ = s.LockState(ctx, ref)
	}
	body, err := s.ReadBody(ctx, bytes.NewReader([]byte(`{"version":4,"serial":900,"lineage":"x"}`)), -1, 1<<20)
	if err != nil {
		t.Errorf("%s: %v", how, err)
		return true
	}
	defer body.Release()
	_, _ = s.Write(ctx, store.WriteRequest{Ref: store.Ref{Environment: lib.env, Name: "s1"}, Body: body})
	_, _ = s.Stats()
	_, _ = s.Events(ctx, store.EventFilter{})
	_, _ = s.Prune(ctx, store.Actor{}, lib.env, wire.PruneRequest{})
	return true
}
