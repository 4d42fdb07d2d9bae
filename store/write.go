package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/wire"
)

// errMoved says that the head is not the one that a plan was made for.
var errMoved = errors.New("the head has moved")

// maxAttempts bounds how often a write is planned again. Writers of one state
// queue, so a head moves under a plan only by what does not queue, such as a
// purge.
const maxAttempts = 10

// Write stores a POST as the next version, or refuses it. What is refused with
// a class other than invalid is kept as a refused write, and the fault names
// it. Codes: body_invalid; locked classes lock_not_held, lock_required,
// lock_foreign; serial_conflict, lineage_conflict; workspace_suspended,
// state_archived, state_deleted; disk_full, busy.
func (s *Store) Write(ctx context.Context, r WriteRequest) (Written, error) {
	if err := checkName(r.Ref.Name); err != nil {
		return Written{}, err
	}
	l := s.live(r.Ref)
	if err := l.lockWrite(ctx); err != nil {
		return Written{}, err
	}
	defer l.unlockWrite()
	for range maxAttempts {
		w, err := s.writeOnce(ctx, l, &r)
		if !errors.Is(err, errMoved) {
			return w, err
		}
		s.cache.remove(l)
	}
	return Written{}, fault.New(fault.Busy, "the state %s is changed too quickly by others", r.Ref.Name)
}

// base is what a write starts from.
type base struct {
	rec  stateRec // zero when there is no such state yet
	head *head    // nil when there is no version yet
	body *Body    // a reference to the head's bytes, nil when not in memory
	push bool     // the session is one of terraform state push
	open []refusedRec
}

func (s *Store) writeOnce(ctx context.Context, l *live, r *WriteRequest) (Written, error) {
	b, err := s.loadBase(l, r)
	if err != nil {
		return Written{}, err
	}
	var old []byte
	if b.body != nil {
		defer b.body.unref()
		old = b.body.Bytes()
	}
	p, err := s.plan(ctx, b.rec, b.head, old, r.Body)
	if err != nil {
		return Written{}, err
	}
	settled, err := s.settledBy(b, r)
	if err != nil {
		return Written{}, err
	}
	var out Written
	var sid uint64
	err = s.commit.do(ctx, int(p.storedBytes), func(tx *bbolt.Tx) error {
		var sess *sessionRec
		var cur *stateRec
		var err error
		if sid, cur, sess, out, err = s.judge(tx, r, p, b.rec); err != nil {
			return err
		}
		return broken(s.store(tx, r, p, sid, cur, sess, &out, settled))
	})
	switch {
	case errors.Is(err, errReplay):
		return out, nil
	case refusedClass(err):
		return Written{}, s.keep(ctx, r, p, b, fault.Of(err))
	case err != nil:
		return Written{}, err
	}
	s.remember(l, r, p, sid, out.Version)
	return out, nil
}

// loadBase reads what the write starts from.
func (s *Store) loadBase(l *live, r *WriteRequest) (*base, error) {
	b := &base{}
	err := s.view(func(tx *bbolt.Tx) error {
		sid, rec, err := find(tx, r.Ref)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		b.rec = *rec
		if sess, ok, err := getRec[sessionRec](tx, bSession, keyS(sid, r.LockID)); err != nil {
			return err
		} else if ok && sess.Info.Operation == wire.OperationPush {
			b.push = true
			if b.open, err = openRefused(tx, sid); err != nil {
				return err
			}
		}
		if rec.Head == 0 {
			return nil
		}
		if b.head, b.body = s.cache.find(l, sid, rec.Head); b.head != nil {
			return nil
		}
		v, err := getVersion(tx, sid, rec.Head)
		if err != nil {
			return err
		}
		b.head = &head{sid: sid, version: rec.Head, lastTop: v.top()}
		copy(b.head.sha[:], v.SHA256)
		b.head.entries, err = manifestOf(tx, sid, rec.Head)
		return err
	})
	return b, err
}

