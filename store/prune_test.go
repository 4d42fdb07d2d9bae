package store_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

func (f *fixture) prune(dry bool) wire.PruneResult {
	f.tb.Helper()
	r, err := f.s.Prune(context.Background(), f.actor, f.env, wire.PruneRequest{DryRun: dry})
	if err != nil {
		f.tb.Fatal(err)
	}
	return r
}

func (f *fixture) kept(name string) (numbers []uint64) {
	f.tb.Helper()
	l, err := f.s.Versions(context.Background(), f.ref(name), "", 1000)
	if err != nil {
		f.tb.Fatal(err)
	}
	for _, v := range l.Items {
		numbers = append(numbers, v.Version)
	}
	slices.Reverse(numbers)
	return numbers
}

// clock is a store's clock that the test sets: what runs in the background reads
// it too.
type clock struct{ nanos atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(0, c.nanos.Load()).UTC() }

func (c *clock) set(t time.Time) { c.nanos.Store(t.UnixNano()) }

// pruning is a random history of one state whose versions are all remembered.
type pruning struct {
	*fixture
	r       *rand.Rand
	clock   *clock
	want    map[uint64][]byte // bytes of every version
	pinned  map[string]uint64 // tag → version
	docs    [2]document       // what each session has; nil maps: not open
	serials [2]uint64
	run     string
	ids     int
	lockIDs [2]string
	last    [2]uint64 // own last version of the open session
}

func (p *pruning) head() (document, uint64) {
	d, serial, err := parseDocument(p.get("s", "head"))
	if err != nil {
		p.tb.Fatal(err)
	}
	return d, serial
}

func (p *pruning) note(version uint64) {
	p.want[version] = bytes.Clone(p.get("s", strconv.FormatUint(version, 10)))
}

// edit changes some of the resources that are a session's own.
func (p *pruning) edit(d document, session int) {
	for range 1 + p.r.IntN(6) {
		a := fmt.Sprintf(`a.r%02d["k%d"]`, 2*p.r.IntN(15)+session, p.r.IntN(12))
		if delete(d.inst, a); p.r.IntN(4) > 0 {
			d.inst[a] = instance{value: fmt.Sprintf("v%d", p.r.IntN(4))}
		}
	}
}

