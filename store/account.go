package store

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"time"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

const (
	statusActive    = "active"
	statusSuspended = "suspended"
)

// Defaults of a new environment's limits on refused writes.
const (
	defaultRefusedLast  = 200
	defaultRefusedBytes = 512 << 20
	defaultRefusedDays  = 90
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
	env := environmentRec{V: 1, Environment: wire.Environment{
		EnvPublicID: b.EnvPublicID, Slug: "default", WorkspaceID: b.WorkspaceID, LockMode: modeExclusive, RecoveryHold: true,
		RefusedKeepLast: defaultRefusedLast, RefusedKeepBytes: defaultRefusedBytes, RefusedKeepDays: defaultRefusedDays, CreatedAt: now,
	}}
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
			putRec(tx, bEnvironment, []byte(b.EnvPublicID), env),
			put(tx, bSlug, pair(b.WorkspaceID, env.Slug), []byte(b.EnvPublicID)),
			putToken(tx, &operator, control),
			putToken(tx, &token, automation),
			s.event(tx, wire.Event{Kind: "bootstrapped", Workspace: b.WorkspaceID, Environment: b.EnvPublicID}),
		))
	})
	return b, err
}

// putToken stores a new token by the hash of its secret.
func putToken(tx *bbolt.Tx, t *tokenRec, secret string) error {
	h := auth.Hash(secret)
	t.Hash = h[:]
	return errors.Join(putRec(tx, bToken, []byte(t.ID), t), put(tx, bTokenHash, h[:], []byte(t.ID)))
}

// tokenBySecret finds a token, active or not. Code: credentials_invalid.
func tokenBySecret(tx *bbolt.Tx, secret string) (*tokenRec, error) {
	invalid := fault.New(fault.CredentialsInvalid, "the token is not one of this server")
	if _, ok := auth.KindOf(secret); !ok {
		return nil, invalid
	}
	h := auth.Hash(secret)
	id := tx.Bucket(bTokenHash).Get(h[:])
	if id == nil {
		return nil, invalid
	}
	t, ok, err := getRec[tokenRec](tx, bToken, id)
	if err != nil {
		return nil, err
	}
	if !ok || subtle.ConstantTimeCompare(t.Hash, h[:]) != 1 {
		return nil, invalid
	}
	return t, nil
}

// active says why a token is no longer valid.
func (t *tokenRec) active(now time.Time) error {
	switch {
	case !t.RevokedAt.IsZero():
		return fault.New(fault.CredentialsRevoked, "the token %s was revoked at %s", t.Name, t.RevokedAt.Format(time.RFC3339))
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt):
		return fault.New(fault.CredentialsExpired, "the token %s expired at %s", t.Name, t.ExpiresAt.Format(time.RFC3339))
	}
	return nil
}

func (t *tokenRec) principal() auth.Principal {
	return auth.Principal{
		Kind: t.Kind, ID: t.ID, Name: t.Name, User: t.User, Operator: t.Operator, Workspace: t.Workspace, Environment: t.Environment, Role: t.Role, Sensitive: t.Sensitive,
	}
}

// Authenticate finds the principal of a secret. Codes: credentials_invalid,
// credentials_expired, credentials_revoked.
func (s *Store) Authenticate(_ context.Context, secret string) (auth.Principal, error) {
	var p auth.Principal
	now := s.now()
	err := s.view(func(tx *bbolt.Tx) error {
		t, err := tokenBySecret(tx, secret)
		if err != nil {
			return err
		}
		p = t.principal()
		return t.active(now)
	})
	if err != nil {
		return auth.Principal{}, err
	}
	s.mu.Lock()
	s.used[p.ID] = now
	s.mu.Unlock()
	return p, nil
}

// flushUsed writes when tokens were last used.
func (s *Store) flushUsed() {
	s.mu.Lock()
	used := s.used
	s.used = map[string]time.Time{}
	s.mu.Unlock()
	if len(used) == 0 {
		return
	}
	s.commit.try(func(tx *bbolt.Tx) error {
		for id, at := range maps.All(used) {
			t, ok, err := getRec[tokenRec](tx, bToken, []byte(id))
			if err != nil {
				return broken(err)
			}
			if !ok || !at.After(t.LastUsedAt) {
				continue
			}
			t.LastUsedAt = at
			if err := putRec(tx, bToken, []byte(id), t); err != nil {
				return broken(err)
			}
		}
		return nil
	})
}

func unknownEnvironment(id string) *fault.Error {
	return fault.New(fault.UnknownEnvironment, "the environment %.80q is not known to these credentials", id).With("expected", "an environment's public id, env_ and 12 letters or digits")
}

// Authorize checks that p may do a with the states of an environment. ws is
// the workspace that the path names; "" when the path names none. What the
// caller has no right to is answered like what does not exist. Codes:
// workspace_mismatch, slug_not_id, unknown_environment, role_too_low,
// not_member.
func (s *Store) Authorize(_ context.Context, p auth.Principal, ws, env string, a auth.Action) error {
	if ws != "" && !workspaceForm.MatchString(ws) {
		return fault.New(fault.SlugNotID, "%.80q is not a workspace's id", ws).With("expected", "a workspace's id, ws_ and 12 letters or digits")
	}
	if !environmentForm.MatchString(env) {
		return fault.New(fault.SlugNotID, "%.80q is not an environment's public id", env).With("expected", "an environment's public id, env_ and 12 letters or digits")
	}
	switch {
	case p.Kind == auth.Automation:
		if ws != "" && ws != p.Workspace {
			return fault.New(fault.WorkspaceMismatch, "these credentials belong to another workspace than %s", ws).With("expected", p.Workspace)
		}
		if env != p.Environment {
			return unknownEnvironment(env).With("expected", p.Environment)
		}
		if !p.Role.Allows(a) {
			return fault.New(fault.RoleTooLow, "the token %s has the role %s, which does not allow to %s", p.Name, p.Role, a)
		}
		return nil
	case p.Operator:
		return s.view(func(tx *bbolt.Tx) error {
			e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(env))
			if err == nil && (!ok || ws != "" && ws != e.WorkspaceID) {
				err = unknownEnvironment(env)
			}
			return err
		})
	}
	return fault.New(fault.NotMember, "these credentials have no part in the environment %s", env)
}

