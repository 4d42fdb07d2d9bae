package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/tfstate"
	"kl/wire"
)

// The bounds of an instance's history.
const (
	historyBatch = 256    // versions that one read transaction looks at
	maxHistory   = 200000 // events; older ones are not told
	maxHistMoves = 100    // versions of a page in which moves are looked for
)

// InstanceHistory tells what has happened to the instances at an address, or
// below it, the newest first, as far as versions are kept: it reads what each
// version has changed, and the whole of the oldest. One that is there again as it
// had been before its removal was restored. Versions that cannot be looked into
// are passed over. Codes: not_found, state_opaque when the newest cannot be looked
// into and no other has anything there, parameter_invalid.
func (s *Store) InstanceHistory(ctx context.Context, ref Ref, address, cursor string, limit int) (wire.List[wire.InstanceEvent], error) {
	out := wire.List[wire.InstanceEvent]{Items: []wire.InstanceEvent{}}
	if address == "" {
		return out, fault.New(fault.ParameterInvalid, "it is not said whose history is asked for").WithNext("give the address of an instance, a resource or a module")
	}
	within, err := parseScope(address)
	if err != nil {
		return out, err
	}
	err = s.looking(ctx, ref, func() error { return s.listHistory(ctx, ref, within, cursor, limit, &out) })
	return out, err
}

func (s *Store) listHistory(ctx context.Context, ref Ref, within *scope, cursor string, limit int, out *wire.List[wire.InstanceEvent]) error {
	sid, versions, cut, err := s.changesWithin(ctx, ref, within)
	if err != nil {
		return err
	}
	events, err := s.tell(ctx, sid, versions, cut, within)
	if err != nil {
		return err
	}
	if newest := versions[len(versions)-1]; len(events) == 0 && newest.Opaque {
		return opaque(ref, newest.Version, "looked into")
	}
	if len(events) == 0 {
		return fault.New(fault.NotFound, "no kept version of the state %s has anything at %s", ref.Name, within.text).WithNext("list what is there with: kl query resources %s", ref.Name)
	}
	end := len(events)
	if cursor != "" {
		if end, err = strconv.Atoi(cursor); err != nil || end < 1 || end > len(events) {
			return badCursor(cursor)
		}
	}
	start := max(0, end-page(limit))
	if start > 0 {
		out.Next = strconv.Itoa(start)
	}
	moved, err := s.movesOf(ctx, sid, events[start:end])
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(events[start:end]) {
		out.Items = append(out.Items, e.wire(moved))
	}
	return nil
}

// happening is something that happened to an instance in a version.
type happening struct {
	address string
	event   string
	v       *versionMeta
}

func (e *happening) wire(moved map[versionAddress]string) wire.InstanceEvent {
	out := wire.InstanceEvent{
		Address: e.address, Event: e.event, Version: e.v.Version, Serial: e.v.Serial, CreatedAt: e.v.CreatedAt,
		Principal: e.v.Principal, Who: e.v.Who, Source: e.v.Source, RunID: e.v.RunID,
	}
	other, ok := moved[versionAddress{e.v.Version, e.address}]
	switch {
	case !ok:
	case e.event == wire.InstanceRemoved:
		out.Event, out.To = wire.InstanceMoved, other
	default:
		out.Event, out.From = wire.InstanceMoved, other
	}
	return out
}

type versionAddress struct {
	version uint64
	address string
}

// past is a version and what it has changed within a scope.
type past struct {
	versionMeta
	changes []change
}

