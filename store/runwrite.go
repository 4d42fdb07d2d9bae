package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/tfstate"
	"kl/wire"
)

// RunState opens what a run sees: its base, or its own last write. It renews
// the lease without waiting for the disk. Codes: not_found when there is no
// version yet, unknown_run, lock_foreign, reservation_conflict when the run has
// ended, state_deleted.
func (s *Store) RunState(ctx context.Context, by Actor, ref Ref, id string) (*Snapshot, error) {
	for range maxAttempts {
		snap, again, err := s.runState(ctx, by, ref, id)
		if !again {
			return snap, err
		}
	}
	return nil, fault.New(fault.Busy, "the run %s writes too quickly to be read", id)
}

// runState is one attempt at RunState; again says that the run has gone on from
// the version that it was to be read from, which may be pruned since.
func (s *Store) runState(ctx context.Context, by Actor, ref Ref, id string) (_ *Snapshot, again bool, err error) {
	var r *runRec
	var lineage string
	var diff []byte
	err = s.view(func(tx *bbolt.Tx) error {
		sid, st, err := find(tx, ref)
		if err != nil {
			return err
		}
		if st.Lifecycle == lifecycleDeleted {
			return deleted(ref, st)
		}
		lineage = st.Lineage
		if r, err = s.getRun(tx, sid, id); err != nil {
			return err
		}
		if err := cmp.Or(r.mine(by.Principal), r.going(ref)); err != nil {
			return err
		}
		diff, err = readView(tx, sid, r)
		return err
	})
	if fault.Is(err, fault.NotFound) {
		err = unknownRun(id)
	}
	if err != nil {
		return nil, false, err
	}
	s.heard(ref, id)
	if r.View.Version == 0 {
		return nil, false, noState(ref)
	}
	base, err := s.open(ctx, ref, strconv.FormatUint(r.View.Version, 10), true)
	if fault.Is(err, fault.NotFound) {
		return nil, true, nil
	}
	if err != nil || diff == nil {
		return base, false, err
	}
	defer base.Close()
	snap, err := s.patched(ctx, base, diff, r)
	if err == nil {
		snap.Lineage = lineage
	}
	return snap, false, err
}

// patched is what a run sees where that differs from its version.
func (s *Store) patched(ctx context.Context, base *Snapshot, diff []byte, r *runRec) (*Snapshot, error) {
	room := base.Bytes + r.View.Bytes
	if err := s.flight.Acquire(ctx, room); err != nil {
		return nil, err
	}
	old := sliceWriter(make([]byte, 0, base.Bytes))
	_, err := base.WriteTo(&old)
	var own []byte
	if err == nil {
		own, err = applyDiff(old, diff, r.View.Bytes)
	}
	if sum := sha256.Sum256(own); err == nil && !bytes.Equal(sum[:], r.View.SHA256) {
		err = fmt.Errorf("%w: the view of the run %s has other bytes than were sent", errDamaged, r.ID)
	}
	if err != nil {
		s.flight.Release(room)
		return nil, err
	}
	return &Snapshot{
		Version: wire.Version{Version: r.Session.LastVersion, Serial: r.Serial, Bytes: r.View.Bytes, SHA256: hex.EncodeToString(r.View.SHA256)},
		write:   func(w io.Writer) error { _, err := w.Write(own); return err },
		close:   func() { s.flight.Release(room) },
	}, nil
}

// heard renews a run's lease, if there is room for that.
func (s *Store) heard(ref Ref, id string) {
	if s.commit == nil {
		return
	}
	s.commit.try(func(tx *bbolt.Tx) error {
		sid, _, err := find(tx, ref)
		if err != nil {
			return err
		}
		r, err := s.getRun(tx, sid, id)
		if err != nil || !r.live() {
			return cmp.Or(err, errSame)
		}
		s.renew(r, s.now())
		return broken(putRec(tx, bRun, runKey(sid, id), r))
	})
}

// diffOf is what a document differs in from the head that it was planned
// against: for each stretch where it began in the head's bytes, how long it was
// there, and what stands in its place.
func diffOf(p *plan) []byte {
	body := p.body.Bytes()
	var b []byte
	for i := range p.regions {
		r := &p.regions[i]
		was := 0
		for _, e := range p.head.entries[r.from:r.to] {
			was += int(e.size)
		}
		b = binary.AppendUvarint(b, uint64(r.pos))
		b = binary.AppendUvarint(b, uint64(was))
		b = binary.AppendUvarint(b, uint64(r.end-r.start))
		b = append(b, body[r.start:r.end]...)
	}
	return b
}

