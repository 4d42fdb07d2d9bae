package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/wire"
)

// Unlock ends a session. It succeeds also when the same lock was released
// before, and without an ID when nothing is held. Codes: lock_mismatch,
// lock_ambiguous, lock_foreign, not_found, lock_required when there is no ID and
// runs have reserved parts of the state.
func (s *Store) Unlock(ctx context.Context, r UnlockRequest) error {
	if err := checkName(r.Ref.Name); err != nil {
		return err
	}
	if r.ID != "" {
		if err := checkLockID(r.ID); err != nil {
			return err
		}
	}
	l := s.live(r.Ref)
	err := s.commit.do(ctx, 1024, func(tx *bbolt.Tx) error {
		sid, _, err := s.find(tx, r.Ref)
		if err != nil {
			return notLocked(r, err)
		}
		h, err := s.toRelease(tx, sid, &r)
		if err != nil {
			return err
		}
		kind := "unlocked"
		if r.ID == "" || r.Force && h.PrincipalID != r.Actor.ID {
			kind = "force_unlocked"
		}
		return broken(s.endSession(tx, sid, h, r.Ref, r.Actor, kind))
	})
	if errors.Is(err, errReleased) {
		return nil
	}
	if err == nil {
		l.changed()
	}
	return err
}

// notLocked is the answer to a release of a state that does not exist.
func notLocked(r UnlockRequest, err error) error {
	if fault.Is(err, fault.NotFound) && r.ID == "" {
		return errReleased
	}
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.LockMismatch, "the lock %s does not hold the state %s: nothing does", r.ID, r.Ref.Name).
			WithNext("nothing is left to release; see it with: kl lock show %s", r.Ref.Name)
	}
	return err
}

// errReleased says that there is nothing left to release.
var errReleased = errors.New("released already")

// toRelease finds the session that an UNLOCK means.
func (s *Store) toRelease(tx *bbolt.Tx, sid uint64, r *UnlockRequest) (*sessionRec, error) {
	var holders []*sessionRec
	err := s.eachLock(tx, sid, func(h *sessionRec) (bool, error) {
		holders = append(holders, h)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	if r.ID == "" {
		switch len(holders) {
		case 0: // a release of what is not held is done already, but for runs, which look like a lock to those who meet them
			return nil, cmp.Or(s.notReserved(tx, sid, r.Ref), errReleased)
		case 1:
			return holders[0], nil
		}
		return nil, fault.New(fault.LockAmbiguous, "%d locks are held on the state %s, and the request names none", len(holders), r.Ref.Name).
			WithNext("kl lock show %s; then kl lock release %s --id ID", r.Ref.Name, r.Ref.Name)
	}
	for _, h := range holders {
		if h.Info.ID != r.ID {
			continue
		}
		if h.PrincipalID != r.Actor.ID && !r.Force {
			return nil, fault.New(fault.LockForeign, "the lock %s on the state %s was taken by %s, not by these credentials", r.ID, r.Ref.Name, h.Principal).
				WithNext("force it open with: kl lock release %s --id %s", r.Ref.Name, r.ID)
		}
		return h, nil
	}
	released, err := s.releasedLocks(tx, sid)
	if err != nil {
		return nil, err
	}
	if slices.Contains(released, r.ID) {
		return nil, errReleased
	}
	if has(tx, bReservation, runKey(sid, r.ID)) {
		return nil, fault.New(fault.LockMismatch, "%s is a run on the state %s and not a lock", r.ID, r.Ref.Name).
			WithNext("if its owner is gone: kl apply abort --state %s --apply-id %s", r.Ref.Name, r.ID)
	}
	if len(holders) == 0 {
		return nil, fault.New(fault.LockMismatch, "the lock %s does not hold the state %s: nothing does", r.ID, r.Ref.Name).
			WithNext("nothing is left to release; see it with: kl lock show %s", r.Ref.Name)
	}
	h := holders[0]
	return nil, fault.New(fault.LockMismatch, "the state %s is locked by %s (%s), not by %s", r.Ref.Name, h.Info.Who, h.Info.ID, r.ID).With("holder", h.Info).
		WithNext("see who holds it with: kl lock show %s", r.Ref.Name)
}

// releasedLocks are the locks of a state that were released last.
func (s *Store) releasedLocks(tx *bbolt.Tx, sid uint64) ([]string, error) {
	ids, ok, err := s.released.get(tx, bReleased, u64(sid))
	if err != nil || !ok {
		return nil, err
	}
	return slices.Clip(*ids), nil
}

// endSession removes a session and remembers its ID.
func (s *Store) endSession(tx *bbolt.Tx, sid uint64, h *sessionRec, ref Ref, by Actor, kind string) error {
	k := keyS(sid, h.Info.ID)
	s.locks.forget(k)
	if err := errors.Join(del(tx, bSession, k), putOverlay(tx, sid, h.Info.ID, nil)); err != nil {
		return err
	}
	ids, err := s.releasedLocks(tx, sid)
	if err != nil {
		return err
	}
	ids = append(ids, h.Info.ID)
	if len(ids) > maxReleased {
		ids = ids[len(ids)-maxReleased:]
	}
	if err := s.released.put(tx, bReleased, u64(sid), &ids); err != nil {
		return err
	}
	return s.event(tx, wire.Event{
		Kind: kind, Principal: by.Display(), Environment: ref.Environment, State: ref.Name, RequestID: by.RequestID,
		Detail: map[string]any{"lock_id": h.Info.ID, "holder": h.Principal, "who": h.Info.Who, "operation": h.Info.Operation, "writes": h.Checkpoints},
	})
}
