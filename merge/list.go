package merge

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// few is how many items are looked through without an index.
const few = 8

// finder finds the items of a container by their identity.
type finder struct {
	lists []*list
	index map[id]*item
}

// find makes a finder. Two items of one identity are an error.
func (d *document) find(lists []*list) (finder, error) {
	n := 0
	for _, l := range lists {
		n += len(l.items)
	}
	f := finder{lists: lists}
	if n > few {
		f.index = make(map[id]*item, n)
	}
	for _, l := range lists {
		for _, i := range l.items {
			if f.index != nil && f.index[i.id] == nil {
				f.index[i.id] = i
			}
			if f.get(i.id) != i {
				return f, cannot("%s has %s twice", d.what, i.element().Address)
			}
		}
	}
	return f, nil
}

func (f *finder) get(key id) *item {
	if f.index != nil {
		return f.index[key]
	}
	for _, l := range f.lists {
		for _, i := range l.items {
			if i.id == key {
				return i
			}
		}
	}
	return nil
}

// pair connects the elements that both sides have and asks about those that differ. other says that they all do. It
// returns how many both have, how many of these are taken, and how many that only ours has are.
func (m *merger) pair(head, ours []*list, other bool) (both, taken, added int, err error) {
	f, err := m.head.find(head)
	if err != nil {
		return 0, 0, 0, err
	}
	if _, err = m.ours.find(ours); err != nil {
		return 0, 0, 0, err
	}
	for _, l := range ours {
		for _, o := range l.items {
			h := f.get(o.id)
			if h == nil {
				if o.taken = m.take(o.element()); o.taken {
					added++
				}
				continue
			}
			o.twin, h.twin = h, o
			both++
			if !other && !m.differs(h, o) {
				continue
			}
			if h.taken = m.take(o.element()); h.taken {
				taken++
			}
		}
	}
	for _, l := range head {
		for _, h := range l.items {
			if h.twin == nil {
				h.drop = m.take(h.element())
			}
		}
	}
	return both, taken, added, nil
}

// place puts what only ours has into lists of the head. start is the head's list for what stands before the first item
// that both have; if there is none, the texts of these are returned.
func place(ours, start *list, order func(a, b *item) int, text func(*item) ([]byte, error)) (rest [][]byte, err error) {
	cur, at := start, 0
	for _, o := range ours.items {
		if o.twin != nil {
			cur, at = o.twin.list, o.twin.at+1
			continue
		}
		if !o.taken {
			continue
		}
		t, err := text(o)
		if err != nil {
			return nil, err
		}
		if cur == nil {
			rest = append(rest, t)
			continue
		}
		for at < len(cur.items) && cur.items[at].twin == nil && order(cur.items[at], o) < 0 {
			at++
		}
		cur.inserts = append(cur.inserts, insert{at, t})
	}
	return rest, nil
}

func byKey(a, b *item) int {
	return cmp.Or(a.key().Compare(b.key()), strings.Compare(a.deposed, b.deposed))
}

func byName(a, b *item) int { return strings.Compare(a.id.text, b.id.text) }

func byResource(a, b *item) int { return a.res.Compare(b.res.Resource) }

// unordered is for check results, which Terraform writes in any order.
func unordered(_, _ *item) int { return 0 }

// gapEdits returns edits of b that put in the list's inserts and take out the items that go, each with one comma. depth
// is that of the elements.
func (l *list) gapEdits(b []byte, lay layout, depth int, edits []edit) ([]edit, error) {
	slices.SortStableFunc(l.inserts, func(a, b insert) int { return a.at - b.at })
	g := gap{list: l, b: b, lay: lay, depth: depth, prev: -1, gone: -1}
	k := 0
	for i := 0; i <= len(l.items); i++ {
		for ; k < len(l.inserts) && l.inserts[k].at == i; k++ {
			g.texts = append(g.texts, l.inserts[k].text)
		}
		if i < len(l.items) && l.items[i].drop {
			if g.gone < 0 {
				g.gone = i
			}
			continue
		}
		if len(g.texts) > 0 || g.gone >= 0 {
			e, err := g.edit(i)
			if err != nil {
				return nil, err
			}
			edits = append(edits, e)
		}
		g.prev, g.gone, g.texts = i, -1, nil
	}
	return edits, nil
}

// gap is a place in a list between two items that stay, or between one and an end of the list.
type gap struct {
	*list
	b     []byte
	lay   layout
	depth int
	prev  int // the item before, -1 for the list's left end
	gone  int // the first of the items in the gap that go, -1 for none
	texts [][]byte
}

// edit makes the edit for the gap before items[next].
func (g *gap) edit(next int) (edit, error) {
	before := g.left // where the item before ends
	if g.prev >= 0 {
		before = g.items[g.prev].end
	}
	after := g.right // where the item after starts
	if next < len(g.items) {
		after = g.items[next].start
	}
	if before < 0 || after < before {
		return edit{}, cannot("an edit would be outside of the stretches")
	}
	if g.prev >= 0 || !g.opened { // behind an item: each text follows a comma, and the space before what comes after stays
		end := before
		if g.gone >= 0 {
			end = g.items[next-1].end
		}
		var text []byte
		for _, t := range g.texts {
			text = append(append(text, g.separator()...), t...)
		}
		return edit{before, end, text}, nil
	}
	if next == len(g.items) && g.closed { // nothing else is left
		if len(g.texts) == 0 {
			return edit{g.left, g.right, nil}, nil
		}
		if g.gone < 0 {
			return edit{g.left, g.right, g.lay.elements(g.depth, g.texts)}, nil
		}
		return edit{g.items[g.gone].start, g.items[next-1].end, bytes.Join(g.texts, g.separator())}, nil
	}
	start := after
	if g.gone >= 0 {
		start = g.items[g.gone].start
	}
	var text []byte
	for _, t := range g.texts {
		text = append(append(text, t...), g.separator()...)
	}
	return edit{start, after, text}, nil
}

// separator is the comma and white space that stand between neighbours here.
func (g *gap) separator() []byte {
	n := len(g.items)
	from := g.left
	if g.prev >= 0 {
		from = g.items[g.prev].end
	}
	switch {
	case g.prev < 0 && g.opened && n == 0:
		return append([]byte{','}, g.b[g.left:g.right]...)
	case g.prev < 0 && g.opened: // as what stands before the first one
		return append([]byte{','}, g.b[g.left:g.items[0].start]...)
	case g.prev+1 < n:
		return g.b[from:g.items[g.prev+1].start]
	case !g.closed:
		return g.b[from:g.right]
	case g.prev > 0: // the last one of all; before it is a gap too
		return g.b[g.items[g.prev-1].end:g.items[g.prev].start]
	case g.items[0].start < 0:
		return []byte("," + g.lay.line(g.depth))
	case g.opened:
		return append([]byte{','}, g.b[g.left:g.items[0].start]...)
	}
	return g.b[g.left:g.items[0].start]
}