// applyDiff makes the document of size bytes out of the head's.
func applyDiff(old, diff []byte, size int64) ([]byte, error) {
	out := make([]byte, 0, size)
	r := &reader{b: diff}
	at := 0
	for len(r.b) > 0 && r.err == nil {
		pos, was := r.count(), r.count()
		now := r.take(r.count())
		if r.err != nil || pos < at || pos+was > len(old) || int64(len(out)+pos-at+len(now)) > size {
			return nil, fmt.Errorf("%w: the view of a run does not fit its version", errDamaged)
		}
		out = append(append(out, old[at:pos]...), now...)
		at = pos + was
	}
	if out = append(out, old[at:]...); r.err != nil || int64(len(out)) != size {
		return nil, fmt.Errorf("%w: the view of a run has %d bytes, not %d", errDamaged, len(out), size)
	}
	return out, nil
}

// readView reads what a run sees beside its version; nil when it is that.
func readView(tx *bbolt.Tx, sid uint64, r *runRec) ([]byte, error) {
	if r.View.Pieces == 0 {
		return nil, nil
	}
	diff := []byte{}
	for i := range r.View.Pieces {
		v := peek(tx, bRun, runPieceKey(sid, r.ID, i))
		if v == nil {
			return nil, fmt.Errorf("%w: piece %d of the view of the run %s is missing", errDamaged, i, r.ID)
		}
		b, err := unpack(v)
		if err != nil {
			return nil, err
		}
		diff = append(diff, b...)
	}
	return diff, nil
}

// runWrite is what a write of a run needs besides that of a session.
type runWrite struct {
	rec    *runRec
	all    []string // addresses of its instances, when there is no head to compare with
	pieces [][]byte // of its view, when that will not be the version itself
}

// prepareRun does what is slow about a write of a run. stored says that the
// document is stored as it was sent.
func (s *Store) prepareRun(r *WriteRequest, ours *plan, stored bool) (*runWrite, error) {
	if r.Run == "" {
		return nil, nil
	}
	rw := &runWrite{}
	if ours.unlisted && !ours.opaque {
		err := eachInstance(r.Body.Bytes(), s.seed, func(address string, managed bool, _ func() [16]byte) {
			if managed {
				rw.all = append(rw.all, address)
			}
		})
		return rw, err
	}
	if !stored {
		rw.pieces, _ = packBody(diffOf(ours))
		if rw.pieces == nil { // equal to the version before, which is not the one it is merged into
			rw.pieces = [][]byte{pack(nil)}
		}
	}
	return rw, nil
}

// judgeRun decides by the run that the write is one of.
func (s *Store) judgeRun(tx *bbolt.Tx, w *writing) error {
	r, sha := w.r, w.r.Body.SHA256()
	run, err := s.getRun(tx, w.sid, r.Run)
	if err != nil {
		return err
	}
	if err := run.mine(r.Actor.Principal); err != nil {
		return err
	}
	sess := &run.Session
	if sess.LastVersion != 0 && sess.LastSerial == w.ours.serial && bytes.Equal(sess.LastSHA256, sha[:]) && has(tx, bVersion, key(w.sid, sess.LastVersion)) {
		v, err := getVersion(tx, w.sid, sess.LastVersion)
		if err != nil {
			return err
		}
		w.out = Written{Version: v.Version, Serial: v.Serial, Merged: v.Source == sourceMerge, Replay: true}
		return errReplay
	}
	if err := run.going(r.Ref); err != nil {
		return err
	}
	switch {
	case run.Lock.ID != "" && r.LockID == "":
		return fault.New(fault.LockRequired, "within the run %s, %s holds the lock %s, and this write holds none", run.ID, cmp.Or(run.Lock.Who, run.Actor), run.Lock.ID).With("holder", run.Lock)
	case run.Lock.ID != r.LockID:
		return fault.New(fault.LockNotHeld, "the lock %s is not held within the run %s", r.LockID, run.ID).
			WithNext("see what was sent with: kl recover list --state %s", r.Ref.Name)
	case w.cur.Head != 0 && w.ours.lineage != w.cur.Lineage:
		return fault.New(fault.LineageConflict, "the state %s has the lineage %s, what the run %s sent has %s", r.Ref.Name, w.cur.Lineage, run.ID, w.ours.lineage).
			With("kind", "lineage").With("latest_serial", w.cur.Serial).With("latest_version", w.cur.Head)
	case w.ours.serial <= run.Serial:
		return fault.New(fault.SerialConflict, "serial %d does not follow: what the run %s sees of the state %s has serial %d", w.ours.serial, run.ID, r.Ref.Name, run.Serial).
			WithNext("plan and apply again within the run; what was sent is kept: kl recover list --state %s", r.Ref.Name).
			With("kind", "serial").With("latest_serial", w.cur.Serial).With("latest_version", w.cur.Head).With("base_serial", run.Serial)
	}
	w.run.rec = run
	return nil
}

