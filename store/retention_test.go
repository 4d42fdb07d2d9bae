package store_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// A state that is written often and keeps its last 20 versions does not make
// the file grow without end: it stays within three times of what the 20 versions
// take when nothing else was ever written. And its oldest version is read from
// at most twice of what the newest is read from. KL_FULL=1 does it with 1,000
// checkpoints of 10,000 resources.
func TestRetentionBoundsTheFile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	size, checkpoints := 250, 80
	if os.Getenv("KL_FULL") != "" {
		size, checkpoints = 10000, 1000
	}
	const keep = 20
	st := kltest.NewState(size, 11)
	long, few := newFixture(t, store.Options{}), newFixture(t, store.Options{})
	long.patch(wire.EnvironmentPatch{KeepLast: ptr(int64(keep))})
	var last []byte
	for i := range checkpoints {
		if i > 0 {
			st.Mutate(10)
		}
		last = withNextSerial(st.Bytes(), st, uint64(i)+1)
		if _, err := long.write("s", "", last); err != nil {
			t.Fatal(err)
		}
		if i >= checkpoints-keep {
			if _, err := few.write("s", "", last); err != nil {
				t.Fatal(err)
			}
		}
	}
	long.prune(false)
	left := long.kept("s")
	if len(left) != keep {
		t.Fatalf("%d versions are left", len(left))
	}
	a, b := long.fileBytes(), few.fileBytes()
	ratio := float64(a) / float64(b)
	oldest, oldestList, err := long.s.StoredOf(long.ref("s"), left[0])
	if err != nil {
		t.Fatal(err)
	}
	head, headList, err := long.s.StoredOf(long.ref("s"), left[keep-1])
	if err != nil {
		t.Fatal(err)
	}
	read := float64(oldest+oldestList) / float64(head+headList)
	t.Logf("%d checkpoints of %d resources: file %d bytes, %.2f of what %d versions need; the oldest is read from %d+%d bytes, the newest from %d+%d (%.2f)",
		checkpoints, size, a, ratio, keep, oldest, oldestList, head, headList, read)
	if ratio > 3 {
		t.Errorf("the file has %d bytes, %.2f times the %d of %d versions alone", a, ratio, b, keep)
	}
	if read > 2 {
		t.Errorf("the oldest version is read from %d bytes, the newest from %d", oldest+oldestList, head+headList)
	}
	if got := long.get("s", "head"); !bytes.Equal(got, last) {
		t.Error("the head has other bytes")
	}
	if got, want := long.get("s", fmt.Sprint(left[0])), few.get("s", "1"); !bytes.Equal(got, want) {
		t.Error("the oldest version kept has other bytes")
	}
	t.Logf("reading the oldest takes %s, the newest %s", long.readTime(fmt.Sprint(left[0])), long.readTime("head"))
}

// readTime is how long it takes at best to read a version that is not in memory.
func (f *fixture) readTime(version string) (best time.Duration) {
	f.tb.Helper()
	for range 5 {
		f.reopen()
		start := time.Now()
		snap, err := f.s.Version(context.Background(), f.ref("s"), version)
		if err != nil {
			f.tb.Fatal(err)
		}
		if _, err := snap.WriteTo(io.Discard); err != nil {
			f.tb.Fatal(err)
		}
		snap.Close()
		if took := time.Since(start); best == 0 || took < best {
			best = took
		}
	}
	return best
}

// fileBytes is how much of the file was ever in use: bbolt takes more of the
// disk in advance, always 16 MiB at a time.
func (f *fixture) fileBytes() int64 {
	f.tb.Helper()
	st, err := f.s.Stats()
	if err != nil {
		f.tb.Fatal(err)
	}
	return st.FileBytes
}
