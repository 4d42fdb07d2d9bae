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

// tape is a source of choices: its bytes, then a count, for a source of nothing but zeros can be asked for ever.
type tape struct {
	bytes []byte
	n     uint64
}

// Uint64 repeats a byte, so that it decides wherever the bits are taken from. The count makes no two calls alike.
func (t *tape) Uint64() uint64 {
	t.n++
	if len(t.bytes) == 0 {
		return t.n * 0x9e3779b97f4a7c15
	}
	c := t.bytes[0]
	t.bytes = t.bytes[1:]
	return uint64(c)*0x0101010101010101 ^ t.n&7
}

// FuzzChanges merges states that a tape of choices makes: a base, and changes of it on both sides. None may be refused.
func FuzzChanges(f *testing.F) {
	f.Add([]byte("\xf0\x11\x80\x33\xc4\x55"), []byte("\x90\x11\x22"), []byte("\xa0\x60\x40\xf9"), uint64(1))
	f.Add([]byte("some states that begin as words are not worse than others, for all that is known"), []byte("the head"), []byte("and what is ours"), uint64(3))
	f.Fuzz(func(t *testing.T, base, forHead, forOurs []byte, choice uint64) {
		state := func(from *model, changes []byte) *model {
			tp := tape{bytes: changes[:min(len(changes), 200)]}
			r := rand.New(&tp)
			m := from.clone()
			for len(tp.bytes) > 0 {
				m.change(r, choice&1 == 1)
			}
			return m
		}
		b := state(&model{serial: 1, version: "1.0.0"}, base)
		lay := genLayouts[[...]string{"indented", "compact", "loose", "tabs"}[choice>>1&3]]
		merges(t, lay(state(b, forHead).compact()), lay(state(b, forOurs).compact()), choice>>3, merge.Options{Serial: 9})
	})
}