// errReplay says that the same write was accepted before.
var errReplay = errors.New("the write was accepted before")

// refusedClass reports whether a failure is a refusal whose body is kept.
func refusedClass(err error) bool {
	switch fault.ClassOf(err) {
	case fault.Lock, fault.Conflict, fault.Quota, fault.Lifecycle:
		return true
	}
	return false
}

// judge decides on a write inside its transaction and changes nothing. It
// returns the state, new when there was none, and the session.
func (s *Store) judge(tx *bbolt.Tx, r *WriteRequest, p *plan, planned stateRec) (sid uint64, cur *stateRec, sess *sessionRec, out Written, err error) {
	fail := func(err error) (uint64, *stateRec, *sessionRec, Written, error) { return 0, nil, nil, Written{}, err }
	if _, err := s.activeEnvironment(tx, r.Ref.Environment); err != nil {
		return fail(err)
	}
	sid, cur, err = find(tx, r.Ref)
	if fault.Is(err, fault.NotFound) {
		sid, cur, err = 0, s.newState(r.Ref), nil
	}
	if err != nil {
		return fail(err)
	}
	if cur.Head != planned.Head || cur.NextChunk != planned.NextChunk || cur.Dict != planned.Dict {
		return fail(errMoved)
	}
	if err := activeState(r.Ref, cur); err != nil {
		return fail(err)
	}
	sha := r.Body.SHA256()
	if r.LockID == "" {
		if out, err = judgeUnlocked(tx, sid, r, cur, p, sha[:]); err != nil {
			return sid, cur, nil, out, err
		}
		return sid, cur, nil, out, judgeSerial(r, cur, p)
	}
	sess, ok, err := getRec[sessionRec](tx, bSession, keyS(sid, r.LockID))
	switch {
	case err != nil:
		return fail(err)
	case !ok:
		return fail(fault.New(fault.LockNotHeld, "the lock %s does not hold the state %s; nothing was stored", r.LockID, r.Ref.Name).
			WithNext("see what was sent with: kl recover list --state %s; see the lock with: kl lock show %s", r.Ref.Name, r.Ref.Name))
	case sess.PrincipalID != r.Actor.ID:
		return fail(fault.New(fault.LockForeign, "the lock %s on the state %s was taken by %s, not by these credentials", r.LockID, r.Ref.Name, sess.Principal))
	case sess.LastVersion != 0 && sess.LastSerial == p.top.serial && bytes.Equal(sess.LastSHA256, sha[:]):
		return sid, cur, sess, Written{Version: sess.LastVersion, Serial: p.top.serial, Replay: true}, errReplay
	case sess.plan():
		return fail(fault.New(fault.LockNotHeld, "the lock %s on the state %s was taken for a plan, which others share, and does not allow writing", r.LockID, r.Ref.Name).
			WithNext("take a lock for another operation than %s", wire.OperationPlan))
	}
	return sid, cur, sess, Written{}, judgeSerial(r, cur, p)
}

// judgeUnlocked decides on a write whose client holds no lock.
func judgeUnlocked(tx *bbolt.Tx, sid uint64, r *WriteRequest, cur *stateRec, p *plan, sha []byte) (Written, error) {
	var holder *sessionRec
	err := eachRec(tx, bSession, u64(sid), func(_ []byte, h *sessionRec) (bool, error) {
		holder = h
		return false, nil
	})
	if err != nil {
		return Written{}, err
	}
	if holder != nil && sid != 0 {
		return Written{}, fault.New(fault.LockRequired, "the state %s is locked by %s (%s), and this write holds no lock", r.Ref.Name, holder.Info.Who, holder.Info.ID).
			With("holder", holder.Info)
	}
	if cur.Head != 0 && bytes.Equal(cur.SHA256, sha) {
		return Written{Version: cur.Head, Serial: cur.Serial, Replay: true}, errReplay
	}
	if cur.Head != 0 && p.top.lineage == cur.Lineage && p.top.serial > cur.Serial+1 && !cur.AllowSerial {
		return Written{}, serialFault(r, cur, p, "without a lock only serial %d may follow", cur.Serial+1)
	}
	return Written{}, nil
}

