package store_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kl/fault"
	"kl/store"
	"kl/wire"
)

func (f *fixture) rollback(name string, q wire.RollbackRequest) (wire.Rollback, error) {
	return f.s.Rollback(context.Background(), f.actor, f.ref(name), q)
}

// withSerial is a document with another serial, by its text.
func withSerial(body []byte, serial uint64) []byte {
	i := bytes.Index(body, []byte(`"serial":`)) + len(`"serial":`)
	end := i + bytes.IndexByte(body[i:], ',')
	for body[i] == ' ' {
		i++
	}
	for body[end-1] == ' ' {
		end--
	}
	return slices.Concat(body[:i], fmt.Append(nil, serial), body[end:])
}

// In random histories with rollbacks among the writes, a rollback gives the
// very bytes of the version but for the serial, and nothing differs from it
// afterwards; the preview says what it does.
func TestRollbackInRandomHistories(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := newFixture(t, store.Options{ChunkTarget: []int{0, 200, 1000}[seed%3]})
			p := newPast(seed)
			for range 5 {
				p.write(f, "s")
			}
			for range 12 {
				for range p.rng.IntN(3) {
					p.write(f, "s")
				}
				k := p.rng.IntN(len(p.versions))
				q := wire.RollbackRequest{To: wire.VersionRef(fmt.Sprint(k + 1)), DryRun: true}
				told, err := f.rollback("s", q)
				if err != nil {
					t.Fatal(err)
				}
				if head := p.bodies[len(p.bodies)-1]; !bytes.Equal(f.get("s", "head"), head) {
					t.Fatal("a dry run has changed something")
				}
				q.DryRun = false
				did, err := f.rollback("s", q)
				if err != nil {
					t.Fatal(err)
				}
				want := withSerial(p.bodies[k], p.serial+1)
				if bytes.Equal(p.bodies[k], withSerial(p.bodies[len(p.bodies)-1], uint64(serialOf(t, p.bodies[k])))) {
					if !did.Unchanged || did.Version != 0 || !bytes.Equal(f.get("s", "head"), p.bodies[len(p.bodies)-1]) {
						t.Fatalf("to what it is already: %+v", did)
					}
					continue
				}
				if did.Version != uint64(len(p.versions)+1) || did.Serial != p.serial+1 || did.To != uint64(k+1) {
					t.Fatalf("%+v", did)
				}
				if got := f.get("s", "head"); !bytes.Equal(got, want) {
					t.Fatalf("after a rollback to %d:\n%s\nwant\n%s", k+1, got, want)
				}
				told.Version, told.Serial, told.DryRun = did.Version, did.Serial, false
				if !reflect.DeepEqual(told, did) {
					t.Fatalf("told was\n%+v\ndone\n%+v", told, did)
				}
				previewed(t, did, p.versions[len(p.versions)-1], p.versions[k])
				p.serial++
				p.inst, p.outs = maps.Clone(p.versions[k].inst), maps.Clone(p.versions[k].outs)
				p.remember(want)
				if d := f.diff("s", store.DiffQuery{From: fmt.Sprint(k + 1), To: "head"}); d.Counts != (wire.DiffCounts{}) {
					t.Fatalf("after a rollback to %d still differs %+v", k+1, d)
				}
			}
		})
	}
}

