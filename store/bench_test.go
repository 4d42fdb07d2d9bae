package store_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"kl/kltest"
	"kl/store"
	"kl/wire"
)

var benchSizes = []int{100, 1000, 10000, 100000}

// BenchmarkFirstWrite is the first POST of a state: read, hash, scan, compress,
// commit.
func BenchmarkFirstWrite(b *testing.B) {
	for _, n := range benchSizes[:3] {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFixture(b, store.Options{})
			body := kltest.NewState(n, 1).Bytes()
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := f.write(fmt.Sprintf("s%d", i), "", body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCheckpoint is a later POST with ten changes.
func BenchmarkCheckpoint(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFixture(b, store.Options{})
			st := kltest.NewState(n, 1)
			if err := f.lock("s", "L", "OperationTypeApply"); err != nil {
				b.Fatal(err)
			}
			if _, err := f.write("s", "L", st.Bytes()); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(st.Bytes())))
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				b.StopTimer()
				st.Mutate(10)
				body := st.Bytes()
				b.StartTimer()
				if _, err := f.write("s", "L", body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLongApply is 500 checkpoints in a row of a state that grows. It
// reports how much longer the last fifty take than the first, and how much the
// file grows for each.
func BenchmarkLongApply(b *testing.B) {
	const checkpoints, edge = 500, 50
	for _, n := range benchSizes[1:3] {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				f := newFixture(b, store.Options{})
				st := kltest.NewState(n, 1)
				if err := f.lock("s", "L", wire.OperationApply); err != nil {
					b.Fatal(err)
				}
				if _, err := f.write("s", "L", st.Bytes()); err != nil {
					b.Fatal(err)
				}
				before := fileBytes(b, f)
				took := make([]time.Duration, checkpoints)
				for i := range took {
					st.Mutate(10)
					body := st.Bytes()
					start := time.Now()
					if _, err := f.write("s", "L", body); err != nil {
						b.Fatal(err)
					}
					took[i] = time.Since(start)
				}
				b.ReportMetric(float64(median(took[checkpoints-edge:]))/float64(median(took[:edge])), "last/first")
				b.ReportMetric(float64(fileBytes(b, f)-before)/checkpoints, "file-B/checkpoint")
			}
		})
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// fileBytes is what the file takes on the disk: bbolt grows it in advance.
func fileBytes(b *testing.B, f *fixture) int64 {
	st, err := f.s.Stats()
	if err != nil {
		b.Fatal(err)
	}
	return st.FileBytes
}

// BenchmarkRead reads the head from memory, and an old version from the file.
func BenchmarkRead(b *testing.B) {
	for _, n := range benchSizes[:3] {
		f := newFixture(b, store.Options{})
		st := kltest.NewState(n, 1)
		if err := f.lock("s", "L", "OperationTypeApply"); err != nil {
			b.Fatal(err)
		}
		for range 20 {
			if _, err := f.write("s", "L", st.Bytes()); err != nil {
				b.Fatal(err)
			}
			st.Mutate(10)
		}
		for _, version := range []string{"head", "1", "10"} {
			b.Run(fmt.Sprintf("%d/%s", n, version), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					snap, err := f.s.Version(context.Background(), f.ref("s"), version)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := snap.WriteTo(io.Discard); err != nil {
						b.Fatal(err)
					}
					snap.Close()
				}
			})
		}
	}
}

// BenchmarkReadBody receives and hashes a body.
func BenchmarkReadBody(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFixture(b, store.Options{})
			body := kltest.NewState(n, 1).Bytes()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				r, err := f.s.ReadBody(context.Background(), bytes.NewReader(body), int64(len(body)), 1<<30)
				if err != nil {
					b.Fatal(err)
				}
				r.Release()
			}
		})
	}
}

// BenchmarkMerge is a POST of ten changes in optimistic mode: over a head that
// nobody else has moved ("alone"), and over one that another session moves
// before each ("merged"). The other session's own POST is not timed.
func BenchmarkMerge(b *testing.B) {
	for _, n := range benchSizes[1:] {
		for _, merged := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/%s", n, map[bool]string{false: "alone", true: "merged"}[merged]), func(b *testing.B) {
				f := newFixture(b, store.Options{})
				mode := "optimistic"
				if _, err := f.s.PatchEnvironment(context.Background(), f.actor, f.env, wire.EnvironmentPatch{LockMode: &mode}); err != nil {
					b.Fatal(err)
				}
				mine := kltest.NewState(n, 1)
				if _, err := f.write("s", "", mine.Bytes()); err != nil {
					b.Fatal(err)
				}
				theirs := mine.Clone()
				for _, id := range []string{"mine", "theirs"} {
					if err := f.lock("s", id, wire.OperationApply); err != nil {
						b.Fatal(err)
					}
				}
				change := func(st *kltest.State, who string, i int) []byte {
					for k := range 10 {
						st.Add(fmt.Sprintf("null_resource.%s_%d[%d]", who, k, i))
					}
					st.SetSerial(st.Serial() + 1)
					return st.Bytes()
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					if merged {
						if _, err := f.write("s", "theirs", change(theirs, "theirs", i)); err != nil {
							b.Fatal(err)
						}
					}
					body := change(mine, "mine", i)
					b.StartTimer()
					if w, err := f.write("s", "mine", body); err != nil || w.Merged != merged {
						b.Fatal(w, err)
					}
				}
			})
		}
	}
}
