package store

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// Defaults of a new environment's limits on refused writes.
const (
	defaultRefusedLast  = 200
	defaultRefusedBytes = 512 << 20
	defaultRefusedDays  = 90
)

// maxDays bounds settings in days: a hundred years.
const maxDays = 36500

// newEnvironment is an environment with the settings that a new one has, but
// for its slug.
func newEnvironment(id, ws string, now time.Time) *environmentRec {
	return &environmentRec{V: 1, Total: new(int64), Environment: wire.Environment{
		EnvPublicID: id, WorkspaceID: ws, LockMode: modeExclusive, RecoveryHold: true,
		RefusedKeepLast: defaultRefusedLast, RefusedKeepBytes: defaultRefusedBytes, RefusedKeepDays: defaultRefusedDays, CreatedAt: now,
	}}
}

// putEnvironment puts a new environment and its slug.
func putEnvironment(tx *bbolt.Tx, e *environmentRec) error {
	id := []byte(e.EnvPublicID)
	return errors.Join(putRec(tx, bEnvironment, id, e), put(tx, bSlug, pair(e.WorkspaceID, e.Slug), id))
}

// CreateEnvironment adds an environment to a workspace. The slug is required;
// settings that patch leaves out are those of a new environment. Codes:
// not_found for an unknown workspace, parameter_invalid.
func (s *Store) CreateEnvironment(ctx context.Context, by Actor, ws string, patch wire.EnvironmentPatch) (wire.Environment, error) {
	if patch.Slug == nil {
		return wire.Environment{}, fault.New(fault.ParameterInvalid, "an environment needs a slug").WithNext(`send {"slug":"…"}, or: kl env create SLUG`)
	}
	e := newEnvironment(auth.NewID("env_"), ws, s.now())
	if err := applyPatch(e, patch); err != nil {
		return wire.Environment{}, err
	}
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		if !has(tx, bWorkspace, []byte(ws)) {
			return noWorkspace(ws)
		}
		if has(tx, bSlug, pair(ws, e.Slug)) {
			return slugTaken(e.Slug)
		}
		return broken(errors.Join(
			putEnvironment(tx, e),
			s.event(tx, wire.Event{
				Kind: "environment_created", Principal: by.Display(), Workspace: ws, Environment: e.EnvPublicID, RequestID: by.RequestID,
				Detail: map[string]any{"slug": e.Slug, "lock_mode": e.LockMode},
			}),
		))
	})
	return e.Environment, err
}

func slugTaken(slug string) error {
	return fault.New(fault.ParameterInvalid, "the workspace has an environment %s already", slug).WithNext("choose another slug")
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
			return slugTaken(e.Slug)
		}
		if e.Slug != slug {
			if err := errors.Join(del(tx, bSlug, pair(e.WorkspaceID, slug)), put(tx, bSlug, pair(e.WorkspaceID, e.Slug), []byte(id))); err != nil {
				return broken(err)
			}
		}
		out = e.Environment
		return broken(errors.Join(
			putRec(tx, bEnvironment, []byte(id), e),
			s.event(tx, wire.Event{
				Kind: "environment_changed", Principal: by.Display(), Workspace: e.WorkspaceID, Environment: id, RequestID: by.RequestID, Detail: given(patch),
			}),
		))
	})
	return out, err
}

// given are the members of a patch that are there, as its JSON names them.
func given(patch wire.EnvironmentPatch) map[string]any {
	var m map[string]any
	if b, err := json.Marshal(patch); err != nil || json.Unmarshal(b, &m) != nil {
		return nil // no patch is such; the event says enough without
	}
	return m
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
		if d := time.Duration(*p.LockIdleTTL); d != 0 && d < time.Second {
			return bad("lock_idle_ttl %s is too short: 0 for never, or at least 1s", d)
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
		"state_soft_limit": {p.StateSoftLimit, &e.StateSoftLimit}, "state_hard_limit": {p.StateHardLimit, &e.StateHardLimit},
		"environment_soft_limit": {p.EnvironmentSoftLimit, &e.EnvironmentSoftLimit}, "environment_hard_limit": {p.EnvironmentHardLimit, &e.EnvironmentHardLimit},
		"state_bytes_soft_limit": {p.StateBytesSoftLimit, &e.StateBytesSoftLimit}, "state_bytes_hard_limit": {p.StateBytesHardLimit, &e.StateBytesHardLimit},
		"history_bytes_soft_limit": {p.HistoryBytesSoftLimit, &e.HistoryBytesSoftLimit}, "history_bytes_hard_limit": {p.HistoryBytesHardLimit, &e.HistoryBytesHardLimit},
		"refused_keep_last": {p.RefusedKeepLast, &e.RefusedKeepLast}, "refused_keep_bytes": {p.RefusedKeepBytes, &e.RefusedKeepBytes},
		"refused_keep_days": {p.RefusedKeepDays, &e.RefusedKeepDays}, "keep_last": {p.KeepLast, &e.KeepLast}, "keep_days": {p.KeepDays, &e.KeepDays},
	} {
		if f.from == nil {
			continue
		}
		if *f.from < 0 {
			return bad("%s %d is negative", name, *f.from)
		}
		if strings.HasSuffix(name, "_days") && *f.from > maxDays {
			return bad("%s %d is more than %d; 0 is for ever", name, *f.from, maxDays)
		}
		*f.to = *f.from
	}
	return nil
}

