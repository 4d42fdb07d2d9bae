package server

import (
	"context"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/store"
	"kl/wire"
)

func (s *Server) whoami(c echo.Context) error {
	ctx, p := c.Request().Context(), callOf(c).principal
	w := wire.Whoami{
		Kind: string(p.Kind), ID: p.ID, Name: p.Display(), User: p.User, Operator: p.Operator,
		Workspace: p.Workspace, Environment: p.Environment, Role: string(p.Role),
	}
	if env := c.QueryParam("environment"); env != "" {
		role, err := s.store.Authorize(ctx, p, "", env, auth.ReadOutputs)
		if err != nil {
			return err
		}
		held := s.store.Held(ctx, env)
		if held != nil && !fault.Is(held, fault.WorkspaceSuspended) {
			return held
		}
		if w.Role = string(role); held != nil {
			w.Hold = fault.Of(held).Detail
		}
	}
	return answer(c, w)
}

// request tells why a request was refused: the operator of any, others of their
// own and of those on environments that they may read. What they may not see
// does not exist for them.
func (s *Server) request(c echo.Context) error {
	ctx, p, id := c.Request().Context(), callOf(c).principal, c.Param("id")
	r, err := s.store.Request(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return noRequest(id)
	}
	if err != nil {
		return err
	}
	own := r.PrincipalID != "" && r.PrincipalID == p.ID || p.User != "" && r.User == p.User
	if !p.Operator && !own && !s.mayRead(ctx, p, r.Environment) {
		return noRequest(id)
	}
	return s.tell(c, r)
}

// noRequest says the same of what does not exist and of what is not the
// caller's.
func noRequest(id string) error {
	return fault.New(fault.NotFound, "no refused request %.40q of yours is remembered", id).
		WithNext("see the newest with: kl why --last; older ones are in the server's log, ask the operator")
}

func (s *Server) mayRead(ctx context.Context, p auth.Principal, env string) bool {
	if env == "" {
		return false
	}
	_, err := s.store.Authorize(ctx, p, "", env, auth.ReadState)
	return err == nil
}

// lastRequest tells of the caller's own last refusal.
func (s *Server) lastRequest(c echo.Context) error {
	r, err := s.store.LastRequest(c.Request().Context(), callOf(c).principal, c.QueryParam("run"))
	if err != nil {
		return err
	}
	return s.tell(c, r)
}

// tell answers with a refused request and its story.
func (s *Server) tell(c echo.Context, r wire.Request) error {
	var kept *wire.Refused
	if id, ok := r.Members["refused_write"].(string); ok {
		// it may be settled by now, or dropped
		if k, err := s.store.Refused(c.Request().Context(), store.Ref{Environment: r.Environment, Name: r.State}, id); err == nil {
			kept = &k
		}
	}
	r.Story = story(r, kept)
	return answer(c, r)
}

func (s *Server) events(c echo.Context) error {
	cursor, limit, err := page(c)
	if err != nil {
		return err
	}
	f := store.EventFilter{
		Workspace: c.QueryParam("workspace"), Environment: c.QueryParam("environment"), State: c.QueryParam("state"),
		Class: c.QueryParam("class"), Limit: limit,
	}
	if v := c.QueryParam("since"); v != "" {
		if f.Since, err = time.Parse(time.RFC3339, v); err != nil {
			return fault.New(fault.ParameterInvalid, "since is not a time in RFC 3339 form").WithNext("write it like 2026-01-31T12:00:00Z")
		}
	}
	if cursor != "" {
		if f.After, err = strconv.ParseUint(cursor, 10, 64); err != nil {
			return fault.New(fault.ParameterInvalid, "cursor is not the member next of a page of events").WithNext("leave cursor out to begin")
		}
	}
	if f.Within, err = s.manages(c); err != nil {
		return err
	}
	list, err := s.store.Events(c.Request().Context(), f)
	if err != nil {
		return err
	}
	return answer(c, list)
}

// manages returns the workspaces whose audit trail the caller may read; nil for
// all.
func (s *Server) manages(c echo.Context) ([]string, error) {
	p := callOf(c).principal
	if p.Operator {
		return nil, nil
	}
	list, err := s.store.Workspaces(c.Request().Context(), p)
	ids := []string{}
	for _, w := range list {
		if auth.MemberRole(w.MemberRole).AtLeast(auth.Admin) {
			ids = append(ids, w.WorkspaceID)
		}
	}
	return ids, err
}
