package store

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.etcd.io/bbolt"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// maxText bounds a workspace's name, the reason of a suspension and what runs
// say about themselves, in characters.
const maxText = 200

func plainText(text string) bool {
	return text != "" && utf8.RuneCountInString(text) <= maxText && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// CreateWorkspace makes a workspace. A user who asks becomes its owner, and has
// at most one personal workspace; the operator names the owner. Codes:
// parameter_invalid, not_found for an unknown owner.
func (s *Store) CreateWorkspace(ctx context.Context, by Actor, q wire.WorkspaceRequest) (wire.Workspace, error) {
	bad := func(format string, args ...any) (wire.Workspace, error) {
		return wire.Workspace{}, fault.New(fault.ParameterInvalid, format, args...).WithNext("kl workspace create --help")
	}
	if q.Kind == "" {
		q.Kind = wire.Organization
	}
	switch {
	case !plainText(q.Name):
		return bad("a workspace's name has 1 to %d printable characters", maxText)
	case q.Kind != wire.Personal && q.Kind != wire.Organization:
		return bad("kind %.40q is not known; it can be personal or organization", q.Kind)
	case by.Operator && q.Kind == wire.Personal && q.Owner == "":
		return bad("a personal workspace needs an owner")
	case !by.Operator && q.Owner != "" && q.Owner != by.User && q.Owner != by.UserName:
		return bad("only the operator names another owner than the caller")
	}
	if !by.Operator {
		q.Owner = by.User
	}
	ws := workspaceRec{V: 1, Workspace: wire.Workspace{
		WorkspaceID: auth.NewID("ws_"), Name: q.Name, Kind: q.Kind, Status: statusActive, CreatedAt: s.now(),
	}}
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		detail := map[string]any{"name": ws.Name, "kind": ws.Kind}
		var owner *userRec
		if q.Owner != "" {
			u, err := findUser(tx, q.Owner)
			if err != nil {
				return err
			}
			if u == nil {
				return noUser(q.Owner)
			}
			if err := oneOfItsKind(tx, u, ws.Kind); err != nil {
				return err
			}
			owner, detail["owner"] = u, u.ID
		}
		var err error
		if owner != nil {
			err = putRec(tx, bMember, pair(ws.WorkspaceID, owner.ID), memberRec{V: 1, User: owner.ID, Role: auth.Owner, Since: ws.CreatedAt})
		}
		return broken(errors.Join(err, putRec(tx, bWorkspace, []byte(ws.WorkspaceID), ws), s.event(tx, wire.Event{
			Kind: "workspace_created", Principal: by.Display(), Workspace: ws.WorkspaceID, RequestID: by.RequestID, Detail: detail,
		})))
	})
	out := ws.Workspace
	if q.Owner != "" && !by.Operator {
		out.MemberRole = string(auth.Owner)
	}
	return out, err
}

// oneOfItsKind refuses a second personal workspace of a user.
func oneOfItsKind(tx *bbolt.Tx, u *userRec, kind string) error {
	if kind != wire.Personal {
		return nil
	}
	of, err := membershipsOf(tx, u.ID)
	if err != nil {
		return err
	}
	for ws := range of {
		w, ok, err := getRec[workspaceRec](tx, bWorkspace, []byte(ws))
		if err != nil {
			return err
		}
		if ok && w.Kind == wire.Personal {
			return fault.New(fault.ParameterInvalid, "%s has a personal workspace already: %s", u.Name, ws).WithNext("make an organization: kl workspace create NAME")
		}
	}
	return nil
}

// Workspaces lists the workspaces that p has a part in, with p's role there:
// all of them for the operator.
func (s *Store) Workspaces(_ context.Context, p auth.Principal) ([]wire.Workspace, error) {
	out := []wire.Workspace{}
	err := s.view(func(tx *bbolt.Tx) error {
		return eachRec(tx, bWorkspace, nil, func(k []byte, w *workspaceRec) (bool, error) {
			role, err := roleIn(tx, p, string(k))
			if err != nil || role == "" {
				return err == nil, err
			}
			out = append(out, w.seenBy(p, role))
			return true, nil
		})
	})
	return out, err
}

func (w *workspaceRec) seenBy(p auth.Principal, role auth.MemberRole) wire.Workspace {
	out := w.Workspace
	if !p.Operator {
		out.MemberRole = string(role)
	}
	return out
}

// Workspace returns a workspace that p has a part in. Code: not_found.
func (s *Store) Workspace(_ context.Context, p auth.Principal, id string) (wire.Workspace, error) {
	var out wire.Workspace
	err := s.view(func(tx *bbolt.Tx) error {
		role, err := roleIn(tx, p, id)
		if err != nil {
			return err
		}
		w, ok, err := getRec[workspaceRec](tx, bWorkspace, []byte(id))
		if err == nil && (!ok || role == "") {
			err = noWorkspace(id)
		}
		if err == nil {
			out = w.seenBy(p, role)
		}
		return err
	})
	return out, err
}

// Suspend holds a workspace: its states can be read, and locks given back, but
// nothing can be written or locked. Codes: not_found, parameter_invalid.
func (s *Store) Suspend(ctx context.Context, by Actor, id, reason string) (wire.Workspace, error) {
	if !plainText(reason) {
		return wire.Workspace{}, fault.New(fault.ParameterInvalid, "a suspension needs a reason of 1 to %d printable characters", maxText).
			WithNext(`kl workspace suspend ID --reason "…"`)
	}
	return s.changeWorkspace(ctx, by, id, func(w *workspaceRec) (*wire.Event, error) {
		if w.Status == statusSuspended {
			return nil, fault.New(fault.ParameterInvalid, "the workspace %s was suspended by %s already", w.Name, w.SuspendedBy).WithNext("kl workspace show %s", id)
		}
		w.Status, w.SuspendedReason, w.SuspendedBy, w.SuspendedAt = statusSuspended, reason, by.Display(), s.now()
		return &wire.Event{Kind: "workspace_suspended", Detail: map[string]any{"reason": reason}}, nil
	})
}

// Resume ends a suspension; one of a workspace that is active changes nothing.
// Code: not_found.
func (s *Store) Resume(ctx context.Context, by Actor, id string) (wire.Workspace, error) {
	return s.changeWorkspace(ctx, by, id, func(w *workspaceRec) (*wire.Event, error) {
		if w.Status != statusSuspended {
			return nil, nil
		}
		w.Status, w.SuspendedReason, w.SuspendedBy, w.SuspendedAt = statusActive, "", "", time.Time{}
		return &wire.Event{Kind: "workspace_resumed"}, nil
	})
}

// changeWorkspace changes a workspace's record; no event means no change.
func (s *Store) changeWorkspace(ctx context.Context, by Actor, id string, f func(*workspaceRec) (*wire.Event, error)) (wire.Workspace, error) {
	var out wire.Workspace
	err := s.commit.do(ctx, 2048, func(tx *bbolt.Tx) error {
		w, ok, err := getRec[workspaceRec](tx, bWorkspace, []byte(id))
		if err != nil {
			return err
		}
		if !ok {
			return noWorkspace(id)
		}
		e, err := f(w)
		if err != nil {
			return err
		}
		out = w.Workspace
		if e == nil {
			return nil
		}
		e.Principal, e.Workspace, e.RequestID = by.Display(), id, by.RequestID
		return broken(errors.Join(putRec(tx, bWorkspace, []byte(id), w), s.event(tx, *e)))
	})
	return out, err
}
