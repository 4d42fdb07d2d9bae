package merge

import (
	"bytes"
	"slices"
	"strings"
)

// outputs merges the root outputs.
func (m *merger) outputs() error {
	h, o := &m.head.outputs, &m.ours.outputs
	if _, _, _, err := m.pair(h.lists, o.lists, false); err != nil {
		return err
	}
	return m.container("outputs", "{}", h, o, byName, m.text)
}

// checks merges the check results.
func (m *merger) checks() error {
	h, o := &m.head.checks, &m.ours.checks
	if _, _, _, err := m.pair(h.lists, o.lists, false); err != nil {
		return err
	}
	if len(h.lists) == 1 && len(o.lists) == 0 {
		if l := h.lists[0]; l.emptied() {
			m.edits = append(m.edits, edit{l.left - 1, l.right + 1, []byte("null")})
			return nil
		}
	}
	return m.container("check_results", "[]", h, o, unordered, m.text)
}

// emptied reports whether the list is a whole container that loses all that it has.
func (l *list) emptied() bool {
	stays := func(i *item) bool { return !i.drop }
	return l.opened && l.closed && len(l.items) > 0 && len(l.inserts) == 0 && !slices.ContainsFunc(l.items, stays)
}

// container makes the edits of a container whose items are decided.
func (m *merger) container(name, brackets string, h, o *container, order func(a, b *item) int, text func(*item) ([]byte, error)) error {
	var fresh [][]byte
	for _, l := range o.lists {
		rest, err := place(l, in(h.lists, l.stretch), order, text)
		if err != nil {
			return err
		}
		fresh = append(fresh, rest...)
	}
	for _, l := range h.lists {
		if err := m.list(l, 2, text); err != nil {
			return err
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	value := slices.Concat([]byte(brackets[:1]), m.layout.elements(2, fresh), []byte(brackets[1:]))
	switch {
	case h.null.end != 0:
		m.edits = append(m.edits, edit{h.null.start, h.null.end, value})
	case len(h.lists) == 0 && m.head.ended:
		m.member(name, value)
	default:
		return cannot("the head's %s were not found", name)
	}
	return nil
}

// list makes the edits of one of the head's lists.
func (m *merger) list(l *list, depth int, text func(*item) ([]byte, error)) (err error) {
	if m.edits, err = l.gapEdits(m.head.b, m.layout, depth, m.edits); err != nil {
		return err
	}
	for _, h := range l.items {
		if !h.taken {
			continue
		}
		t, err := text(h.twin)
		if err != nil {
			return err
		}
		m.edits = append(m.edits, edit{h.start, h.end, t})
	}
	return nil
}

// resources merges the resources with their instances.
func (m *merger) resources() error {
	for _, h := range m.head.all {
		o := m.ours.byName[h.Resource]
		if o == nil {
			o = &resource{Resource: h.Resource}
		}
		if err := m.resource(h, o); err != nil {
			return err
		}
		for _, p := range h.places {
			if len(o.places) > 0 {
				p.twin = o.placeIn(p.list.stretch)
			}
		}
	}
	for _, o := range m.ours.all {
		if h := m.head.byName[o.Resource]; h != nil {
			for _, p := range o.places {
				p.twin = h.placeIn(p.list.stretch)
			}
			continue
		}
		_, _, added, err := m.pair(nil, o.lists, false)
		if err != nil {
			return err
		}
		o.places[0].taken = added > 0
	}
	return m.container("resources", "[]", &m.head.resources, &m.ours.resources, byResource, m.resourceText)
}

// resource merges the instances of a resource that the head has.
func (m *merger) resource(h, o *resource) error {
	other := h.rest != o.rest
	both, taken, added, err := m.pair(h.lists, o.lists, other)
	if err != nil {
		return err
	}
	if !h.array {
		h.places[0].taken = added > 0
		return nil
	}
	for _, l := range o.lists {
		start := in(h.lists, l.stretch)
		if start == nil {
			start = h.lists[0]
		}
		if _, err := place(l, start, byKey, m.text); err != nil {
			return err
		}
	}
	if h.whole() && h.lists[0].emptied() {
		h.places[0].drop = true
		return nil
	}
	for _, l := range h.lists {
		if err := m.list(l, 4, m.text); err != nil {
			return err
		}
	}
	if other && (taken > 0 || both == 0 && added > 0) {
		return m.headText(h, o)
	}
	return nil
}

// headText replaces what the head says of a resource before its instances.
func (m *merger) headText(h, o *resource) error {
	if h.start < 0 || o.start < 0 {
		return cannot("the stretches begin within %s, which differs before them", h.Address())
	}
	raw := m.ours.b[o.start:o.headEnd]
	if name := either(names(raw), h.tail); name != "" {
		return cannot("%s of the new state has %q before its instances, the head behind them", h.Address(), name)
	}
	if name := either(names(m.head.b[h.start:h.headEnd]), o.tail); name != "" {
		return cannot("%s of the head has %q before its instances, the new state behind them", h.Address(), name)
	}
	if !m.same {
		text, err := m.laidOut(slices.Concat(raw, []byte("]}")), 2)
		if err != nil {
			return err
		}
		raw = text[:bytes.LastIndexByte(text, ']')]
	}
	m.edits = append(m.edits, edit{h.start, h.headEnd, raw})
	return nil
}

// either returns a name that is in both, or nothing.
func either(a, b [][]byte) string {
	for _, x := range a {
		for _, y := range b {
			if strings.EqualFold(decode(x), decode(y)) {
				return decode(x)
			}
		}
	}
	return ""
}

// resourceText returns a resource of ours, with no instances but those that are taken, as it stands in the head.
func (m *merger) resourceText(i *item) ([]byte, error) {
	r := i.res
	if !r.whole() {
		return nil, cannot("%s of the new state reaches beyond a stretch", r.Address())
	}
	var edits []edit
	for _, l := range r.lists {
		for _, i := range l.items {
			i.drop = !i.taken
		}
		var err error
		if edits, err = l.gapEdits(m.ours.b, m.layout, 4, nil); err != nil {
			return nil, err
		}
	}
	var text []byte
	pos := r.start
	for _, e := range edits {
		text = append(text, m.ours.b[pos:e.start]...)
		pos = e.end
	}
	return m.laidOut(append(text, m.ours.b[pos:r.end]...), 2)
}
