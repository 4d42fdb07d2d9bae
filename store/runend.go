package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/wire"
)

// RenewRun gives a run another lease. applying says that the apply of what it
// has reserved begins; one that has reserved nothing stays as it is. Codes:
// not_found, lock_foreign, reservation_conflict when it has ended.
func (s *Store) RenewRun(ctx context.Context, by Actor, ref Ref, id string, applying bool) (wire.Run, error) {
	return s.changeRun(ctx, ref, id, func(tx *bbolt.Tx, sid uint64, _ *stateRec, r *runRec) error {
		if err := cmp.Or(r.mine(by.Principal), r.going(ref)); err != nil {
			return err
		}
		if applying {
			r.applies()
		}
		s.renew(r, s.now())
		return broken(putRec(tx, bRun, runKey(sid, id), r))
	})
}

// RebaseRun makes the head what a run sees, so that it can plan again. Plans
// that were saved in it before are stale then. Codes: not_found, lock_foreign,
// reservation_conflict when it has ended, locked while a client within the run
// holds its lock, lifecycle ones.
func (s *Store) RebaseRun(ctx context.Context, by Actor, ref Ref, id string) (wire.Run, error) {
	return s.changeRun(ctx, ref, id, func(tx *bbolt.Tx, sid uint64, rec *stateRec, r *runRec) error {
		if err := cmp.Or(s.activeEnvironment(tx, ref.Environment), activeState(ref, rec), r.mine(by.Principal), r.going(ref)); err != nil {
			return err
		}
		if r.Lock.ID != "" {
			return r.locked(ref)
		}
		if rec.Opaque {
			return s.mayStart(tx, sid, ref, rec)
		}
		from := r.Session.BaseVersion
		s.look(r, rec)
		s.renew(r, s.now())
		return broken(errors.Join(
			dropView(tx, sid, id), putOverlay(tx, sid, id, nil), putRec(tx, bRun, runKey(sid, id), r),
			s.runEvent(tx, ref, r, by, "run_rebased", map[string]any{"from_version": from, "base_version": rec.Head}),
		))
	})
}

// locked is the answer to those who meet another client within the run.
func (r *runRec) locked(ref Ref) error {
	return fault.New(fault.Locked, "within the run %s on the state %s, %s holds the lock %s", r.ID, ref.Name, cmp.Or(r.Lock.Who, r.Actor), r.Lock.ID).
		WithNext("wait for it; if it is gone, free the lock within the run with: terraform force-unlock %s", r.Lock.ID).
		With("holder", r.Lock)
}

// FinishRun ends a run as finished or failed and frees its reservations. Again
// it is answered alike. Codes: not_found, lock_foreign, parameter_invalid,
// reservation_conflict when it has ended otherwise.
func (s *Store) FinishRun(ctx context.Context, by Actor, ref Ref, id string, q wire.RunEnd) (wire.Run, error) {
	status := cmp.Or(q.Status, wire.RunFinished)
	if status != wire.RunFinished && status != wire.RunFailed {
		return wire.Run{}, fault.New(fault.ParameterInvalid, "a run cannot finish as %.40q; status is finished or failed", q.Status).WithNext(`send {"status":"finished"}`)
	}
	if err := checkText("reason", q.Reason); err != nil {
		return wire.Run{}, err
	}
	return s.endRunBy(ctx, by, ref, id, status, q.Reason, false)
}

// AbortRun ends a run, whoever began it: its reservations are free, and what it
// still writes is refused and kept. Again it is answered alike. foreign lets
// the caller end a run of others. Codes: not_found, lock_foreign,
// reservation_conflict when it has ended otherwise.
func (s *Store) AbortRun(ctx context.Context, by Actor, ref Ref, id, reason string, foreign bool) (wire.Run, error) {
	if err := checkText("reason", reason); err != nil {
		return wire.Run{}, err
	}
	return s.endRunBy(ctx, by, ref, id, wire.RunAborted, reason, foreign)
}

// errSame says that there is nothing to do.
var errSame = errors.New("it is so already")

