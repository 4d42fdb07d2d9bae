package server_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"kl/kltest"
)

func must(b *testing.B, a *kltest.Answer, err error) {
	b.Helper()
	if err != nil || a.Status != 200 {
		b.Fatalf("%v, %+v", err, a)
	}
}

// BenchmarkGet reads the newest version over a connection.
func BenchmarkGet(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := kltest.Start(b)
			body := kltest.NewState(n, 1).Bytes()
			a, err := s.Try(b.Context(), s.Automation(), "POST", s.StateURL("app"), body)
			must(b, a, err)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				a, err := s.Try(b.Context(), s.Automation(), "GET", s.StateURL("app"), nil)
				must(b, a, err)
			}
		})
	}
}

// BenchmarkCheckpoint stores versions that differ in ten instances.
func BenchmarkCheckpoint(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := kltest.Start(b)
			st := kltest.NewState(n, 1)
			a, err := s.Try(b.Context(), s.Automation(), "POST", s.StateURL("app"), st.Bytes())
			must(b, a, err)
			a, err = s.Try(b.Context(), s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l1", apply))
			must(b, a, err)
			b.SetBytes(int64(len(st.Bytes())))
			for b.Loop() {
				b.StopTimer()
				st.Mutate(10)
				body := st.Bytes()
				b.StartTimer()
				a, err := s.Try(b.Context(), s.Automation(), "POST", s.StateURL("app")+"?ID=l1", body)
				must(b, a, err)
			}
		})
	}
}

// BenchmarkCycle is LOCK, GET, POST, UNLOCK on states of 100 instances, each
// worker on its own.
func BenchmarkCycle(b *testing.B) {
	s := kltest.Start(b)
	var workers atomic.Int64
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		url := s.StateURL(fmt.Sprintf("s%d", workers.Add(1)))
		st := kltest.NewState(100, uint64(workers.Load()))
		for i := 0; pb.Next(); i++ {
			id := fmt.Sprintf("l%d", i)
			for _, r := range []struct {
				method, url string
				body        []byte
			}{
				{"LOCK", url, kltest.LockBody(id, apply)},
				{"GET", url, nil},
				{"POST", url + "?ID=" + id, st.Bytes()},
				{"UNLOCK", url, kltest.LockBody(id, apply)},
			} {
				a, err := s.Try(b.Context(), s.Automation(), r.method, r.url, r.body)
				if err != nil || a.Status != 200 && (a.Status != 404 || i > 0) {
					b.Errorf("%s: %v, %+v", r.method, err, a)
					return
				}
			}
			st.Mutate(1)
		}
	})
}
