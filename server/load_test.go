package server_test

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"kl/kltest"
	"kl/wire"
)

// TestLoadLeavesNothing: clients that contend for one state as fast as they can
// leave no lock, no place in the queue, and no goroutine.
func TestLoadLeavesNothing(t *testing.T) {
	s, st := seeded(t)
	workers, cycles := 8, 40
	if testing.Short() {
		cycles = 5
	}
	before := goroutines(t, s)
	url := s.StateURL("app")
	var serial sync.Mutex // guards st: whoever holds the lock of the state changes it
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range cycles {
				id := fmt.Sprintf("w%d-%d", w, i)
				if !locked(t, s, url, id) {
					return
				}
				serial.Lock()
				st.Mutate(1)
				body := st.Bytes()
				serial.Unlock()
				for _, r := range [][2]string{{"POST", url + "?ID=" + id}, {"UNLOCK", url}} {
					if r[0] == "UNLOCK" {
						body = kltest.LockBody(id, apply)
					}
					a, err := s.Try(t.Context(), s.Automation(), r[0], r[1], body)
					if err != nil || a.Status != 200 {
						t.Errorf("%s by %s: %v, %+v", r[0], id, err, a)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	var l wire.Lock
	s.Do(s.Operator(), "GET", s.APIURL("app", "/lock"), nil).Into(t, &l)
	if len(l.Holders) != 0 || len(l.Queue) != 0 {
		t.Errorf("left behind: %+v", l)
	}
	if a := s.Do(s.Automation(), "GET", url, nil); a.Header.Get(wire.HeaderVersion) != strconv.Itoa(workers*cycles+1) {
		t.Errorf("version %s, want %d", a.Header.Get(wire.HeaderVersion), workers*cycles+1)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		s.Client.CloseIdleConnections()
		after := goroutines(t, s)
		if after <= before+3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after", before, after)
		}
	}
}

// locked repeats a LOCK until it is granted, as a client with -lock-timeout
// does.
func locked(t *testing.T, s *kltest.Server, url, id string) bool {
	for {
		a, err := s.Try(t.Context(), s.Automation(), "LOCK", url, kltest.LockBody(id, apply))
		switch {
		case err == nil && a.Status == 200:
			return true
		case err != nil || a.Status != 423:
			t.Errorf("LOCK by %s: %v, %+v", id, err, a)
			return false
		}
	}
}

var goroutineLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

func goroutines(t *testing.T, s *kltest.Server) int {
	t.Helper()
	m := goroutineLine.FindSubmatch(s.Do(kltest.Nobody, "GET", s.URL+"/metrics", nil).Body)
	if m == nil {
		t.Fatal("no figure of goroutines")
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