func (s *Store) endRunBy(ctx context.Context, by Actor, ref Ref, id, status, reason string, foreign bool) (wire.Run, error) {
	out, err := s.changeRun(ctx, ref, id, func(tx *bbolt.Tx, sid uint64, _ *stateRec, r *runRec) error {
		if err := r.mine(by.Principal); err != nil && !foreign {
			return err
		}
		if r.Status == status {
			return errSame
		}
		if err := r.going(ref); err != nil {
			return err
		}
		return broken(s.endRun(tx, sid, ref, r, by, status, reason))
	})
	if errors.Is(err, errSame) {
		return s.Run(ctx, ref, id)
	}
	if err == nil {
		s.live(ref).changed()
	}
	return out, err
}

// endRun ends a live run: what it has reserved is free, its view is dropped.
// What it has written is in the state, and what it saw last stays with its
// record, so that a write that comes too late can be merged.
func (s *Store) endRun(tx *bbolt.Tx, sid uint64, ref Ref, r *runRec, by Actor, status, reason string) error {
	res, _, err := s.reservationOf(tx, runKey(sid, r.ID))
	if err != nil {
		return err
	}
	if res != nil {
		r.Write, r.Read = res.Write[:min(len(res.Write), maxListed)], res.Read[:min(len(res.Read), maxListed)]
	}
	was := r.Status
	r.Status, r.EndReason, r.Lock, r.View = status, reason, wire.LockInfo{}, runView{}
	if status != wire.RunExpired {
		r.EndedAt, r.EndedBy = s.now(), by.Display()
	}
	detail := map[string]any{"checkpoints": r.Session.Checkpoints, "reason": reason, "was": was}
	if status != wire.RunExpired && !r.of(by.Principal) {
		detail["forced"], detail["holder"] = true, r.Principal
	}
	err = errors.Join(
		del(tx, bReservation, runKey(sid, r.ID)), del(tx, bQueue, keyS(sid, r.ID)), dropView(tx, sid, r.ID),
		putRec(tx, bRun, runKey(sid, r.ID), r), s.runEvent(tx, ref, r, by, "run_"+status, detail),
	)
	if err != nil {
		return err
	}
	return s.forgetRuns(tx, sid)
}

// dropView removes what a run saw beside a version.
func dropView(tx *bbolt.Tx, sid uint64, id string) error {
	return deletePrefix(tx, bRun, append(runKey(sid, id), 0))
}

// forgetRuns drops the oldest of the runs that have ended, beyond what is
// remembered.
func (s *Store) forgetRuns(tx *bbolt.Tx, sid uint64) error {
	var ended []*runRec
	err := s.eachRun(tx, sid, func(r *runRec) error {
		if !r.live() && !has(tx, bReservation, runKey(sid, r.ID)) {
			ended = append(ended, r)
		}
		return nil
	})
	slices.SortFunc(ended, func(a, b *runRec) int { return b.EndedAt.Compare(a.EndedAt) })
	for _, r := range ended[min(len(ended), maxEndedRuns):] {
		err = errors.Join(err, del(tx, bRun, runKey(sid, r.ID)), putOverlay(tx, sid, r.ID, nil))
	}
	return err
}

// expireRuns ends the runs of all states whose lease is over.
func (s *Store) expireRuns() {
	over := map[uint64][]string{}
	err := s.view(func(tx *bbolt.Tx) error {
		return eachKV(tx, bReservation, nil, func(k, _ []byte) (bool, error) {
			sid, err := sidOf(k[:8])
			if err != nil {
				return false, err
			}
			r, err := s.getRun(tx, sid, string(k[8:]))
			if err == nil && !r.live() {
				over[sid] = append(over[sid], r.ID)
			}
			return err == nil, err
		})
	})
	for sid, ids := range over {
		if err != nil {
			return
		}
		var ref Ref
		err = s.commit.do(context.Background(), 1024*len(ids), func(tx *bbolt.Tx) error {
			rec, ok, err := getRec[stateRec](tx, bState, u64(sid))
			if err != nil || !ok {
				return cmp.Or(err, errSame)
			}
			ref = Ref{rec.Environment, rec.Name}
			for _, id := range ids {
				r, err := s.getRun(tx, sid, id)
				if err != nil || r.live() || !has(tx, bReservation, runKey(sid, id)) {
					continue // renewed or ended since
				}
				if err := s.endRun(tx, sid, ref, r, Actor{}, wire.RunExpired, leaseOver); err != nil {
					return broken(fmt.Errorf("end the run %s: %w", id, err))
				}
			}
			return nil
		})
		if err == nil {
			s.live(ref).changed()
		}
	}
}
