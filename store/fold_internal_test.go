package store

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// numbered makes entries that can be told apart.
func numbered(next *uint64, n int) []entry {
	es := make([]entry, n)
	for i := range es {
		*next++
		es[i].id = *next
	}
	return es
}

// drawSplices draws splices for a list of n entries, and returns the length of
// what they make of it.
func drawSplices(t *rapid.T, next *uint64, n int) (sp []splice, after int) {
	left := n
	for i := range rapid.IntRange(0, 4).Draw(t, "splices") {
		low := 0
		if i > 0 {
			low = 1 // neighbours would be one splice
		}
		if left < low {
			break
		}
		s := splice{skip: rapid.IntRange(low, left).Draw(t, "skip")}
		s.del = rapid.IntRange(0, left-s.skip).Draw(t, "del")
		s.ins = numbered(next, rapid.IntRange(0, 4).Draw(t, "ins"))
		left -= s.skip + s.del
		after += len(s.ins) - s.del
		sp = append(sp, s)
	}
	return sp, n + after
}

// Splices composed do what they do one after the other, and weigh no more.
func TestComposeSplices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := uint64(0)
		list := numbered(&next, rapid.IntRange(0, 12).Draw(t, "list"))
		one, all := newBlocks(list), newBlocks(list)
		n := len(list)
		var composed []splice
		weight := 0
		for range rapid.IntRange(1, 4).Draw(t, "versions") {
			var sp []splice
			sp, n = drawSplices(t, &next, n)
			if err := one.apply(sp); err != nil {
				t.Fatal(err)
			}
			composed = composeSplices(composed, sp)
			weight += spliceLen(sp)
		}
		if err := all.apply(composed); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(one.flat(), all.flat()) {
			t.Fatalf("one by one: %v\ncomposed:   %v", one.flat(), all.flat())
		}
		if spliceLen(composed) > weight {
			t.Fatalf("composed they weigh %d, one by one %d", spliceLen(composed), weight)
		}
	})
}

// Change lists composed are the difference of the first and the last of three
// documents.
func TestComposeChanges(t *testing.T) {
	doc := rapid.Custom(func(t *rapid.T) map[element][16]byte {
		m := map[element][16]byte{}
		for range rapid.IntRange(0, 8).Draw(t, "elements") {
			e := element{class(rapid.IntRange(0, 2).Draw(t, "class")), rapid.StringMatching(`[a-c]{1,2}`).Draw(t, "address")}
			m[e] = [16]byte{byte(rapid.IntRange(1, 3).Draw(t, "content"))}
		}
		return m
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := doc.Draw(t, "a"), doc.Draw(t, "b"), doc.Draw(t, "c")
		got := composeChanges(diffScans(a, b), diffScans(b, c))
		if want := diffScans(a, c); !slices.Equal(got, want) {
			t.Fatalf("composed %v, want %v", got, want)
		}
	})
}
