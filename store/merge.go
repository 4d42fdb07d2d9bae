package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/merge"
)

// Lock modes.
const (
	modeExclusive  = "exclusive"
	modeOptimistic = "optimistic"
)

// modeOf is the lock mode that a state is under now: optimistic only where
// there is something to merge with.
func modeOf(env *environmentRec, rec *stateRec) string {
	if rec.Head == 0 || rec.Opaque {
		return modeExclusive
	}
	return cmp.Or(rec.LockMode, env.LockMode)
}

// view is what a writer last saw of a state: a version, and the elements of
// which it knows another content. Others' changes since are the change lists of
// the versions behind it.
type view struct {
	version uint64
	overlay map[element][16]byte // zero: not there
	unknown bool                 // nothing is known: the writer's base is not kept
}

// foreign is an element that others changed since a view.
type foreign struct {
	seen [16]byte // content in the view
	by   uint64   // the version that changed it last, 0 when none has since
}

// since lays the versions behind a view over it: what the writer has of each
// element that others changed, and who changed it last. errUnlisted means that a
// version among them has no change list.
func (v *view) since(tx *bbolt.Tx, sid uint64, rec *stateRec) (map[element]foreign, error) {
	out := make(map[element]foreign, len(v.overlay))
	for e, h := range v.overlay {
		out[e] = foreign{seen: h}
	}
	var later []*versionRec
	for n := rec.Head; n != v.version; {
		r, err := getVersion(tx, sid, n)
		if err != nil {
			return nil, err
		}
		if r.Unlisted || r.Previous == 0 {
			return nil, errUnlisted
		}
		later = append(later, r)
		n = r.Previous
	}
	for _, r := range slices.Backward(later) {
		cs, err := changesOf(tx, sid, r)
		if err != nil {
			return nil, err
		}
		for i := range cs {
			c := &cs[i]
			f, known := out[c.element]
			if !known {
				f.seen = c.old
			}
			f.by = r.Version
			out[c.element] = f
		}
	}
	return out, nil
}

var errUnlisted = errors.New("a version since has no change list")

// baseOfFirst finds the version that a session's first write was made on: the
// one whose serial is one less than that of the session's first attempt, for
// attempts that were refused have burned serials since. It lies between the
// lock and the head; 0 means that it is older. When no version has that serial,
// the client has lost attempts that never came here; then the head at the time
// of the lock is taken: too old a base can make a conflict out of what is none,
// but never loses anything.
func baseOfFirst(tx *bbolt.Tx, sid uint64, rec *stateRec, sess *sessionRec, serial uint64) (uint64, error) {
	want := cmp.Or(sess.FirstSerial, serial) - 1
	for n := rec.Head; n != 0; {
		r, err := getVersion(tx, sid, n)
		if err != nil {
			return 0, err
		}
		switch {
		case r.Serial == want && r.Lineage == rec.Lineage:
			return n, nil
		case n <= sess.BaseVersion && want < r.Serial:
			return 0, nil
		case n <= sess.BaseVersion:
			return sess.BaseVersion, nil
		}
		n = r.Previous
	}
	return 0, nil
}

// merging is what a merge found out besides the document.
type merging struct {
	body      *Body // the merged document; nil when ours can be stored as it is
	view      view
	kept      []change // ours that do not go into the head
	overrides []string // elements of which the writer's value won over others'
	conflicts []string // addresses, sorted
	chosen    []string // addresses that overlap, and of which a side was chosen
	by        map[string]uint64
	depends   []dependence
	takes     []change // ours that go into the head
}

