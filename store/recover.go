package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/merge"
	"kl/wire"
)

// refusedMerged is the status of a refused write that was merged.
const refusedMerged = "merged"

// MergeRefused merges a refused write into the head as a new version, or shows
// what that would do. Without q.Take an overlap is overlap_conflict, and what
// depends on what others deleted is dependency_conflict. Codes: not_found, parameter_invalid when it is settled already, overlap_conflict,
// dependency_conflict, lineage_conflict, serial_conflict when the state or the
// write cannot be looked into, lock_required in exclusive mode while a lock is
// held, lifecycle and quota ones.
func (s *Store) MergeRefused(ctx context.Context, by Actor, ref Ref, id string, q wire.MergeRequest) (wire.MergeResult, error) {
	choose, err := chooser(q.Take)
	if err != nil {
		return wire.MergeResult{}, err
	}
	l := s.live(ref)
	if err := l.lockWrite(ctx); err != nil {
		return wire.MergeResult{}, err
	}
	defer l.unlockWrite()
	for range maxAttempts {
		out, err := s.mergeRefusedOnce(ctx, l, by, ref, id, q, choose)
		if !errors.Is(err, errMoved) {
			return out, err
		}
		s.cache.remove(l)
	}
	return wire.MergeResult{}, fault.New(fault.Busy, "the state %s is changed too quickly by others", ref.Name)
}

// chooser turns a Take into what mergeWrite asks.
func chooser(t *wire.Take) (take, error) {
	if t == nil {
		return nil, nil
	}
	bad := func(side string) error {
		return fault.New(fault.ParameterInvalid, "take %.40q is not known", side).WithNext(`give disjoint, mine, theirs, or {"ADDRESS": "mine"|"theirs", …}`)
	}
	sides := map[string]merge.Verdict{wire.TakeMine: merge.Ours, wire.TakeTheirs: merge.Theirs, wire.TakeDisjoint: merge.Theirs}
	if t.Address == nil {
		side, ok := sides[t.All]
		if !ok {
			return nil, bad(t.All)
		}
		return func(_ string, depends bool) (merge.Verdict, bool) {
			if depends && t.All == wire.TakeDisjoint {
				return merge.Ours, true // nobody else has changed it, and it exists
			}
			return side, true
		}, nil
	}
	for _, side := range t.Address {
		if side != wire.TakeMine && side != wire.TakeTheirs {
			return nil, bad(side)
		}
	}
	return func(address string, _ bool) (merge.Verdict, bool) {
		side, ok := t.Address[address]
		return sides[side], ok
	}, nil
}

func (s *Store) mergeRefusedOnce(ctx context.Context, l *live, by Actor, ref Ref, id string, q wire.MergeRequest, choose take) (wire.MergeResult, error) {
	none := wire.MergeResult{}
	rec, body, err := s.loadRefused(ctx, ref, id)
	if err != nil {
		return none, err
	}
	defer body.unref()
	r := &WriteRequest{Ref: ref, Actor: by, Body: body}
	b, err := s.loadBase(l, r)
	if err != nil {
		return none, err
	}
	var old []byte
	if b.body != nil {
		defer b.body.unref()
		old = b.body.Bytes()
	}
	p, err := s.plan(ctx, b.rec, b.head, old, body, true)
	if err != nil {
		return none, err
	}
	v, err := rec.view()
	if err != nil {
		return none, err
	}
	m := &merging{}
	var refusal *fault.Error
	if b.head != nil {
		if p.top.lineage != b.rec.Lineage {
			return none, fault.New(fault.LineageConflict, "the refused write %s has the lineage %s, the state %s has %s: they cannot be merged", id, p.top.lineage, ref.Name, b.rec.Lineage).
				WithNext("kl state allow %s --lineage; then kl state push", ref.Name)
		}
		if m, refusal, err = s.mergeWrite(ctx, ref, p, v, choose); err != nil {
			return none, err
		}
		if refusal != nil && (!q.DryRun || m == nil) {
			if m != nil {
				s.explainConflict(refusal, p, m)
			}
			return none, refusal.WithNext("look first: kl recover merge %s --state %s --dry-run; then choose with --take disjoint|mine|theirs", id, ref.Name)
		}
	}
	out, err := s.describeMerge(rec, p, m, choose)
	if err != nil {
		return none, err
	}
	out.DryRun = q.DryRun
	if q.DryRun && refusal != nil { // a conflict, which the answer tells of
		return out, nil
	}
	return s.commitRefused(ctx, l, r, b, p, m, rec, out)
}

