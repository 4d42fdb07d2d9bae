package store

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// maxTokenName is the longest name of a token, in characters.
const maxTokenName = 64

// CreateToken issues an automation token for an environment; its secret is in
// the answer and nowhere else. Codes: unknown_environment, parameter_invalid.
func (s *Store) CreateToken(ctx context.Context, by Actor, env string, q wire.TokenRequest) (wire.Token, error) {
	bad := func(format string, args ...any) (wire.Token, error) {
		return wire.Token{}, fault.New(fault.ParameterInvalid, format, args...).WithNext("kl token create --help")
	}
	role := auth.Role(cmp.Or(q.Role, string(auth.Write)))
	switch {
	case !tokenName(q.Name):
		return bad("a token's name has 1 to %d printable characters", maxTokenName)
	case !role.Valid():
		return bad("role %.40q is not known; it can be write, plan, read or outputs", string(role))
	case q.Sensitive && role != auth.Outputs:
		return bad("sensitive is for the role outputs; the role %s reads whole states", role)
	case q.ExpiresIn < 0:
		return bad("expires_in is negative")
	}
	secret := auth.NewSecret(auth.Automation)
	now := s.now()
	t := &tokenRec{
		V: 1, ID: auth.NewID("tok_"), Kind: auth.Automation, Name: q.Name, Environment: env, Role: role, Sensitive: q.Sensitive, CreatedAt: now,
	}
	if q.ExpiresIn > 0 {
		t.ExpiresAt = now.Add(time.Duration(q.ExpiresIn))
	}
	err := s.commit.do(ctx, 1024, func(tx *bbolt.Tx) error {
		e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(env))
		if err != nil {
			return err
		}
		if !ok {
			return unknownEnvironment(env)
		}
		t.Workspace = e.WorkspaceID
		return broken(errors.Join(putToken(tx, t, secret), s.tokenEvent(tx, by, "token_created", t)))
	})
	if err != nil {
		return wire.Token{}, err
	}
	out := t.wire()
	out.Secret = secret
	return out, nil
}

// tokenName reports whether a token may have the name.
func tokenName(name string) bool {
	return name != "" && utf8.RuneCountInString(name) <= maxTokenName && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (s *Store) tokenEvent(tx *bbolt.Tx, by Actor, kind string, t *tokenRec) error {
	return s.event(tx, wire.Event{
		Kind: kind, Principal: by.Display(), Workspace: t.Workspace, Environment: t.Environment, RequestID: by.RequestID,
		Detail: map[string]any{"token": t.ID, "name": t.Name, "role": t.Role},
	})
}

func (t *tokenRec) wire() wire.Token {
	return wire.Token{
		ID: t.ID, Name: t.Name, Role: string(t.Role), Sensitive: t.Sensitive, CreatedAt: t.CreatedAt, ExpiresAt: wire.Moment{Time: t.ExpiresAt}, LastUsedAt: wire.Moment{Time: t.LastUsedAt}, RevokedAt: wire.Moment{Time: t.RevokedAt},
	}
}

// Tokens lists an environment's automation tokens, the oldest first, revoked
// ones too. Code: unknown_environment.
func (s *Store) Tokens(_ context.Context, env string) ([]wire.Token, error) {
	return s.listTokens(func(t *tokenRec) bool { return t.Kind == auth.Automation && t.Environment == env }, func(tx *bbolt.Tx) error {
		if !has(tx, bEnvironment, []byte(env)) {
			return unknownEnvironment(env)
		}
		return nil
	})
}

// listTokens lists the tokens that match, the oldest first. check, if there is
// one, may refuse.
func (s *Store) listTokens(match func(*tokenRec) bool, check func(tx *bbolt.Tx) error) ([]wire.Token, error) {
	out := []wire.Token{}
	err := s.view(func(tx *bbolt.Tx) error {
		if check != nil {
			if err := check(tx); err != nil {
				return err
			}
		}
		return eachRec(tx, bToken, nil, func(_ []byte, t *tokenRec) (bool, error) {
			if match(t) {
				out = append(out, t.wire())
			}
			return true, nil
		})
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	for i := range out {
		// uses of the last minute are not in the file yet
		if at := s.used[out[i].ID]; at.After(out[i].LastUsedAt.Time) {
			out[i].LastUsedAt.Time = at
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b wire.Token) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// RevokeToken ends an automation token of an environment; a second time
// changes nothing. Sessions that it has open stay open: what they still send
// is refused and kept, until somebody releases them. Codes:
// unknown_environment, not_found.
func (s *Store) RevokeToken(ctx context.Context, by Actor, env, id string) error {
	return s.commit.do(ctx, 1024, func(tx *bbolt.Tx) error {
		if !has(tx, bEnvironment, []byte(env)) {
			return unknownEnvironment(env)
		}
		t, ok, err := getRec[tokenRec](tx, bToken, []byte(id))
		if err != nil {
			return err
		}
		if !ok || t.Kind != auth.Automation || t.Environment != env {
			return fault.New(fault.NotFound, "the environment %s has no token %.40q", env, id).WithNext("kl token list")
		}
		if !t.RevokedAt.IsZero() {
			return nil
		}
		t.RevokedAt = s.now()
		return broken(errors.Join(putRec(tx, bToken, []byte(id), t), s.tokenEvent(tx, by, "token_revoked", t)))
	})
}

// putToken stores a new token by the hash of its secret.
func putToken(tx *bbolt.Tx, t *tokenRec, secret string) error {
	h := auth.Hash(secret)
	t.Hash = h[:]
	return errors.Join(putRec(tx, bToken, []byte(t.ID), t), put(tx, bTokenHash, h[:], []byte(t.ID)))
}

// tokenBySecret finds a token, active or not. Code: credentials_invalid.
func (s *Store) tokenBySecret(tx *bbolt.Tx, secret string) (*tokenRec, error) {
	invalid := func() error { return fault.New(fault.CredentialsInvalid, "the token is not one of this server") }
	if _, ok := auth.KindOf(secret); !ok {
		return nil, invalid()
	}
	h := auth.Hash(secret)
	id := peek(tx, bTokenHash, h[:])
	if id == nil {
		return nil, invalid()
	}
	t, ok, err := s.tokens.get(tx, bToken, id)
	if err != nil {
		return nil, err
	}
	if !ok || subtle.ConstantTimeCompare(t.Hash, h[:]) != 1 {
		return nil, invalid()
	}
	return t, nil
}

func (t *tokenRec) principal() auth.Principal {
	return auth.Principal{
		Kind: t.Kind, ID: t.ID, Name: t.Name, User: t.User, Operator: t.Operator, Workspace: t.Workspace, Environment: t.Environment, Role: t.Role, Sensitive: t.Sensitive,
	}
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
