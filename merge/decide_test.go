package merge_test

import (
	"fmt"
	"testing"

	"kl/merge"
)

// eachItem calls fn with every combination of being absent and of three contents, for all kinds of elements.
func eachItem(fn func(i merge.Item)) {
	hash := func(n int) (h merge.Hash) {
		h[15] = byte(n)
		return h
	}
	for n := range 4 * 4 * 4 {
		i := merge.Item{View: hash(n & 3), Head: hash(n >> 2 & 3), Ours: hash(n >> 4)}
		for _, class := range [...]merge.Class{merge.Instance, merge.Output, merge.Check} {
			for _, data := range [...]bool{false, true} {
				i.Class, i.Data = class, data
				fn(i)
			}
		}
	}
}

// result is the content that an element has after its verdict.
func result(i merge.Item) (merge.Hash, bool) {
	switch i.Verdict() {
	case merge.Theirs:
		return i.Head, true
	case merge.Ours:
		return i.Ours, true
	default:
		return merge.Hash{}, false
	}
}

func TestVerdict(t *testing.T) {
	seen := map[merge.Verdict]int{}
	eachItem(func(i merge.Item) {
		v := i.Verdict()
		seen[v]++
		got, ok := result(i)
		what := fmt.Sprintf("view %d, head %d, ours %d, class %d, data %v: %v", i.View[15], i.Head[15], i.Ours[15], i.Class, i.Data, v)
		derived := i.Data || i.Class != merge.Instance
		switch {
		case i.Head == i.View && got != i.Ours:
			t.Errorf("%s: only ours changed it", what)
		case i.Ours == i.View && got != i.Head:
			t.Errorf("%s: only the head changed it", what)
		case i.Ours == i.Head && got != i.Head:
			t.Errorf("%s: both changed it to the same", what)
		case derived && !ok:
			t.Errorf("%s: derived elements have no conflicts", what)
		case !derived && ok && got != i.Head && got != i.Ours:
			t.Errorf("%s: the content is nobody's", what)
		}
		three := i.View != i.Head && i.View != i.Ours && i.Head != i.Ours
		if three && !derived && v != merge.Conflict {
			t.Errorf("%s: both changed it differently", what)
		}
		if i.Overrides() != (three && derived) {
			t.Errorf("%s: overrides %v", what, i.Overrides())
		}
		if !derived {
			other := i
			other.Head, other.Ours = i.Ours, i.Head
			if (other.Verdict() == merge.Conflict) != (v == merge.Conflict) {
				t.Errorf("%s: the other way round it is %v", what, other.Verdict())
			}
		}
	})
	for _, v := range [...]merge.Verdict{merge.Theirs, merge.Ours, merge.Conflict} {
		if seen[v] == 0 {
			t.Errorf("no item got the verdict %v", v)
		}
	}
}