// judgeReserved refuses what changes managed objects that are reserved by
// runs, or what a run writes outside of its own write set. What others have
// changed meanwhile does not count, and neither do data sources, outputs and
// check results. Code: reservation_conflict.
func (s *Store) judgeReserved(tx *bbolt.Tx, w *writing) error {
	if w.run != nil {
		return s.judgeWriteSet(tx, w)
	}
	if w.sid == 0 {
		return nil
	}
	held, err := s.holders(tx, w.sid)
	if err != nil || len(held) == 0 {
		return err
	}
	addresses, everything := w.touched()
	var blocks []wire.RunBlock
	var all []string
	for _, h := range held {
		if everything {
			all = append(all, h.write.Addresses()...)
			blocks = append(blocks, s.block(h.run, h.since, h.write.Addresses()))
			continue
		}
		var meets []string
		for _, a := range addresses {
			if sc, err := tfstate.ParseScope(a); err == nil && (h.write.Overlap(sc) || h.read.Overlap(sc)) {
				meets = append(meets, a)
			}
		}
		if len(meets) > 0 {
			blocks = append(blocks, s.block(h.run, h.since, meets))
			all = append(all, meets...)
		}
	}
	if len(blocks) == 0 {
		return nil
	}
	all = slices.Compact(sorted(all))
	b := blocks[0]
	what := "the whole state"
	if len(b.Addresses) > 0 {
		what = b.Addresses[0]
	}
	return fault.New(fault.ReservedConflict, "%s in the state %s is reserved by the run %s of %s until it ends or its lease does at %s%s",
		what, w.r.Ref.Name, b.RunID, b.Actor, b.LeaseExpiresAt.Format("15:04:05Z"), andMore(len(all)-1)).
		WithNext("wait for the run: kl runs show %s --state %s; if its owner is gone: kl apply abort --apply-id %s; what was sent is kept: kl recover list --state %s", b.RunID, w.r.Ref.Name, b.RunID, w.r.Ref.Name).
		With("kind", "reservation").With("run_id", b.RunID).With("blocking_runs", blocks[:min(len(blocks), maxListed)]).
		With("conflicting_addresses", all[:min(len(all), maxListed)]).With("conflicting_count", len(all))
}

// touched are the managed instances that the write changes in the head;
// everything, when that cannot be told.
func (w *writing) touched() (addresses []string, everything bool) {
	changes := w.p.changes
	if w.m != nil {
		changes, addresses = w.m.takes, slices.Clone(w.m.conflicts)
	} else if w.p.unlisted {
		if w.run != nil {
			return w.run.all, w.p.opaque
		}
		return nil, true
	}
	for i := range changes {
		if c := &changes[i]; c.class == classInstance && !isData(c.address) {
			addresses = append(addresses, c.address)
		}
	}
	return addresses, false
}

// judgeWriteSet holds a run to what it has reserved.
func (s *Store) judgeWriteSet(tx *bbolt.Tx, w *writing) error {
	run := w.run.rec
	refuse := func(f *fault.Error, outside []string) error {
		return f.With("kind", "reservation").With("run_id", run.ID).
			With("conflicting_addresses", append([]string{}, outside[:min(len(outside), maxListed)]...)).With("conflicting_count", len(outside))
	}
	addresses, everything := w.touched()
	if everything {
		return refuse(fault.New(fault.ReservedConflict, "what the run %s sent to the state %s cannot be looked into, so that nobody can tell what it changes", run.ID, w.r.Ref.Name).
			WithNext("abort the run (kl apply abort --apply-id %s) and apply without --orchestrated", run.ID), nil)
	}
	res, ok, err := s.reservationOf(tx, runKey(w.sid, run.ID))
	if err != nil || !ok {
		return cmp.Or(err, fmt.Errorf("%w: the run %s is live and has no reservation record", errRecord, run.ID))
	}
	set, _, err := res.scopes()
	if err != nil {
		return err
	}
	var outside []string
	for _, a := range addresses {
		if sc, err := tfstate.ParseScope(a); err != nil || !set.Cover(sc) {
			outside = append(outside, a)
		}
	}
	if len(outside) == 0 {
		return nil
	}
	outside = slices.Compact(sorted(outside))
	f := fault.New(fault.ReservedConflict, "the run %s changes %s in the state %s, which is not in its write set%s", run.ID, outside[0], w.r.Ref.Name, andMore(len(outside)-1)).
		WithNext("reserve it too, plan again and apply: kl apply --orchestrated; what was sent is kept: kl recover list --state %s", w.r.Ref.Name)
	return refuse(f, outside)
}

