package merge_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"kl/merge"
)

// FuzzBuild merges any two documents. What Build does not refuse must be the merge that maps of elements give; and
// without more to it than elements that are not known by two names, the stretches do not matter.
func FuzzBuild(f *testing.F) {
	for i := range uint64(12) {
		r := rand.New(rand.NewPCG(5, i))
		base := newModel(r)
		head, ours := base.clone(), base.clone()
		for range 4 {
			head.change(r, i%2 == 0)
			ours.change(r, i%2 == 0)
		}
		lay := genLayouts[[...]string{"indented", "compact", "loose"}[i%3]]
		f.Add(lay(head.compact()), lay(ours.compact()), i)
	}
	for _, c := range cases {
		f.Add([]byte(c.head), []byte(c.ours), uint64(2))
	}
	f.Fuzz(func(t *testing.T, head, ours []byte, seed uint64) {
		opt := merge.Options{Serial: 9, TerraformVersion: "1.2.3"}
		got, c, err := build(head, ours, whole(head, ours), seed, opt)
		h, errHead := takeApart(head)
		o, errOurs := takeApart(ours)
		switch {
		case err != nil && !errors.Is(err, merge.ErrCannot):
			t.Fatal(err)
		case err != nil:
			return
		case errHead != nil || errOurs != nil:
			t.Fatalf("merged what cannot be scanned: %v, %v", errHead, errOurs)
		case clash(h, o):
			return
		}
		if err := problem(head, ours, got, c, opt); err != nil {
			t.Fatalf("choice %d: %v\nhead:\n%s\nours:\n%s\nresult:\n%s", seed, err, head, ours, got)
		}
		r := rand.New(rand.NewPCG(seed, 12))
		st := stretches(head, ours, r)
		other, c, err := build(head, ours, st, seed, opt)
		switch {
		case err != nil && !errors.Is(err, merge.ErrCannot):
			t.Fatal(err)
		case err != nil:
			return
		}
		if err := problem(head, ours, other, c, opt); err != nil {
			t.Fatalf("stretches %+v, choice %d: %v\nhead:\n%s\nours:\n%s\nresult:\n%s", st, seed, err, head, ours, other)
		}
		if compact(string(got)) != compact(string(other)) {
			t.Fatalf("stretches %+v, choice %d: another result\nhead:\n%s\nours:\n%s\nof one stretch:\n%s\nof these:\n%s", st, seed, head, ours, got, other)
		}
	})
}

// clash reports whether two elements go by one name, within a document or between the two.
func clash(h, o *parts) bool {
	if h.twice || o.twice {
		return true
	}
	for i := range h.list {
		p := &h.list[i]
		if q := o.get(p.Element); p.Address == "check_results" || q != nil && q.hash != p.hash {
			return true
		}
	}
	return o.get(merge.Element{Class: merge.Check, Address: "check_results"}) != nil
}