func (p *pruning) step() {
	t := p.tb
	i := p.r.IntN(2)
	switch op := p.r.IntN(21); {
	case op < 9: // a checkpoint of a session
		if p.docs[i].inst == nil {
			p.ids++
			p.lockIDs[i] = fmt.Sprintf("lock-%d", p.ids)
			if p.ids%5 == 0 {
				p.lockIDs[i] = fmt.Sprintf("again-%d", i)
			}
			if err := p.lock("s", p.lockIDs[i], wire.OperationApply); err != nil {
				t.Fatal(err)
			}
			p.docs[i], p.serials[i] = p.head()
			p.last[i] = 0
			return
		}
		p.edit(p.docs[i], i)
		p.serials[i]++
		w, err := p.write("s", p.lockIDs[i], p.docs[i].render(p.serials[i], false))
		if err != nil {
			t.Fatal(err)
		}
		p.last[i] = w.Version
		p.note(w.Version)
	case op < 12:
		if p.docs[i].inst != nil {
			if err := p.unlock("s", p.lockIDs[i]); err != nil {
				t.Fatal(err)
			}
			p.docs[i], p.last[i] = document{}, 0
		}
	case op == 12:
		vs := p.kept("s")
		v, tag := vs[p.r.IntN(len(vs))], fmt.Sprintf("t%d", p.r.IntN(4))
		_, err := p.s.SetTag(context.Background(), p.actor, p.ref("s"), tag, strconv.FormatUint(v, 10))
		if err == nil {
			p.pinned[tag] = v
		} else if !fault.Is(err, fault.NotFound) { // pruned in the background meanwhile
			t.Fatal(err)
		}
	case op == 13:
		for tag := range p.pinned {
			if err := p.s.UnsetTag(context.Background(), p.actor, p.ref("s"), tag); err != nil {
				t.Fatal(err)
			}
			delete(p.pinned, tag)
			break
		}
	case op == 14: // a write that is refused, or one without a lock
		d, serial := p.head()
		d.inst[fmt.Sprintf(`a.r99["k%d"]`, p.r.IntN(3))] = instance{value: fmt.Sprint(serial)}
		if _, err := p.write("s", "never-taken", d.render(serial+1, false)); !fault.Is(err, fault.LockNotHeld) {
			t.Fatal(err)
		}
	case op == 15:
		all, err := p.s.RefusedList(context.Background(), p.ref("s"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.Status != "open" {
				continue
			}
			if p.r.IntN(2) == 0 {
				err = p.s.DiscardRefused(context.Background(), p.actor, p.ref("s"), r.ID)
			} else {
				var m wire.MergeResult
				if m, err = p.s.MergeRefused(context.Background(), p.actor, p.ref("s"), r.ID, wire.MergeRequest{Take: &wire.Take{All: wire.TakeTheirs}}); err == nil && m.Version != 0 {
					p.note(m.Version)
				}
			}
			// over an opaque version nothing can be merged
			if err != nil && !fault.Is(err, fault.SerialConflict) && !fault.Is(err, fault.DependencyConflict) {
				t.Fatal(err)
			}
			return
		}
	case op == 16: // an opaque document, and one that is not
		if p.docs[0].inst != nil || p.docs[1].inst != nil {
			return
		}
		d, serial := p.head()
		for _, body := range [][]byte{
			fmt.Appendf(nil, `{"version":3,"serial":%d,"lineage":%q,"x":%q}`, serial+1, modelLineage, bytes.Repeat([]byte("y"), 1000)), d.render(serial+2, false),
		} {
			w, err := p.write("s", "", body)
			if err != nil {
				t.Fatal(err)
			}
			p.note(w.Version)
		}
	case op == 17:
		p.reopen()
	case op == 18: // a run, which needs the version that it began from
		if p.run != "" {
			_, err := p.s.AbortRun(context.Background(), p.actor, p.ref("s"), p.run, "enough", false)
			if err != nil && !fault.Is(err, fault.ReservedConflict) { // its lease may be over
				t.Fatal(err)
			}
			p.run = ""
			return
		}
		run, err := p.s.StartRun(context.Background(), p.actor, p.ref("s"), wire.RunRequest{})
		if err != nil {
			t.Fatal(err)
		}
		p.run = run.ID
	default:
		p.clock.set(p.clock.now().Add(time.Duration(p.r.IntN(40)) * time.Hour))
	}
}

// after prunes and looks at what is left.
func (p *pruning) after() {
	t := p.tb
	t.Helper()
	dry := p.prune(true)
	p.prune(false)
	left := p.kept("s")
	if len(dry.States) > 0 { // in the background it may have been pruned already
		st := dry.States[0]
		if int64(len(left)) != st.Kept || left[0] != st.Oldest || slices.ContainsFunc(st.Removed, func(v uint64) bool { return slices.Contains(left, v) }) {
			t.Fatalf("%v is left, and the dry run promised %+v", left, st)
		}
	}
	for _, v := range left {
		if got := p.get("s", strconv.FormatUint(v, 10)); !bytes.Equal(got, p.want[v]) {
			t.Fatalf("version %d has other bytes after pruning", v)
		}
	}
	for tag, v := range p.pinned {
		if !slices.Contains(left, v) {
			t.Fatalf("version %d went although it has the tag %s", v, tag)
		}
	}
	for i, v := range p.last {
		if v != 0 && !slices.Contains(left, v) {
			t.Fatalf("version %d went although session %d has it", v, i)
		}
	}
	if again := p.prune(false); again.Versions != 0 {
		t.Fatalf("a second pruning removed %d more", again.Versions)
	}
	p.check()
}

// Random writes, merges, tags, refused writes and restarts, pruned by random
// rules: what stays has its bytes, what is needed stays, and every invariant
// holds.
func TestPruneRandomHistories(t *testing.T) {
	rules := [][2]int64{{0, 0}, {1, 0}, {3, 0}, {10, 0}, {0, 1}, {2, 3}, {0, 7}}
	for n := range 6 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			seed := seedOf(t)
			p := &pruning{r: rand.New(rand.NewPCG(seed, 5)), clock: &clock{}, want: map[uint64][]byte{}, pinned: map[string]uint64{}}
			p.clock.set(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
			p.fixture = newFixture(t, store.Options{ChunkTarget: 64 << (n % 4), CacheBytes: int64(n % 2), Now: p.clock.now})
			p.patch(wire.EnvironmentPatch{LockMode: ptr("optimistic"), RecoveryHold: ptr(false)})
			d := document{map[string]instance{}, map[string]string{"o": "1"}}
			for i := range 120 {
				d.inst[fmt.Sprintf(`a.r%02d["k%d"]`, i%30, i/30)] = instance{value: "v"}
			}
			if _, err := p.write("s", "", d.render(1, false)); err != nil {
				t.Fatal(err)
			}
			p.note(1)
			for range 4 {
				k := rules[p.r.IntN(len(rules))]
				p.patch(wire.EnvironmentPatch{KeepLast: &k[0], KeepDays: &k[1]})
				for range 40 {
					p.step()
				}
				p.after()
			}
		})
	}
}

