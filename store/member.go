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

// Members lists the members of a workspace by name. Code: not_found.
func (s *Store) Members(_ context.Context, ws string) ([]wire.Member, error) {
	out := []wire.Member{}
	err := s.view(func(tx *bbolt.Tx) error {
		if !has(tx, bWorkspace, []byte(ws)) {
			return noWorkspace(ws)
		}
		return eachMember(tx, ws, func(m *memberRec, u *userRec) error {
			out = append(out, m.wire(u))
			return nil
		})
	})
	slices.SortFunc(out, func(a, b wire.Member) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

func (m *memberRec) wire(u *userRec) wire.Member {
	return wire.Member{UserID: m.User, Name: u.Name, Role: string(m.Role), Since: m.Since}
}

// eachMember calls f for the members of a workspace, with their users.
func eachMember(tx *bbolt.Tx, ws string, f func(*memberRec, *userRec) error) error {
	return eachRec(tx, bMember, pair(ws, ""), func(_ []byte, m *memberRec) (bool, error) {
		u, ok, err := getRec[userRec](tx, bUser, []byte(m.User))
		if err != nil {
			return false, err
		}
		if !ok {
			u = &userRec{ID: m.User, Name: m.User}
		}
		err = f(m, u)
		return err == nil, err
	})
}

// company is what decides on changes of one member.
type company struct {
	ws      *workspaceRec
	by      auth.MemberRole // of the one who asks
	user    *userRec
	role    auth.MemberRole // of the user now, "" for none
	members int
	owners  int
}

// readCompany collects it. The codes are not_found for a workspace that the
// asking one has no part in, and for an unknown user.
func readCompany(tx *bbolt.Tx, by Actor, ws, who string) (*company, error) {
	var c company
	var ok bool
	var err error
	if c.by, err = roleIn(tx, by.Principal, ws); err != nil {
		return nil, err
	}
	if c.ws, ok, err = getRec[workspaceRec](tx, bWorkspace, []byte(ws)); err != nil {
		return nil, err
	}
	if !ok || c.by == "" {
		return nil, noWorkspace(ws)
	}
	if c.user, err = findUser(tx, who); err != nil {
		return nil, err
	}
	if c.user == nil {
		return nil, noUser(who)
	}
	err = eachRec(tx, bMember, pair(ws, ""), func(_ []byte, m *memberRec) (bool, error) {
		c.members++
		if m.Role == auth.Owner {
			c.owners++
		}
		if m.User == c.user.ID {
			c.role = m.Role
		}
		return true, nil
	})
	return &c, err
}

// SetMember makes a user a member, or changes a member's role. A personal
// workspace has one member, its owner. Codes: not_found, role_too_low,
// parameter_invalid, also for the last owner's role.
func (s *Store) SetMember(ctx context.Context, by Actor, ws string, q wire.MemberRequest) (wire.Member, error) {
	var out wire.Member
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		c, err := readCompany(tx, by, ws, q.User)
		if err != nil {
			return err
		}
		role := auth.MemberRole(q.Role)
		if role == "" {
			role = auth.Member
			if c.ws.Kind == wire.Personal {
				role = auth.Owner
			}
		}
		if err := c.mayBecome(by, role); err != nil {
			return err
		}
		if c.ws.Kind == wire.Personal && c.role == "" {
			if err := oneOfItsKind(tx, c.user, wire.Personal); err != nil {
				return err
			}
		}
		m, ok, err := getRec[memberRec](tx, bMember, pair(ws, c.user.ID))
		if err != nil {
			return err
		}
		kind := "member_changed"
		if !ok {
			m, kind = &memberRec{V: 1, User: c.user.ID, Since: s.now()}, "member_added"
		}
		same := m.Role == role
		m.Role = role
		out = m.wire(c.user)
		if same {
			return nil
		}
		return broken(errors.Join(putRec(tx, bMember, pair(ws, c.user.ID), m), s.event(tx, wire.Event{
			Kind: kind, Principal: by.Display(), Workspace: ws, RequestID: by.RequestID,
			Detail: map[string]any{"user": c.user.ID, "name": c.user.Name, "role": role, "before": c.role},
		})))
	})
	return out, err
}

// mayBecome judges a new role of a member, or the first of a new one.
func (c *company) mayBecome(by Actor, role auth.MemberRole) error {
	switch {
	case !role.Valid():
		return fault.New(fault.ParameterInvalid, "role %.40q is not known; it can be owner, admin or member", string(role)).WithNext("kl member add --help")
	case !c.by.MayAppoint(c.role, role):
		return memberTooLow(by.Principal, c.by, c.ws.WorkspaceID)
	case c.ws.Kind == wire.Personal && (role != auth.Owner || c.role == "" && c.members > 0):
		return fault.New(fault.ParameterInvalid, "%s is a personal workspace: it has exactly one member, its owner", c.ws.Name).
			WithNext("make an organization and share that: kl workspace create NAME")
	case auth.OwnerNeeded(c.role, role, c.owners):
		return c.lastOwner()
	}
	return nil
}

func (c *company) lastOwner() error {
	return fault.New(fault.ParameterInvalid, "%s is the last owner of the workspace %s", c.user.Name, c.ws.Name).
		WithNext("make somebody else an owner first: kl member add USER --role owner --workspace %s", c.ws.WorkspaceID)
}

// RemoveMember ends a membership, and with it the member's grants in the
// workspace. Members may remove themselves, which is to leave. Codes:
// not_found, role_too_low, parameter_invalid for the last owner and in a
// personal workspace.
func (s *Store) RemoveMember(ctx context.Context, by Actor, ws, who string) error {
	return s.commit.do(ctx, 4096, func(tx *bbolt.Tx) error {
		c, err := readCompany(tx, by, ws, who)
		if err != nil {
			return err
		}
		self := by.User != "" && c.user.ID == by.User
		switch {
		case !self && !c.by.AtLeast(auth.Admin):
			return memberTooLow(by.Principal, c.by, ws)
		case c.role == "":
			return fault.New(fault.NotFound, "%s is not a member of the workspace %s", c.user.Name, c.ws.Name).WithNext("kl member list --workspace %s", ws)
		case !self && !c.by.MayAppoint(c.role, ""):
			return memberTooLow(by.Principal, c.by, ws)
		case c.ws.Kind == wire.Personal:
			return fault.New(fault.ParameterInvalid, "%s is the personal workspace of %s, who cannot leave it", c.ws.Name, c.user.Name).
				WithNext("to end the user: kl user delete %s", c.user.Name)
		case auth.OwnerNeeded(c.role, "", c.owners):
			return c.lastOwner()
		}
		kind := "member_removed"
		if self {
			kind = "member_left"
		}
		if err := del(tx, bMember, pair(ws, c.user.ID)); err != nil {
			return broken(err)
		}
		ended, err := endGrants(tx, s.now(), endedMembership, func(g *grantRec) bool { return g.User == c.user.ID && g.Workspace == ws })
		if err != nil {
			return broken(err)
		}
		return broken(s.event(tx, wire.Event{
			Kind: kind, Principal: by.Display(), Workspace: ws, RequestID: by.RequestID,
			Detail: map[string]any{"user": c.user.ID, "name": c.user.Name, "role": c.role, "grants_ended": ended},
		}))
	})
}
