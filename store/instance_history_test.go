package store_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// history collects all pages of an address's history, the oldest first.
func (f *fixture) history(name, address string, page int) (all []wire.InstanceEvent, err error) {
	cursor := ""
	for {
		l, err := f.s.InstanceHistory(context.Background(), f.ref(name), address, cursor, page)
		if err != nil {
			return nil, err
		}
		all = append(all, l.Items...)
		if cursor = l.Next; cursor == "" {
			slices.Reverse(all)
			return all, nil
		}
	}
}

// expected is the history of what covers picks, found by looking at every
// version.
func (p *past) expected(covers func(string) bool) (out []string) {
	had := map[string][]thing{}
	for i := range p.versions {
		now, before := p.versions[i].inst, map[string]thing{}
		if i > 0 {
			before = p.versions[i-1].inst
		}
		ids := map[string]string{} // of what went and of what came
		for a, t := range before {
			if _, there := now[a]; !there {
				ids["-"+t.id] = a
			}
		}
		for a, t := range now {
			if _, there := before[a]; !there {
				ids["+"+t.id] = a
			}
		}
		var lines []string
		say := func(format string, args ...any) {
			lines = append(lines, fmt.Sprintf("%d ", i+1)+fmt.Sprintf(format, args...))
		}
		for a, t := range now {
			if !covers(a) {
				continue
			}
			was, there := before[a]
			same := func(o thing) bool { return reflect.DeepEqual(o, t) }
			switch {
			case !there && ids["-"+t.id] != "":
				say("%s moved from %s", a, ids["-"+t.id])
			case !there && slices.ContainsFunc(had[a], same):
				say("%s restored", a)
			case !there:
				say("%s created", a)
			case !same(was):
				say("%s changed", a)
			}
			had[a] = append(had[a], t)
		}
		for a, t := range before {
			if _, there := now[a]; there || !covers(a) {
				continue
			}
			if to := ids["+"+t.id]; to != "" {
				say("%s moved to %s", a, to)
			} else {
				say("%s removed", a)
			}
		}
		slices.Sort(lines)
		out = append(out, lines...)
	}
	return out
}

