package store

import (
	"context"
	"time"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
)

// Authenticate finds the principal of a secret. Codes: credentials_invalid,
// credentials_expired, credentials_revoked.
func (s *Store) Authenticate(_ context.Context, secret string) (auth.Principal, error) {
	var p auth.Principal
	now := s.now()
	err := s.view(func(tx *bbolt.Tx) error {
		t, err := s.tokenBySecret(tx, secret)
		if err != nil {
			return err
		}
		p = t.principal()
		if err := t.active(now); err != nil || t.User == "" {
			return err
		}
		u, ok, err := s.users.get(tx, bUser, []byte(t.User))
		if err == nil && (!ok || !u.DeletedAt.IsZero()) {
			err = userGone(t.Name)
		}
		if err == nil {
			p.UserName = u.Name
		}
		return err
	})
	if err != nil {
		return auth.Principal{}, err
	}
	s.mu.Lock()
	s.used[p.ID] = now
	s.mu.Unlock()
	return p, nil
}

func userGone(token string) *fault.Error {
	return fault.New(fault.CredentialsRevoked, "the user of the token %s was deleted", token).WithNext("ask the operator for access: kl user create")
}

// Authorize checks that p may do a with the states of an environment and
// returns the role with which it does so. ws is the workspace that the path
// names; "" when the path names none. Rights are looked up anew each time.
// What the caller has no part in is answered like what does not exist. Codes:
// workspace_mismatch, slug_not_id, unknown_environment, role_too_low,
// not_member, no_grant, credentials_revoked.
func (s *Store) Authorize(_ context.Context, p auth.Principal, ws, env string, a auth.Action) (auth.Role, error) {
	if ws != "" && !workspaceForm.MatchString(ws) {
		return "", fault.New(fault.SlugNotID, "%.80q is not a workspace's id", ws).With("expected", "a workspace's id, ws_ and 12 letters or digits")
	}
	if !environmentForm.MatchString(env) {
		return "", fault.New(fault.SlugNotID, "%.80q is not an environment's public id", env).With("expected", "an environment's public id, env_ and 12 letters or digits")
	}
	f := auth.Facts{PathWorkspace: ws, Environment: env}
	if p.Kind != auth.Automation { // its token says all
		err := s.view(func(tx *bbolt.Tx) error { return s.facts(tx, p, &f) })
		if err != nil {
			return "", err
		}
	}
	role, code := auth.Decide(p, f, a)
	return role, denied(p, f, a, code)
}

// facts looks up what decides on p's part in an environment.
func (s *Store) facts(tx *bbolt.Tx, p auth.Principal, f *auth.Facts) error {
	e, ok, err := s.envs.get(tx, bEnvironment, []byte(f.Environment))
	if err != nil {
		return err
	}
	if ok {
		f.Workspace = e.WorkspaceID
	}
	if p.User == "" {
		return nil
	}
	u, ok, err := s.users.get(tx, bUser, []byte(p.User))
	if err != nil {
		return err
	}
	f.UserActive = ok && u.DeletedAt.IsZero()
	ws := f.PathWorkspace
	if ws == "" {
		ws = f.Workspace
	}
	if f.Member, err = memberRole(tx, ws, p.User); err != nil {
		return err
	}
	g, ok, err := getRec[grantRec](tx, bGrant, pair(f.Environment, p.User))
	if err == nil && ok && g.EndedAt.IsZero() {
		f.Grant = g.Role
	}
	return err
}

// denied puts a decision into words; nil when it is none against p.
func denied(p auth.Principal, f auth.Facts, a auth.Action, code fault.Code) error {
	switch code {
	case "":
		return nil
	case fault.WorkspaceMismatch:
		return fault.New(code, "these credentials belong to another workspace than %s", f.PathWorkspace).With("expected", p.Workspace)
	case fault.UnknownEnvironment:
		err := unknownEnvironment(f.Environment)
		if p.Environment != "" {
			return err.With("expected", p.Environment)
		}
		return err
	case fault.CredentialsRevoked:
		return userGone(p.Name)
	case fault.NotMember:
		return fault.New(code, "%s is not a member of the workspace %s", p.Display(), f.PathWorkspace).
			WithNext("check the workspace's id; to become a member, ask an owner of it: kl member add %s --workspace %s", p.Display(), f.PathWorkspace)
	case fault.NoGrant:
		return fault.New(code, "%s has no active grant on the environment %s", p.Display(), f.Environment).
			WithNext("ask an admin of the workspace: kl grant add %s --env %s", p.Display(), f.Environment)
	default:
	}
	if p.Kind == auth.Automation {
		return fault.New(fault.RoleTooLow, "the token %s has the role %s, which does not allow to %s", p.Name, p.Role, a)
	}
	enough := auth.Write
	if a == auth.ReadState {
		enough = auth.Read
	}
	return fault.New(fault.RoleTooLow, "%s has the role %s on the environment %s, which does not allow to %s", p.Display(), f.Grant, f.Environment, a).
		WithNext("ask an admin of the workspace: kl grant add %s --env %s --role %s", p.Display(), f.Environment, enough)
}

