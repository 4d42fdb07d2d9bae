package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/quota"
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
// lock_foreign; serial_conflict, lineage_conflict; state_quota,
// environment_quota, bytes_quota; workspace_suspended, state_archived,
// state_deleted; disk_full, busy.
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
	rec      stateRec // zero when there is no such state yet
	head     *head    // nil when there is no version yet
	body     *Body    // a reference to the head's bytes, nil when not in memory
	mode     string   // lock mode
	sess     *sessionRec
	run      *runRec      // that the write is one of; sess is its
	overlaid bool         // the session sees its base version differently in places
	open     []refusedRec // of the state, when the session is one of terraform state push
}

// push reports whether the session is one of terraform state push.
func (b *base) push() bool { return b.sess != nil && b.sess.Info.Operation == wire.OperationPush }

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
	merging := b.mayMerge()
	p, err := s.plan(ctx, b.rec, b.head, old, r.Body, merging)
	if err != nil {
		return Written{}, err
	}
	m, refusal, err := s.mergeSession(ctx, r, p, b)
	if err != nil {
		return Written{}, err
	}
	ours := p
	if m != nil && m.body != nil {
		defer m.body.unref()
		p, err = s.plan(ctx, b.rec, b.head, p.oldBody, m.body, false)
	} else if merging {
		err = s.complete(p)
	}
	if err != nil {
		return Written{}, err
	}
	run, err := s.prepareRun(r, ours, p == ours)
	if err != nil {
		return Written{}, err
	}
	settled := s.settledBy(b, r)
	w := &writing{run: run, r: r, p: p, m: m, ours: ours.top, refusal: refusal, planned: &b.rec, settled: settled}
	if p != ours {
		w.overlay = overlayOf(ours.changes, p.changes)
	}
	err = s.commit.do(ctx, int(p.storedBytes), func(tx *bbolt.Tx) error {
		w.out = Written{}
		if err := s.judge(tx, w); err != nil {
			return err
		}
		return s.store(tx, w)
	})
	switch {
	case errors.Is(err, errReplay):
		return w.out, nil
	case refusedClass(err):
		f := fault.Of(err)
		if m != nil && len(m.conflicts) > 0 && f == refusal {
			s.explainConflict(f, ours, m)
		} else {
			s.explain(r, ours, f)
		}
		return Written{}, s.keep(ctx, r, ours, b, f)
	case err != nil:
		return Written{}, err
	}
	s.remember(l, p, w.sid, w.meta)
	s.wrote(r.Ref, w)
	return w.out, nil
}

// writing is one write on its way through its transaction.
type writing struct {
	r        *WriteRequest
	p        *plan        // what is to be stored
	m        *merging     // nil when the ordinary rules decide
	ours     topState     // of the document as it was sent
	refusal  *fault.Error // of the merge; the transaction may find a better reason
	planned  *stateRec    // the state that p was made for
	overlay  []change     // what the session sees differently afterwards
	settled  []refusedRec // what an accepted write settles
	settleAs string       // and how: superseded when empty
	run      *runWrite    // nil when it is none of a run
	source   string       // of the version, when it is none of a client's write
	rollback *rolledBack  // nil when it is none

	sid      uint64
	cur      *stateRec
	sess     *sessionRec
	meta     *versionMeta // of the version that was put
	versions int64        // that the state has afterwards, and that its environment keeps
	keepLast int64
	out      Written
}

