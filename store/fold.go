package store

import (
	"fmt"
	"math"
	"slices"

	"go.etcd.io/bbolt"
)

// fold takes versions out from between two that stay. What the later one
// records against the one before it becomes what it records against the one
// before all of them, from the records alone: no document is read.
type fold struct {
	tx     *bbolt.Tx
	sid    uint64
	before *versionRec // nil: the run begins with the oldest version
	run    []*versionRec
	after  *versionRec

	freed []uint64 // chunk ids that only the run needs
	whole []byte   // packed chunk list that after gets, nil when its splices do or it has one
	list  []byte   // packed change list that after gets, when it is too long for the record
	apart bool     // after had a change list of its own until now
}

// newFold reads the records of neighbours of which all but the last go, and of
// the version before them (0 for none). When more than pruneChunks chunks would
// go, it ends earlier.
func newFold(tx *bbolt.Tx, sid, before uint64, versions []uint64) (*fold, error) {
	f := &fold{tx: tx, sid: sid}
	var err error
	if before != 0 {
		if f.before, err = getVersion(tx, sid, before); err != nil {
			return nil, fmt.Errorf("prune: %w", err)
		}
	}
	chunks := 0
	for i, n := range versions {
		v, err := getVersion(tx, sid, n)
		if err != nil {
			return nil, fmt.Errorf("prune: %w", err)
		}
		chunks += len(v.deaths)
		if i == len(versions)-1 || i > 0 && chunks > pruneChunks {
			f.after = v
			break
		}
		f.run = append(f.run, v)
	}
	f.apart = f.after.Apart
	return f, f.compute()
}

// compute makes after's new record. It reads only.
func (f *fold) compute() error {
	if err := f.chunkLists(); err != nil {
		return err
	}
	if err := f.changeLists(); err != nil {
		return err
	}
	f.deaths()
	w := f.after
	w.Previous = 0
	if f.before != nil {
		w.Previous = f.before.Version
		for _, v := range f.run {
			w.Forced = w.Forced || v.Forced
		}
	}
	return nil
}

// deaths divides the chunks that died within the run. A chunk is needed by
// neighbours only, for only the head's chunks are taken over: one that is older
// than the run was needed by before, too, and dies with after now.
func (f *fold) deaths() {
	born := uint64(0)
	var deaths []uint64
	if f.before != nil {
		born = f.before.NextChunk
		deaths = slices.Clone(f.run[0].deaths)
	}
	for _, v := range append(f.run[1:len(f.run):len(f.run)], f.after) {
		for _, id := range v.deaths {
			if f.before != nil && id < born {
				deaths = append(deaths, id)
			} else {
				f.freed = append(f.freed, id)
			}
		}
	}
	slices.Sort(deaths)
	f.after.deaths = deaths
}

// longSplices is the length from which on it is worth knowing whether the whole
// chunk list is shorter.
const longSplices = 512

// chunkLists gives after splices against before or, where the run has the
// whole list that they begin from or that is shorter, a whole list.
func (f *fold) chunkLists() error {
	w := f.after
	if w.whole {
		return nil
	}
	sp := f.run[0].splices
	need := f.before == nil || f.run[0].whole
	for _, v := range append(f.run[1:len(f.run):len(f.run)], w) {
		if need = need || v.whole; need {
			break
		}
		sp = composeSplices(sp, v.splices)
	}
	if !need && spliceLen(sp) < longSplices {
		w.splices = sp
		return nil
	}
	es, err := manifestOf(f.tx, f.sid, w.Version)
	if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	if !need && 2*spliceLen(sp) < len(es) {
		w.splices = sp
		return nil
	}
	w.whole, w.splices = true, nil
	f.whole = pack(encodeManifest(es))
	return nil
}

// changeLists composes what the run and after have changed.
func (f *fold) changeLists() error {
	w := f.after
	unlisted := f.before == nil
	for _, v := range append(f.run[:len(f.run):len(f.run)], w) {
		unlisted = unlisted || v.Unlisted
	}
	var cs []change
	if !unlisted {
		for _, v := range append(f.run[:len(f.run):len(f.run)], w) {
			more, err := changesOf(f.tx, f.sid, v)
			if err != nil {
				return fmt.Errorf("prune: %w", err)
			}
			cs = composeChanges(cs, more)
		}
	}
	w.Unlisted, w.Apart, w.changes = unlisted, false, cs
	if f.before != nil { // else what the version itself has changed is still true of it
		w.Added, w.Changed, w.Removed = 0, 0, 0
		w.countChanges(false)
	}
	if list := appendChanges(nil, cs); len(list) > inlineChanges {
		w.Apart, f.list = true, pack(list)
	}
	return nil
}

