package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"kl/client"
	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// TestCrash kills a serving process at random points under load, again and
// again. After each death the file opens, every invariant holds, every write
// that was acknowledged is there, and every lock is as it was acknowledged.
func TestCrash(t *testing.T) {
	t.Parallel()
	rounds := 200
	if testing.Short() {
		rounds = 10
	}
	rng := seeded(t)
	const perFile = 25 // so that checking whole files does not become the test
	kills, writes, locks := 0, 0, 0
	for file := 0; kills < rounds && !t.Failed(); file++ {
		t.Run(fmt.Sprintf("file %d", file), func(t *testing.T) {
			l := newLoad(t, rng)
			for range min(perFile, rounds-kills) {
				l.run(rng)
				kills++
				l.verify()
				if t.Failed() {
					return
				}
				l.s.start()
			}
			for _, s := range l.states {
				writes += len(s.acked)
				locks += s.locks
			}
		})
	}
	t.Logf("%d kills, %d acknowledged writes, %d acknowledged locks", kills, writes, locks)
	if writes < kills || locks < kills/2 {
		t.Error("there was too little load for this to prove anything")
	}
}

// loadState is one state under load: what was sent to it and what was
// acknowledged.
type loadState struct {
	name    string
	clients []*loadClient

	mu    sync.Mutex
	doc   *kltest.State     // changed only by the client that holds the lock
	sent  map[string]bool   // digests
	acked map[uint64]string // version to digest
	locks int
}

// The requests of one apply, in order.
type phase int

const (
	locking phase = iota
	writing
	writingMore
	writingLast
	unlocking
)

// loadClient applies again and again. A request that got no answer is sent
// again when the server is back, as the real client's retries are; so it keeps
// its lock, and its place among those that wait.
type loadClient struct {
	state *loadState
	name  string
	cycle int
	phase phase  // of the request that is sent next, or was sent last and not answered
	sent  bool   // it was sent
	body  []byte // of that request, when it writes
}

func (c *loadClient) lockID() string { return fmt.Sprintf("%s-%d", c.name, c.cycle) }

type load struct {
	t        *testing.T
	s        *server
	c        *client.Client
	states   []*loadState
	answered answers
}

func newLoad(t *testing.T, rng *rand.Rand) *load {
	l := &load{t: t, s: startServer(t)}
	for i := range 4 {
		state := &loadState{
			name: fmt.Sprintf("s%d", i), doc: kltest.NewState(10+20*i, rng.Uint64()),
			sent: map[string]bool{}, acked: map[uint64]string{},
		}
		for j := range 2 {
			state.clients = append(state.clients, &loadClient{state: state, name: fmt.Sprintf("%s-client%d", state.name, j)})
		}
		l.states = append(l.states, state)
	}
	return l
}

// run lets the clients work for a while and kills the server among them.
func (l *load) run(rng *rand.Rand) {
	l.answered = newAnswers()
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	l.c = l.s.clientFor(client.Options{
		HTTP: &http.Client{Transport: transport}, Username: l.s.boot.WorkspaceID, Password: l.s.boot.AutomationToken,
	})
	var clients sync.WaitGroup
	for _, state := range l.states {
		for _, c := range state.clients {
			clients.Go(func() {
				for l.step(c) {
				}
			})
		}
	}
	l.answered.await(l.t, rng.IntN(20))
	<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond) // anywhere within the next request
	l.s.proc.kill()
	clients.Wait()
}

// step sends the client's next request. It reports whether the server still
// answers.
func (l *load) step(c *loadClient) bool {
	ctx, ref := l.s.ctx(), l.s.ref(c.state.name)
	info := wire.LockInfo{ID: c.lockID(), Operation: wire.OperationApply, Who: c.name}
	if !c.sent {
		c.prepare()
	}
	c.sent = true
	var err error
	var w client.Written
	switch c.phase {
	case locking:
		err = l.c.Lock(ctx, ref, info)
		if fault.Is(err, fault.Locked) {
			return true // the same again: the server holds it open
		}
	case unlocking:
		err = l.c.Unlock(ctx, ref, info)
	default:
		w, err = l.c.Push(ctx, ref, info.ID, c.body)
	}
	if err != nil {
		if !fault.Is(err, fault.Unreachable) {
			l.t.Errorf("phase %d of %s: %v %+v", c.phase, c.lockID(), err, fault.Of(err))
		}
		return false
	}
	c.done(w.Version)
	l.answered.add()
	return true
}