// judgeSerial decides whether the document may follow the head.
func judgeSerial(r *WriteRequest, cur *stateRec, p *plan) error {
	if cur.Head == 0 {
		return nil
	}
	if p.top.lineage != cur.Lineage {
		if cur.empty() || cur.AllowLineage {
			return nil
		}
		return fault.New(fault.LineageConflict, "the state %s has the lineage %s, what was sent has %s", r.Ref.Name, cur.Lineage, p.top.lineage).
			WithNext("check the address in the backend block; to replace the state on purpose: kl state allow %s --lineage", r.Ref.Name).
			With("kind", "lineage").With("latest_serial", cur.Serial).With("latest_version", cur.Head)
	}
	if p.top.serial > cur.Serial || cur.AllowSerial {
		return nil
	}
	if p.top.serial == cur.Serial {
		return serialFault(r, cur, p, "another document with serial %d is stored already", cur.Serial)
	}
	return serialFault(r, cur, p, "serial %d is stored already", cur.Serial)
}

func serialFault(r *WriteRequest, cur *stateRec, p *plan, why string, args ...any) error {
	return fault.New(fault.SerialConflict, "serial %d does not follow in the state %s: %s", p.top.serial, r.Ref.Name, fmt.Sprintf(why, args...)).
		WithNext("plan and apply again; what was sent is kept: kl recover list --state %s; to go back on purpose: kl state allow %s --lower-serial", r.Ref.Name, r.Ref.Name).
		With("kind", "serial").With("latest_serial", cur.Serial).With("latest_version", cur.Head).With("base_serial", p.top.serial-1)
}

// store puts an accepted version. Any error breaks the transaction.
func (s *Store) store(tx *bbolt.Tx, r *WriteRequest, p *plan, sid uint64, cur *stateRec, sess *sessionRec, out *Written, settled []refusedRec) error {
	now := s.now()
	if sid == 0 {
		var err error
		if sid, err = s.createState(tx, r.Ref, r.Actor); err != nil {
			return err
		}
	}
	v := s.versionOf(r, p, cur, sess, now)
	if err := putVersion(tx, sid, v, p); err != nil {
		return err
	}
	forced := cur.Head != 0 && (p.top.lineage != cur.Lineage || p.top.serial <= cur.Serial)
	n := *cur
	n.UpdatedAt, n.Head, n.NextChunk, n.Serial, n.Lineage = now, v.Version, p.rec.NextChunk, v.Serial, v.Lineage
	n.Instances, n.Managed, n.Resources, n.Outputs = v.Instances, v.Managed, v.Resources, v.Outputs
	n.Bytes, n.SHA256, n.Opaque = v.Bytes, v.SHA256, v.Opaque
	n.StoredBytes += v.StoredBytes
	n.Versions++
	n.Target, n.Dict, n.DictBytes, n.SnapshotDebt = p.rec.Target, p.rec.Dict, p.rec.DictBytes, p.rec.SnapshotDebt
	if n.Oldest == 0 {
		n.Oldest = v.Version
	}
	if forced {
		n.AllowLineage, n.AllowSerial = false, false
	}
	if err := putRec(tx, bState, u64(sid), &n); err != nil {
		return err
	}
	if sess != nil {
		sess.LastActivity, sess.LastCheckpoint = now, now
		sess.Checkpoints++
		sess.BaseVersion, sess.LastVersion, sess.LastSerial, sess.LastSHA256 = v.Version, v.Version, v.Serial, v.SHA256
		if err := putRec(tx, bSession, keyS(sid, sess.Info.ID), sess); err != nil {
			return err
		}
	}
	for i := range settled {
		if err := settle(tx, s, sid, &settled[i], "superseded", r.Actor, r.Ref); err != nil {
			return err
		}
	}
	out.Version, out.Serial = v.Version, v.Serial
	return s.event(tx, wire.Event{
		Kind: "version_written", Principal: r.Actor.Display(), Environment: r.Ref.Environment, State: r.Ref.Name,
		Version: v.Version, Serial: v.Serial, RequestID: r.Actor.RequestID,
		Detail: map[string]any{"source": v.Source, "lock_id": v.LockID, "added": v.Added, "changed": v.Changed, "removed": v.Removed, "forced": forced},
	})
}

