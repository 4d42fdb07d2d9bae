package store

import (
	"cmp"
	"context"
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

var userNameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$`)

// userPrefix is how a user's id begins.
const userPrefix = "usr_"

// Why a grant has ended.
const (
	endedRevoked    = "revoked"
	endedMembership = "membership"
	endedPAT        = "pat"
	endedUser       = "user"
)

// CreateUser makes a user with a control token, which is in the answer and
// nowhere else. Code: parameter_invalid, also for a name that is taken.
func (s *Store) CreateUser(ctx context.Context, by Actor, q wire.UserRequest) (wire.User, error) {
	if !userNameForm.MatchString(q.Name) || strings.HasPrefix(q.Name, userPrefix) { // a name must not be taken for an id
		return wire.User{}, fault.New(fault.ParameterInvalid, "%.80q is not a user's name: 1 to 64 letters, digits and . _ @ + -, beginning with a letter or a digit", q.Name).
			WithNext("kl user create NAME")
	}
	secret := auth.NewSecret(auth.Control)
	u := userRec{V: 1, ID: auth.NewID(userPrefix), Name: q.Name, CreatedAt: s.now()}
	t := tokenRec{V: 1, ID: auth.NewID("tok_"), Kind: auth.Control, Name: "control", User: u.ID, CreatedAt: u.CreatedAt}
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		old, err := findUser(tx, q.Name)
		if err != nil {
			return err
		}
		if old != nil {
			return fault.New(fault.ParameterInvalid, "there is a user %s already", q.Name).WithNext("choose another name; see them with: kl user list")
		}
		return broken(errors.Join(
			putRec(tx, bUser, []byte(u.ID), u), putToken(tx, &t, secret),
			s.event(tx, wire.Event{Kind: "user_created", Principal: by.Display(), RequestID: by.RequestID, Detail: map[string]any{"user": u.ID, "name": u.Name}}),
		))
	})
	if err != nil {
		return wire.User{}, err
	}
	out := u.wire()
	out.ControlToken = secret
	return out, nil
}

func (u *userRec) wire() wire.User {
	w := wire.User{UserID: u.ID, Name: u.Name, Status: wire.UserIsActive, CreatedAt: u.CreatedAt}
	if !u.DeletedAt.IsZero() {
		w.Status = wire.UserDeleted
	}
	return w
}

// findUser finds an active user by id or by name; nil when there is none.
func findUser(tx *bbolt.Tx, who string) (*userRec, error) {
	u, ok, err := getRec[userRec](tx, bUser, []byte(who))
	if err != nil {
		return nil, err
	}
	if ok && u.DeletedAt.IsZero() {
		return u, nil
	}
	var found *userRec
	err = eachRec(tx, bUser, nil, func(_ []byte, u *userRec) (bool, error) {
		if u.Name == who && u.DeletedAt.IsZero() {
			found = u
		}
		return found == nil, nil
	})
	return found, err
}

func noUser(who string) *fault.Error {
	return fault.New(fault.NotFound, "there is no user %.80q", who).WithNext("ask the operator for the user's id or name: kl user list")
}

// Users lists all users by name, deleted ones too.
func (s *Store) Users(_ context.Context) ([]wire.User, error) {
	out := []wire.User{}
	err := s.view(func(tx *bbolt.Tx) error {
		return eachRec(tx, bUser, nil, func(_ []byte, u *userRec) (bool, error) {
			out = append(out, u.wire())
			return true, nil
		})
	})
	slices.SortFunc(out, func(a, b wire.User) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.CreatedAt.Compare(b.CreatedAt)) })
	return out, err
}

// DeleteUser ends a user: tokens, memberships and grants end at once, and with
// the only member of a personal workspace the automation tokens there. States
// stay. Code: not_found.
func (s *Store) DeleteUser(ctx context.Context, by Actor, who string) error {
	return s.commit.do(ctx, 8192, func(tx *bbolt.Tx) error {
		u, err := findUser(tx, who)
		if err != nil {
			return err
		}
		if u == nil {
			return noUser(who)
		}
		now := s.now()
		of, err := membershipsOf(tx, u.ID)
		if err != nil {
			return err
		}
		alone := map[string]bool{}
		for ws := range of {
			w, ok, err := getRec[workspaceRec](tx, bWorkspace, []byte(ws))
			if err != nil {
				return err
			}
			alone[ws] = ok && w.Kind == wire.Personal
		}
		u.DeletedAt = now
		if err := putRec(tx, bUser, []byte(u.ID), u); err != nil {
			return broken(err)
		}
		for ws := range of {
			if err := del(tx, bMember, pair(ws, u.ID)); err != nil {
				return broken(err)
			}
		}
		grants, err := endGrants(tx, now, endedUser, func(g *grantRec) bool { return g.User == u.ID })
		if err != nil {
			return broken(err)
		}
		tokens, err := revokeTokens(tx, now, func(t *tokenRec) bool {
			return t.User == u.ID || t.Kind == auth.Automation && alone[t.Workspace]
		})
		if err != nil {
			return broken(err)
		}
		return broken(s.event(tx, wire.Event{
			Kind: "user_deleted", Principal: by.Display(), RequestID: by.RequestID,
			Detail: map[string]any{"user": u.ID, "name": u.Name, "memberships_ended": len(of), "grants_ended": grants, "tokens_revoked": tokens},
		}))
	})
}

// membershipsOf returns a user's role in each workspace of theirs.
func membershipsOf(tx *bbolt.Tx, user string) (map[string]auth.MemberRole, error) {
	of := map[string]auth.MemberRole{}
	err := eachRec(tx, bMember, nil, func(k []byte, m *memberRec) (bool, error) {
		if m.User == user {
			of[string(k[:len(k)-len(user)-1])] = m.Role
		}
		return true, nil
	})
	return of, err
}

// endGrants ends the active grants that match and returns the environments that
// they were on.
func endGrants(tx *bbolt.Tx, now time.Time, because string, match func(*grantRec) bool) ([]string, error) {
	var ended []*grantRec // written afterwards: a bucket must not be changed while it is walked
	err := eachRec(tx, bGrant, nil, func(_ []byte, g *grantRec) (bool, error) {
		if g.EndedAt.IsZero() && match(g) {
			ended = append(ended, g)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	envs := []string{}
	for _, g := range ended {
		g.EndedAt, g.Because = now, because
		if err := putRec(tx, bGrant, pair(g.Environment, g.User), g); err != nil {
			return nil, err
		}
		envs = append(envs, g.Environment)
	}
	return envs, nil
}

// revokeTokens revokes the valid tokens that match and returns how many.
func revokeTokens(tx *bbolt.Tx, now time.Time, match func(*tokenRec) bool) (int, error) {
	var revoked []*tokenRec
	err := eachRec(tx, bToken, nil, func(_ []byte, t *tokenRec) (bool, error) {
		if t.RevokedAt.IsZero() && match(t) {
			revoked = append(revoked, t)
		}
		return true, nil
	})
	for _, t := range revoked {
		t.RevokedAt = now
		err = errors.Join(err, putRec(tx, bToken, []byte(t.ID), t))
	}
	return len(revoked), err
}