// changesWithin returns the kept versions, the oldest first, with what they
// changed within a scope. cut says that there are older ones.
func (s *Store) changesWithin(ctx context.Context, ref Ref, within *scope) (sid uint64, versions []past, cut bool, err error) {
	next, found := uint64(0), 0
	for first := true; first || next != 0; first = false {
		err := s.view(func(tx *bbolt.Tx) error {
			if first {
				var rec *stateRec
				if sid, rec, err = written(tx, ref); err != nil {
					return err
				}
				next = rec.Head
			}
			for range historyBatch {
				if next == 0 {
					return nil
				}
				v, err := getVersion(tx, sid, next)
				if err != nil {
					return err
				}
				cs, err := changesOf(tx, sid, v)
				if err != nil {
					return err
				}
				p := past{versionMeta: v.versionMeta}
				for i := range cs {
					if within.covers(cs[i].element) {
						p.changes = append(p.changes, cs[i])
					}
				}
				versions, next = append(versions, p), v.Previous
				if found += len(p.changes); found > maxHistory {
					cut, next = true, 0
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return 0, nil, false, err
		}
	}
	slices.Reverse(versions)
	return sid, versions, cut, nil
}

// tell makes events out of changes. Where a version has no change list, it is
// compared with the one before it that can be looked into.
func (s *Store) tell(ctx context.Context, sid uint64, versions []past, cut bool, within *scope) (events []happening, err error) {
	had := map[string]map[[16]byte]struct{}{} // contents that an address has had
	note := func(address string, content [16]byte) (again bool) {
		seen := had[address]
		if seen == nil {
			seen = map[[16]byte]struct{}{}
			had[address] = seen
		}
		_, again = seen[content]
		seen[content] = struct{}{}
		return again
	}
	readable := -1 // the last version so far that can be looked into
	for i := range versions {
		p := &versions[i]
		if p.Opaque {
			continue
		}
		if p.Unlisted && !(cut && i == 0) {
			var before map[element][16]byte
			if readable >= 0 {
				if before, err = s.contents(ctx, sid, versions[readable].Version, within); err != nil {
					return nil, err
				}
			}
			now, err := s.contents(ctx, sid, p.Version, within)
			if err != nil {
				return nil, err
			}
			p.changes = diffScans(before, now)
		}
		for k := range p.changes {
			c := &p.changes[k]
			event := wire.InstanceChanged
			switch {
			case c.op == opRemove:
				note(c.address, c.old)
				event = wire.InstanceRemoved
			case c.op == opAdd && note(c.address, c.new):
				event = wire.InstanceRestored
			case c.op == opAdd && readable < 0 && p.Version > 1:
				event = wire.InstancePresent
			case c.op == opAdd:
				event = wire.InstanceCreated
			default:
				note(c.address, c.old)
				note(c.address, c.new)
			}
			events = append(events, happening{c.address, event, &p.versionMeta})
		}
		readable = i
	}
	return events, nil
}

// contents are the contents of a version's instances within a scope.
func (s *Store) contents(ctx context.Context, sid, version uint64, within *scope) (map[element][16]byte, error) {
	var es []entry
	err := s.view(func(tx *bbolt.Tx) (err error) {
		es, err = manifestOf(tx, sid, version)
		return err
	})
	if err != nil {
		return nil, err
	}
	out, h := map[element][16]byte{}, tfstate.NewHasher(s.seed)
	err = s.newChunkScan(sid, es).run(ctx, func(int) bool { return true }, func(_ int, t *tfstate.Token) error {
		if t.Kind != tfstate.CutInstance {
			return nil
		}
		if e := elementOf(t); within.covers(e) {
			if out[e] = t.Content(h); len(out) > maxHistory {
				return errEnough
			}
		}
		return nil
	})
	return out, err
}

// movesOf finds out which of the events are moves: where an instance came or
// went in a version that both added and removed some, it compares that with the
// one before.
func (s *Store) movesOf(ctx context.Context, sid uint64, events []happening) (map[versionAddress]string, error) {
	moved, looked := map[versionAddress]string{}, map[uint64]bool{}
	for _, e := range slices.Backward(events) {
		v := e.v
		if looked[v.Version] || e.event == wire.InstanceChanged || v.Previous == 0 || v.Added == 0 || v.Removed == 0 || len(looked) == maxHistMoves {
			continue
		}
		looked[v.Version] = true
		var before, after []entry
		err := s.view(func(tx *bbolt.Tx) error {
			prev, was, err := chunksOf(tx, sid, v.Previous)
			if err != nil || prev.Opaque {
				return err
			}
			_, is, err := chunksOf(tx, sid, v.Version)
			before, after = was, is
			return err
		})
		if err != nil {
			return nil, err
		}
		c, err := s.compare(ctx, sid, before, after)
		if err != nil {
			return nil, fmt.Errorf("compare versions %d and %d: %w", v.Previous, v.Version, err)
		}
		for _, m := range c.moved {
			moved[versionAddress{v.Version, m.before.address}] = m.after.address
			moved[versionAddress{v.Version, m.after.address}] = m.before.address
		}
	}
	return moved, nil
}
