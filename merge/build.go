package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"kl/tfstate"
)

// Stretch is a pair of byte ranges, of the head and of ours, in which the two differ.
//
// Stretches are in order and do not overlap. Each begins at the documents' start or at cuts (tfstate.Token.Cut) with
// equal Contexts, and ends at the documents' end or at cuts with equal Contexts. Outside of all stretches both documents
// have the same bytes in the same order. Either range may be empty.
type Stretch struct {
	HeadStart, HeadEnd int
	OursStart, OursEnd int
	Ctx                tfstate.Context // at both starts
}

// Options are what the merged document says of itself.
type Options struct {
	Serial           uint64
	TerraformVersion string // the writer's; the head's stays when it is empty
}

// ErrCannot is what the errors of Build wrap: the documents have a form that it does not merge.
var ErrCannot = errors.New("the states cannot be merged")

func cannot(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrCannot, fmt.Errorf(format, args...))
}

// Build returns the head with what take chooses from ours. Both must be version 4 states, as a tfstate.Scanner without
// Reordered accepts them. All errors wrap ErrCannot; then there is no document.
//
// take is asked once for every element within the stretches that is on one side only or whose bytes, or whose resource's
// other members, are not the same on both sides, and reports whether it becomes as ours has it, which for an element that
// ours does not have means that it goes. All other elements and all bytes outside of the edits stay the head's.
//
//   - An element that both sides have stays where the head has it. One that only ours has comes where Terraform puts
//     it (resources by module, mode, type and name; instances by key and deposed key; outputs by name) as long as both
//     documents are in that order; at any rate it comes behind the element that it follows in ours. White space
//     around it is that of its neighbours.
//   - Bytes from ours are kept when both documents have one layout, else laid out as the head is.
//   - A resource that loses its last instance goes too. What a resource says of all its instances, such as its
//     provider, stays the head's, unless an instance that both sides have is taken from ours, or both sides have the
//     resource without any instance in common and one is taken.
//   - check_results becomes null when no element is left and ours has none.
//   - The serial and the terraform_version are those of opt, the lineage is the head's.
func Build(head, ours []byte, stretches []Stretch, take func(Element) bool, opt Options) ([]byte, error) {
	stretches, err := join(stretches, len(head), len(ours))
	if err != nil {
		return nil, err
	}
	m := &merger{head: newDocument(head, "the head"), ours: newDocument(ours, "the new state"), take: take, layout: layoutOf(head)}
	m.same = m.layout == layoutOf(ours)
	for i, s := range stretches {
		a, err := m.head.read(i, s.HeadStart, s.HeadEnd, s.Ctx)
		if err != nil {
			return nil, err
		}
		b, err := m.ours.read(i, s.OursStart, s.OursEnd, s.Ctx)
		if err != nil {
			return nil, err
		}
		if a != b && !m.head.ended {
			return nil, cannot("the ends of a stretch, at bytes %d and %d, do not match", s.HeadEnd, s.OursEnd)
		}
	}
	for _, step := range [...]func() error{m.outputs, m.resources, m.checks} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if err := m.scalars(opt); err != nil {
		return nil, err
	}
	return m.apply()
}

// join checks that the stretches are in order, and joins those between which there is nothing.
func join(stretches []Stretch, head, ours int) ([]Stretch, error) {
	var out []Stretch
	h, o := 0, 0
	for _, s := range stretches {
		if s.HeadStart < h || s.HeadEnd < s.HeadStart || s.HeadEnd > head || s.OursEnd < s.OursStart || s.OursEnd > ours ||
			s.HeadStart-h != s.OursStart-o || (s.HeadEnd == head) != (s.OursEnd == ours) {
			return nil, cannot("a stretch from bytes %d to %d of the head and %d to %d of the new state does not follow the one before",
				s.HeadStart, s.HeadEnd, s.OursStart, s.OursEnd)
		}
		if n := len(out); n > 0 && s.HeadStart == h {
			out[n-1].HeadEnd, out[n-1].OursEnd = s.HeadEnd, s.OursEnd
		} else {
			out = append(out, s)
		}
		h, o = s.HeadEnd, s.OursEnd
	}
	if head-h != ours-o {
		return nil, cannot("behind the last stretch there are %d bytes of the head and %d of the new state", head-h, ours-o)
	}
	return out, nil
}