// write puts after's new record and removes the run. It returns the stored
// bytes of the chunks that went.
func (f *fold) write() (freed int64, err error) {
	tx, sid := f.tx, f.sid
	for _, v := range f.run {
		if err := del(tx, bVersion, key(sid, v.Version)); err != nil {
			return 0, err
		}
		for b, there := range map[string]bool{string(bManifest): v.whole, string(bChange): v.Apart} {
			if !there {
				continue
			}
			if err := deletePrefix(tx, []byte(b), key(sid, v.Version)); err != nil {
				return 0, err
			}
		}
	}
	if f.apart {
		if err := deletePrefix(tx, bChange, key(sid, f.after.Version)); err != nil {
			return 0, err
		}
	}
	if err := putManifest(tx, bManifest, sid, f.after.Version, f.whole); err != nil {
		return 0, err
	}
	if err := putManifest(tx, bChange, sid, f.after.Version, f.list); err != nil {
		return 0, err
	}
	b, err := f.after.encode()
	if err != nil {
		return 0, err
	}
	if err := put(tx, bVersion, key(sid, f.after.Version), b); err != nil {
		return 0, err
	}
	freed = f.bytes()
	for _, id := range f.freed {
		if err := del(tx, bChunk, key(sid, id)); err != nil {
			return 0, err
		}
	}
	return freed, nil
}

// bytes are the stored bytes of the chunks that go.
func (f *fold) bytes() (n int64) {
	for _, id := range f.freed {
		n += int64(len(peek(f.tx, bChunk, key(f.sid, id))))
	}
	return n
}

// stretch is a part of a chunk list that is described against an older one: a
// range of that, or new entries.
type stretch struct {
	from, n int
	ins     []entry
}

// rest is the length of the range that reaches to the end, whatever it is.
const rest = math.MaxInt

// stretches says what a list looks like after splices.
func stretches(sp []splice) (out []stretch) {
	pos := 0
	for _, s := range sp {
		if s.skip > 0 {
			out = append(out, stretch{from: pos, n: s.skip})
		}
		pos += s.skip + s.del
		if len(s.ins) > 0 {
			out = append(out, stretch{ins: s.ins})
		}
	}
	return append(out, stretch{from: pos, n: rest})
}

// cut divides stretches behind n entries.
func cut(ss []stretch, n int) (head, tail []stretch) {
	for i, s := range ss {
		l := s.n
		if s.ins != nil {
			l = len(s.ins)
		}
		if n >= l && l != rest {
			n -= l
			continue
		}
		head = slices.Clone(ss[:i])
		if n == 0 {
			return head, ss[i:]
		}
		first, second := s, s
		if s.ins != nil {
			first.ins, second.ins = s.ins[:n], s.ins[n:]
		} else {
			first.n, second.from = n, s.from+n
			if l != rest {
				second.n = l - n
			}
		}
		return append(head, first), append([]stretch{second}, ss[i+1:]...)
	}
	return ss, nil
}

// composeSplices returns splices that do what a and then b do.
func composeSplices(a, b []splice) []splice {
	left := stretches(a)
	var list []stretch
	for _, s := range b {
		var head []stretch
		head, left = cut(left, s.skip)
		list = append(list, head...)
		_, left = cut(left, s.del)
		if len(s.ins) > 0 {
			list = append(list, stretch{ins: s.ins})
		}
	}
	list = append(list, left...)
	var out []splice
	var cur splice
	pos := 0
	for _, s := range list {
		if s.ins != nil {
			cur.ins = append(cur.ins[:len(cur.ins):len(cur.ins)], s.ins...)
			continue
		}
		cur.del += s.from - pos
		if cur.del > 0 || len(cur.ins) > 0 {
			out = append(out, cur)
			cur = splice{}
		}
		if s.n == rest {
			break
		}
		cur.skip += s.n
		pos = s.from + s.n
	}
	return out
}

// spliceLen is what splices weigh, as plan.finish counts it.
func spliceLen(sp []splice) (n int) {
	for i := range sp {
		n += sp[i].del + len(sp[i].ins)
	}
	return n
}

// composeChanges returns the change list of a and then b. Both are sorted.
func composeChanges(a, b []change) []change {
	out := make([]change, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch order := a[0].compare(b[0].element); {
		case order < 0:
			out, a = append(out, a[0]), a[1:]
		case order > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			c := change{element: a[0].element, old: a[0].old, new: b[0].new}
			switch existed, exists := a[0].op != opAdd, b[0].op != opRemove; {
			case existed && exists:
				c.op = opChange
			case exists:
				c.op = opAdd
			case existed:
				c.op = opRemove
			}
			if c.op != 0 && c.old != c.new {
				out = append(out, c)
			}
			a, b = a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}