// viewOf returns what the writer of a session saw last; version 0 means that
// its write was made on what is older than its lock.
func viewOf(tx *bbolt.Tx, sid uint64, rec *stateRec, sess *sessionRec, serial uint64) (*view, error) {
	if sess.LastVersion == 0 && !sess.Pinned {
		n, err := baseOfFirst(tx, sid, rec, sess, serial)
		return &view{version: n}, err
	}
	v := &view{version: sess.BaseVersion, overlay: map[element][16]byte{}}
	raw := peek(tx, bOverlay, keyS(sid, sess.Info.ID))
	if raw == nil {
		return v, nil
	}
	cs, err := decodeChanges(raw)
	if err != nil {
		return nil, fmt.Errorf("overlay of session %s: %w", sess.Info.ID, err)
	}
	for i := range cs {
		v.overlay[cs[i].element] = cs[i].new
	}
	return v, nil
}

// decodeChanges reads a packed list.
func decodeChanges(b []byte) ([]change, error) {
	raw, err := unpack(b)
	if err != nil {
		return nil, err
	}
	r := &reader{b: raw}
	cs := r.changes()
	return cs, r.err
}

// take says which side wins where both changed an element, or where ours depends
// on what others deleted; it is asked only for conflicts. The zero value refuses.
type take func(address string, depends bool) (merge.Verdict, bool)

// mergeWrite merges a planned document into the head as seen from v. p is ours
// against the head. The refusal is a conflict; nil means that the document, or
// m.body, may be stored.
func (s *Store) mergeWrite(ctx context.Context, ref Ref, p *plan, v *view, choose take) (m *merging, refusal *fault.Error, err error) {
	m = &merging{view: *v, by: map[string]uint64{}}
	var others map[element]foreign
	if !v.unknown {
		err = s.view(func(tx *bbolt.Tx) (err error) {
			others, err = v.since(tx, p.head.sid, &p.rec)
			return err
		})
	}
	if errors.Is(err, errUnlisted) || p.opaque || p.rec.Opaque {
		return nil, fault.New(fault.SerialConflict, "the state %s has moved on, and what is stored now cannot be merged with", ref.Name).
			WithNext("plan again; what was sent is kept: kl recover list --state %s", ref.Name), nil
	}
	if err != nil {
		return nil, nil, err
	}
	verdicts := make(map[element]merge.Verdict, len(p.changes))
	for i := range p.changes {
		c := &p.changes[i]
		f, changed := others[c.element]
		if !changed {
			f.seen = c.old
		}
		it := merge.Item{
			Element: merge.Element{Class: merge.Class(c.class), Address: c.address}, Data: c.class == classInstance && isData(c.address),
			View: f.seen, Head: c.old, Ours: c.new,
		}
		verdict, overrides := it.Verdict(), it.Overrides()
		if v.unknown {
			verdict, overrides = blind(it), false
		}
		if verdict == merge.Conflict {
			m.by[c.address] = f.by
			if side, ok := choose.pick(c.address, false); ok {
				verdict = side
				m.chosen = append(m.chosen, c.address)
			} else {
				m.conflicts = append(m.conflicts, c.address)
			}
		}
		if overrides {
			m.overrides = append(m.overrides, c.address)
		}
		verdicts[c.element] = verdict
		switch verdict {
		case merge.Theirs:
			m.kept = append(m.kept, *c)
		case merge.Ours:
			m.takes = append(m.takes, *c)
		case merge.Conflict: // noted above
		}
	}
	if len(m.conflicts) > 0 {
		slices.Sort(m.conflicts)
		return m, overlapFault(ref, m), nil
	}
	if refusal, err := s.guardDependencies(ref, p, m, others, verdicts, choose); refusal != nil || err != nil {
		return m, refusal, err
	}
	if len(m.kept) == 0 && p.top.serial > p.rec.Serial && p.top.lineage == p.rec.Lineage {
		return m, nil, nil
	}
	err = s.buildMerged(ctx, p, m, verdicts)
	if errors.Is(err, merge.ErrCannot) {
		return nil, fault.Wrap(fault.SerialConflict, err, "the state %s has moved on, and this document has a form that cannot be merged", ref.Name).
			WithNext("plan again; what was sent is kept: kl recover list --state %s", ref.Name).With("kind", "serial"), nil
	}
	return m, nil, err
}