// One state's rules, one by one.
func TestRetentionRules(t *testing.T) {
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		keepLast, keepDays int64
		ages               []time.Duration // of the versions from 1 on, when they are pruned
		locks              []string        // under which they were written
		want               []uint64
	}{
		"no rule keeps all":                     {ages: []time.Duration{900 * day, 800 * day, 1 * day}, want: []uint64{1, 2, 3}},
		"the newest three":                      {keepLast: 3, ages: []time.Duration{5, 4, 3, 2, 1}, want: []uint64{3, 4, 5}},
		"one":                                   {keepLast: 1, ages: []time.Duration{5, 4, 3}, want: []uint64{3}},
		"the head stays, however old":           {keepDays: 1, ages: []time.Duration{90 * day, 80 * day}, want: []uint64{2}},
		"what was the newest within the days":   {keepDays: 30, ages: []time.Duration{100 * day, 90 * day, 29 * day, 0}, want: []uint64{2, 3, 4}},
		"either rule keeps":                     {keepLast: 2, keepDays: 10, ages: []time.Duration{50 * day, 40 * day, 9 * day, 8 * day, 7 * day}, want: []uint64{2, 3, 4, 5}},
		"checkpoints fold after a day":          {ages: []time.Duration{4 * day, 3 * day, 3 * day, 3 * day, 0}, locks: []string{"", "a", "a", "a", ""}, want: []uint64{1, 4, 5}},
		"not before":                            {ages: []time.Duration{4 * day, 3 * day, 2 * day, day / 2, 0}, locks: []string{"", "a", "a", "a", ""}, want: []uint64{1, 2, 3, 4, 5}},
		"folded ones do not count":              {keepLast: 2, ages: []time.Duration{4 * day, 3 * day, 3 * day, 3 * day}, locks: []string{"", "a", "a", "a"}, want: []uint64{1, 4}},
		"sessions with the same ID do not fold": {ages: []time.Duration{9 * day, 8 * day, 5 * day, 4 * day}, locks: []string{"", "a", "+a", "a"}, want: []uint64{1, 2, 4}},
		"folding passes over what others wrote": {ages: []time.Duration{4 * day, 4 * day, 3 * day, 3 * day, 2 * day}, locks: []string{"", "a", "b", "a", "b"}, want: []uint64{1, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			base := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			at := &clock{}
			at.set(base)
			f := newFixture(t, store.Options{Now: at.now})
			f.patch(wire.EnvironmentPatch{LockMode: ptr("optimistic"), KeepLast: &c.keepLast, KeepDays: &c.keepDays})
			held := map[string]bool{}
			for i, age := range c.ages {
				at.set(base.Add(-age).Add(time.Duration(i))) // in order
				lock := ""
				if c.locks != nil {
					lock = c.locks[i]
				}
				if lock == "+a" {
					lock = "a"
					if err := f.unlock("s", lock); err != nil {
						t.Fatal(err)
					}
					held[lock] = false
				}
				if lock != "" && !held[lock] {
					if err := f.lock("s", lock, wire.OperationApply); err != nil {
						t.Fatal(err)
					}
					held[lock] = true
				}
				d := document{map[string]instance{`a.r["` + lock + `"]`: {value: fmt.Sprint(i)}}, map[string]string{}}
				if head, _, err := tryHead(f); err == nil {
					d.inst = head.inst
					d.inst[`a.r["`+lock+`x"]`] = instance{value: fmt.Sprint(i)}
				}
				for l, h := range held {
					if h && lock == "" {
						if err := f.unlock("s", l); err != nil {
							t.Fatal(err)
						}
						held[l] = false
					}
				}
				if _, err := f.write("s", lock, d.render(uint64(i)+1, false)); err != nil {
					t.Fatal(err)
				}
			}
			for l, h := range held {
				if h {
					if err := f.unlock("s", l); err != nil {
						t.Fatal(err)
					}
				}
			}
			at.set(base)
			f.prune(false)
			if got := f.kept("s"); !slices.Equal(got, c.want) {
				t.Fatalf("%v is left, want %v", got, c.want)
			}
		})
	}
}