func eventLines(events []wire.InstanceEvent) (out []string) {
	for _, e := range events {
		line := fmt.Sprintf("%d %s %s", e.Version, e.Address, e.Event)
		if e.From != "" {
			line += " from " + e.From
		}
		if e.To != "" {
			line += " to " + e.To
		}
		out = append(out, line)
	}
	slices.SortStableFunc(out, func(a, b string) int {
		var x, y int
		_, _ = fmt.Sscan(a, &x)
		_, _ = fmt.Sscan(b, &y)
		if x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	return out
}

// The history of an address agrees with a look at every version, in random
// histories with rollbacks.
func TestInstanceHistoryAgreesWithAllVersions(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(8) {
		f := newFixture(t, store.Options{ChunkTarget: []int{0, 300}[seed%2]})
		p := newPast(seed)
		for i := range 25 {
			if i%6 != 5 {
				p.write(f, "s")
				continue
			}
			k := p.rng.IntN(len(p.versions))
			did, err := f.rollback("s", wire.RollbackRequest{To: wire.VersionRef(fmt.Sprint(k + 1))})
			if err != nil {
				t.Fatal(err)
			}
			if did.Version > 0 {
				p.serial++
				p.inst, p.outs = maps.Clone(p.versions[k].inst), maps.Clone(p.versions[k].outs)
				p.remember(f.get("s", "head"))
			}
		}
		addresses := map[string]func(string) bool{}
		for range 12 {
			for _, a := range []string{p.address(), "thing.r1", `module.m["x"]`, "module.m", "module.n"} {
				addresses[a] = func(b string) bool { return a == b || strings.HasPrefix(b, a+".") || strings.HasPrefix(b, a+"[") }
			}
		}
		for a, covers := range addresses {
			want := p.expected(covers)
			events, err := f.history("s", a, 7)
			if len(want) == 0 {
				if !fault.Is(err, fault.NotFound) {
					t.Errorf("%s never was: %v", a, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := eventLines(events); !slices.Equal(got, want) {
				t.Fatalf("seed %d: the history of %s is\n%s\nwant\n%s", seed, a, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			for _, e := range events {
				kinds[e.Event]++
				if e.Principal == "" || e.CreatedAt.IsZero() || e.Serial != e.Version {
					t.Errorf("%+v", e)
				}
			}
		}
		f.finish()
	}
	for _, kind := range []string{wire.InstanceCreated, wire.InstanceChanged, wire.InstanceRemoved, wire.InstanceRestored, wire.InstanceMoved} {
		if kinds[kind] == 0 {
			t.Errorf("nothing was %s", kind)
		}
	}
}

// After pruning the oldest version that is kept tells what was there, and what
// is told of the others agrees with a look at them.
func TestHistoryAfterPruning(t *testing.T) {
	for seed := range uint64(4) {
		f := newFixture(t, store.Options{ChunkTarget: 300})
		p := newPast(seed)
		for range 20 {
			p.write(f, "s")
		}
		for _, n := range []string{"3", "9"} {
			if _, err := f.s.SetTag(context.Background(), f.actor, f.ref("s"), "t"+n, n); err != nil {
				t.Fatal(err)
			}
		}
		f.patch(wire.EnvironmentPatch{KeepLast: ptr(int64(6))})
		f.prune(false)
		kept := f.kept("s")
		if len(kept) > 9 || kept[0] == 1 {
			t.Fatalf("kept are %v", kept)
		}
		left := &past{}
		for _, n := range kept {
			left.versions = append(left.versions, p.versions[n-1])
		}
		for _, a := range []string{"thing.r0", "thing.r1", "thing.r2", "module.m", "module.n"} {
			covers := func(b string) bool { return a == b || strings.HasPrefix(b, a+".") || strings.HasPrefix(b, a+"[") }
			events, err := f.history("s", a, 0)
			want := left.expected(covers)
			if len(want) == 0 {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range events {
				if events[i].Version == kept[0] && events[i].Event == wire.InstancePresent {
					events[i].Event = wire.InstanceCreated // as one who sees only what is left must think
				}
				events[i].Version = uint64(slices.Index(kept, events[i].Version) + 1)
			}
			if got := eventLines(events); !slices.Equal(got, want) {
				t.Fatalf("seed %d: the history of %s is\n%s\nwant\n%s", seed, a, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		for _, b := range kept[1:] {
			d := f.diff("s", store.DiffQuery{From: fmt.Sprint(kept[0]), To: fmt.Sprint(b), Reveal: true})
			got, want := p.versions[kept[0]-1].forms(t), p.versions[b-1].forms(t)
			apply(t, d, got, want)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("from %d to %d the diff gives another version", kept[0], b)
			}
		}
		if _, err := f.rollback("s", wire.RollbackRequest{To: wire.VersionRef(fmt.Sprint(kept[0]))}); err != nil {
			t.Fatal(err)
		}
		if d := f.diff("s", store.DiffQuery{From: fmt.Sprint(kept[0]), To: "head"}); d.Counts != (wire.DiffCounts{}) {
			t.Fatalf("after a rollback %+v", d)
		}
		f.finish()
	}
}

func TestInstanceHistoryRefuses(t *testing.T) {
	f := newFixture(t, store.Options{})
	p := newPast(1)
	for range 3 {
		p.write(f, "s")
	}
	var some string
	for a := range p.inst {
		some = a
	}
	if _, err := f.write("sealed", "", []byte(`{"serial":1,"lineage":"x","meta":{},"encrypted_data":"eA==","encryption_version":"v0"}`)); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		state, address, cursor string
		want                   fault.Code
	}{
		"no state":         {"none", some, "", fault.NotFound},
		"no address":       {"s", "", "", fault.ParameterInvalid},
		"nonsense":         {"s", "what?", "", fault.ParameterInvalid},
		"nothing there":    {"s", "thing.none", "", fault.NotFound},
		"encrypted":        {"sealed", "thing.none", "", fault.StateOpaque},
		"a foreign cursor": {"s", some, "x", fault.ParameterInvalid},
		"a cursor beyond":  {"s", some, "999", fault.ParameterInvalid},
	} {
		if _, err := f.s.InstanceHistory(context.Background(), f.ref(c.state), c.address, c.cursor, 0); !fault.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}

// All pages of a listing together are the instances of the version, in the
// order of the document, whatever is written meanwhile.
func TestResourcesInPages(t *testing.T) {
	f := newFixture(t, store.Options{ChunkTarget: 1000})
	st := kltest.NewState(60, 1)
	if _, err := f.write("s", "", st.Bytes()); err != nil {
		t.Fatal(err)
	}
	want := st.Addresses()
	var got []string
	q := store.ResourceQuery{Version: "head", Limit: 7}
	for {
		l, err := f.s.Resources(context.Background(), f.ref("s"), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.Items {
			got = append(got, r.Address)
			if r.Type == "" || r.Name == "" || r.Provider == "" || r.Mode == "" || r.Dependencies == nil {
				t.Errorf("%+v", r)
			}
		}
		if q.Cursor = l.Next; q.Cursor == "" {
			break
		}
		st.Mutate(3)
		if _, err := f.write("s", "", st.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed are %q, want %q", got, want)
	}
	for _, cursor := range []string{"x", "1", "1.-1", "1.2.3", "9.0", " 1.2", "1.02"} {
		if _, err := f.s.Resources(context.Background(), f.ref("s"), store.ResourceQuery{Version: "head", Cursor: cursor}); err == nil && cursor != "9.0" {
			t.Errorf("the cursor %q is taken", cursor)
		}
	}
}

func TestResourcesOfOneAddress(t *testing.T) {
	f := newFixture(t, store.Options{})
	p := newPast(1)
	p.inst = map[string]thing{
		"thing.a[0]": {id: "1", v: 1}, "thing.a[1]": {id: "2", v: 2, tainted: true, deps: []string{"thing.b"}}, "thing.b": {id: "3", v: 3}, `module.m["x"].thing.a`: {id: "4", v: 4},
	}
	if _, err := f.write("s", "", p.render(1)); err != nil {
		t.Fatal(err)
	}
	delete(p.inst, "thing.b")
	if _, err := f.write("s", "", p.render(2)); err != nil {
		t.Fatal(err)
	}
	list := func(version, address string) ([]wire.Resource, error) {
		l, err := f.s.Resources(context.Background(), f.ref("s"), store.ResourceQuery{Version: version, Address: address})
		return l.Items, err
	}
	got, err := list("head", "thing.a")
	want := []wire.Resource{
		{Address: "thing.a[0]", Mode: "managed", Type: "thing", Name: "a", IndexKey: []byte("0"), Provider: `provider["example.com/a/thing"]`, ID: "1", Dependencies: []string{}},
		{Address: "thing.a[1]", Mode: "managed", Type: "thing", Name: "a", IndexKey: []byte("1"), Provider: `provider["example.com/a/thing"]`, ID: "2", Status: "tainted", Dependencies: []string{"thing.b"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = list("1", "thing.b"); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err = list("2", "thing.b"); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that is gone: %v", err)
	}
	if got, err = list("head", "module.m"); err != nil || len(got) != 1 || got[0].Module != `module.m["x"]` {
		t.Errorf("%+v, %v", got, err)
	}
}

// An id that the state calls sensitive is not listed.
func TestResourcesHideSensitiveIDs(t *testing.T) {
	f := newFixture(t, store.Options{})
	body := `{"version":4,"terraform_version":"1.11.4","serial":1,"lineage":"l","outputs":{},"resources":[{"mode":"managed","type":"a","name":"b","provider":"p","instances":[
		{"index_key":0,"attributes":{"id":"hush"},"sensitive_attributes":[[{"type":"get_attr","value":"id"}]]},
		{"index_key":1,"attributes":{"id":"hush"},"sensitive_attributes":[7]},
		{"index_key":2,"attributes":{"id":"told"},"sensitive_attributes":[]}]}],"check_results":null}`
	if _, err := f.write("s", "", []byte(body)); err != nil {
		t.Fatal(err)
	}
	l, err := f.s.Resources(context.Background(), f.ref("s"), store.ResourceQuery{Version: "head"})
	if err != nil || len(l.Items) != 3 || l.Items[0].ID+l.Items[1].ID != "" || l.Items[2].ID != "told" {
		t.Errorf("%+v, %v", l, err)
	}
}
