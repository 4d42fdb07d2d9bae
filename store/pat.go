package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// maxPATs bounds the valid personal access tokens of one user.
const maxPATs = 100

// CreatePAT issues a personal access token of the caller; its secret is in the
// answer and nowhere else. When the caller's earlier tokens have all ended, the
// grants that were given on their strength have ended with them. Codes:
// parameter_invalid, credentials_revoked.
func (s *Store) CreatePAT(ctx context.Context, by Actor, q wire.PATRequest) (wire.Token, error) {
	if by.User == "" {
		return wire.Token{}, noUserToken()
	}
	if !tokenName(q.Name) {
		return wire.Token{}, fault.New(fault.ParameterInvalid, "a token's name has 1 to %d printable characters", maxTokenName).WithNext("kl pat create NAME")
	}
	secret := auth.NewSecret(auth.PAT)
	now := s.now()
	t := tokenRec{V: 1, ID: auth.NewID("pat_"), Kind: auth.PAT, Name: q.Name, User: by.User, CreatedAt: now}
	if q.ExpiresIn > 0 {
		t.ExpiresAt = now.Add(time.Duration(q.ExpiresIn))
	}
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		u, ok, err := getRec[userRec](tx, bUser, []byte(by.User))
		if err != nil {
			return err
		}
		if !ok || !u.DeletedAt.IsZero() {
			return userGone(by.Name)
		}
		pats, err := patsOf(tx, by.User, now)
		if err != nil {
			return err
		}
		if pats.active >= maxPATs {
			return fault.New(fault.ParameterInvalid, "%s has %d valid personal access tokens, which is the most", by.Display(), pats.active).
				WithNext("kl pat list; then kl pat revoke ID")
		}
		var ended []string
		if pats.active == 0 {
			ended, err = endGrants(tx, now, endedPAT, func(g *grantRec) bool { return g.User == by.User && pats.outlived(g) })
			if err != nil {
				return broken(err)
			}
		}
		return broken(errors.Join(putToken(tx, &t, secret), s.patEvent(tx, by, "pat_created", &t, ended)))
	})
	if err != nil {
		return wire.Token{}, err
	}
	out := t.wire()
	out.Secret = secret
	return out, nil
}

func noUserToken() *fault.Error {
	return fault.New(fault.ParameterInvalid, "the operator's token belongs to no user, and personal access tokens do").
		WithNext("use a user's control token: kl user create, kl login")
}

func (s *Store) patEvent(tx *bbolt.Tx, by Actor, kind string, t *tokenRec, ended []string) error {
	detail := map[string]any{"token": t.ID, "name": t.Name, "user": t.User}
	if len(ended) > 0 {
		detail["grants_ended"] = ended
	}
	return s.event(tx, wire.Event{Kind: kind, Principal: by.Display(), RequestID: by.RequestID, Detail: detail})
}

// patSum is what the personal access tokens of a user come to.
type patSum struct {
	all, active int
	ended       time.Time // when the last one that is not valid ended
}

// outlived reports whether a grant was given while there were tokens, and all
// of them have ended since.
func (p patSum) outlived(g *grantRec) bool { return p.active == 0 && g.GrantedAt.Before(p.ended) }

func (p *patSum) add(t *tokenRec, now time.Time) {
	p.all++
	end := t.RevokedAt
	if end.IsZero() {
		end = t.ExpiresAt
	}
	if t.active(now) == nil {
		p.active++
	} else if end.After(p.ended) {
		p.ended = end
	}
}

func (p patSum) status() string {
	switch {
	case p.all == 0:
		return wire.PATNone
	case p.active == 0:
		return wire.PATRevoked
	}
	return wire.PATActive
}

func patsOf(tx *bbolt.Tx, user string, now time.Time) (patSum, error) {
	var p patSum
	err := eachRec(tx, bToken, nil, func(_ []byte, t *tokenRec) (bool, error) {
		if t.Kind == auth.PAT && t.User == user {
			p.add(t, now)
		}
		return true, nil
	})
	return p, err
}