// loadBase reads what the write starts from.
func (s *Store) loadBase(l *live, r *WriteRequest) (*base, error) {
	b := &base{}
	err := s.view(func(tx *bbolt.Tx) error {
		sid, rec, err := s.find(tx, r.Ref)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		b.rec = *rec
		env, ok, err := s.envs.get(tx, bEnvironment, []byte(r.Ref.Environment))
		if err != nil || !ok {
			return err
		}
		b.mode = modeOf(env, rec)
		if r.Run != "" {
			if b.run, err = s.getRun(tx, sid, r.Run); err != nil {
				return err
			}
			if b.run.of(r.Actor.Principal) {
				b.sess, b.overlaid = &b.run.Session, has(tx, bOverlay, keyS(sid, r.Run))
			}
		} else if sess, ok, err := s.locks.get(tx, bSession, keyS(sid, r.LockID)); err != nil {
			return err
		} else if ok && sess.PrincipalID == r.Actor.ID {
			b.sess, b.overlaid = sess, has(tx, bOverlay, keyS(sid, r.LockID))
		}
		if b.push() {
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
	default:
		return false
	}
}

// judge decides on a write inside its transaction and changes nothing. It
// finds the state, new when there was none, and the session.
func (s *Store) judge(tx *bbolt.Tx, w *writing) error {
	if err := s.judgeState(tx, w); err != nil {
		return err
	}
	session := s.judgeSession
	if w.run != nil {
		session = s.judgeRun
	}
	if err := session(tx, w); err != nil {
		return err
	}
	switch {
	case w.m != nil && w.refusal != nil: // that it is reserved explains more than that others have changed it
		return cmp.Or(s.judgeReserved(tx, w), error(w.refusal))
	case w.refusal != nil:
		return w.refusal
	case w.m != nil:
		return nil
	}
	return judgeSerial(w.r, w.cur, w.p)
}

// judgeState finds the state and makes sure that it is the one that was
// planned for, and that it may be written.
func (s *Store) judgeState(tx *bbolt.Tx, w *writing) error {
	r := w.r
	if err := s.activeEnvironment(tx, r.Ref.Environment); err != nil {
		return err
	}
	var err error
	w.sid, w.cur, err = s.find(tx, r.Ref)
	if fault.Is(err, fault.NotFound) {
		w.sid, w.cur, err = 0, s.newState(r.Ref), nil
	}
	if err != nil {
		return err
	}
	if w.cur.Head != w.planned.Head || w.cur.NextChunk != w.planned.NextChunk || w.cur.Dict != w.planned.Dict {
		return errMoved
	}
	return activeState(r.Ref, w.cur)
}

// judgeSession decides by the lock that the write names, or that it names
// none.
func (s *Store) judgeSession(tx *bbolt.Tx, w *writing) error {
	r, sha := w.r, w.r.Body.SHA256()
	if r.LockID == "" {
		return s.judgeUnlocked(tx, w, sha[:])
	}
	sess, ok, err := s.locks.get(tx, bSession, keyS(w.sid, r.LockID))
	switch {
	case err != nil:
		return err
	case !ok:
		return fault.New(fault.LockNotHeld, "the lock %s does not hold the state %s: it was released, forced open or never taken", r.LockID, r.Ref.Name).
			WithNext("see what was sent with: kl recover list --state %s; see the lock with: kl lock show %s", r.Ref.Name, r.Ref.Name)
	case sess.PrincipalID != r.Actor.ID:
		return fault.New(fault.LockForeign, "the lock %s on the state %s was taken by %s, not by these credentials", r.LockID, r.Ref.Name, sess.Principal)
	case sess.LastVersion != 0 && sess.LastSerial == w.ours.serial && bytes.Equal(sess.LastSHA256, sha[:]):
		v, err := getVersion(tx, w.sid, sess.LastVersion)
		if err != nil {
			return err
		}
		w.out = Written{Version: v.Version, Serial: v.Serial, Merged: v.Source == sourceMerge, Replay: true}
		return errReplay
	case sess.plan():
		return fault.New(fault.LockNotHeld, "the lock %s on the state %s was taken for a plan, which others share, and does not allow writing", r.LockID, r.Ref.Name).
			WithNext("take a lock for another operation than %s", wire.OperationPlan)
	}
	w.sess = sess
	return nil
}

// judgeUnlocked decides on a write whose client holds no lock.
func (s *Store) judgeUnlocked(tx *bbolt.Tx, w *writing, sha []byte) error {
	r, cur := w.r, w.cur
	holder, err := s.holderNow(tx, w.sid, r.Ref.Environment)
	switch {
	case err != nil:
		return err
	case holder != nil:
		return fault.New(fault.LockRequired, "the state %s is locked by %s (%s), and this write holds no lock", r.Ref.Name, holder.Info.Who, holder.Info.ID).
			With("holder", holder.Info)
	case cur.Head != 0 && bytes.Equal(cur.SHA256, sha):
		w.out = Written{Version: cur.Head, Serial: cur.Serial, Replay: true}
		return errReplay
	case cur.Head != 0 && w.ours.lineage == cur.Lineage && w.ours.serial > cur.Serial+1 && !cur.AllowSerial:
		return serialFault(r, cur, w.p, "without a lock only serial %d may follow", cur.Serial+1)
	}
	return nil
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

func serialFault(r *WriteRequest, cur *stateRec, p *plan, why string, args ...any) *fault.Error {
	return fault.New(fault.SerialConflict, "serial %d does not follow in the state %s: %s", p.top.serial, r.Ref.Name, fmt.Sprintf(why, args...)).
		WithNext("plan and apply again; what was sent is kept: kl recover list --state %s; to go back on purpose: kl state allow %s --lower-serial", r.Ref.Name, r.Ref.Name).
		With("kind", "serial").With("latest_serial", cur.Serial).With("latest_version", cur.Head).With("base_serial", p.top.serial-1)
}

// store puts an accepted version, if reservations allow what it changes and the
// quota what it leaves behind: all that makes a version comes by here. It refuses before it writes anything; any
// other error breaks the transaction.
func (s *Store) store(tx *bbolt.Tx, w *writing) error {
	if err := s.judgeReserved(tx, w); err != nil {
		return err
	}
	uses, err := s.judgeQuota(tx, w)
	if err != nil {
		return err
	}
	return broken(s.put(tx, w, uses))
}

func (s *Store) put(tx *bbolt.Tx, w *writing, uses quota.Uses) error {
	r, p, cur := w.r, w.p, w.cur
	now := s.now()
	if w.sid == 0 {
		var err error
		if w.sid, err = s.createState(tx, r.Ref, r.Actor); err != nil {
			return err
		}
	}
	v := s.versionOf(w, now)
	if err := putVersion(tx, w.sid, v, p); err != nil {
		return err
	}
	n := *cur
	n.follow(v, p, now)
	env, _, err := s.envs.get(tx, bEnvironment, []byte(r.Ref.Environment))
	if err != nil {
		return err
	}
	w.versions, w.keepLast = n.Versions, env.KeepLast
	if err := errors.Join(s.heads.put(tx, bState, u64(w.sid), &n), s.addTotal(tx, r.Ref.Environment, n.counted()-cur.counted())); err != nil {
		return err
	}
	if w.run != nil {
		if err := w.noteRun(tx, s, v); err != nil {
			return err
		}
	} else if err := s.noteSession(tx, w, v, now); err != nil {
		return err
	}
	for i := range w.settled {
		if err := settle(tx, s, w.sid, &w.settled[i], cmp.Or(w.settleAs, refusedSuperseded), r.Actor, r.Ref); err != nil {
			return err
		}
	}
	meta := v.versionMeta // without the lists beside it
	w.meta = &meta
	w.out.Version, w.out.Serial, w.out.Merged = v.Version, v.Serial, v.Source == sourceMerge
	if err := s.noteQuota(tx, w, uses); err != nil {
		return err
	}
	detail := map[string]any{"source": v.Source, "lock_id": v.LockID, "added": v.Added, "changed": v.Changed, "removed": v.Removed}
	if v.Forced {
		detail["forced"] = true
	}
	if v.RunID != "" {
		detail["run_id"] = v.RunID
	}
	if w.rollback != nil {
		detail["to"], detail["address"] = w.rollback.to, w.rollback.address
	}
	if w.m != nil && len(w.m.overrides) > 0 {
		detail["overrides"] = w.m.overrides[:min(len(w.m.overrides), maxListed)]
	}
	return s.event(tx, wire.Event{
		Kind: "version_written", Principal: r.Actor.Display(), Environment: r.Ref.Environment, State: r.Ref.Name,
		Version: v.Version, Serial: v.Serial, RequestID: r.Actor.RequestID, Detail: detail,
	})
}

// follow makes the record of a state that of its new version.
func (r *stateRec) follow(v *versionRec, p *plan, now time.Time) {
	r.UpdatedAt, r.Head, r.NextChunk, r.Serial, r.Lineage = now, v.Version, p.rec.NextChunk, v.Serial, v.Lineage
	r.Instances, r.Managed, r.Resources, r.Outputs = v.Instances, v.Managed, v.Resources, v.Outputs
	r.Bytes, r.SHA256, r.Opaque = v.Bytes, v.SHA256, v.Opaque
	r.StoredBytes += v.StoredBytes
	r.Versions++
	r.Target, r.Dict, r.DictBytes, r.SnapshotDebt = p.rec.Target, p.rec.Dict, p.rec.DictBytes, p.rec.SnapshotDebt
	if r.Oldest == 0 {
		r.Oldest = v.Version
	}
	if v.Forced {
		r.AllowLineage, r.AllowSerial = false, false
	}
}

// noteSession notes in the session what its client has sent and now sees.
func (s *Store) noteSession(tx *bbolt.Tx, w *writing, v *versionRec, now time.Time) error {
	if w.sess == nil {
		return nil
	}
	sha := w.r.Body.SHA256()
	w.sess.LastActivity, w.sess.LastCheckpoint = now, now
	w.sess.Checkpoints++
	w.sess.BaseVersion, w.sess.LastVersion, w.sess.LastSerial, w.sess.LastSHA256 = v.Version, v.Version, w.ours.serial, sha[:]
	if err := s.locks.put(tx, bSession, keyS(w.sid, w.sess.Info.ID), w.sess); err != nil {
		return err
	}
	return putOverlay(tx, w.sid, w.sess.Info.ID, w.overlay)
}

// versionOf makes the record of the version.
func (s *Store) versionOf(w *writing, now time.Time) *versionRec {
	r, p, cur := w.r, w.p, w.cur
	sha := p.body.SHA256()
	v := &versionRec{splices: p.splices, deaths: p.deaths, changes: p.changes, whole: p.whole != nil}
	v.versionMeta = versionMeta{
		Version: cur.Head + 1, Previous: cur.Head, Serial: p.top.serial, Lineage: p.top.lineage, TerraformVersion: p.top.terraformVersion,
		CreatedAt: now, PrincipalID: r.Actor.ID, Principal: r.Actor.Display(), LockID: r.LockID, RunID: r.Run, Source: sourceWrite, RequestID: r.Actor.RequestID,
		Instances: p.counts.instances, Managed: p.counts.managed, Resources: p.counts.resources, Outputs: p.counts.outputs,
		Bytes: int64(p.body.Len()), StoredBytes: p.storedBytes, SHA256: sha[:], NextChunk: p.rec.NextChunk, Opaque: p.opaque,
		Forced:   cur.Head != 0 && (p.top.lineage != cur.Lineage || p.top.serial <= cur.Serial),
		Unlisted: p.unlisted, Apart: p.list != nil,
	}
	if w.run != nil {
		v.Who = w.run.rec.Actor
	}
	if w.sess != nil {
		v.Who, v.SessionSince = w.sess.Info.Who, w.sess.Since
		if w.sess.Info.Operation == wire.OperationPush {
			v.Source = sourcePush
		}
	}
	if w.m != nil && w.m.body != nil {
		v.Source = sourceMerge
	}
	v.Source = cmp.Or(w.source, v.Source)
	if w.rollback != nil {
		v.RollbackTo, v.RollbackAddress = w.rollback.to, w.rollback.address
	}
	v.countChanges(cur.Head == 0)
	return v
}

// countChanges counts the instances in the change list.
func (v *versionRec) countChanges(first bool) {
	switch {
	case v.Unlisted && first:
		v.Added = v.Instances
	case v.Unlisted:
		v.Added, v.Changed, v.Removed = -1, -1, -1
	}
	for i := range v.changes {
		if v.changes[i].class != classInstance {
			continue
		}
		switch v.changes[i].op {
		case opAdd:
			v.Added++
		case opChange:
			v.Changed++
		case opRemove:
			v.Removed++
		}
	}
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
func (s *Store) remember(l *live, p *plan, sid uint64, v *versionMeta) {
	h := &head{sid: sid, version: v.Version, meta: v, entries: p.entries, lastTop: p.top, ids: p.identities()}
	if p.body.ref() {
		h.body, h.bodyBytes = p.body, int64(p.body.Len())
	}
	if p.dict != nil {
		s.codecs.add(codecKey{sid, p.rec.Dict}, p.codec)
	}
	s.cache.put(l, h)
	if v.Previous == 0 || p.rec.Opaque != v.Opaque {
		l.changed() // from now on the state may be one that sessions share
	}
}