func serialOf(t *testing.T, body []byte) int {
	t.Helper()
	var n int
	i := bytes.Index(body, []byte(`"serial":`)) + len(`"serial":`)
	if _, err := fmt.Sscan(string(body[i:i+20]), &n); err != nil {
		if _, err := fmt.Sscanf(strings.TrimSpace(string(body[i:i+20])), "%d", &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// previewed compares a preview with the difference of two versions.
func previewed(t *testing.T, r wire.Rollback, from, to memory) {
	t.Helper()
	var added, changed, removed []string
	for a, i := range to.inst {
		switch was, there := from.inst[a]; {
		case !there:
			added = append(added, a)
		case !reflect.DeepEqual(was, i):
			changed = append(changed, a)
		}
	}
	for a := range from.inst {
		if _, there := to.inst[a]; !there {
			removed = append(removed, a)
		}
	}
	for name, lists := range map[string][2][]string{"added": {added, r.Added}, "changed": {changed, r.Changed}, "removed": {removed, r.Removed}} {
		slices.Sort(lists[0])
		if !slices.Equal(lists[0], lists[1]) {
			t.Fatalf("%s are %q, told %q", name, lists[0], lists[1])
		}
	}
	config := func(a string) string {
		var b strings.Builder
		for rest := a; ; {
			before, after, cut := strings.Cut(rest, "[")
			b.WriteString(before)
			if !cut {
				return b.String()
			}
			_, rest, _ = strings.Cut(after, "]")
		}
	}
	touched := map[string]bool{}
	for _, a := range slices.Concat(changed, removed) {
		touched[config(a)] = true
	}
	var depend []string
	for a, i := range to.inst {
		if was, there := from.inst[a]; !there || !reflect.DeepEqual(was, i) {
			continue
		}
		for _, d := range i.deps {
			if touched[d] {
				depend = append(depend, a)
			}
		}
	}
	var got []string
	for _, d := range r.Dependents {
		got = append(got, d.Address)
	}
	slices.Sort(depend)
	slices.Sort(got)
	if !slices.Equal(depend, got) {
		t.Fatalf("dependents are %q, told %q", depend, got)
	}
}

// A rollback of an address gives the head with what the version had there, and
// touches nothing else, for instances, resources and modules.
func TestRollbackOfAnAddress(t *testing.T) {
	made := 0
	for seed := range uint64(10) {
		f := newFixture(t, store.Options{ChunkTarget: []int{0, 300}[seed%2]})
		p := newPast(seed)
		p.late = false
		for range 6 {
			p.write(f, "s")
		}
		for range 15 {
			k := p.rng.IntN(len(p.versions))
			address := []string{p.address(), "thing.r1", `module.m["x"]`, "module.m", "module.n.thing.r2"}[p.rng.IntN(5)]
			covers := func(a string) bool {
				// in words: the address itself, or followed by a key or a further part; module.m stands for all its keys
				return a == address || strings.HasPrefix(a, address+".") || strings.HasPrefix(a, address+"[")
			}
			want, differs, known := maps.Clone(p.inst), false, false
			for a, i := range p.inst {
				if covers(a) {
					known = true
					if was, there := p.versions[k].inst[a]; !there {
						delete(want, a)
						differs = true
					} else {
						want[a] = was
						differs = differs || !reflect.DeepEqual(was, i)
					}
				}
			}
			for a, i := range p.versions[k].inst {
				if _, there := p.inst[a]; covers(a) && !there {
					want[a], differs = i, true
				}
			}
			did, err := f.rollback("s", wire.RollbackRequest{To: wire.VersionRef(fmt.Sprint(k + 1)), Address: address})
			if !differs && !known {
				if !fault.Is(err, fault.NotFound) {
					t.Fatalf("%s is nowhere: %+v, %v", address, did, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("seed %d: %s to %d: %v", seed, address, k+1, err)
			}
			if !differs {
				if !did.Unchanged || did.Version != 0 {
					t.Fatalf("%s to %d where nothing differs: %+v", address, k+1, did)
				}
				continue
			}
			made++
			previewed(t, did, memory{p.inst, p.outs}, memory{want, p.outs})
			p.inst = want
			p.serial++
			if did.Serial != p.serial {
				t.Fatalf("%+v", did)
			}
			if got := f.get("s", "head"); !bytes.Equal(bytes.Join(bytes.Fields(got), nil), bytes.Join(bytes.Fields(p.render(p.serial)), nil)) {
				t.Fatalf("seed %d: %s to %d:\n%s\nwant\n%s", seed, address, k+1, got, p.render(p.serial))
			}
			p.remember(f.get("s", "head"))
			if d := f.diff("s", store.DiffQuery{From: fmt.Sprint(k + 1), To: "head", Address: address}); d.Counts.Added+d.Counts.Changed+d.Counts.Removed != 0 {
				t.Fatalf("%s to %d: still differs %+v", address, k+1, d)
			}
		}
		f.finish()
	}
	if made < 40 {
		t.Errorf("only %d rollbacks were made", made)
	}
}

func TestRollbackTellsWhereItComesFrom(t *testing.T) {
	f := newFixture(t, store.Options{})
	p := newPast(2)
	for range 3 {
		p.write(f, "s")
	}
	if _, err := f.s.SetTag(context.Background(), f.actor, f.ref("s"), "good", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.rollback("s", wire.RollbackRequest{To: "good"}); err != nil {
		t.Fatal(err)
	}
	var some string
	for a := range p.versions[2].inst {
		if !reflect.DeepEqual(p.versions[2].inst[a], p.versions[0].inst[a]) {
			some = a
		}
	}
	if _, err := f.rollback("s", wire.RollbackRequest{To: "3", Address: some}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.rollback("s", wire.RollbackRequest{To: "3"}); err != nil { // undone
		t.Fatal(err)
	}
	vs, err := f.s.Versions(context.Background(), f.ref("s"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	type from struct {
		source  string
		to      uint64
		address string
	}
	var got []from
	for _, v := range vs.Items[:4] {
		got = append(got, from{v.Source, v.RollbackTo, v.RollbackAddress})
	}
	if want := []from{{"rollback", 3, ""}, {"rollback", 3, some}, {"rollback", 1, ""}, {"write", 0, ""}}; !slices.Equal(got, want) {
		t.Errorf("versions tell %+v, want %+v", got, want)
	}
	events, err := f.s.Events(context.Background(), store.EventFilter{State: "s", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range events.Items {
		if e.Kind == "version_written" && e.Detail["source"] == "rollback" && e.Detail["to"] != nil {
			told++
		}
	}
	if told != 3 {
		t.Errorf("the audit trail tells of %d rollbacks, want 3", told)
	}
}

func TestRollbackKeepsToTheRules(t *testing.T) {
	f := newFixture(t, store.Options{})
	ctx, ref := context.Background(), f.ref("s")
	p := newPast(3)
	if _, err := f.rollback("s", wire.RollbackRequest{To: "1"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a state that was never written: %v", err)
	}
	for range 3 {
		p.write(f, "s")
	}
	refused := func(what string, want fault.Code, q wire.RollbackRequest) {
		t.Helper()
		for _, q.DryRun = range []bool{true, false} {
			if _, err := f.rollback("s", q); !fault.Is(err, want) {
				t.Errorf("%s, dry run %v: %v, want %s", what, q.DryRun, err, want)
			}
		}
		if !bytes.Equal(f.get("s", "head"), p.bodies[2]) {
			t.Fatalf("%s: the head has changed", what)
		}
	}
	one, same := wire.RollbackRequest{To: "1"}, wire.RollbackRequest{To: "head"}
	refused("no such version", fault.NotFound, wire.RollbackRequest{To: "9"})
	refused("no version", fault.ParameterInvalid, wire.RollbackRequest{To: "what?"})
	refused("no address", fault.ParameterInvalid, wire.RollbackRequest{To: "1", Address: "what?"})
	refused("nothing there", fault.NotFound, wire.RollbackRequest{To: "1", Address: "thing.nothing"})
	for _, op := range []string{wire.OperationApply, wire.OperationPlan} {
		if err := f.lock("s", "l", op); err != nil {
			t.Fatal(err)
		}
		refused("locked for "+op, fault.LockRequired, one)
		refused("locked, and nothing to do, for "+op, fault.LockRequired, same)
		if err := f.unlock("s", "l"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.s.Archive(ctx, f.actor, ref); err != nil {
		t.Fatal(err)
	}
	refused("archived", fault.StateArchived, one)
	refused("archived, and nothing to do", fault.StateArchived, same)
	if _, err := f.s.Restore(ctx, f.actor, ref); err != nil {
		t.Fatal(err)
	}
	if err := f.s.Delete(ctx, f.actor, ref, ""); err != nil {
		t.Fatal(err)
	}
	refused("deleted", fault.StateDeleted, one)
	refused("deleted, and nothing to do", fault.StateDeleted, same)
	if _, err := f.s.Restore(ctx, f.actor, ref); err != nil {
		t.Fatal(err)
	}
}

// No serial follows the highest that there is: a rollback says that, and does
// not begin again at 0.
func TestRollbackOfTheHighestSerial(t *testing.T) {
	f := newFixture(t, store.Options{})
	for i, serial := range []uint64{math.MaxUint64 - 1, math.MaxUint64} {
		b := fmt.Appendf(nil, `{"version":4,"serial":%d,"lineage":%q,"outputs":{},"resources":[{"mode":"managed","type":"thing","name":"a","provider":"p","instances":[{"attributes":{"id":"%d"}}]}]}`, serial, modelLineage, i)
		if _, err := f.write("high", "", b); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []wire.RollbackRequest{{To: "1"}, {To: "1", DryRun: true}, {To: "1", Address: "thing.a"}} {
		if _, err := f.rollback("high", q); !fault.Is(err, fault.SerialConflict) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestRollbackKeepsToTheQuota(t *testing.T) {
	f := newFixture(t, store.Options{})
	p := newPast(4)
	for i := range 5 {
		p.inst[fmt.Sprintf("thing.r%d", i)] = thing{id: fmt.Sprint(i), v: i}
	}
	p.serial = 1
	if _, err := f.write("s", "", p.render(1)); err != nil {
		t.Fatal(err)
	}
	delete(p.inst, "thing.r0")
	if _, err := f.write("s", "", p.render(2)); err != nil {
		t.Fatal(err)
	}
	f.limit(wire.LimitsPatch{StateHardLimit: ptr(int64(4))})
	for _, dry := range []bool{true, false} {
		_, err := f.rollback("s", wire.RollbackRequest{To: "1", DryRun: dry})
		if e := fault.Of(err); !fault.Is(err, fault.StateQuota) || strings.Contains(e.Next, "kept") {
			t.Errorf("%v", err)
		}
	}
	list, err := f.s.RefusedList(context.Background(), f.ref("s"))
	if err != nil || len(list) != 0 {
		t.Errorf("kept are %+v, %v", list, err)
	}
	f.limit(wire.LimitsPatch{StateHardLimit: ptr(int64(5))})
	if _, err := f.rollback("s", wire.RollbackRequest{To: "1"}); err != nil {
		t.Error(err)
	}
}

// What a run has reserved is not rolled back under it, and what it has not
// reserved is.
func TestRollbackBesideARun(t *testing.T) {
	f := newFixture(t, store.Options{})
	f.patch(wire.EnvironmentPatch{LockMode: ptr("optimistic")})
	doc := func(a, b string) []byte {
		return document{map[string]instance{`a.r0["k"]`: {value: a}, `a.r1["k"]`: {value: b}}, map[string]string{}}.render(map[string]uint64{"old": 1, "new": 2}[a], false)
	}
	for _, v := range []string{"old", "new"} {
		if _, err := f.write("s", "", doc(v, v)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, ref := context.Background(), f.ref("s")
	run, err := f.s.StartRun(ctx, f.actor, ref, wire.RunRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Reserve(ctx, store.ReserveRequest{Ref: ref, Actor: f.actor, Run: run.ID, Want: wire.ReserveRequest{WriteSet: []string{"a.r0"}}}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []wire.RollbackRequest{{To: "1"}, {To: "1", Address: "a.r0"}, {To: "1", DryRun: true}} {
		if _, err := f.rollback("s", q); !fault.Is(err, fault.ReservedConflict) || strings.Contains(fault.Of(err).Next, "kept") {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if did, err := f.rollback("s", wire.RollbackRequest{To: "1", Address: "a.r1"}); err != nil || did.Version != 3 {
		t.Errorf("what is not reserved: %+v, %v", did, err)
	}
}

// For sessions that share the state a rollback is the work of somebody else:
// what they have not touched stays rolled back, and where both changed an
// address their write is refused.
func TestRollbackBesideOpenSessions(t *testing.T) {
	f := newFixture(t, store.Options{})
	f.patch(wire.EnvironmentPatch{LockMode: ptr("optimistic")})
	doc := func(a, b, c string) document {
		return document{map[string]instance{`a.r0["k"]`: {value: a}, `a.r1["k"]`: {value: b}, `a.r2["k"]`: {value: c}}, map[string]string{}}
	}
	post := func(lock string, serial uint64, d document) error {
		t.Helper()
		_, err := f.write("s", lock, d.render(serial, false))
		return err
	}
	for serial, d := range []document{doc("old", "old", "old"), doc("new", "new", "old")} {
		if err := post("", uint64(serial+1), d); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"x", "y"} {
		if err := f.lock("s", id, wire.OperationApply); err != nil {
			t.Fatal(err)
		}
	}
	if err := post("x", 3, doc("new", "new", "mine")); err != nil { // a checkpoint before
		t.Fatal(err)
	}
	if _, err := f.rollback("s", wire.RollbackRequest{To: "1", Address: "a.r0"}); err != nil {
		t.Fatal(err)
	}
	if err := post("x", 4, doc("new", "mine", "mine")); err != nil { // and one after
		t.Fatal(err)
	}
	got, _, err := parseDocument(f.get("s", "head"))
	if err != nil || !maps.Equal(got.inst, doc("old", "mine", "mine").inst) {
		t.Errorf("the head is %v, %v", got, err)
	}
	if err := post("y", 3, doc("other", "new", "old")); !fault.Is(err, fault.OverlapConflict) {
		t.Errorf("a write over what was rolled back: %v", err)
	}
}

// The bytes of a document that cannot be looked into come back as they were,
// its serial too.
func TestRollbackOfOpaqueVersions(t *testing.T) {
	f := newFixture(t, store.Options{})
	sealed := func(serial int, data string) []byte {
		return fmt.Appendf(nil, `{"serial":%d,"lineage":%q,"meta":{},"encrypted_data":%q,"encryption_version":"v0"}`, serial, modelLineage, data)
	}
	p := newPast(5)
	p.write(f, "s")
	for _, b := range [][]byte{sealed(2, "one"), sealed(3, "two")} {
		if _, err := f.write("s", "", b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.rollback("s", wire.RollbackRequest{To: "2", Address: "thing.r0"}); !fault.Is(err, fault.StateOpaque) {
		t.Errorf("in part: %v", err)
	}
	if _, err := f.rollback("s", wire.RollbackRequest{To: "1", Address: "thing.r0"}); !fault.Is(err, fault.StateOpaque) {
		t.Errorf("in part, over an opaque head: %v", err)
	}
	did, err := f.rollback("s", wire.RollbackRequest{To: "2"})
	if err != nil || !did.Opaque || did.Version != 4 || did.Serial != 2 || !bytes.Equal(f.get("s", "head"), sealed(2, "one")) {
		t.Errorf("%+v, %v", did, err)
	}
	if did, err := f.rollback("s", wire.RollbackRequest{To: "2"}); err != nil || !did.Unchanged {
		t.Errorf("again: %+v, %v", did, err)
	}
	if _, err := f.write("s", "", sealed(3, "three")); err != nil { // the client goes on
		t.Error(err)
	}
	did, err = f.rollback("s", wire.RollbackRequest{To: "1"})
	if err != nil || did.Serial != 4 || !bytes.Equal(f.get("s", "head"), withSerial(p.bodies[0], 4)) {
		t.Errorf("to one that can be looked into: %+v, %v", did, err)
	}
}

// What is opaque without being encrypted gets a new serial, as everything else:
// states of old versions, and those that name something twice.
func TestRollbackOfOpaqueDocumentsInClear(t *testing.T) {
	for what, doc := range map[string]string{
		"version 3":       `{"version":3,"terraform_version":"0.11.14","serial": %d ,"lineage":"l","modules":[{"path":["root"],"outputs":{"v":%d}}]}`,
		"a serial twice":  `{"version":4,"serial":7,"lineage":"l","outputs":{},"resources":[],"Serial":%d,"x":%d}`,
		"the same object": `{"version":4,"serial":%d,"lineage":"l","resources":[{"mode":"managed","type":"t","name":"a","provider":"p","instances":[{},{}]}],"x":%d}`,
	} {
		f := newFixture(t, store.Options{})
		for n := range 2 {
			if _, err := f.write("s", "", fmt.Appendf(nil, doc, n+1, n+1)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		want := fmt.Sprintf(doc, 3, 1)
		did, err := f.rollback("s", wire.RollbackRequest{To: "1"})
		if err != nil || !did.Opaque || did.Serial != 3 || string(f.get("s", "head")) != want {
			t.Errorf("%s: %+v, %v: %s", what, did, err, f.get("s", "head"))
		}
		if did, err := f.rollback("s", wire.RollbackRequest{To: "1"}); err != nil || !did.Unchanged {
			t.Errorf("%s, again: %+v, %v", what, did, err)
		}
		if did, err := f.rollback("s", wire.RollbackRequest{To: "2"}); err != nil || did.Serial != 4 {
			t.Errorf("%s, undone: %+v, %v", what, did, err)
		}
	}
}

// A state that was replaced by one of another lineage goes back only with a
// ticket.
func TestRollbackAcrossLineages(t *testing.T) {
	f := newFixture(t, store.Options{})
	ctx, ref := context.Background(), f.ref("s")
	p := newPast(6)
	p.write(f, "s")
	if err := f.s.Allow(ctx, f.actor, ref, wire.Allow{Lineage: true}); err != nil {
		t.Fatal(err)
	}
	other := bytes.Replace(p.bodies[0], []byte(modelLineage), []byte("11111111-0000-4000-8000-000000000001"), 1)
	if _, err := f.write("s", "", withSerial(other, 5)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.rollback("s", wire.RollbackRequest{To: "1"}); !fault.Is(err, fault.LineageConflict) {
		t.Errorf("without a ticket: %v", err)
	}
	if err := f.s.Allow(ctx, f.actor, ref, wire.Allow{Lineage: true}); err != nil {
		t.Fatal(err)
	}
	if did, err := f.rollback("s", wire.RollbackRequest{To: "1"}); err != nil || did.Serial != 6 {
		t.Errorf("with one: %+v, %v", did, err)
	}
	if _, err := f.rollback("s", wire.RollbackRequest{To: "2"}); !fault.Is(err, fault.LineageConflict) {
		t.Errorf("the ticket is good for one: %v", err)
	}
}

// A part that comes back while its object is at another address by now is told.
func TestRollbackOfWhatHasMoved(t *testing.T) {
	f := newFixture(t, store.Options{})
	write := func(serial int, instances ...string) {
		t.Helper()
		var resources []string
		for _, i := range instances {
			name, id, _ := strings.Cut(i, "=")
			resources = append(resources, fmt.Sprintf(`{"mode":"managed","type":"thing","name":%q,"provider":"provider[\"example.com/a/thing\"]","instances":[{"attributes":{"id":%q}}]}`, name, id))
		}
		b := fmt.Appendf(nil, `{"version":4,"serial":%d,"lineage":%q,"outputs":{},"resources":[%s]}`, serial, modelLineage, strings.Join(resources, ","))
		if _, err := f.write("s", "", b); err != nil {
			t.Fatal(err)
		}
	}
	write(1, "a=1", "other=9")
	write(2, "b=1", "other=9")
	did, err := f.rollback("s", wire.RollbackRequest{To: "1", Address: "thing.a", DryRun: true})
	if want := []wire.Twice{{Address: "thing.a", AlsoAt: "thing.b"}}; err != nil || !slices.Equal(did.Twice, want) {
		t.Errorf("%+v (%v), want %v", did.Twice, err, want)
	}
	did, err = f.rollback("s", wire.RollbackRequest{To: "1", DryRun: true})
	if err != nil || did.Twice == nil || len(did.Twice) != 0 {
		t.Errorf("all of the state: %+v (%v)", did.Twice, err)
	}
	did, err = f.rollback("s", wire.RollbackRequest{To: "1", Address: "thing.b"})
	if err != nil || len(did.Twice) != 0 || !slices.Equal(did.Removed, []string{"thing.b"}) {
		t.Errorf("the new address: %+v (%v)", did, err)
	}
	did, err = f.rollback("s", wire.RollbackRequest{To: "1", Address: "thing.a"})
	if err != nil || len(did.Twice) != 0 || !slices.Equal(did.Added, []string{"thing.a"}) {
		t.Errorf("the old one behind it: %+v (%v)", did, err)
	}
}
