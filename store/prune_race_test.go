package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// While versions come and go, whoever reads one reads it to its end, whoever
// compares two is answered, and nobody meets a version that is half gone.
func TestPruneBesideReaders(t *testing.T) {
	f := newFixture(t, store.Options{ChunkTarget: 512, CacheBytes: 1, CacheLargest: 1})
	f.patch(wire.EnvironmentPatch{KeepLast: ptr(int64(2))})
	ctx := context.Background()
	const writes = 40
	st := kltest.NewState(80, 3)
	write := func(n uint64) {
		st.Mutate(6)
		if _, err := f.write("s", "", withNextSerial(st.Bytes(), st, n)); err != nil {
			t.Error(err)
		}
	}
	write(1)
	write(2)
	done := make(chan struct{})
	var all sync.WaitGroup
	beside := func(what string, act func(i int) error) {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if err := act(i); err != nil && !fault.Is(err, fault.NotFound) {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
		})
	}
	read := func(i int) error {
		snap, err := f.s.Version(ctx, f.ref("s"), []string{"head", "@1", fmt.Sprint(i%writes + 1)}[i%3])
		if err != nil {
			return err
		}
		defer snap.Close()
		var b bytes.Buffer
		if _, err := snap.WriteTo(&b); err != nil {
			return err
		}
		if sum := sha256.Sum256(b.Bytes()); hex.EncodeToString(sum[:]) != snap.SHA256 {
			return fmt.Errorf("version %d has other bytes", snap.Version.Version)
		}
		return nil
	}
	beside("read", read)
	beside("read", read)
	beside("diff", func(int) error {
		_, err := f.s.Diff(ctx, f.actor, f.ref("s"), store.DiffQuery{From: "@1", To: "head"})
		return err
	})
	beside("list", func(int) error {
		_, err := f.s.Versions(ctx, f.ref("s"), "", 0)
		return err
	})
	beside("prune", func(int) error {
		_, err := f.s.Prune(ctx, f.actor, f.env, wire.PruneRequest{})
		return err
	})
	for n := range uint64(writes) {
		write(n + 3)
	}
	close(done)
	all.Wait()
	f.prune(false)
	if got := f.kept("s"); len(got) != 2 {
		t.Errorf("%v is left", got)
	}
}