// PATs lists the caller's personal access tokens, the oldest first, revoked
// ones too. Code: parameter_invalid for the operator.
func (s *Store) PATs(_ context.Context, by Actor) ([]wire.Token, error) {
	if by.User == "" {
		return nil, noUserToken()
	}
	return s.listTokens(func(t *tokenRec) bool { return t.Kind == auth.PAT && t.User == by.User }, nil)
}

// RevokePAT ends a personal access token of the caller, or any for the
// operator; a second time changes nothing. With the last valid one end the
// user's grants. Code: not_found, also for those of others.
func (s *Store) RevokePAT(ctx context.Context, by Actor, id string) error {
	return s.commit.do(ctx, 4096, func(tx *bbolt.Tx) error {
		t, ok, err := getRec[tokenRec](tx, bToken, []byte(id))
		if err != nil {
			return err
		}
		if !ok || t.Kind != auth.PAT || t.User != by.User && !by.Operator {
			return fault.New(fault.NotFound, "there is no personal access token %.40q of these credentials' user", id).WithNext("kl pat list")
		}
		if !t.RevokedAt.IsZero() {
			return nil
		}
		now := s.now()
		t.RevokedAt = now
		if err := putRec(tx, bToken, []byte(id), t); err != nil {
			return broken(err)
		}
		pats, err := patsOf(tx, t.User, now)
		if err != nil {
			return broken(err)
		}
		var ended []string
		if pats.active == 0 {
			if ended, err = endGrants(tx, now, endedPAT, func(g *grantRec) bool { return g.User == t.User }); err != nil {
				return broken(err)
			}
		}
		return broken(s.patEvent(tx, by, "pat_revoked", t, ended))
	})
}

// endExpired ends the grants of users whose last personal access token has
// expired. Nobody is let in by such a token meanwhile; this is for what the
// grant allows a control token.
func (s *Store) endExpired() {
	now := s.now()
	look := func(tx *bbolt.Tx) (map[string][]*grantRec, error) {
		of := map[string][]*grantRec{}
		err := eachRec(tx, bGrant, nil, func(_ []byte, g *grantRec) (bool, error) {
			if g.EndedAt.IsZero() {
				of[g.User] = append(of[g.User], g)
			}
			return true, nil
		})
		if err != nil || len(of) == 0 {
			return nil, err
		}
		pats := map[string]patSum{}
		err = eachRec(tx, bToken, nil, func(_ []byte, t *tokenRec) (bool, error) {
			if t.Kind == auth.PAT {
				p := pats[t.User]
				p.add(t, now)
				pats[t.User] = p
			}
			return true, nil
		})
		for user, grants := range of {
			of[user] = slices.DeleteFunc(grants, func(g *grantRec) bool { return !pats[user].outlived(g) })
			if len(of[user]) == 0 {
				delete(of, user)
			}
		}
		return of, err
	}
	found := false
	err := s.view(func(tx *bbolt.Tx) error {
		of, err := look(tx)
		found = len(of) > 0
		return err
	})
	if err != nil || !found {
		return // what cannot be read now is looked at again in a minute
	}
	s.commit.try(func(tx *bbolt.Tx) error {
		of, err := look(tx)
		if err != nil {
			return err
		}
		for user, grants := range of {
			var envs []string
			for _, g := range grants {
				g.EndedAt, g.Because = now, endedPAT
				if err := putRec(tx, bGrant, pair(g.Environment, g.User), g); err != nil {
					return broken(err)
				}
				envs = append(envs, g.Environment)
			}
			if err := s.event(tx, wire.Event{Kind: "pat_expired", Detail: map[string]any{"user": user, "grants_ended": envs}}); err != nil {
				return broken(err)
			}
		}
		return nil
	})
}