// noteRun notes in the run what its client has sent and now sees.
func (w *writing) noteRun(tx *bbolt.Tx, s *Store, v *versionRec) error {
	run, sha := w.run.rec, w.r.Body.SHA256()
	now := v.CreatedAt
	if run.View.Pieces > 0 {
		if err := dropView(tx, w.sid, run.ID); err != nil {
			return err
		}
	}
	run.View = runView{Version: v.Version}
	if w.run.pieces != nil {
		run.View = runView{Version: v.Previous, Pieces: len(w.run.pieces), Bytes: int64(w.r.Body.Len()), SHA256: sha[:]}
		for i, p := range w.run.pieces {
			if err := put(tx, bRun, runPieceKey(w.sid, run.ID, i), p); err != nil {
				return err
			}
		}
	}
	sess := &run.Session
	sess.LastCheckpoint = now
	sess.Checkpoints++
	sess.BaseVersion, sess.LastVersion, sess.LastSerial, sess.LastSHA256 = v.Version, v.Version, w.ours.serial, sha[:]
	run.Serial = w.ours.serial
	run.applies()
	s.renew(run, now)
	return errors.Join(putRec(tx, bRun, runKey(w.sid, run.ID), run), putOverlay(tx, w.sid, run.ID, w.overlay))
}

// LockRun takes the lock within a run, which is its own and not the state's:
// it keeps two clients of one run apart. The same ID again is granted again.
// Codes: locked, lock_foreign, reservation_conflict when the run has ended,
// client_too_new, lock_info_invalid, lifecycle ones.
func (s *Store) LockRun(ctx context.Context, by Actor, ref Ref, id string, info wire.LockInfo) error {
	if err := checkLockID(info.ID); err != nil {
		return err
	}
	_, err := s.changeRun(ctx, ref, id, func(tx *bbolt.Tx, sid uint64, rec *stateRec, r *runRec) error {
		if err := cmp.Or(s.activeEnvironment(tx, ref.Environment), activeState(ref, rec), r.mine(by.Principal), r.going(ref)); err != nil {
			return err
		}
		env, ok, err := s.envs.get(tx, bEnvironment, []byte(ref.Environment))
		if err != nil || !ok {
			return cmp.Or(err, error(unknownEnvironment(ref.Environment)))
		}
		if err := tooNew(env, info); err != nil {
			return err
		}
		if r.Lock.ID != "" && r.Lock.ID != info.ID {
			return r.locked(ref)
		}
		r.Lock = info
		s.renew(r, s.now())
		return broken(putRec(tx, bRun, runKey(sid, id), r))
	})
	return err
}

// UnlockRun gives the lock within a run back; without an ID whoever holds it.
// It succeeds also when nothing is held or the run has ended. Codes:
// lock_foreign, lock_mismatch.
func (s *Store) UnlockRun(ctx context.Context, by Actor, ref Ref, id, lockID string) error {
	_, err := s.changeRun(ctx, ref, id, func(tx *bbolt.Tx, sid uint64, _ *stateRec, r *runRec) error {
		if err := r.mine(by.Principal); err != nil {
			return err
		}
		if !r.live() || r.Lock.ID == "" {
			return errSame
		}
		if lockID != "" && lockID != r.Lock.ID {
			return fault.New(fault.LockMismatch, "within the run %s the lock %s is held, not %s", r.ID, r.Lock.ID, lockID).With("holder", r.Lock)
		}
		r.Lock = wire.LockInfo{}
		s.renew(r, s.now())
		return broken(putRec(tx, bRun, runKey(sid, id), r))
	})
	if errors.Is(err, errSame) {
		return nil
	}
	return err
}