// memberRole is a user's role in a workspace, "" for none.
func memberRole(tx *bbolt.Tx, ws, user string) (auth.MemberRole, error) {
	m, ok, err := getRec[memberRec](tx, bMember, pair(ws, user))
	if err != nil || !ok {
		return "", err
	}
	return m.Role, nil
}

// roleIn is what p may do in a workspace that exists: the operator as much as
// an owner.
func roleIn(tx *bbolt.Tx, p auth.Principal, ws string) (auth.MemberRole, error) {
	switch {
	case p.Kind != auth.Control:
		return "", nil
	case p.Operator:
		return auth.Owner, nil
	}
	return memberRole(tx, ws, p.User)
}

// AuthorizeMember checks that p has at least a role among the members of a
// workspace; the operator always has. A workspace that p has no part in is
// answered like one that does not exist. Codes: not_found, role_too_low.
func (s *Store) AuthorizeMember(_ context.Context, p auth.Principal, ws string, least auth.MemberRole) error {
	return s.view(func(tx *bbolt.Tx) error {
		role, err := roleIn(tx, p, ws)
		switch {
		case err != nil:
			return err
		case role == "" || !has(tx, bWorkspace, []byte(ws)):
			return noWorkspace(ws)
		case !role.AtLeast(least):
			return memberTooLow(p, role, ws)
		}
		return nil
	})
}

// AuthorizeAdmin checks that p manages the workspace of an environment, as its
// owner, an admin or the operator. Codes: slug_not_id, unknown_environment,
// role_too_low.
func (s *Store) AuthorizeAdmin(_ context.Context, p auth.Principal, env string) error {
	if !environmentForm.MatchString(env) {
		return fault.New(fault.SlugNotID, "%.80q is not an environment's public id", env).With("expected", "an environment's public id, env_ and 12 letters or digits")
	}
	return s.view(func(tx *bbolt.Tx) error {
		e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(env))
		if err != nil {
			return err
		}
		if !ok {
			return unknownEnvironment(env)
		}
		role, err := roleIn(tx, p, e.WorkspaceID)
		switch {
		case err != nil:
			return err
		case role == "":
			return unknownEnvironment(env)
		case !role.AtLeast(auth.Admin):
			return memberTooLow(p, role, e.WorkspaceID)
		}
		return nil
	})
}

func noWorkspace(id string) *fault.Error {
	return fault.New(fault.NotFound, "the workspace %.40q is not known to these credentials", id).WithNext("list yours with: kl workspace list")
}

func memberTooLow(p auth.Principal, role auth.MemberRole, ws string) *fault.Error {
	return fault.New(fault.RoleTooLow, "%s has the role %s in the workspace %s, which does not allow this", p.Display(), role, ws).
		WithNext("ask an owner or admin of the workspace; see them with: kl member list --workspace %s", ws)
}

// active says why a token is no longer valid.
func (t *tokenRec) active(now time.Time) error {
	var f *fault.Error
	switch {
	case !t.RevokedAt.IsZero():
		f = fault.New(fault.CredentialsRevoked, "the token %s was revoked at %s", t.Name, t.RevokedAt.Format(time.RFC3339))
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt):
		f = fault.New(fault.CredentialsExpired, "the token %s expired at %s", t.Name, t.ExpiresAt.Format(time.RFC3339))
	default:
		return nil
	}
	switch t.Kind {
	case auth.PAT:
		return f.WithNext("make another and set TF_HTTP_PASSWORD to it: kl pat create NAME; without any other valid one it needs a new grant, too: kl grant add")
	case auth.Control:
		return f.WithNext("ask the operator for a new user: kl user create")
	default:
		return f
	}
}
