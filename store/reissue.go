package store

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// NewOperatorToken issues a control token of the operator's and revokes those
// from before. It is for whoever has the data file and has lost the token: no
// server asks for it. A file that was never bootstrapped is file_invalid.
func (s *Store) NewOperatorToken(ctx context.Context) (secret string, err error) {
	secret = auth.NewSecret(auth.Control)
	t := tokenRec{V: 1, ID: auth.NewID("tok_"), Kind: auth.Control, Name: "operator", Operator: true, CreatedAt: s.now()}
	err = s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		if k, _ := tx.Bucket(bWorkspace).Cursor().First(); k == nil {
			return fault.New(fault.FileInvalid, "the data file %s has no operator yet", s.opt.Path).WithNext("kl serve --data %s", s.opt.Path)
		}
		revoked, err := revokeTokens(tx, t.CreatedAt, func(t *tokenRec) bool { return t.Operator })
		return broken(errors.Join(
			err, putToken(tx, &t, secret),
			s.event(tx, wire.Event{Kind: "operator_token_issued", Principal: "the data file's owner", Detail: map[string]any{"token": t.ID, "tokens_revoked": revoked}}),
		))
	})
	return secret, err
}

// NewUserToken issues a user's control token, for one who has lost it, and
// revokes those from before. The user's PATs and grants stay. The secret is
// nowhere else than in the answer. Code: not_found.
func (s *Store) NewUserToken(ctx context.Context, by Actor, who string) (wire.User, error) {
	secret := auth.NewSecret(auth.Control)
	var out wire.User
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		u, err := findUser(tx, who)
		if err != nil {
			return err
		}
		if u == nil {
			return fault.New(fault.NotFound, "there is no user %.80s", who).WithNext("list the users with: kl user list")
		}
		t := tokenRec{V: 1, ID: auth.NewID("tok_"), Kind: auth.Control, Name: "control", User: u.ID, CreatedAt: s.now()}
		revoked, err := revokeTokens(tx, t.CreatedAt, func(t *tokenRec) bool { return t.User == u.ID && t.Kind == auth.Control })
		out = u.wire()
		return broken(errors.Join(
			err, putToken(tx, &t, secret),
			s.event(tx, wire.Event{
				Kind: "user_token_issued", Principal: by.Display(), RequestID: by.RequestID,
				Detail: map[string]any{"user": u.ID, "name": u.Name, "token": t.ID, "tokens_revoked": revoked},
			}),
		))
	})
	out.ControlToken = secret
	if err != nil {
		return wire.User{}, err
	}
	return out, nil
}
