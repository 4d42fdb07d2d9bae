package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/tfstate"
	"kl/wire"
)

// The bounds of a diff's answer.
const (
	maxDiffItems  = 1000     // of each list
	maxDiffValues = 500      // of an instance
	maxDiffValue  = 64 << 10 // bytes of one value
	maxDiffBytes  = 16 << 20 // of all values that are listed
	maxDiffRaw    = 64 << 20 // of the instances that are compared attribute by attribute, on one side
)

// DiffQuery says what to compare.
type DiffQuery struct {
	From, To string // version references
	Address  string // of an instance, a resource or a module; "" for all, and only then outputs and check results are compared
	Reveal   bool   // sensitive values are not masked; the audit trail notes it
}

// Diff compares two versions of a state, instance by instance and attribute by
// attribute. Only what is stored differently is read. Codes: not_found,
// parameter_invalid, state_opaque.
func (s *Store) Diff(ctx context.Context, by Actor, ref Ref, q DiffQuery) (wire.Diff, error) {
	d := &diff{s: s, q: q, left: maxDiffBytes}
	within, err := parseScope(q.Address)
	if err != nil {
		return d.out, err
	}
	err = s.looking(ctx, ref, func() error {
		sid, err := d.open(ref)
		if err != nil {
			return err
		}
		c, err := s.compare(ctx, sid, d.fromChunks, d.toChunks)
		if err != nil {
			return err
		}
		c.within(within)
		return d.describe(ctx, sid, c)
	})
	if err != nil {
		return d.out, err
	}
	if q.Reveal {
		s.noteReveal(by, ref, "diff_revealed", d.to.Version, map[string]any{"from": d.from.Version, "address": q.Address})
	}
	return d.out, nil
}

// open finds both versions and their chunk lists.
func (d *diff) open(ref Ref) (sid uint64, err error) {
	err = d.s.view(func(tx *bbolt.Tx) error {
		var rec *stateRec
		if sid, rec, err = written(tx, ref); err != nil {
			return err
		}
		for _, side := range []struct {
			ref string
			v   **versionRec
			es  *[]entry
		}{{d.q.From, &d.from, &d.fromChunks}, {d.q.To, &d.to, &d.toChunks}} {
			n, err := resolve(tx, sid, rec, side.ref)
			if err != nil {
				return err
			}
			if *side.v, *side.es, err = chunksOf(tx, sid, n); err != nil {
				return err
			}
			if (*side.v).Opaque {
				return opaque(ref, n, "compared")
			}
		}
		return nil
	})
	return sid, err
}

// opaque refuses to look into a version.
func opaque(ref Ref, version uint64, done string) error {
	return fault.New(fault.StateOpaque, "version %d of the state %s is encrypted, or of another form than Terraform's version 4, so that it cannot be %s", version, ref.Name, done).
		WithNext("its bytes are there: kl state pull %s --version %d", ref.Name, version)
}

// within leaves only what has to do with a scope.
func (c *comparison) within(sc *scope) {
	if sc == nil {
		return
	}
	out := func(f *found) bool { return !sc.covers(f.element) }
	both := func(p sides) bool { return out(p.before) && out(p.after) }
	c.added, c.removed = slices.DeleteFunc(c.added, out), slices.DeleteFunc(c.removed, out)
	c.changed, c.moved = slices.DeleteFunc(c.changed, both), slices.DeleteFunc(c.moved, both)
}

// diff is an answer in the making.
type diff struct {
	s                    *Store
	q                    DiffQuery
	from, to             *versionRec
	fromChunks, toChunks []entry
	left                 int // bytes of values that may still be listed
	out                  wire.Diff
}

func (d *diff) describe(ctx context.Context, sid uint64, c *comparison) error {
	d.out = wire.Diff{
		From: d.from.Version, To: d.to.Version, FromSerial: d.from.Serial, ToSerial: d.to.Serial, Address: d.q.Address,
		Added: []wire.DiffItem{}, Changed: []wire.DiffItem{}, Removed: []wire.DiffItem{}, Moved: []wire.DiffItem{}, Outputs: []wire.DiffValue{}, Checks: []wire.DiffValue{},
	}
	count := func(e element, instances *int) *int {
		switch e.class {
		case classOutput:
			return &d.out.Counts.Outputs
		case classCheck:
			return &d.out.Counts.Checks
		case classInstance:
		}
		return instances
	}
	var listed []sides // those whose bytes are needed
	note := func(p sides, instances *int) bool {
		n := count(cmp.Or(p.after, p.before).element, instances)
		if *n++; *n > maxDiffItems {
			d.out.Truncated = true
			return false
		}
		return true
	}
	for _, f := range c.added {
		if note(sides{nil, f}, &d.out.Counts.Added) {
			if f.class != classInstance {
				listed = append(listed, sides{nil, f})
				continue
			}
			d.out.Added = append(d.out.Added, d.item(f.address))
		}
	}
	for _, f := range c.removed {
		if note(sides{f, nil}, &d.out.Counts.Removed) {
			if f.class != classInstance {
				listed = append(listed, sides{f, nil})
				continue
			}
			d.out.Removed = append(d.out.Removed, d.item(f.address))
		}
	}
	for _, p := range c.changed {
		if note(p, &d.out.Counts.Changed) {
			listed = append(listed, p)
		}
	}
	for _, p := range c.moved {
		if note(p, &d.out.Counts.Moved) {
			listed = append(listed, p)
		}
	}
	return d.values(ctx, sid, listed)
}

