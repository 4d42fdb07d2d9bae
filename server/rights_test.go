package server_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"kl/kltest"
	"kl/wire"
)

// credential is one secret, and when it had ended.
type credential struct {
	secret string
	id     string
	dead   atomic.Int64 // moment at which its end was confirmed, 0: good
}

// right is what a client's user may do over time, as seen from outside. Moments
// are ticks of one counter. Between off and the next on, the right was
// certainly not there; between on and the next off it certainly was.
type right struct {
	mu      sync.Mutex
	changes []change
	current atomic.Pointer[credential]
	beats   chan struct{} // one for each request that was answered
}

// wait lets so many more requests be answered; false means that the test is
// over.
func (r *right) wait(requests int, done <-chan struct{}) bool {
	for len(r.beats) > 0 {
		<-r.beats
	}
	for range requests {
		select {
		case <-r.beats:
		case <-done:
			return false
		}
	}
	return true
}

type change struct {
	on         bool
	begun, end int64
}

// served is one request of the history.
type served struct {
	right      *right
	cred       *credential
	begun, end int64
	status     int
	what       string
}

// TestRightsUnderLoad: two hundred clients with tokens of all kinds go on while
// grants, memberships and tokens come and go. By the recorded history no
// request was served by a right that had ended before it began, and none was
// refused while the right was there all the time.
func TestRightsUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	x := newTeam(t)
	users, perUser, robots, perRobot, requests := 20, 8, 8, 5, 40
	want(t, "seed", x.s.Do(x.robot("seed"), "POST", x.state("app"), kltest.NewState(20, 1).Bytes()), 200)

	var clock atomic.Int64
	tick := func() int64 { return clock.Add(1) }
	var history []served
	var keep sync.Mutex
	var clients, changers sync.WaitGroup
	done := make(chan struct{})

	client := func(r *right, n int) {
		clients.Go(func() {
			mine := x.state(fmt.Sprintf("c%d", n))
			for i := range requests {
				method, url, body := "GET", x.state("app"), []byte(nil)
				id := fmt.Sprintf("l%d-%d", n, i)
				switch (n + i) % 4 {
				case 1:
					method, url, body = "LOCK", mine, kltest.LockBody(id, plan)
				case 2:
					url = x.s.URL + x.envPath("/states")
				default:
				}
				c := r.current.Load()
				h := served{right: r, cred: c, begun: tick(), what: method + " " + url}
				a, err := x.s.Try(t.Context(), kltest.Basic(x.ws, c.secret), method, url, body)
				if err != nil {
					t.Errorf("%s: %v", h.what, err)
					return
				}
				h.end, h.status = tick(), a.Status
				keep.Lock()
				history = append(history, h)
				keep.Unlock()
				r.beats <- struct{}{}
			}
		})
	}
	// change runs a step of a right's life and notes it.
	step := func(r *right, on bool, f func() bool) bool {
		c := change{on: on, begun: tick()}
		if !f() {
			return false
		}
		c.end = tick()
		r.mu.Lock()
		r.changes = append(r.changes, c)
		r.mu.Unlock()
		return true
	}
	ask := func(as kltest.Credentials, method, path, body string, into any) bool {
		a, err := x.s.Try(t.Context(), as, method, x.s.URL+path, []byte(body))
		if err != nil || a.Status >= 300 {
			t.Errorf("%s %s: %v %+v", method, path, err, a)
			return false
		}
		return into == nil || json.Unmarshal(a.Body, into) == nil
	}

	rng := rand.New(rand.NewPCG(4, 4))
	for u := range users { // all before the first client: it reads the maps of x
		x.join(fmt.Sprintf("u%d", u), "write")
	}
	n := 0
	for u := range users {
		name := fmt.Sprintf("u%d", u)
		r := &right{beats: make(chan struct{}, 8*requests)}
		r.current.Store(&credential{secret: x.pats[name].Secret, id: x.pats[name].ID})
		now := tick()
		r.changes = append(r.changes, change{on: true, begun: now, end: now})
		for range perUser {
			client(r, n)
			n++
		}
		grant := func() bool { return ask(x.as("ana"), "PUT", x.envPath("/grants/"+name), `{"role":"write"}`, nil) }
		ways := []func() bool{
			func() bool { return ask(x.as("ana"), "DELETE", x.envPath("/grants/"+name), "", nil) },
			func() bool { return ask(x.as("ana"), "DELETE", x.wsPath("/members/"+name), "", nil) },
			func() bool { return ask(x.as(name), "POST", x.wsPath("/leave"), "", nil) },
			func() bool {
				c := r.current.Load()
				if !ask(x.as(name), "DELETE", "/v1/pats/"+c.id, "", nil) {
					return false
				}
				c.dead.Store(tick())
				return true
			},
		}
		seed := rng.Uint64()
		changers.Go(func() {
			mine := rand.New(rand.NewPCG(seed, 1))
			for r.wait(6*perUser, done) {
				way := mine.IntN(len(ways))
				if !step(r, false, ways[way]) || !r.wait(perUser, done) {
					return
				}
				switch way {
				case 1, 2:
					if !ask(x.as("ana"), "POST", x.wsPath("/members"), fmt.Sprintf(`{"user":%q}`, name), nil) {
						return
					}
				case 3:
					var tok wire.Token
					if !ask(x.as(name), "POST", "/v1/pats", `{"name":"again"}`, &tok) {
						return
					}
					r.current.Store(&credential{secret: tok.Secret, id: tok.ID})
				default:
				}
				if !step(r, true, grant) {
					return
				}
			}
		})
	}
	for i := range robots {
		r := &right{beats: make(chan struct{}, 8*requests)}
		issue := func() bool {
			var tok wire.Token
			if !ask(x.as("ana"), "POST", x.envPath("/tokens"), fmt.Sprintf(`{"name":"r%d"}`, i), &tok) {
				return false
			}
			r.current.Store(&credential{secret: tok.Secret, id: tok.ID})
			return true
		}
		if !step(r, true, issue) {
			t.Fatal("no token")
		}
		for range perRobot {
			client(r, n)
			n++
		}
		changers.Go(func() {
			for r.wait(6*perRobot, done) {
				c := r.current.Load()
				gone := step(r, false, func() bool { return ask(x.as("ana"), "DELETE", x.envPath("/tokens/"+c.id), "", nil) })
				c.dead.Store(tick())
				if !gone || !r.wait(perRobot, done) || !step(r, true, issue) {
					return
				}
			}
		})
	}
	clients.Wait()
	close(done)
	changers.Wait()

	in, out, sure := 0, 0, 0
	for _, h := range history {
		ok := h.status < 300
		if ok {
			in++
		} else {
			out++
		}
		never, always := h.right.during(h.begun, h.end)
		dead := h.cred.dead.Load()
		if ended := dead != 0 && dead < h.begun; ok && (never || ended) {
			t.Errorf("%s was served at %d..%d by a right that had ended (token ended at %d)", h.what, h.begun, h.end, dead)
		}
		if always && dead == 0 {
			if sure++; !ok {
				t.Errorf("%s was refused with %d at %d..%d although the right was there", h.what, h.status, h.begun, h.end)
			}
		}
	}
	t.Logf("%d clients, %d requests: %d served, %d refused, %d with a right that was there throughout", n, len(history), in, out, sure)
	if n < 200 || len(history) != n*requests || in == 0 || out == 0 || sure == 0 {
		t.Errorf("the history says too little")
	}
}

// during reports whether the right was certainly not there at any moment of the
// window, and whether it certainly was at all of them.
func (r *right) during(from, to int64) (never, always bool) {
	for i, c := range r.changes {
		next := change{begun: 1 << 62}
		if i+1 < len(r.changes) {
			next = r.changes[i+1]
		}
		if c.end < from && to < next.begun {
			return !c.on, c.on
		}
	}
	return false, false
}

// robot are the credentials of a new automation token with the role write.
func (x *team) robot(name string) kltest.Credentials {
	x.t.Helper()
	var tok wire.Token
	x.ok(x.as("ana"), "POST", x.envPath("/tokens"), fmt.Sprintf(`{"name":%q}`, name), 201).Into(x.t, &tok)
	return kltest.Basic(x.ws, tok.Secret)
}
