package store

import (
	"context"
	"errors"
	"regexp"
	"time"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/quota"
	"kl/wire"
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// checkName refuses what is not a state's name.
func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return fault.New(fault.StateNameInvalid, "%.140q is not a state's name", name)
	}
	return nil
}

// newState is the record of a state that does not exist yet.
func (s *Store) newState(ref Ref) *stateRec {
	now := s.now()
	return &stateRec{V: 1, Environment: ref.Environment, Name: ref.Name, Lifecycle: lifecycleActive, CreatedAt: now, UpdatedAt: now}
}

// createState gives a state its id and its name; the caller puts the record.
func (s *Store) createState(tx *bbolt.Tx, ref Ref, by Actor) (uint64, error) {
	sid, err := sidOf(get(tx, bMeta, keyNextSID))
	if err != nil {
		return 0, err
	}
	return sid, errors.Join(
		put(tx, bMeta, keyNextSID, u64(sid+1)),
		put(tx, bName, pair(ref.Environment, ref.Name), u64(sid)),
		s.event(tx, wire.Event{Kind: "state_created", Principal: by.Display(), Environment: ref.Environment, State: ref.Name, RequestID: by.RequestID}),
	)
}

// activeEnvironment refuses an environment whose workspace is suspended.
// Codes: unknown_environment, workspace_suspended.
func (s *Store) activeEnvironment(tx *bbolt.Tx, id string) error {
	env, ok, err := s.envs.get(tx, bEnvironment, []byte(id))
	if err != nil {
		return err
	}
	if !ok {
		return unknownEnvironment(id)
	}
	ws, ok, err := s.spaces.get(tx, bWorkspace, []byte(env.WorkspaceID))
	if err != nil {
		return err
	}
	if ok && ws.Status == statusSuspended {
		return fault.New(fault.WorkspaceSuspended, "the workspace %s was suspended by %s: %s", ws.Name, ws.SuspendedBy, ws.SuspendedReason).
			WithNext("ask the operator: kl workspace resume %s", ws.WorkspaceID).
			With("hold", "workspace_suspended").With("since", ws.SuspendedAt).With("by", ws.SuspendedBy)
	}
	return nil
}

// Held is workspace_suspended when the workspace of an environment is, and nil
// when it is not. Code besides: unknown_environment.
func (s *Store) Held(_ context.Context, env string) error {
	return s.view(func(tx *bbolt.Tx) error {
		return s.activeEnvironment(tx, env)
	})
}

// activeState refuses states that are archived or in the trash.
func activeState(ref Ref, r *stateRec) error {
	switch r.Lifecycle {
	case lifecycleDeleted:
		return deleted(ref, r)
	case lifecycleArchived:
		return fault.New(fault.StateArchived, "the state %s was archived by %s", ref.Name, r.LifecycleBy).
			WithNext("kl state restore %s", ref.Name).
			With("hold", "state_archived").With("since", r.LifecycleSince).With("by", r.LifecycleBy)
	}
	return nil
}

func deleted(ref Ref, r *stateRec) error {
	return fault.New(fault.StateDeleted, "the state %s was moved to the trash by %s", ref.Name, r.LifecycleBy).
		WithNext("bring it back with: kl state restore %s; or free the name with: kl state purge %s", ref.Name, ref.Name).
		With("hold", "state_deleted").With("since", r.LifecycleSince).With("by", r.LifecycleBy)
}

// States lists the states of an environment by name, those in the trash too.
func (s *Store) States(ctx context.Context, env, cursor string, limit int) (wire.List[wire.State], error) {
	out := wire.List[wire.State]{Items: []wire.State{}}
	err := s.view(func(tx *bbolt.Tx) error {
		e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(env))
		if err != nil {
			return err
		}
		if !ok {
			return unknownEnvironment(env)
		}
		prefix := pair(env, "")
		return eachKV(tx, bName, prefix, func(k, v []byte) (bool, error) {
			name := string(k[len(prefix):])
			if name <= cursor && cursor != "" {
				return true, nil
			}
			if len(out.Items) == page(limit) {
				out.Next = out.Items[len(out.Items)-1].Name
				return false, nil
			}
			sid, err := sidOf(v)
			if err != nil {
				return false, err
			}
			st, err := s.wireState(tx, sid, Ref{env, name}, e)
			if err == nil {
				out.Items = append(out.Items, *st)
			}
			return true, err
		})
	})
	return out, errors.Join(err, ctx.Err())
}

// State returns a state, also one in the trash. Code: not_found.
func (s *Store) State(_ context.Context, ref Ref) (wire.State, error) {
	var out wire.State
	err := s.view(func(tx *bbolt.Tx) error {
		sid, _, err := find(tx, ref)
		if err != nil {
			return err
		}
		e, _, err := getRec[environmentRec](tx, bEnvironment, []byte(ref.Environment))
		if err != nil {
			return err
		}
		st, err := s.wireState(tx, sid, ref, e)
		if err == nil {
			out = *st
		}
		return err
	})
	return out, err
}

