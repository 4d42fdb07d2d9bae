package merge_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"kl/merge"
)

var (
	seed   = flag.Uint64("seed", 1, "seed of the random states")
	rounds = flag.Int("rounds", 600, "number of random merges that a property is tried on")
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
