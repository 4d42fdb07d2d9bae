package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// SetGrant gives a member of the environment's workspace a role on it, or
// another one. Codes: unknown_environment, not_found, parameter_invalid, also
// for somebody who is not a member.
func (s *Store) SetGrant(ctx context.Context, by Actor, env, who string, role auth.Role) (wire.Grant, error) {
	if !role.Valid() {
		return wire.Grant{}, fault.New(fault.ParameterInvalid, "role %.40q is not known; it can be write, plan, read or outputs", string(role)).WithNext("kl grant add --help")
	}
	var out wire.Grant
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		e, u, err := grantee(tx, env, who)
		if err != nil {
			return err
		}
		member, err := memberRole(tx, e.WorkspaceID, u.ID)
		if err != nil {
			return err
		}
		if member == "" {
			return fault.New(fault.ParameterInvalid, "%s is not a member of the workspace %s, and only members can have a grant", u.Name, e.WorkspaceID).
				WithNext("kl member add %s --workspace %s", u.Name, e.WorkspaceID)
		}
		old, ok, err := getRec[grantRec](tx, bGrant, pair(env, u.ID))
		if err != nil {
			return err
		}
		if ok && old.EndedAt.IsZero() && old.Role == role {
			out = old.wire(u)
			return nil
		}
		g := &grantRec{V: 1, Environment: env, Workspace: e.WorkspaceID, User: u.ID, Role: role, GrantedAt: s.now(), GrantedBy: by.Display()}
		out = g.wire(u)
		return broken(errors.Join(putRec(tx, bGrant, pair(env, u.ID), g), s.grantEvent(tx, by, "grant_given", g, u)))
	})
	return out, err
}

// grantee finds the environment and the user of a grant.
func grantee(tx *bbolt.Tx, env, who string) (*environmentRec, *userRec, error) {
	e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(env))
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, unknownEnvironment(env)
	}
	u, err := findUser(tx, who)
	if err == nil && u == nil {
		err = noUser(who)
	}
	return e, u, err
}

func (g *grantRec) wire(u *userRec) wire.Grant {
	w := wire.Grant{
		EnvPublicID: g.Environment, UserID: g.User, Name: u.Name, Role: string(g.Role), Status: wire.GrantActive, GrantedAt: g.GrantedAt,
		GrantedBy: g.GrantedBy, EndedAt: g.EndedAt, EndedBecause: g.Because,
	}
	if !g.EndedAt.IsZero() {
		w.Status = wire.GrantEnded
	}
	return w
}

func (s *Store) grantEvent(tx *bbolt.Tx, by Actor, kind string, g *grantRec, u *userRec) error {
	return s.event(tx, wire.Event{
		Kind: kind, Principal: by.Display(), Workspace: g.Workspace, Environment: g.Environment, RequestID: by.RequestID,
		Detail: map[string]any{"user": u.ID, "name": u.Name, "role": g.Role},
	})
}

// EndGrant takes a grant away; one that has ended stays as it is. Codes:
// unknown_environment, not_found.
func (s *Store) EndGrant(ctx context.Context, by Actor, env, who string) error {
	return s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		_, u, err := grantee(tx, env, who)
		if err != nil {
			return err
		}
		g, ok, err := getRec[grantRec](tx, bGrant, pair(env, u.ID))
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.NotFound, "%s has no grant on the environment %s", u.Name, env).WithNext("kl grant list --env %s", env)
		}
		if !g.EndedAt.IsZero() {
			return nil
		}
		g.EndedAt, g.Because = s.now(), endedRevoked
		return broken(errors.Join(putRec(tx, bGrant, pair(env, u.ID), g), s.grantEvent(tx, by, "grant_ended", g, u)))
	})
}

// Access lists what each member of the workspace may do on an environment, by
// name. Code: unknown_environment.
func (s *Store) Access(_ context.Context, env string) ([]wire.Access, error) {
	out := []wire.Access{}
	now := s.now()
	err := s.view(func(tx *bbolt.Tx) error {
		e, ok, err := getRec[environmentRec](tx, bEnvironment, []byte(env))
		if err != nil {
			return err
		}
		if !ok {
			return unknownEnvironment(env)
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
		if err != nil {
			return err
		}
		grants := map[string][]*grantRec{}
		err = eachRec(tx, bGrant, nil, func(_ []byte, g *grantRec) (bool, error) {
			if g.Workspace == e.WorkspaceID {
				grants[g.User] = append(grants[g.User], g)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		return eachMember(tx, e.WorkspaceID, func(m *memberRec, u *userRec) error {
			a := wire.Access{UserID: m.User, Name: u.Name, MemberRole: string(m.Role), PATStatus: pats[m.User].status(), GrantStatus: wire.GrantNone}
			for _, g := range grants[m.User] {
				active := g.EndedAt.IsZero() && !pats[m.User].outlived(g)
				if active {
					a.GrantCount++
				}
				if g.Environment != env {
					continue
				}
				a.GrantRole, a.GrantStatus = string(g.Role), wire.GrantEnded
				if active {
					a.GrantStatus = wire.GrantActive
				}
			}
			out = append(out, a)
			return nil
		})
	})
	slices.SortFunc(out, func(a, b wire.Access) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}