// prepare makes the body of a write; only the lock's holder comes here with one.
func (c *loadClient) prepare() {
	if c.phase == locking || c.phase == unlocking {
		return
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	c.state.doc.Mutate(int(c.phase))
	c.body = c.state.doc.Bytes()
	c.state.sent[sum(c.body)] = true
}

// done notes what was acknowledged.
func (c *loadClient) done(version uint64) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	switch c.phase {
	case locking:
		c.state.locks++
	case unlocking:
	default:
		c.state.acked[version] = sum(c.body)
	}
	c.sent = false
	if c.phase++; c.phase > unlocking {
		c.phase = locking
		c.cycle++
	}
}

// verify opens the file that the dead server left behind.
func (l *load) verify() {
	l.t.Helper()
	st, err := store.Open(store.Options{Path: l.s.data, ReadOnly: true})
	if err != nil {
		l.t.Fatalf("the file does not open: %v", err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			l.t.Errorf("close: %v", err)
		}
	}()
	report, err := st.Check(l.s.ctx(), nil)
	if err != nil || len(report.Problems) > 0 {
		l.t.Fatalf("check: %v %q", err, report.Problems)
	}
	for _, state := range l.states {
		l.verifyVersions(st, state)
		l.verifyLocks(st, state)
	}
}

func (l *load) verifyVersions(st *store.Store, state *loadState) {
	l.t.Helper()
	ref := store.Ref{Environment: l.s.boot.EnvPublicID, Name: state.name}
	found, seen := map[uint64]string{}, map[string]uint64{}
	for cursor := ""; ; {
		page, err := st.Versions(l.s.ctx(), ref, cursor, 1000)
		if fault.Is(err, fault.NotFound) && len(state.acked) == 0 {
			return
		}
		if err != nil {
			l.t.Fatalf("versions of %s: %v", state.name, err)
		}
		for _, v := range page.Items {
			found[v.Version] = v.SHA256
			if twin, twice := seen[v.SHA256]; twice {
				l.t.Errorf("%s: one write made the versions %d and %d", state.name, twin, v.Version)
			}
			seen[v.SHA256] = v.Version
			if !state.sent[v.SHA256] {
				l.t.Errorf("%s version %d is nothing that was sent", state.name, v.Version)
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for version, digest := range state.acked {
		if found[version] != digest {
			l.t.Errorf("%s version %d was acknowledged with %s, the file has %q", state.name, version, digest, found[version])
		}
	}
}

func (l *load) verifyLocks(st *store.Store, state *loadState) {
	l.t.Helper()
	lock, err := st.LockState(l.s.ctx(), store.Ref{Environment: l.s.boot.EnvPublicID, Name: state.name})
	if err != nil && !fault.Is(err, fault.NotFound) {
		l.t.Fatalf("lock of %s: %v", state.name, err)
	}
	if len(lock.Holders) > 1 {
		l.t.Errorf("%s has several holders: %+v", state.name, lock.Holders)
	}
	may := map[string]bool{}
	for _, c := range state.clients {
		id := c.lockID()
		holds := slices.ContainsFunc(lock.Holders, func(h wire.Holder) bool { return h.ID == id })
		must := c.phase > locking && c.phase < unlocking || c.phase == unlocking && !c.sent
		may[id] = must || c.sent
		if must && !holds {
			l.t.Errorf("%s was acknowledged as held by %s, the file has %+v", state.name, id, lock.Holders)
		}
	}
	for _, h := range lock.Holders {
		if !may[h.ID] {
			l.t.Errorf("%s is held by %s, which was released or never asked for", state.name, h.ID)
		}
	}
}
