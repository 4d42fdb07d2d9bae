package store_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"kl/store"
	"kl/wire"
)

// edit is one change that a session makes to what it has in memory.
type edit struct {
	session int
	address string
	value   string // "" removes
	post    bool   // and then it writes
}

// variant is a way to do the same work.
type variant struct {
	chunk   int
	compact [2]bool
	apart   bool // one session after the other, the second first
	restart bool // of the server, between all writes
}

// disjointEdits draws what two sessions do to resources of their own.
func disjointEdits(r *rand.Rand, n int) []edit {
	var out []edit
	for range n {
		s := r.IntN(2)
		e := edit{session: s, address: fmt.Sprintf(`a.r%02d["k%d"]`, 2*r.IntN(6)+s, r.IntN(4)), post: r.IntN(3) == 0}
		if r.IntN(4) > 0 {
			e.value = fmt.Sprintf("v%d", r.IntN(5))
		}
		out = append(out, e)
	}
	return append(out, edit{session: 0, address: `a.r00["last"]`, value: "x", post: true}, edit{session: 1, address: `a.r01["last"]`, value: "x", post: true})
}

// The same work of two sessions gives the same head, however states are cut,
// whichever layout their writers use, and whoever comes first.
func TestMergesDoNotDependOnLayoutOrOrder(t *testing.T) {
	variants := []variant{
		{}, {chunk: 256}, {chunk: 64 << 10}, {compact: [2]bool{true, true}}, {compact: [2]bool{true, false}}, {apart: true}, {apart: true, chunk: 512, compact: [2]bool{false, true}, restart: true},
	}
	for seed := range uint64(12) {
		edits := disjointEdits(rand.New(rand.NewPCG(seed, 7)), 30)
		var want document
		for i, v := range variants {
			got := v.run(t, edits)
			if i == 0 {
				want = got
				continue
			}
			if !maps.Equal(got.inst, want.inst) || !maps.Equal(got.outs, want.outs) {
				t.Fatalf("seed %d: %+v gives\n%v\n%+v gives\n%v", seed, variants[0], want, v, got)
			}
		}
	}
}

// run does the edits in a store of its own and returns the head.
func (v variant) run(t *testing.T, edits []edit) document {
	t.Helper()
	f := newFixture(t, store.Options{ChunkTarget: v.chunk})
	defer f.finish()
	f.patch(wire.EnvironmentPatch{LockMode: ptr("optimistic")})
	base := document{map[string]instance{}, map[string]string{"o": "1"}}
	for i := range 12 {
		base.inst[fmt.Sprintf(`a.r%02d["k0"]`, i)] = instance{value: "v0"}
	}
	if _, err := f.write("s", "", base.render(1, v.compact[0])); err != nil {
		t.Fatal(err)
	}
	docs, serials := [2]document{base.clone(), base.clone()}, [2]uint64{1, 1}
	for _, id := range []string{"0", "1"} {
		if err := f.lock("s", id, wire.OperationApply); err != nil {
			t.Fatal(err)
		}
	}
	do := func(only int) {
		for _, e := range edits {
			if only >= 0 && e.session != only {
				continue
			}
			d := docs[e.session]
			if delete(d.inst, e.address); e.value != "" {
				d.inst[e.address] = instance{value: e.value}
			}
			if !e.post {
				continue
			}
			serials[e.session]++
			if _, err := f.write("s", fmt.Sprint(e.session), d.render(serials[e.session], v.compact[e.session])); err != nil {
				t.Fatalf("%+v: %v", v, err)
			}
			if v.restart {
				f.reopen()
			}
		}
	}
	if v.apart {
		do(1)
		do(0)
	} else {
		do(-1)
	}
	for _, id := range []string{"0", "1"} {
		if err := f.unlock("s", id); err != nil {
			t.Fatal(err)
		}
	}
	got, _, err := parseDocument(f.get("s", "head"))
	if err != nil {
		t.Fatal(err)
	}
	return got
}