// versionOf makes the record of the version.
func (s *Store) versionOf(r *WriteRequest, p *plan, cur *stateRec, sess *sessionRec, now time.Time) *versionRec {
	sha := r.Body.SHA256()
	v := &versionRec{splices: p.splices, deaths: p.deaths, changes: p.changes, whole: p.whole != nil}
	v.versionMeta = versionMeta{
		Version: cur.Head + 1, Previous: cur.Head, Serial: p.top.serial, Lineage: p.top.lineage, TerraformVersion: p.top.terraformVersion,
		CreatedAt: now, PrincipalID: r.Actor.ID, Principal: r.Actor.Display(), LockID: r.LockID, Source: sourceWrite, RequestID: r.Actor.RequestID,
		Instances: p.counts.instances, Managed: p.counts.managed, Resources: p.counts.resources, Outputs: p.counts.outputs,
		Bytes: int64(r.Body.Len()), StoredBytes: p.storedBytes, SHA256: sha[:], NextChunk: p.rec.NextChunk, Opaque: p.opaque,
		Forced:   cur.Head != 0 && (p.top.lineage != cur.Lineage || p.top.serial <= cur.Serial),
		Unlisted: p.unlisted, Apart: p.list != nil,
	}
	if sess != nil {
		v.Who = sess.Info.Who
		if sess.Info.Operation == wire.OperationPush {
			v.Source = sourcePush
		}
	}
	switch {
	case p.unlisted && cur.Head == 0:
		v.Added = p.counts.instances
	case p.unlisted:
		v.Added, v.Changed, v.Removed = -1, -1, -1
	}
	for i := range p.changes {
		if p.changes[i].class != classInstance {
			continue
		}
		switch p.changes[i].op {
		case opAdd:
			v.Added++
		case opChange:
			v.Changed++
		case opRemove:
			v.Removed++
		}
	}
	return v
}

// putVersion puts the rows of a version: chunks, dictionary, record and what
// is too long for it.
func putVersion(tx *bbolt.Tx, sid uint64, v *versionRec, p *plan) error {
	chunks := tx.Bucket(bChunk)
	chunks.FillPercent = 0.95 // ids of a state only rise
	for i := range p.chunks {
		if err := chunks.Put(key(sid, p.chunks[i].id), p.chunks[i].bytes); err != nil {
			return fmt.Errorf("put a chunk: %w", err)
		}
	}
	if p.dict != nil {
		if err := put(tx, bDict, key(sid, uint64(p.rec.Dict)), p.dict); err != nil {
			return err
		}
	}
	if err := putManifest(tx, bManifest, sid, v.Version, p.whole); err != nil {
		return err
	}
	if err := putManifest(tx, bChange, sid, v.Version, p.list); err != nil {
		return err
	}
	b, err := v.encode()
	if err != nil {
		return err
	}
	tx.Bucket(bVersion).FillPercent = 0.95
	return put(tx, bVersion, key(sid, v.Version), b)
}

// remember makes the accepted version the head in memory.
func (s *Store) remember(l *live, r *WriteRequest, p *plan, sid, version uint64) {
	h := &head{sid: sid, version: version, entries: p.entries, lastTop: p.top, ids: p.identities(), sha: r.Body.SHA256()}
	if r.Body.ref() {
		h.body, h.bodyBytes = r.Body, int64(r.Body.Len())
	}
	if p.dict != nil {
		s.codecs.add(codecKey{sid, p.rec.Dict}, p.codec)
	}
	s.cache.put(l, h)
}