// Environment returns an environment. Code: unknown_environment.
func (s *Store) Environment(_ context.Context, id string) (wire.Environment, error) {
	var out wire.Environment
	err := s.view(func(tx *bbolt.Tx) error {
		e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(id))
		if err == nil && !ok {
			err = unknownEnvironment(id)
		}
		if err == nil {
			out = e.Environment
		}
		return err
	})
	return out, err
}

// Environments lists the environments of a workspace, of all for "".
func (s *Store) Environments(_ context.Context, ws string) ([]wire.Environment, error) {
	out := []wire.Environment{}
	err := s.view(func(tx *bbolt.Tx) error {
		return eachRec(tx, bEnvironment, nil, func(_ []byte, e *environmentRec) (bool, error) {
			if ws == "" || e.WorkspaceID == ws {
				out = append(out, e.Environment)
			}
			return true, nil
		})
	})
	return out, err
}

// Workspaces lists all workspaces.
func (s *Store) Workspaces(_ context.Context) ([]wire.Workspace, error) {
	out := []wire.Workspace{}
	err := s.view(func(tx *bbolt.Tx) error {
		return eachRec(tx, bWorkspace, nil, func(_ []byte, w *workspaceRec) (bool, error) {
			out = append(out, w.Workspace)
			return true, nil
		})
	})
	return out, err
}

var slugForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// PatchEnvironment changes settings of an environment. Codes:
// unknown_environment, parameter_invalid.
func (s *Store) PatchEnvironment(ctx context.Context, by Actor, id string, patch wire.EnvironmentPatch) (wire.Environment, error) {
	var out wire.Environment
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(id))
		if err != nil {
			return err
		}
		if !ok {
			return unknownEnvironment(id)
		}
		slug := e.Slug
		if err := applyPatch(e, patch); err != nil {
			return err
		}
		if e.Slug != slug && has(tx, bSlug, pair(e.WorkspaceID, e.Slug)) {
			return fault.New(fault.ParameterInvalid, "the workspace has an environment %s already", e.Slug).WithNext("choose another slug")
		}
		if e.Slug != slug {
			if err := errors.Join(del(tx, bSlug, pair(e.WorkspaceID, slug)), put(tx, bSlug, pair(e.WorkspaceID, e.Slug), []byte(id))); err != nil {
				return broken(err)
			}
		}
		out = e.Environment
		return broken(errors.Join(
			putRec(tx, bEnvironment, []byte(id), e),
			s.event(tx, wire.Event{Kind: "environment_changed", Principal: by.Display(), Workspace: e.WorkspaceID, Environment: id, RequestID: by.RequestID}),
		))
	})
	return out, err
}

func validMode(mode string) bool { return mode == modeExclusive || mode == modeOptimistic }

func applyPatch(e *environmentRec, p wire.EnvironmentPatch) error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.ParameterInvalid, format, args...).WithNext("kl env set --help")
	}
	if p.Slug != nil {
		if !slugForm.MatchString(*p.Slug) {
			return bad("%.60q is not a slug: lower-case letters, digits and dashes, at most 40", *p.Slug)
		}
		e.Slug = *p.Slug
	}
	if p.LockMode != nil {
		if !validMode(*p.LockMode) {
			return bad("lock_mode %.40q is not known; it can be exclusive or optimistic", *p.LockMode)
		}
		e.LockMode = *p.LockMode
	}
	if p.RecoveryHold != nil {
		e.RecoveryHold = *p.RecoveryHold
	}
	if p.LockIdleTTL != nil {
		if d := time.Duration(*p.LockIdleTTL); d != 0 && d < time.Minute {
			return bad("lock_idle_ttl %s is too short: 0 for never, or at least 1m", d)
		}
		e.LockIdleTTL = *p.LockIdleTTL
	}
	if p.MaxTerraformVersion != nil {
		if _, ok := versionNumbers(*p.MaxTerraformVersion); *p.MaxTerraformVersion != "" && !ok {
			return bad("max_terraform_version %.40q is not a version such as 1.11.4", *p.MaxTerraformVersion)
		}
		e.MaxTerraformVersion = *p.MaxTerraformVersion
	}
	for name, f := range map[string]struct{ from, to *int64 }{
		"refused_keep_last": {p.RefusedKeepLast, &e.RefusedKeepLast}, "refused_keep_bytes": {p.RefusedKeepBytes, &e.RefusedKeepBytes},
		"refused_keep_days": {p.RefusedKeepDays, &e.RefusedKeepDays},
	} {
		if f.from == nil {
			continue
		}
		if *f.from < 0 {
			return bad("%s %d is negative", name, *f.from)
		}
		*f.to = *f.from
	}
	return nil
}

// Stats counts what the file holds. It walks over all states.
func (s *Store) Stats() (Stats, error) {
	st := Stats{CacheBytes: s.cache.bytes()}
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