func (t take) pick(address string, depends bool) (merge.Verdict, bool) {
	if t == nil {
		return merge.Conflict, false
	}
	return t(address, depends)
}

// blind decides without a base: what only one side has stays, what both have
// differently is a conflict.
func blind(it merge.Item) merge.Verdict {
	var none merge.Hash
	switch {
	case it.Ours == none:
		return merge.Theirs
	case it.Head == none:
		return merge.Ours
	case it.Data || it.Class != merge.Instance:
		return merge.Theirs
	}
	return merge.Conflict
}

// overlayOf is what the writer of ours sees differently in the merged document.
// Both lists are against the head that they were merged into.
func overlayOf(ours, merged []change) (overlay []change) {
	differs := func(e element, h [16]byte) {
		op := opAdd
		if h == ([16]byte{}) {
			op = opRemove
		}
		overlay = append(overlay, change{op: op, element: e, new: h})
	}
	for len(ours)+len(merged) > 0 {
		order := -1
		switch {
		case len(ours) == 0:
			order = 1
		case len(merged) > 0:
			order = ours[0].compare(merged[0].element)
		}
		switch {
		case order < 0: // the head's went into the merged document
			differs(ours[0].element, ours[0].new)
		case order > 0: // the writer has it as the head had it
			differs(merged[0].element, merged[0].old)
		case ours[0].new != merged[0].new:
			differs(ours[0].element, ours[0].new)
		}
		if order <= 0 {
			ours = ours[1:]
		}
		if order >= 0 {
			merged = merged[1:]
		}
	}
	return overlay
}

func andMore(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n)
}

func overlapFault(ref Ref, m *merging) *fault.Error {
	return fault.New(fault.OverlapConflict, "%s was changed by others in the state %s since this run read it%s", m.conflicts[0], ref.Name, andMore(len(m.conflicts)-1)).
		WithNext("see what was sent with: kl recover list --state %s; then plan again", ref.Name).
		With("kind", "overlap")
}

// buildMerged puts our changes into the head's bytes.
func (s *Store) buildMerged(ctx context.Context, p *plan, m *merging, verdicts map[element]merge.Verdict) error {
	head, err := s.headBytes(p)
	if err != nil {
		return err
	}
	merged, err := merge.Build(head, p.body.Bytes(), p.stretches(), func(e merge.Element) bool {
		return verdicts[element{class(e.Class), e.Address}] == merge.Ours
	}, merge.Options{Serial: p.rec.Serial + 1, TerraformVersion: p.top.terraformVersion})
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	m.body = s.ownBody(merged)
	return ctx.Err()
}

// stretches are where the document and the head differ.
func (p *plan) stretches() []merge.Stretch {
	out := make([]merge.Stretch, len(p.regions))
	for i, r := range p.regions {
		n := 0
		for _, e := range p.head.entries[r.from:r.to] {
			n += int(e.size)
		}
		out[i] = merge.Stretch{HeadStart: r.pos, HeadEnd: r.pos + n, OursStart: r.start, OursEnd: r.end, Ctx: r.ctx}
	}
	return out
}

// ownBody makes a Body of bytes that were not received.
func (s *Store) ownBody(b []byte) *Body {
	o := &Body{buf: b, pool: &s.bufs, onDone: func() {}}
	o.refs.Store(1)
	o.hashed.Go(func() { o.sha = sha256.Sum256(b) })
	return o
}

// headBytes are the head's bytes, from memory or decoded.
func (s *Store) headBytes(p *plan) ([]byte, error) {
	if p.oldBody != nil {
		return p.oldBody, nil
	}
	n := 0
	for i := range p.head.entries {
		n += int(p.head.entries[i].size)
	}
	b := make([]byte, 0, n)
	err := s.eachPiece(p.head.sid, p.head.entries, func(piece []byte) error {
		b = append(b, piece...)
		return nil
	})
	p.oldBody = b
	return b, err
}