type merger struct {
	head, ours *document
	take       func(Element) bool
	layout     layout // of the head
	same       bool   // ours has it too
	edits      []edit
	members    []byte // new ones of the document, with their commas
}

// edit replaces a span of the head.
type edit struct {
	start, end int
	text       []byte
}

// laidOut returns a value of ours as it stands in the head within that many containers.
func (m *merger) laidOut(raw []byte, depth int) ([]byte, error) {
	if m.same {
		return raw, nil
	}
	text, err := m.layout.apply(raw, depth)
	if err != nil {
		return nil, cannot("lay out anew: %w", err)
	}
	return text, nil
}

// text returns an element of ours as it stands in the head.
func (m *merger) text(i *item) ([]byte, error) {
	raw := i.raw(m.ours.b)
	if i.class == Instance {
		return m.laidOut(raw, 4)
	}
	if i.class == Check || m.same {
		return m.laidOut(raw, 2)
	}
	_, value := member(raw, 0)
	text, err := m.laidOut(raw[value:], 2)
	return append(m.layout.name(raw[:stringEnd(raw, 0)]), text...), err
}

// scalars replaces the serial and the version.
func (m *merger) scalars(opt Options) error {
	h := m.head
	if h.serial.end == 0 || h.version.end == 0 {
		h.skim()
	}
	if h.serial.end == 0 {
		return cannot("the head's serial was not found")
	}
	m.edits = append(m.edits, edit{h.serial.start, h.serial.end, strconv.AppendUint(nil, opt.Serial, 10)})
	if opt.TerraformVersion == "" {
		return nil
	}
	version, err := json.Marshal(opt.TerraformVersion)
	switch {
	case err != nil:
		return cannot("terraform_version: %w", err)
	case h.version.end != 0:
		m.edits = append(m.edits, edit{h.version.start, h.version.end, version})
	case h.ended && h.top&tfstate.TopTerraformVersion == 0:
		m.member("terraform_version", version)
	default:
		return cannot("the head's terraform_version was not found")
	}
	return nil
}

// member adds a member to the end of the document.
func (m *merger) member(name string, value []byte) {
	m.members = append(m.members, ","+m.layout.line(1)...)
	m.members = append(append(m.members, m.layout.name([]byte(`"`+name+`"`))...), value...)
}

// apply copies the head with the edits.
func (m *merger) apply() ([]byte, error) {
	b := m.head.b
	if len(m.members) > 0 {
		end := spaceBefore(b, len(b))
		if end == 0 || b[end-1] != '}' {
			return nil, cannot("the head does not end with its object")
		}
		end = spaceBefore(b, end-1)
		m.edits = append(m.edits, edit{end, end, m.members})
	}
	slices.SortStableFunc(m.edits, func(a, b edit) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return a.end - b.end
	})
	size, pos := len(b), 0
	for _, e := range m.edits {
		if e.start < pos || e.end < e.start || e.end > len(b) {
			return nil, cannot("two edits at byte %d of the head do not go together", e.start)
		}
		size += len(e.text) - (e.end - e.start)
		pos = e.end
	}
	out := make([]byte, 0, size)
	pos = 0
	for _, e := range m.edits {
		out = append(append(out, b[pos:e.start]...), e.text...)
		pos = e.end
	}
	return append(out, b[pos:]...), nil
}

// differs reports whether two items of one identity have other bytes.
func (m *merger) differs(h, o *item) bool { return !bytes.Equal(h.raw(m.head.b), o.raw(m.ours.b)) }
