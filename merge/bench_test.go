package merge_test

import (
	"fmt"
	"slices"
	"testing"

	"kl/kltest"
	"kl/merge"
)

// benchSizes are numbers of instances, of about 2 KB each.
var benchSizes = [...]int{1_000, 10_000, 100_000}

// sides are two states that grew out of one by ten changes each.
func sides(n int) (head, ours []byte) {
	base := kltest.NewState(n, 1)
	a, b := base.Clone(), base.Clone()
	a.Mutate(10)
	b.Delete(3)
	b.Mutate(10)
	return a.Bytes(), b.Bytes()
}

// apart divides the documents into many equal parts and the stretches between, as the store does.
func apart(head, ours []byte) (st []merge.Stretch) {
	hc, oc := cuts(head), cuts(ours)
	at := map[uint64]int{}
	for j := range oc {
		at[oc[j].id] = j
	}
	s := merge.Stretch{}
	for i, next := 1, 1; i+1 < len(hc); i++ {
		j, ok := at[hc[i].id]
		if !ok || j < next || j+1 >= len(oc) || hc[i].ctx != oc[j].ctx || !slices.Equal(head[hc[i].start:hc[i+1].start], ours[oc[j].start:oc[j+1].start]) {
			continue
		}
		next = j + 1
		s.HeadEnd, s.OursEnd = hc[i].start, oc[j].start
		if s.HeadStart < s.HeadEnd || s.OursStart < s.OursEnd {
			st = append(st, s)
		}
		s = merge.Stretch{HeadStart: hc[i+1].start, OursStart: oc[j+1].start, Ctx: hc[i+1].ctx}
	}
	s.HeadEnd, s.OursEnd = len(head), len(ours)
	return append(st, s)
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range benchSizes {
		head, ours := sides(n)
		take := func(e merge.Element) bool { return len(e.Address)%2 == 0 }
		opt := merge.Options{Serial: 9, TerraformVersion: "1.12.0"}
		st := apart(head, ours)
		run := func(name string, fn func() (int, error)) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(len(head)))
				b.ReportAllocs()
				for b.Loop() {
					if size, err := fn(); err != nil || size == 0 {
						b.Fatal(err)
					}
				}
			})
		}
		run("copy", func() (int, error) { return len(append(make([]byte, 0, len(head)), head...)), nil })
		run("changes", func() (int, error) {
			got, err := merge.Build(head, ours, st, take, opt)
			return len(got), err
		})
		run("whole", func() (int, error) {
			got, err := merge.Build(head, ours, whole(head, ours), take, opt)
			return len(got), err
		})
	}
}