// mayMerge reports whether a write of the session could have to be merged:
// then what it sends is seldom what is stored. In exclusive mode, too, others may
// have written: while the mode was another, or while the lock was idle for too
// long.
func (b *base) mayMerge() bool {
	if b.sess == nil || b.sess.plan() || b.head == nil || b.rec.AllowSerial && b.run == nil {
		return false
	}
	return b.rec.Head != b.sess.BaseVersion || b.overlaid || b.sess.LastVersion != 0 && b.rec.Serial != b.sess.LastSerial
}

// mergeSession merges a write of a session that may share the state. It
// returns nil when the ordinary rules decide.
func (s *Store) mergeSession(ctx context.Context, r *WriteRequest, p *plan, b *base) (*merging, *fault.Error, error) {
	if !b.mayMerge() || p.top.lineage != b.rec.Lineage {
		return nil, nil, nil
	}
	if b.sess.LastVersion != 0 && p.top.serial <= b.sess.LastSerial || b.run != nil && p.top.serial <= b.run.Serial {
		return nil, nil, nil // a replay, or a conflict
	}
	var v *view
	err := s.view(func(tx *bbolt.Tx) (err error) {
		v, err = viewOf(tx, b.head.sid, &b.rec, b.sess, p.top.serial)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if v.version == 0 {
		return nil, serialFault(r, &b.rec, p, "it was made on serial %d, which is older than what was stored when the lock was taken", p.top.serial-1), nil
	}
	if v.version == b.rec.Head && len(v.overlay) == 0 && p.top.serial > b.rec.Serial {
		return nil, nil, nil // nobody else wrote
	}
	return s.mergeWrite(ctx, r.Ref, p, v, nil)
}

// putOverlay stores what a session sees differently from its new version.
func putOverlay(tx *bbolt.Tx, sid uint64, lockID string, overlay []change) error {
	k := keyS(sid, lockID)
	if len(overlay) == 0 {
		if !has(tx, bOverlay, k) {
			return nil
		}
		return del(tx, bOverlay, k)
	}
	return put(tx, bOverlay, k, pack(appendChanges(nil, overlay)))
}

// changer tells who changed an address last, and in which version.
type changer struct {
	Who       string    `json:"who"`
	Principal string    `json:"principal"`
	When      time.Time `json:"when"`
	Version   uint64    `json:"version"`
	Serial    uint64    `json:"serial"`
}

// byVersion tells who made the versions that changed the given addresses.
func (s *Store) byVersion(sid uint64, by map[string]uint64, addresses []string) (map[string]any, error) {
	out := map[string]any{}
	err := s.view(func(tx *bbolt.Tx) error {
		for _, a := range addresses {
			if by[a] == 0 || !has(tx, bVersion, key(sid, by[a])) { // it may have been pruned since
				continue
			}
			v, err := getVersion(tx, sid, by[a])
			if err != nil {
				return err
			}
			out[a] = changer{cmp.Or(v.Who, v.Principal), v.Principal, v.CreatedAt, v.Version, v.Serial}
		}
		return nil
	})
	return out, err
}

// explainConflict adds the addresses of a merge conflict and who changed them.
func (s *Store) explainConflict(f *fault.Error, p *plan, m *merging) {
	listed := m.conflicts[:min(len(m.conflicts), maxListed)]
	f.With("conflicting_addresses", listed).With("conflicting_count", len(m.conflicts)).
		With("latest_serial", p.rec.Serial).With("latest_version", p.rec.Head).With("base_version", m.view.version)
	if by, err := s.byVersion(p.head.sid, m.by, listed); err == nil {
		f.With("changed_by", by)
	}
	if v, err := s.serialOf(p.head.sid, m.view.version); err == nil {
		f.With("base_serial", v)
	}
}

func (s *Store) serialOf(sid, version uint64) (serial uint64, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		v, err := getVersion(tx, sid, version)
		if err == nil {
			serial = v.Serial
		}
		return err
	})
	return serial, err
}
