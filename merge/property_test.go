package merge_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/kltest"
	"kl/merge"
	"kl/tfstate"
)

var (
	seed   = flag.Uint64("seed", 1, "seed of the random states")
	rounds = flag.Int("rounds", 300, "number of random merges that a property is tried on")
)

// TestRandomMerges changes a random state on two sides and compares the merge with what maps of elements give.
func TestRandomMerges(t *testing.T) {
	t.Logf("seed %d", *seed)
	n := *rounds
	if testing.Short() {
		n /= 10
	}
	names := []string{"indented", "compact", "indented", "compact", "tabs", "loose"}
	for i := range n {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		base := newModel(r)
		odd := i%3 == 0
		if odd {
			for range r.IntN(8) {
				base.change(r, true)
			}
		}
		head, ours := base.clone(), base.clone()
		for range r.IntN(8) {
			head.change(r, odd)
		}
		for range r.IntN(8) {
			ours.change(r, odd)
		}
		lay := genLayouts[names[r.IntN(len(names))]]
		layOurs := lay
		if r.IntN(3) == 0 {
			layOurs = genLayouts[names[r.IntN(len(names))]]
		}
		opt := merge.Options{Serial: 77, TerraformVersion: "1.99.0"}
		if r.IntN(4) == 0 {
			opt.TerraformVersion = ""
		}
		h, o := lay(head.compact()), layOurs(ours.compact())
		for choice := range uint64(4) {
			merges(t, h, o, choice*uint64(i+1), opt)
		}
	}
}

// TestGeneratedStates merges states as big as some tens of instances of real providers.
func TestGeneratedStates(t *testing.T) {
	n := *rounds / 20
	if testing.Short() {
		n = 3
	}
	for i := range n {
		base := kltest.NewState(5+i%40, *seed+uint64(i))
		head, ours := base.Clone(), base.Clone()
		head.Mutate(i % 13)
		head.Delete(i % 3)
		ours.Delete(i % 5)
		ours.Mutate(i % 11)
		for choice := range uint64(4) {
			merges(t, head.Bytes(), ours.Bytes(), choice*uint64(i+1), merge.Options{Serial: 9})
			merges(t, head.Compact(), ours.Bytes(), choice*uint64(i+1), merge.Options{Serial: 9, TerraformVersion: "1.12.1"})
		}
	}
}

// contents are the content hashes of a state's elements, with the resources' texts beside them.
func contents(t *testing.T, doc []byte) (hashes map[merge.Element]merge.Hash, data map[merge.Element]bool, rest map[tfstate.Resource]uint64) {
	t.Helper()
	hashes, data, rest = map[merge.Element]merge.Hash{}, map[merge.Element]bool{}, map[tfstate.Resource]uint64{}
	sc, h := tfstate.NewScanner(doc, tfstate.Options{}), tfstate.NewHasher(3)
	for {
		tok, err := sc.Next()
		if errors.Is(err, io.EOF) {
			return hashes, data, rest
		}
		if err != nil {
			t.Fatal(err)
		}
		e := merge.Element{Address: tok.Label()}
		switch tok.Kind {
		case tfstate.CutResource:
			continue
		case tfstate.CutOutput:
			e.Class = merge.Output
		case tfstate.CutCheck:
			e.Class = merge.Check
		default:
			rest[tok.Resource] = tok.Inst.Rest
			data[e] = tok.Resource.Mode == tfstate.ModeData
		}
		hashes[e] = tok.Content(h)
	}
}