// view is what the writer of a refused write saw.
func (r *refusedRec) view() (*view, error) {
	v := &view{version: r.SeenVersion, overlay: map[element][16]byte{}, unknown: r.SeenVersion == 0}
	if r.Overlay == nil {
		return v, nil
	}
	cs, err := decodeChanges(r.Overlay)
	for i := range cs {
		v.overlay[cs[i].element] = cs[i].new
	}
	return v, err
}

// loadRefused reads a refused write and its bytes. The caller unrefs the body.
func (s *Store) loadRefused(ctx context.Context, ref Ref, id string) (*refusedRec, *Body, error) {
	var rec *refusedRec
	err := s.view(func(tx *bbolt.Tx) (err error) {
		_, rec, err = getRefused(tx, ref, id)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if rec.Status != refusedOpen {
		return nil, nil, fault.New(fault.ParameterInvalid, "the refused write %s is %s already", id, rec.Status).WithNext("kl recover list --state %s", ref.Name)
	}
	snap, err := s.RefusedBody(ctx, ref, id)
	if err != nil {
		return nil, nil, err
	}
	buf := sliceWriter(make([]byte, 0, rec.Bytes))
	if _, err := snap.WriteTo(&buf); err != nil {
		return nil, nil, err
	}
	return rec, s.ownBody(buf), nil
}

type sliceWriter []byte

func (w *sliceWriter) Write(b []byte) (int, error) {
	*w = append(*w, b...)
	return len(b), nil
}

// describeMerge lists what a merge does.
func (s *Store) describeMerge(rec *refusedRec, p *plan, m *merging, choose take) (wire.MergeResult, error) {
	out := wire.MergeResult{
		ID: rec.ID, Status: rec.Status, Serial: p.rec.Serial, Added: []string{}, Changed: []string{}, Removed: []string{}, Overlapping: []wire.Overlap{}, Newer: []string{},
	}
	takes := m.takes
	if p.head == nil { // all of it is the state's first version
		if p.opaque {
			return out, nil
		}
		err := eachInstance(p.body.Bytes(), s.seed, func(address string, _ bool, _ func() [16]byte) { out.Added = append(out.Added, address) })
		return out, err
	}
	for i := range takes {
		c := &takes[i]
		if c.class != classInstance {
			continue
		}
		switch c.op {
		case opAdd:
			out.Added = append(out.Added, c.address)
		case opChange:
			out.Changed = append(out.Changed, c.address)
		case opRemove:
			out.Removed = append(out.Removed, c.address)
		}
	}
	overlapping, on := slices.Concat(m.conflicts, m.chosen), m.dependsOn()
	by, err := s.byVersion(p.head.sid, m.by, overlapping)
	if err != nil {
		return out, err
	}
	for _, a := range overlapping {
		o := wire.Overlap{Address: a, DependsOn: on[a]}
		if side, ok := choose.pick(a, on[a] != ""); ok {
			o.Side = map[merge.Verdict]string{merge.Ours: wire.TakeMine, merge.Theirs: wire.TakeTheirs}[side]
		}
		if who, ok := by[a].(changer); ok {
			o.Who, o.When, o.Version = who.Who, who.When, who.Version
		}
		out.Overlapping = append(out.Overlapping, o)
	}
	for i := range m.kept {
		if c := &m.kept[i]; c.class == classInstance && !slices.Contains(overlapping, c.address) {
			out.Newer = append(out.Newer, c.address)
		}
	}
	return out, nil
}

// commitRefused stores the merged document and settles the refused write. When
// the head has all of it already, it is only settled. A dry run tells what
// would refuse it.
func (s *Store) commitRefused(ctx context.Context, l *live, r *WriteRequest, b *base, p *plan, m *merging, rec *refusedRec, out wire.MergeResult) (wire.MergeResult, error) {
	var err error
	if m.body != nil {
		defer m.body.unref()
		p, err = s.plan(ctx, b.rec, b.head, p.oldBody, m.body, false)
	} else {
		err = s.complete(p)
	}
	if err != nil {
		return out, err
	}
	w := &writing{r: r, p: p, m: m, ours: p.top, planned: &b.rec, settled: []refusedRec{*rec}, settleAs: refusedMerged, source: sourceRecover}
	nothing := b.head != nil && len(m.takes) == 0
	if out.DryRun {
		err = s.view(func(tx *bbolt.Tx) error {
			err := cmp.Or(s.judgeState(tx, w), s.notHeld(tx, w))
			if err != nil || nothing {
				return err
			}
			_, err = s.judgeQuota(tx, w)
			return cmp.Or(s.judgeReserved(tx, w), err)
		})
		if f := fault.Of(err); f != nil {
			out.Refusal = f.Error()
			return out, nil
		}
		return out, err
	}
	err = s.commit.do(ctx, int(p.storedBytes), func(tx *bbolt.Tx) error {
		if err := s.judgeState(tx, w); err != nil {
			return err
		}
		if cur, ok, err := getRec[refusedRec](tx, bRefused, keyS(w.sid, rec.ID)); err != nil {
			return err
		} else if !ok || cur.Status != refusedOpen {
			return errMoved
		}
		if err := s.notHeld(tx, w); err != nil {
			return err
		}
		if nothing {
			w.out = Written{Version: w.cur.Head, Serial: w.cur.Serial}
			return broken(settle(tx, s, w.sid, &w.settled[0], refusedMerged, r.Actor, r.Ref))
		}
		return s.store(tx, w)
	})
	if err != nil {
		return out, err
	}
	out.Status, out.Serial = refusedMerged, w.out.Serial
	if !nothing {
		out.Version, out.QuotaWarnings = w.out.Version, w.out.Warnings
		s.remember(l, p, w.sid, w.meta)
	}
	return out, nil
}

// notHeld refuses to write beside a lock in exclusive mode.
func (s *Store) notHeld(tx *bbolt.Tx, w *writing) error {
	c, err := s.readContest(tx, w.r.Ref, s.now())
	if err != nil || c.mode == modeOptimistic || len(c.holders) == 0 {
		return err
	}
	h := c.holders[0]
	return fault.New(fault.LockRequired, "the state %s is locked by %s (%s)", w.r.Ref.Name, cmp.Or(h.Info.Who, h.Principal), h.Info.ID).
		With("holder", h.Info).WithNext("wait until it is free: kl lock show %s", w.r.Ref.Name)
}

// AddRefused keeps a document as if it had been refused, such as an
// errored.tfstate of which the server never heard, so that it can be merged.
// The same bytes again are the same refused write. Codes: body_invalid,
// lifecycle ones are not checked before it is merged.
func (s *Store) AddRefused(ctx context.Context, r WriteRequest) (wire.Refused, error) {
	var out wire.Refused
	known, err := s.RefusedList(ctx, r.Ref)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return out, err
	}
	sum := hexSHA(r.Body)
	for _, k := range known {
		if k.SHA256 == sum && k.Status == refusedOpen {
			return k, nil
		}
	}
	err = s.KeepRefused(ctx, r, fault.New(fault.SerialConflict, "brought in from a file to be merged"))
	f := fault.Of(err)
	if f == nil || f.Details["refused_write"] == nil {
		return out, err
	}
	id, _ := f.Details["refused_write"].(string)
	return s.Refused(ctx, r.Ref, id)
}

// PatchState changes settings of a state. Open sessions stay open: what they
// write is merged from then on, or goes on being. Codes: not_found,
// parameter_invalid.
func (s *Store) PatchState(ctx context.Context, by Actor, ref Ref, patch wire.StatePatch) (wire.State, error) {
	st, err := s.changeState(ctx, by, ref, func(_ *bbolt.Tx, _ uint64, r *stateRec) (wire.Event, error) {
		if m := patch.LockMode; m != nil {
			if *m != "" && !validMode(*m) {
				return wire.Event{}, fault.New(fault.ParameterInvalid, "lock_mode %.40q is not known; it can be exclusive or optimistic, or empty for the environment's", *m)
			}
			r.LockMode = *m
		}
		if patch.Quota != nil {
			own, err := ownLimits(r.Limits, *patch.Quota)
			if err != nil {
				return wire.Event{}, err
			}
			r.Limits = own
		}
		return wire.Event{Kind: "state_changed", Detail: map[string]any{"lock_mode": r.LockMode, "quota": r.Limits}}, nil
	})
	if err == nil {
		s.live(ref).changed()
	}
	return st, err
}