// DeleteEnvironment removes an environment with its tokens, its grants and what
// is in its trash. One that has states outside of the trash, or locks, is
// parameter_invalid. Other codes: unknown_environment, workspace_suspended.
func (s *Store) DeleteEnvironment(ctx context.Context, by Actor, id string) error {
	names, err := s.stateNames(id)
	if err != nil {
		return err
	}
	for _, name := range names { // in the order of names: no two of these wait for each other
		l := s.live(Ref{id, name})
		if err := l.lockWrite(ctx); err != nil {
			return err
		}
		defer l.unlockWrite()
	}
	err = s.commit.do(ctx, 1<<20, func(tx *bbolt.Tx) error {
		e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(id))
		if err != nil {
			return err
		}
		if !ok {
			return unknownEnvironment(id)
		}
		if err := s.activeEnvironment(tx, id); err != nil {
			return err
		}
		states, err := trashOnly(tx, id, names)
		if err != nil {
			return err
		}
		for name, st := range states {
			if err := s.purge(tx, by, Ref{id, name}, st.sid, st.rec); err != nil {
				return broken(err)
			}
		}
		tokens, err := revokeTokens(tx, s.now(), func(t *tokenRec) bool { return t.Environment == id })
		return broken(errors.Join(
			err,
			// the event's before the record is gone, so that it names the workspace
			s.event(tx, wire.Event{
				Kind: "environment_deleted", Principal: by.Display(), Environment: id, RequestID: by.RequestID,
				Detail: map[string]any{"slug": e.Slug, "tokens_revoked": tokens, "states_purged": len(states)},
			}),
			deletePrefix(tx, bGrant, pair(id, "")),
			del(tx, bSlug, pair(e.WorkspaceID, e.Slug)),
			del(tx, bEnvironment, []byte(id)),
		))
	})
	if err == nil {
		for _, name := range names {
			l := s.live(Ref{id, name})
			s.cache.remove(l)
			l.changed()
		}
	}
	return err
}

func (s *Store) stateNames(env string) ([]string, error) {
	var names []string
	prefix := pair(env, "")
	err := s.view(func(tx *bbolt.Tx) error {
		return eachKV(tx, bName, prefix, func(k, _ []byte) (bool, error) {
			names = append(names, string(k[len(prefix):]))
			return true, nil
		})
	})
	return names, err
}

// trashed is a state that may go with its environment.
type trashed struct {
	sid uint64
	rec *stateRec
}

func notTrashed(env, name string) error {
	return fault.New(fault.ParameterInvalid, "the environment %s has the state %s, which is not in the trash", env, name).
		WithNext("kl state delete %s; then delete the environment again", name)
}

// goesUnseen refuses unless a state is none but in name: never written, with no
// lock and no refused write that tells of objects.
func goesUnseen(tx *bbolt.Tx, env, name string, sid uint64, r *stateRec) error {
	if r.Head != 0 {
		return notTrashed(env, name)
	}
	held := false
	err := eachKV(tx, bSession, u64(sid), func(_, _ []byte) (bool, error) { held = true; return false, nil })
	if err != nil {
		return err
	}
	open, err := openRefused(tx, sid)
	switch {
	case err != nil:
		return err
	case held:
		return fault.New(fault.ParameterInvalid, "the environment %s has the state %s, which is locked", env, name).
			WithNext("see by whom: kl lock show %s; then delete the environment again", name)
	case len(open) > 0:
		return fault.New(fault.ParameterInvalid, "the environment %s has the state %s, of which a refused write is kept that is not settled", env, name).
			WithNext("see it with: kl recover list --state %s; merge or discard it, then delete the environment again", name)
	}
	return nil
}

// trashOnly returns the states of an environment, if all are in the trash or
// were never written, and nobody has come to know others than names.
func trashOnly(tx *bbolt.Tx, env string, names []string) (map[string]trashed, error) {
	out := map[string]trashed{}
	prefix := pair(env, "")
	err := eachKV(tx, bName, prefix, func(k, _ []byte) (bool, error) {
		name := string(k[len(prefix):])
		sid, r, err := find(tx, Ref{env, name})
		if err != nil {
			return false, err
		}
		if r.Lifecycle != lifecycleDeleted {
			if err := goesUnseen(tx, env, name, sid, r); err != nil {
				return false, err
			}
		}
		if !slices.Contains(names, name) {
			return false, notTrashed(env, name)
		}
		out[name] = trashed{sid, r}
		return true, nil
	})
	return out, err
}
