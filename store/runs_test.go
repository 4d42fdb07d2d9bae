package store_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kl/fault"
	"kl/store"
	"kl/wire"
)

// modelRun is a run as its runner and the model know it.
type modelRun struct {
	client
	view        []byte // what GET must serve
	write, read []string
	holds       bool
	moved       map[string]bool // addresses that others changed since it last looked
}

// runModel runs sessions and runs of one state against the textbook merge.
type runModel struct {
	coexistModel
	runs []*modelRun
}

// prune leaves the newest version and what is needed.
func (m *runModel) prune(*rapid.T) { m.f.prune(false) }

func sameScope(a, b string) bool { return a == b || resourceOf(a) == b || a == resourceOf(b) }

func inAny(address string, sets ...[]string) bool {
	return slices.ContainsFunc(slices.Concat(sets...), func(s string) bool { return sameScope(s, address) })
}

func (m *runModel) anyRun(t *rapid.T) *modelRun {
	if len(m.runs) == 0 {
		t.Skip("no run")
	}
	return m.runs[rapid.IntRange(0, len(m.runs)-1).Draw(t, "run")]
}

func (m *runModel) start(t *rapid.T) {
	if len(m.runs) >= maxClients {
		t.Skip("enough runs")
	}
	r, err := m.f.s.StartRun(context.Background(), m.f.actor, m.f.ref("s"), wire.RunRequest{})
	if err != nil {
		t.Fatal(err)
	}
	run := &modelRun{client: client{id: r.ID}}
	m.pin(t, run)
	if run.serial != r.Serial {
		t.Fatalf("the run sees serial %d of %d", r.Serial, run.serial)
	}
	m.runs = append(m.runs, run)
}

// pin lets a run see the head.
func (m *runModel) pin(t *rapid.T, run *modelRun) {
	run.view = m.f.get("s", "head")
	d, serial, err := parseDocument(run.view)
	if err != nil {
		t.Fatal(err)
	}
	run.seen, run.doc, run.serial, run.last, run.moved = d, d.clone(), serial, nil, map[string]bool{}
}

func (m *runModel) drawSet(t *rapid.T, most int) []string {
	set := []string{}
	for range rapid.IntRange(0, most).Draw(t, "addresses") {
		a := fmt.Sprintf("a.r%02d", rapid.IntRange(0, 11).Draw(t, "resource"))
		if strings.HasSuffix(a, "5") || strings.HasSuffix(a, "11") {
			a = "data." + a
		}
		if rapid.Bool().Draw(t, "one") {
			a += fmt.Sprintf(`["k%d"]`, rapid.IntRange(0, 3).Draw(t, "key"))
		}
		set = append(set, a)
	}
	slices.Sort(set)
	return slices.Compact(set)
}

func (m *runModel) reserve(t *rapid.T) {
	run := m.anyRun(t)
	write, read := m.drawSet(t, 4), m.drawSet(t, 2)
	if len(write)+len(read) == 0 {
		t.Skip("nothing to reserve")
	}
	inWay := map[string]bool{}
	for _, o := range m.runs {
		if o == run {
			continue
		}
		for _, a := range o.write {
			if inAny(a, write, read) {
				inWay[a] = true
			}
		}
		for _, a := range o.read {
			if inAny(a, write) {
				inWay[a] = true
			}
		}
	}
	got, err := m.f.s.Reserve(context.Background(), store.ReserveRequest{
		Ref: m.f.ref("s"), Actor: m.f.actor, Run: run.id, Want: wire.ReserveRequest{WriteSet: write, ReadSet: read},
	})
	if len(inWay) > 0 {
		f := fault.Of(err)
		if f == nil || f.Code != fault.ReservedConflict {
			t.Fatalf("%v and %v are reserved beside %v: %v", write, read, inWay, err)
		}
		if got, _ := f.Details["conflicting_addresses"].([]string); !slices.Equal(got, slices.Sorted(maps.Keys(inWay))) {
			t.Fatalf("a conflict on %v, want %v", got, inWay)
		}
		return
	}
	if err != nil || !slices.Equal(got.WriteSet, write) || !slices.Equal(got.ReadSet, read) {
		t.Fatalf("reserve %v and %v: %v and %v, %v", write, read, got.WriteSet, got.ReadSet, err)
	}
	run.write, run.read, run.holds = write, read, true
}