func (d *diff) item(address string) wire.DiffItem {
	return wire.DiffItem{Address: address, Attributes: []wire.DiffValue{}, Members: []wire.DiffValue{}}
}

// values reads the bytes of elements and lists what they have differently.
func (d *diff) values(ctx context.Context, sid uint64, listed []sides) error {
	var old, now []*found
	for _, p := range listed {
		if p.before != nil {
			old = append(old, p.before)
		}
		if p.after != nil {
			now = append(now, p.after)
		}
	}
	was, err := d.s.rawOf(ctx, sid, d.fromChunks, old, maxDiffRaw)
	if err != nil {
		return err
	}
	is, err := d.s.rawOf(ctx, sid, d.toChunks, now, maxDiffRaw)
	if err != nil {
		return err
	}
	raw := func(m map[uint64][]byte, f *found) ([]byte, bool) {
		if f == nil {
			return nil, true
		}
		b, ok := m[f.id]
		return b, ok
	}
	for _, p := range listed {
		before, ok1 := raw(was, p.before)
		after, ok2 := raw(is, p.after)
		d.list(p, before, after, ok1 && ok2)
	}
	slices.SortFunc(d.out.Outputs, func(a, b wire.DiffValue) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(d.out.Checks, func(a, b wire.DiffValue) int { return cmp.Compare(a.Path, b.Path) })
	return nil
}

// list adds an element to the answer; read says that its bytes are there.
func (d *diff) list(p sides, before, after []byte, read bool) {
	e := cmp.Or(p.after, p.before)
	switch e.class {
	case classOutput:
		d.out.Outputs = append(d.out.Outputs, d.value(outputDifference(e.address, before, after), p.change()))
		return
	case classCheck:
		d.out.Checks = append(d.out.Checks, d.value(tfstate.Difference{Path: e.address, Before: before, After: after}, p.change()))
		return
	case classInstance:
	}
	item := d.item(e.address)
	if read {
		d.attributes(&item, p, before, after)
	} else {
		item.Omitted = 1
	}
	if item.Omitted > 0 {
		d.out.Truncated = true
	}
	if p.before.address != p.after.address {
		item.From = p.before.address
		d.out.Moved = append(d.out.Moved, item)
		return
	}
	d.out.Changed = append(d.out.Changed, item)
}

func (d *diff) attributes(item *wire.DiffItem, p sides, before, after []byte) {
	into := func(list *[]wire.DiffValue) func(v tfstate.Difference) {
		return func(v tfstate.Difference) {
			if len(*list) == maxDiffValues {
				item.Omitted++
				return
			}
			change := wire.DiffChanged
			switch {
			case v.Before == nil && v.After != nil:
				change = wire.DiffAdded
			case v.Before != nil && v.After == nil:
				change = wire.DiffRemoved
			}
			*list = append(*list, d.value(v, change))
		}
	}
	members := into(&item.Members)
	tfstate.DiffAttributes(before, after, into(&item.Attributes))
	tfstate.DiffMembers(before, after, members)
	switch {
	case p.before.rest == p.after.rest:
	case p.before.provider == p.after.provider:
		members(tfstate.Difference{Path: "resource"})
	default:
		members(tfstate.Difference{Path: "provider", Before: jsonText(p.before.provider), After: jsonText(p.after.provider)})
	}
}

func jsonText(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return nil // texts can always be written
	}
	return b
}

// change says what happened to an element.
func (p sides) change() string {
	switch {
	case p.before == nil:
		return wire.DiffAdded
	case p.after == nil:
		return wire.DiffRemoved
	}
	return wire.DiffChanged
}

// outputDifference is what an output's whole objects have differently: the
// value, whether or not that is it.
func outputDifference(name string, before, after []byte) tfstate.Difference {
	v := tfstate.Difference{Path: name}
	for _, side := range []struct {
		raw   []byte
		value *[]byte
	}{{before, &v.Before}, {after, &v.After}} {
		if side.raw == nil {
			continue
		}
		hidden, err := sensitiveOutput(side.raw)
		v.Sensitive = v.Sensitive || hidden || err != nil
		*side.value = []byte("null")
		for member, value := range tfstate.Members(side.raw) {
			if member == "value" {
				*side.value = value
			}
		}
	}
	return v
}

// value masks and bounds what differs.
func (d *diff) value(v tfstate.Difference, change string) wire.DiffValue {
	out := wire.DiffValue{Path: v.Path, Change: change, Sensitive: v.Sensitive}
	size := len(v.Before) + len(v.After)
	switch {
	case v.Sensitive && !d.q.Reveal:
	case len(v.Before) > maxDiffValue, len(v.After) > maxDiffValue, size > d.left:
		out.TooLarge, d.out.Truncated = true, true
	default:
		d.left -= size
		out.Before, out.After = v.Before, v.After
	}
	return out
}