// wireState is the state as the API shows it.
func (s *Store) wireState(tx *bbolt.Tx, sid uint64, ref Ref, env *environmentRec) (*wire.State, error) {
	_, r, err := find(tx, ref)
	if err != nil {
		return nil, err
	}
	st := &wire.State{
		Name: ref.Name, Lifecycle: r.Lifecycle, Lineage: r.Lineage, Serial: r.Serial, Version: r.Head, ResourceCount: r.Managed,
		InstanceCount: r.Instances, Bytes: r.Bytes, LockMode: r.LockMode, Opaque: r.Opaque, UpdatedAt: r.UpdatedAt, VersionCount: r.Versions, Quota: r.Limits,
	}
	if st.LockMode == "" && env != nil {
		st.LockMode = env.LockMode
	}
	err = eachKV(tx, bSession, u64(sid), func(_, _ []byte) (bool, error) { st.Sessions++; return true, nil })
	if err != nil {
		return nil, err
	}
	open, err := openRefused(tx, sid)
	st.RefusedOpen = len(open)
	return st, err
}

// change runs a change of one state's record in a transaction. f returns the
// event's kind and details, and its error refuses the change.
func (s *Store) changeState(ctx context.Context, by Actor, ref Ref, f func(tx *bbolt.Tx, sid uint64, r *stateRec) (wire.Event, error)) (wire.State, error) {
	var out wire.State
	err := s.commit.do(ctx, 4096, func(tx *bbolt.Tx) error {
		sid, r, err := find(tx, ref)
		if err != nil {
			return err
		}
		before := r.counted()
		e, err := f(tx, sid, r)
		more := r.counted() - before
		var uses quota.Uses
		if err == nil {
			uses, err = s.roomFor(tx, ref, more)
		}
		if err != nil {
			return err
		}
		e.Principal, e.Environment, e.State, e.RequestID = by.Display(), ref.Environment, ref.Name, by.RequestID
		e.Version, e.Serial = r.Head, r.Serial
		if err := errors.Join(putRec(tx, bState, u64(sid), r), s.addTotal(tx, ref.Environment, more)); err != nil {
			return broken(err)
		}
		if err := s.event(tx, e); err != nil {
			return broken(err)
		}
		env, _, err := getRec[environmentRec](tx, bEnvironment, []byte(ref.Environment))
		if err != nil {
			return broken(err)
		}
		st, err := s.wireState(tx, sid, ref, env)
		if err != nil {
			return broken(err)
		}
		out = *st
		out.QuotaWarnings, err = s.noteUses(tx, ref, by, uses, r.Head, r.Serial)
		return broken(err)
	})
	return out, err
}

// Delete moves a state to the trash. lockID is that of the caller's lock, ""
// for none; then nobody may hold one. Codes: not_found, state_deleted,
// state_archived, workspace_suspended, lock_required, lock_not_held,
// lock_foreign.
func (s *Store) Delete(ctx context.Context, by Actor, ref Ref, lockID string) error {
	_, err := s.changeState(ctx, by, ref, func(tx *bbolt.Tx, sid uint64, r *stateRec) (wire.Event, error) {
		if err := s.activeEnvironment(tx, ref.Environment); err != nil {
			return wire.Event{}, err
		}
		if err := activeState(ref, r); err != nil {
			return wire.Event{}, err
		}
		if r.Head == 0 {
			return wire.Event{}, noState(ref)
		}
		ttl, err := s.idleTTL(tx, ref.Environment)
		if err != nil {
			return wire.Event{}, err
		}
		err = s.eachLock(tx, sid, func(h *sessionRec) (bool, error) {
			switch {
			case h.idle(ttl, s.now()) && h.Info.ID != lockID:
			case lockID == "":
				return false, fault.New(fault.LockRequired, "the state %s is locked by %s (%s)", ref.Name, h.Info.Who, h.Info.ID).With("holder", h.Info).
					WithNext("wait for it, or see it with: kl lock show %s", ref.Name)
			case h.Info.ID != lockID:
				return false, fault.New(fault.LockNotHeld, "the lock %s does not hold the state %s", lockID, ref.Name)
			case h.PrincipalID != by.ID:
				return false, fault.New(fault.LockForeign, "the lock %s on the state %s was taken by %s", lockID, ref.Name, h.Principal)
			}
			return true, nil
		})
		if err == nil && lockID != "" && !has(tx, bSession, keyS(sid, lockID)) {
			err = fault.New(fault.LockNotHeld, "the lock %s does not hold the state %s", lockID, ref.Name)
		}
		if err == nil {
			err = s.notReserved(tx, sid, ref)
		}
		r.Lifecycle, r.LifecycleSince, r.LifecycleBy = lifecycleDeleted, s.now(), by.Display()
		return wire.Event{Kind: "state_deleted"}, err
	})
	return err
}