// threeWay merges as the store does. It returns nil for a conflict, and whether the order of the sides matters.
func threeWay(t *testing.T, base, head, ours []byte, r *rand.Rand) (got []byte, matters bool) {
	t.Helper()
	b, _, _ := contents(t, base)
	h, dataH, restH := contents(t, head)
	o, dataO, restO := contents(t, ours)
	common := map[tfstate.Resource]bool{}
	if p, err := takeApart(head); err == nil {
		for _, e := range p.list {
			if _, both := o[e.Element]; both {
				common[e.res] = true
			}
		}
	}
	for res, rest := range restH {
		other, both := restO[res]
		matters = matters || both && other != rest && !common[res] // whose provider it gets
	}
	conflict := false
	verdict := func(e merge.Element) merge.Verdict {
		i := merge.Item{Element: e, Data: dataH[e] || dataO[e], View: b[e], Head: h[e], Ours: o[e]}
		matters = matters || i.Overrides()
		return i.Verdict()
	}
	got, err := merge.Build(head, ours, stretches(head, ours, r), func(e merge.Element) bool {
		v := verdict(e)
		conflict = conflict || v == merge.Conflict
		return v == merge.Ours
	}, merge.Options{Serial: 50, TerraformVersion: "1.0.0"})
	if err != nil {
		t.Fatalf("%v\nhead:\n%s\nours:\n%s", err, head, ours)
	}
	if conflict {
		return nil, false
	}
	return got, matters
}

// TestThreeWay checks that changes without conflicts give the same state whoever comes first, that what one side did not
// change is the other's, and that conflicts are those of both.
func TestThreeWay(t *testing.T) {
	conflicts, unions, total := 0, 0, *rounds
	if testing.Short() {
		total /= 10
	}
	for i := range total {
		r := rand.New(rand.NewPCG(*seed, 1<<32+uint64(i)))
		base := newModel(r)
		a, b := base.clone(), base.clone()
		for range r.IntN(16) {
			a.change(r, false)
		}
		for range r.IntN(16) {
			b.change(r, false)
		}
		lay := genLayouts[[...]string{"compact", "indented"}[i%2]]
		docBase, docA, docB := lay(base.compact()), lay(a.compact()), lay(b.compact())

		ab, matters := threeWay(t, docBase, docA, docB, r)
		ba, _ := threeWay(t, docBase, docB, docA, r)
		if (ab == nil) != (ba == nil) {
			t.Fatalf("round %d: a conflict one way only\nbase:\n%s\na:\n%s\nb:\n%s", i, docBase, docA, docB)
		}
		if ab == nil {
			conflicts++
		} else if !matters {
			unions++
			if x, y := elements(t, ab), elements(t, ba); !cmp.Equal(x, y) {
				t.Fatalf("round %d: the order matters (-a b, +b a):\n%s\nbase:\n%s\na:\n%s\nb:\n%s", i, cmp.Diff(x, y), docBase, docA, docB)
			}
		}
		for name, c := range map[string]struct{ base, head, ours, want []byte }{
			"ours unchanged": {docBase, docA, docBase, docA},
			"head unchanged": {docBase, docBase, docA, docA},
			"both the same":  {docBase, docA, docA, docA},
		} {
			got, _ := threeWay(t, c.base, c.head, c.ours, r)
			if got == nil {
				t.Fatalf("round %d, %s: a conflict", i, name)
			}
			if x, y := elements(t, c.want), elements(t, got); !cmp.Equal(x, y) {
				t.Fatalf("round %d, %s (-want +got):\n%s", i, name, cmp.Diff(x, y))
			}
		}
	}
	t.Logf("%d rounds: %d conflicts, %d unions", total, conflicts, unions)
	if conflicts < total/20 || unions < total/4 {
		t.Errorf("%d conflicts and %d unions in %d rounds: the changes are not as they should be", conflicts, unions, total)
	}
}

// elements are a state's elements in order, each with its bytes and its resource's text; check results sorted.
func elements(t *testing.T, doc []byte) []string {
	t.Helper()
	p, err := takeApart(doc)
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	var all, checks []string
	for _, e := range p.list {
		text := fmt.Sprint(e.Class, e.res, e.rest, e.raw)
		if e.Class == merge.Check {
			checks = append(checks, text)
		} else {
			all = append(all, text)
		}
	}
	slices.Sort(checks)
	return append(all, checks...)
}