// touches are the managed instances that a write would change in the head.
func (m *runModel) touches(c *client) (out []string) {
	for a := range mergeInstances(c.seen, m.head, c.doc) {
		b, inB := c.seen.inst[a]
		h, inH := m.head.inst[a]
		o, inO := c.doc.inst[a]
		ours, differs := o != b || inO != inB, o != h || inO != inH
		if ours && differs && !strings.HasPrefix(a, "data.") {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return out
}

func mergeInstances(ds ...document) map[string]bool {
	out := map[string]bool{}
	for _, d := range ds {
		for a := range d.inst {
			out[a] = true
		}
	}
	return out
}

// change draws changes of a document, mostly within the addresses of near.
func (m *runModel) change(t *rapid.T, d document, near []string) {
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		a := fmt.Sprintf(`a.r%02d["k%d"]`, rapid.IntRange(0, 11).Draw(t, "resource"), rapid.IntRange(0, 3).Draw(t, "key"))
		if len(near) > 0 && rapid.IntRange(0, 9).Draw(t, "stray") > 0 {
			a = rapid.SampledFrom(near).Draw(t, "address")
			if !strings.Contains(a, "[") {
				a += fmt.Sprintf(`["k%d"]`, rapid.IntRange(0, 3).Draw(t, "key"))
			}
		}
		switch rapid.IntRange(0, 4).Draw(t, "op") {
		case 0:
			delete(d.inst, a)
		case 1:
			d.outs[fmt.Sprintf("o%d", rapid.IntRange(0, 2).Draw(t, "output"))] = fmt.Sprintf("v%d", rapid.IntRange(0, 3).Draw(t, "value"))
		default:
			d.inst[a] = instance{value: fmt.Sprintf("v%d", rapid.IntRange(0, 3).Draw(t, "value"))}
		}
	}
}

// accepted takes a new head over.
func (m *runModel) accepted(head document, by *modelRun) {
	for a := range mergeInstances(m.head, head) {
		was, inWas := m.head.inst[a]
		is, inIs := head.inst[a]
		if was == is && inWas == inIs {
			continue
		}
		for _, o := range m.runs {
			o.moved[a] = true
		}
	}
	if by != nil {
		by.moved = map[string]bool{}
	}
	m.head = head
}

// expect verifies a refusal because of reservations; false: none was due.
func (m *runModel) expect(t *rapid.T, err error, addresses []string, body []byte) bool {
	if len(addresses) == 0 {
		return false
	}
	f := fault.Of(err)
	if f == nil || f.Code != fault.ReservedConflict {
		t.Fatalf("a write of %v is answered with %v", addresses, err)
	}
	if got, _ := f.Details["conflicting_addresses"].([]string); !slices.Equal(got, addresses) {
		t.Fatalf("a conflict on %v, want %v", got, addresses)
	}
	m.kept(t, f, body)
	return true
}

// checkpointRun is a write within a run.
func (m *runModel) checkpointRun(t *rapid.T) {
	run := m.anyRun(t)
	m.change(t, run.doc, run.write)
	serial := run.serial + uint64(rapid.IntRange(1, 3).Draw(t, "gap"))
	body := run.doc.render(serial, rapid.IntRange(0, 3).Draw(t, "compact") == 0)
	var outside []string
	for _, a := range m.touches(&run.client) {
		if !slices.ContainsFunc(run.write, func(s string) bool { return s == a || s == resourceOf(a) }) {
			outside = append(outside, a)
		}
	}
	want, conflicts, code := merge3(run.seen, m.head, run.doc)
	w, err := m.f.writeRun("s", run.id, body)
	switch {
	case m.expect(t, err, outside, body), len(conflicts) > 0:
		f := fault.Of(err)
		if len(outside) == 0 && (f == nil || f.Code != code) {
			t.Fatalf("got %v, %v; want %s on %v", w, err, code, conflicts)
		}
		run.doc = run.seen.clone() // its terraform ends; the next begins with the view
	case err != nil:
		t.Fatalf("%s: refused: %v", run.id, err)
	default:
		run.seen, run.last, run.view, run.serial = run.doc.clone(), body, body, serial
		m.accepted(want, run)
	}
}

// replayRun sends a run's last accepted write again.
func (m *runModel) replayRun(t *rapid.T) {
	run := m.anyRun(t)
	if run.last == nil {
		t.Skip("nothing to send again")
	}
	if w, err := m.f.writeRun("s", run.id, run.last); err != nil || !w.Replay {
		t.Fatalf("a replay gives %+v, %v", w, err)
	}
}

// plain is a write of a session, which reservations bind too.
func (m *runModel) plain(t *rapid.T) {
	c := m.any(t)
	if c.refused {
		t.Skip("a refused write ends an apply")
	}
	var near []string
	for _, r := range m.runs {
		near = slices.Concat(near, r.write, r.read)
	}
	m.change(t, c.doc, near)
	c.serial++
	body := c.doc.render(c.serial, c.compact)
	var taken []string
	for _, a := range m.touches(c) {
		if slices.ContainsFunc(m.runs, func(r *modelRun) bool { return inAny(a, r.write, r.read) }) {
			taken = append(taken, a)
		}
	}
	want, conflicts, code := merge3(c.seen, m.head, c.doc)
	w, err := m.f.write("s", c.id, body)
	switch {
	case m.expect(t, err, taken, body):
		c.refused = true
	case len(conflicts) > 0:
		if f := fault.Of(err); f == nil || f.Code != code {
			t.Fatalf("%s: got %v, %v; want %s on %v", c.id, w, err, code, conflicts)
		}
		c.refused = true
	case err != nil:
		t.Fatalf("%s: refused: %v", c.id, err)
	default:
		c.seen, c.last = c.doc.clone(), body
		m.accepted(want, nil)
	}
}

func (m *runModel) rebase(t *rapid.T) {
	run := m.anyRun(t)
	if _, err := m.f.s.RebaseRun(context.Background(), m.f.actor, m.f.ref("s"), run.id); err != nil {
		t.Fatal(err)
	}
	m.pin(t, run)
}

func (m *runModel) endRun(t *rapid.T) {
	run := m.anyRun(t)
	var err error
	if rapid.Bool().Draw(t, "abort") {
		_, err = m.f.s.AbortRun(context.Background(), m.f.actor, m.f.ref("s"), run.id, "", false)
	} else {
		_, err = m.f.s.FinishRun(context.Background(), m.f.actor, m.f.ref("s"), run.id, wire.RunEnd{})
	}
	if err != nil {
		t.Fatal(err)
	}
	m.runs = slices.DeleteFunc(m.runs, func(r *modelRun) bool { return r == run })
	late := run.doc.render(run.serial+1, true)
	_, err = m.f.writeRun("s", run.id, late)
	if f := fault.Of(err); f == nil || f.Code != fault.ReservedConflict {
		t.Fatalf("a write after the end: %v", err)
	}
	m.kept(t, fault.Of(err), late)
}

// agree compares the head, and what each run sees, with the model.
func (m *runModel) agree(t *rapid.T) {
	m.coexistModel.agree(t)
	for _, run := range m.runs {
		snap, err := m.f.s.RunState(context.Background(), m.f.actor, m.f.ref("s"), run.id)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := snap.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), run.view) || snap.Serial != run.serial {
			t.Fatalf("the run %s sees %d bytes with serial %d (%v), want\n%s", run.id, got.Len(), snap.Serial, err, run.view)
		}
		snap.Close()
		r, err := m.f.s.Run(context.Background(), m.f.ref("s"), run.id)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{}
		for a := range run.moved {
			if !inAny(a, run.write, run.read) {
				continue
			}
			was, inWas := run.seen.inst[a]
			is, inIs := m.head.inst[a]
			// what was changed and changed back is no change any more when the versions in between were pruned
			if was != is || inWas != inIs || slices.Contains(r.Moved, a) {
				want = append(want, a)
			}
		}
		slices.Sort(want)
		if !slices.Equal(r.Moved, want) || r.BaseMoved != (len(want) > 0) || r.Serial != run.serial {
			t.Fatalf("the run %s says that %v moved, want %v", run.id, r.Moved, want)
		}
	}
}