func tryHead(f *fixture) (document, uint64, error) {
	if _, err := f.s.State(context.Background(), f.ref("s")); err != nil {
		return document{}, 0, err
	}
	return parseDocument(f.get("s", "head"))
}

// A version that is being read when it is pruned is read to its end.
func TestPruneWaitsForReaders(t *testing.T) {
	f := newFixture(t, store.Options{CacheBytes: 1, CacheLargest: 1})
	st := kltest.NewState(200, 3)
	var first []byte
	for i := range 4 {
		if i > 0 {
			st.Mutate(40)
		}
		body := withNextSerial(st.Bytes(), st, uint64(i)+1)
		if i == 0 {
			first = bytes.Clone(body)
		}
		if _, err := f.write("s", "", body); err != nil {
			t.Fatal(err)
		}
	}
	snap, err := f.s.Version(context.Background(), f.ref("s"), "1")
	if err != nil {
		t.Fatal(err)
	}
	f.patch(wire.EnvironmentPatch{KeepLast: ptr(int64(1))})
	f.prune(false)
	if got := f.kept("s"); !slices.Equal(got, []uint64{1, 4}) {
		t.Fatalf("%v is left while 1 is read", got)
	}
	var got bytes.Buffer
	if _, err := snap.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), first) {
		t.Fatalf("%d bytes were read: %v", got.Len(), err)
	}
	snap.Close()
	f.prune(false)
	if got := f.kept("s"); !slices.Equal(got, []uint64{4}) {
		t.Fatalf("%v is left", got)
	}
	if _, err := f.s.Version(context.Background(), f.ref("s"), "1"); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
}

// seedOf is the seed of a random test, KL_SEED when that is set.
func seedOf(tb testing.TB) uint64 {
	tb.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("KL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			tb.Fatalf("KL_SEED: %v", err)
		}
	}
	tb.Logf("seed %d (KL_SEED=%d repeats it)", seed, seed)
	return seed
}

// The audit trail is bounded: the oldest events go.
func TestEventsAreBounded(t *testing.T) {
	f := newFixture(t, store.Options{})
	for i := range 30 {
		f.patch(wire.EnvironmentPatch{KeepLast: ptr(int64(i))})
	}
	f.s.DropEvents(10)
	l, err := f.s.Events(context.Background(), store.EventFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Items) != 10 || l.Items[9].ID != l.Items[0].ID+9 {
		t.Fatalf("%d events are left", len(l.Items))
	}
}
