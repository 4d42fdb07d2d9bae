package e2e

import (
	"context"
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
	rounds := 200
	if testing.Short() {
		rounds = 10
	}
	rng := seeded(t)
	const perFile = 40 // so that checking whole files does not become the test
	kills, writes, locks := 0, 0, 0
	for file := 0; kills < rounds && !t.Failed(); file++ {
		t.Run(fmt.Sprintf("file %d", file), func(t *testing.T) {
			l := newLoad(t, rng)
			for range min(perFile, rounds-kills) {
				l.run(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
				kills++
				l.verify()
				if t.Failed() {
					return
				}
				l.s.start()
				l.resume()
			}
			for _, s := range l.states {
				writes += len(s.acked)
				locks += s.locks
			}
		})
	}
	t.Logf("%d kills, %d acknowledged writes, %d acknowledged locks", kills, writes, locks)
	if writes == 0 || locks == 0 {
		t.Error("no write or no lock was acknowledged: the test proves nothing")
	}
}

// What the clients know of a lock.
type lockFate int

const (
	maybeHeld     lockFate = iota // LOCK was sent
	held                          // LOCK was acknowledged
	maybeReleased                 // UNLOCK was sent
	released                      // UNLOCK was acknowledged
)

// loadState is one state under load: what was sent to it and what was
// acknowledged. The document is changed only by the holder of the lock.
type loadState struct {
	name  string
	mu    sync.Mutex
	doc   *kltest.State
	sent  map[string]bool   // digests
	acked map[uint64]string // version to digest
	fates map[string]lockFate
	locks int
	last  []byte // body of the last write whose outcome is not known
	owner string // lock of that write
}

type load struct {
	t      *testing.T
	s      *server
	c      *client.Client
	states []*loadState
	next   int // for lock IDs
	mu     sync.Mutex
}

func newLoad(t *testing.T, rng *rand.Rand) *load {
	l := &load{t: t, s: startServer(t)}
	for i := range 4 {
		l.states = append(l.states, &loadState{
			name: fmt.Sprintf("s%d", i), doc: kltest.NewState(10+20*i, rng.Uint64()),
			sent: map[string]bool{}, acked: map[uint64]string{}, fates: map[string]lockFate{},
		})
	}
	return l
}

// run has two clients on each state for a while and kills the server among
// them.
func (l *load) run(after time.Duration) {
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	l.c = l.s.clientFor(client.Options{
		HTTP: &http.Client{Transport: transport}, Username: l.s.boot.WorkspaceID, Password: l.s.boot.AutomationToken,
	})
	var clients sync.WaitGroup
	for _, state := range l.states {
		for range 2 {
			clients.Go(func() {
				for l.cycle(state) {
				}
			})
		}
	}
	<-time.After(after)
	l.s.proc.kill()
	clients.Wait()
}

// cycle is what one apply does. It reports whether the server still answers.
func (l *load) cycle(state *loadState) bool {
	ctx, ref := l.s.ctx(), l.s.ref(state.name)
	info := wire.LockInfo{ID: l.newID(state.name), Operation: wire.OperationApply, Who: "load"}
	state.fate(info.ID, maybeHeld)
	for {
		err := l.c.Lock(ctx, ref, info)
		if fault.Is(err, fault.Locked) {
			continue // the server holds the repeated request open
		}
		if !l.ok("LOCK", err) {
			return false
		}
		break
	}
	state.fate(info.ID, held)
	for i := range 3 {
		if !l.write(ctx, state, info.ID, i) {
			return false
		}
	}
	state.fate(info.ID, maybeReleased)
	if !l.ok("UNLOCK", l.c.Unlock(ctx, ref, info)) {
		return false
	}
	state.fate(info.ID, released)
	return true
}

func (l *load) write(ctx context.Context, state *loadState, lockID string, change int) bool {
	state.mu.Lock()
	state.doc.Mutate(1 + change)
	body := state.doc.Bytes()
	state.sent[sum(body)] = true
	state.last, state.owner = body, lockID
	state.mu.Unlock()
	w, err := l.c.Push(ctx, l.s.ref(state.name), lockID, body)
	if !l.ok("POST", err) {
		return false
	}
	state.wrote(w.Version, body)
	return true
}

// ok reports whether a request was done; anything but that or the server's
// death is a failure.
func (l *load) ok(what string, err error) bool {
	if err != nil && !fault.Is(err, fault.Unreachable) {
		l.t.Errorf("%s: %v %+v", what, err, fault.Of(err))
	}
	return err == nil
}

func (l *load) newID(state string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	return fmt.Sprintf("%s-lock-%d", state, l.next)
}

func (s *loadState) fate(id string, f lockFate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates[id] = f
	if f == held {
		s.locks++
	}
}

func (s *loadState) wrote(version uint64, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked[version] = sum(body)
	s.last = nil
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
	found := map[uint64]string{}
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
	var holders []string
	for _, h := range lock.Holders {
		holders = append(holders, h.ID)
	}
	if len(holders) > 1 {
		l.t.Errorf("%s has several holders: %v", state.name, holders)
	}
	for _, id := range holders {
		if f, sent := state.fates[id]; !sent || f == released {
			l.t.Errorf("%s is held by %s, which was never asked for or was released", state.name, id)
		}
	}
	for id, f := range state.fates {
		if f == held && !slices.Contains(holders, id) {
			l.t.Errorf("%s was acknowledged as held by %s, the file has %v", state.name, id, holders)
		}
	}
	// what is not known is settled now
	for id := range state.fates {
		delete(state.fates, id)
	}
	for _, id := range holders {
		state.fates[id] = held
	}
}

// resume is what clients do when the server is back: they repeat the write
// whose answer never came, which must make one version and not two, and unlock.
func (l *load) resume() {
	l.t.Helper()
	ctx := l.s.ctx()
	c := l.s.clientFor(client.Options{Username: l.s.boot.WorkspaceID, Password: l.s.boot.AutomationToken})
	for _, state := range l.states {
		ref := l.s.ref(state.name)
		for id := range state.fates {
			if state.last != nil && state.owner == id {
				w, err := c.Push(ctx, ref, id, state.last)
				if err != nil {
					l.t.Errorf("repeated POST on %s: %v", state.name, err)
				}
				for version, digest := range state.acked {
					if digest == sum(state.last) && version != w.Version {
						l.t.Errorf("%s: a repeated POST made version %d beside %d", state.name, w.Version, version)
					}
				}
				state.wrote(w.Version, state.last)
			}
			if err := c.Unlock(ctx, ref, wire.LockInfo{ID: id}); err != nil {
				l.t.Errorf("unlock of %s after a restart: %v", state.name, err)
			}
			state.fate(id, released)
		}
		state.settle(l, c)
	}
}

// settle brings the document in line with the head: a write that died unseen
// leaves the document ahead, which is right for the next serial but not for the
// server's record of it.
func (s *loadState) settle(l *load, c *client.Client) {
	s.last = nil
	b, err := c.Pull(l.s.ctx(), l.s.ref(s.name))
	if fault.Is(err, fault.NotFound) {
		return
	}
	head := parseState(l.t, l.s.read("pull "+s.name, b, err))
	s.doc.SetSerial(head.Serial)
}
