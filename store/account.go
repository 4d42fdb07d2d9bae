package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

const (
	statusActive    = "active"
	statusSuspended = "suspended"
)

var (
	workspaceForm   = regexp.MustCompile(`^ws_[a-z0-9]{12}$`)
	environmentForm = regexp.MustCompile(`^env_[a-z0-9]{12}$`)
)

// Empty reports whether nothing was bootstrapped in the file yet.
func (s *Store) Empty() (bool, error) {
	empty := false
	err := s.view(func(tx *bbolt.Tx) error {
		k, _ := tx.Bucket(bWorkspace).Cursor().First()
		empty = k == nil
		return nil
	})
	return empty, err
}

// Bootstrap creates the operator's control token, a personal workspace with
// the environment default, and an automation token for it. Address is left to
// the caller. The secrets are nowhere else than in the answer. A file that is
// not Empty is file_invalid.
func (s *Store) Bootstrap(ctx context.Context) (wire.Bootstrap, error) {
	control, automation := auth.NewSecret(auth.Control), auth.NewSecret(auth.Automation)
	b := wire.Bootstrap{ControlToken: control, WorkspaceID: auth.NewID("ws_"), EnvPublicID: auth.NewID("env_"), AutomationToken: automation}
	now := s.now()
	ws := workspaceRec{V: 1, Workspace: wire.Workspace{WorkspaceID: b.WorkspaceID, Name: "personal", Kind: "personal", Status: statusActive, CreatedAt: now}}
	env := newEnvironment(b.EnvPublicID, b.WorkspaceID, now)
	env.Slug = "default"
	operator := tokenRec{V: 1, ID: auth.NewID("tok_"), Kind: auth.Control, Name: "operator", Operator: true, CreatedAt: now}
	token := tokenRec{
		V: 1, ID: auth.NewID("tok_"), Kind: auth.Automation, Name: "default", Workspace: b.WorkspaceID, Environment: b.EnvPublicID, Role: auth.Write, CreatedAt: now,
	}
	err := s.commit.do(ctx, 4096, func(tx *bbolt.Tx) error {
		if k, _ := tx.Bucket(bWorkspace).Cursor().First(); k != nil {
			return fault.New(fault.FileInvalid, "the data file %s is in use already", s.opt.Path).WithNext("kl serve --data %s", s.opt.Path)
		}
		return broken(errors.Join(
			putRec(tx, bWorkspace, []byte(b.WorkspaceID), ws),
			putEnvironment(tx, env),
			putToken(tx, &operator, control),
			putToken(tx, &token, automation),
			s.event(tx, wire.Event{Kind: "bootstrapped", Workspace: b.WorkspaceID, Environment: b.EnvPublicID}),
		))
	})
	return b, err
}

func unknownEnvironment(id string) *fault.Error {
	return fault.New(fault.UnknownEnvironment, "the environment %.80q is not known to these credentials", id).With("expected", "an environment's public id, env_ and 12 letters or digits")
}

// Stats counts what the file holds. It walks over all states.
func (s *Store) Stats() (Stats, error) {
	st := Stats{CacheBytes: s.cache.bytes() + s.keys.bytes(), BodyBytes: s.flight.held.Load()}
	if s.commit != nil {
		st.Commits, st.CommitJobs = s.commit.commits.Load(), s.commit.count.Load()
	}
	err := s.view(func(tx *bbolt.Tx) error {
		st.FileBytes = tx.Size()
		st.FreePageBytes = int64(s.db.Stats().FreePageN) * int64(s.db.Info().PageSize)
		err := eachRec(tx, bState, nil, func(_ []byte, r *stateRec) (bool, error) {
			if r.Head != 0 {
				st.States++
				st.Versions += r.Versions
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		st.Sessions = int64(tx.Bucket(bSession).Stats().KeyN)
		st.Waiters = int64(tx.Bucket(bQueue).Stats().KeyN)
		st.Runs = int64(tx.Bucket(bReservation).Stats().KeyN)
		return eachRec(tx, bRefused, nil, func(_ []byte, r *refusedRec) (bool, error) {
			if r.Status == refusedOpen {
				st.RefusedOpen++
			}
			return true, nil
		})
	})
	if err != nil {
		return st, fmt.Errorf("count what the file holds: %w", err)
	}
	return st, nil
}
