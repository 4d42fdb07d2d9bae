package merge_test

import (
	"bytes"
	"math/rand/v2"

	"kl/merge"
	"kl/tfstate"
)

// whole is the two documents as one stretch.
func whole(head, ours []byte) []merge.Stretch {
	return []merge.Stretch{{HeadEnd: len(head), OursEnd: len(ours)}}
}

// cut is a place where a stretch may begin or end.
type cut struct {
	start int
	ctx   tfstate.Context
	id    uint64
}

func cuts(doc []byte) (all []cut) {
	sc := tfstate.NewScanner(doc, tfstate.Options{})
	all = append(all, cut{})
	for {
		t, err := sc.Next()
		if err != nil {
			return all
		}
		if t.Cut {
			all = append(all, cut{t.Start, t.Ctx, t.StartHash(1)})
		}
	}
}

// stretches divides two documents at random places into equal parts and stretches that hold all differences.
func stretches(head, ours []byte, r *rand.Rand) []merge.Stretch {
	hc, oc := cuts(head), cuts(ours)
	oc = append(oc, cut{start: len(ours)})
	hc = append(hc, cut{start: len(head)})
	type pos struct {
		ctx tfstate.Context
		id  uint64
	}
	at := map[pos]int{}
	for j := range oc[:len(oc)-1] {
		at[pos{oc[j].ctx, oc[j].id}] = j
	}
	out := []merge.Stretch{{}}
	last := 0 // cuts of ours before this one are dealt with
	for i := 0; i+1 < len(hc); {
		j, ok := at[pos{hc[i].ctx, hc[i].id}]
		if !ok || j < last || r.IntN(4) == 0 {
			i++
			continue
		}
		n := 0 // how many parts from here on are equal
		for i+n+1 < len(hc) && j+n+1 < len(oc) && r.IntN(8) > 0 &&
			bytes.Equal(head[hc[i+n].start:hc[i+n+1].start], ours[oc[j+n].start:oc[j+n+1].start]) {
			n++
		}
		if n == 0 && r.IntN(3) > 0 {
			i++
			continue
		}
		s := &out[len(out)-1]
		s.HeadEnd, s.OursEnd = hc[i].start, oc[j].start
		if s.HeadEnd == s.HeadStart && s.OursEnd == s.OursStart {
			out = out[:len(out)-1]
		}
		i, j = i+n, j+n
		if i+1 == len(hc) && j+1 == len(oc) {
			return out
		}
		out = append(out, merge.Stretch{HeadStart: hc[i].start, OursStart: oc[j].start, Ctx: hc[i].ctx})
		last = j
		if n == 0 {
			i++
		}
	}
	s := &out[len(out)-1]
	s.HeadEnd, s.OursEnd = len(head), len(ours)
	return out
}