// writeRun sends a write of a run.
func (f *fixture) writeRun(name, run string, body []byte) (store.Written, error) {
	f.tb.Helper()
	b, err := f.s.ReadBody(context.Background(), bytes.NewReader(body), int64(len(body)), 1<<30)
	if err != nil {
		f.tb.Fatal(err)
	}
	defer b.Release()
	return f.s.Write(context.Background(), store.WriteRequest{Ref: f.ref(name), Actor: f.actor, Run: run, Body: b})
}

// TestRunsMerge runs any interleaving of runs and sessions against the
// textbook merge and the plain meaning of reservations.
func TestRunsMerge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t, store.Options{ChunkTarget: rapid.SampledFrom([]int{0, 256, 1024}).Draw(rt, "chunk")})
		defer f.finish()
		mode, off, one := "optimistic", false, int64(1)
		if _, err := f.s.PatchEnvironment(context.Background(), f.actor, f.env, wire.EnvironmentPatch{LockMode: &mode, RecoveryHold: &off, KeepLast: &one}); err != nil {
			rt.Fatal(err)
		}
		m := &runModel{coexistModel: coexistModel{f: f, t: rt, head: document{map[string]instance{}, map[string]string{}}}}
		for i := range 12 {
			m.head.inst[fmt.Sprintf(`a.r%02d["k0"]`, i)] = instance{value: "v0"}
		}
		if _, err := f.write("s", "", m.head.render(1, false)); err != nil {
			rt.Fatal(err)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": m.agree, "start": m.start, "reserve": m.reserve, "reserve too": m.reserve, "checkpoint": m.checkpointRun, "another": m.checkpointRun,
			"replay": m.replayRun, "open": m.open, "plain": m.plain, "end": m.end, "prune": m.prune, "rebase": m.rebase, "end run": m.endRun, "restart": m.restart,
		})
		if r := f.check(); len(r.Problems) > 0 {
			rt.Fatal(r.Problems)
		}
	})
}