// Archive makes a state one that is only read, until Restore. Locks that are
// held stay and can be given back; what their holders still write is refused
// and kept. Codes: not_found, state_archived, state_deleted,
// workspace_suspended, lock_required while runs have reserved parts of it.
func (s *Store) Archive(ctx context.Context, by Actor, ref Ref) (wire.State, error) {
	return s.changeState(ctx, by, ref, func(tx *bbolt.Tx, sid uint64, r *stateRec) (wire.Event, error) {
		if err := s.activeEnvironment(tx, ref.Environment); err != nil {
			return wire.Event{}, err
		}
		if err := activeState(ref, r); err != nil {
			return wire.Event{}, err
		}
		if r.Head == 0 {
			return wire.Event{}, noState(ref)
		}
		if err := s.notReserved(tx, sid, ref); err != nil {
			return wire.Event{}, err
		}
		r.Lifecycle, r.LifecycleSince, r.LifecycleBy = lifecycleArchived, s.now(), by.Display()
		return wire.Event{Kind: "state_archived"}, nil
	})
}

// Restore brings a state back from the trash or the archive. Codes: not_found,
// parameter_invalid when it is active, environment_quota when its instances
// would be too many for the environment.
func (s *Store) Restore(ctx context.Context, by Actor, ref Ref) (wire.State, error) {
	return s.changeState(ctx, by, ref, func(tx *bbolt.Tx, _ uint64, r *stateRec) (wire.Event, error) {
		if err := s.activeEnvironment(tx, ref.Environment); err != nil {
			return wire.Event{}, err
		}
		if r.Lifecycle == lifecycleActive {
			return wire.Event{}, fault.New(fault.ParameterInvalid, "the state %s is active, there is nothing to restore", ref.Name).WithNext("kl state show %s", ref.Name)
		}
		from := r.Lifecycle
		r.Lifecycle, r.LifecycleSince, r.LifecycleBy = lifecycleActive, time.Time{}, ""
		return wire.Event{Kind: "state_restored", Detail: map[string]any{"from": from}}, nil
	})
}

// Purge removes a state in the trash for good, with its versions and refused
// writes; its events stay. Codes: not_found, workspace_suspended,
// parameter_invalid when it is not in the trash.
func (s *Store) Purge(ctx context.Context, by Actor, ref Ref) error {
	l := s.live(ref)
	if err := l.lockWrite(ctx); err != nil {
		return err
	}
	defer l.unlockWrite()
	err := s.commit.do(ctx, 1<<20, func(tx *bbolt.Tx) error {
		sid, r, err := find(tx, ref)
		if err != nil {
			return err
		}
		if err := s.activeEnvironment(tx, ref.Environment); err != nil {
			return err
		}
		if r.Lifecycle != lifecycleDeleted {
			return fault.New(fault.ParameterInvalid, "the state %s is not in the trash", ref.Name).WithNext("kl state delete %s", ref.Name)
		}
		return broken(s.purge(tx, by, ref, sid, r))
	})
	if err == nil {
		s.cache.remove(l)
		l.changed()
	}
	return err
}

// purge removes a state with all its rows but its events.
func (s *Store) purge(tx *bbolt.Tx, by Actor, ref Ref, sid uint64, r *stateRec) error {
	for _, b := range stateBuckets {
		if err := deletePrefix(tx, b, u64(sid)); err != nil {
			return err
		}
	}
	return errors.Join(
		forgetRefused(tx, ref.Environment, sid),
		del(tx, bName, pair(ref.Environment, ref.Name)),
		s.event(tx, wire.Event{
			Kind: "state_purged", Principal: by.Display(), Environment: ref.Environment, State: ref.Name, Version: r.Head, Serial: r.Serial, RequestID: by.RequestID,
		}),
	)
}

// stateBuckets are those whose keys begin with a state's id.
var stateBuckets = [][]byte{
	bState, bVersion, bManifest, bChange, bChunk, bDict, bSession, bOverlay, bReleased, bQueue, bRun, bReservation, bTag, bRefused, bRefusedBody,
}

// Allow issues a one-shot permission for the next write of a state: to bring
// another lineage, or a serial that does not rise. Codes: not_found,
// parameter_invalid when neither is asked for.
func (s *Store) Allow(ctx context.Context, by Actor, ref Ref, a wire.Allow) error {
	_, err := s.changeState(ctx, by, ref, func(tx *bbolt.Tx, _ uint64, r *stateRec) (wire.Event, error) {
		if !a.Lineage && !a.LowerSerial {
			return wire.Event{}, fault.New(fault.ParameterInvalid, "nothing is allowed: name lineage or lower_serial").WithNext("kl state allow %s --lineage|--lower-serial", ref.Name)
		}
		if err := activeState(ref, r); err != nil {
			return wire.Event{}, err
		}
		r.AllowLineage = r.AllowLineage || a.Lineage
		r.AllowSerial = r.AllowSerial || a.LowerSerial
		return wire.Event{Kind: "write_allowed", Detail: map[string]any{"lineage": a.Lineage, "lower_serial": a.LowerSerial}}, nil
	})
	return err
}
