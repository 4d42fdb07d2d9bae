package server

import (
	"cmp"
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/store"
	"kl/wire"
)

// historyRoutes are what the versions of a state tell, and what is done with
// them.
func historyRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: statePath + "/tags", Access: Environment, Action: auth.ReadState, handle: (*Server).tags,
			Summary: "A state's tags, by name", Answer: wire.List[wire.Tag]{},
		},
		{
			Method: http.MethodPut, Path: statePath + "/tags/{tag}", Access: Environment, Action: auth.WriteState, handle: (*Server).setTag,
			Summary: "Give a version a name; a tag that exists moves", Body: wire.TagRequest{}, Answer: wire.Tag{},
		},
		{
			Method: http.MethodDelete, Path: statePath + "/tags/{tag}", Access: Environment, Action: auth.WriteState, handle: (*Server).unsetTag,
			Summary: "Remove a tag; the version stays", Status: http.StatusNoContent,
		},
		{
			Method: http.MethodGet, Path: statePath + "/diff", Access: Environment, Action: auth.ReadState, handle: (*Server).diff,
			Summary: "What two versions have differently, by address and attribute", Answer: wire.Diff{}, Query: []Param{
				{"from", "a version: its number, @N, serial:N, a tag or head; default @1"},
				{"to", "likewise; default head"},
				{"address", "only this instance, resource or module"},
				{"reveal", "true: sensitive values are not masked; the audit trail notes it"},
			},
		},
		{
			Method: http.MethodPost, Path: statePath + "/rollback", Access: Environment, Action: auth.WriteState, handle: (*Server).rollback,
			Summary: "Make the content of an earlier version the newest one, all of it or what is at an address, or show what that would do",
			Body:    wire.RollbackRequest{}, Answer: wire.Rollback{},
		},
		{
			Method: http.MethodGet, Path: statePath + "/resources", Access: Environment, Action: auth.ReadState, handle: (*Server).resources,
			Summary: "The resource instances of a version, in the order of the document", Answer: wire.List[wire.Resource]{}, Query: append([]Param{
				{"address", "only this instance, resource or module"},
				{"version", "a version: its number, @N, serial:N, a tag or head; default head"},
			}, paging...),
		},
		{
			Method: http.MethodGet, Path: statePath + "/resources/history", Access: Environment, Action: auth.ReadState, handle: (*Server).resourceHistory,
			Summary: "What happened to an instance, a resource or a module, the newest first", Answer: wire.List[wire.InstanceEvent]{}, Query: append([]Param{
				{"address", "of an instance, a resource or a module"},
			}, paging...),
		},
	}
}

func (s *Server) resources(c echo.Context) error {
	cursor, limit, err := page(c)
	if err != nil {
		return err
	}
	list, err := s.store.Resources(c.Request().Context(), callOf(c).ref(), store.ResourceQuery{
		Version: cmp.Or(c.QueryParam("version"), "head"), Address: c.QueryParam("address"), Cursor: cursor, Limit: limit,
	})
	if err != nil {
		return err
	}
	return answer(c, list)
}

func (s *Server) resourceHistory(c echo.Context) error {
	cursor, limit, err := page(c)
	if err != nil {
		return err
	}
	list, err := s.store.InstanceHistory(c.Request().Context(), callOf(c).ref(), c.QueryParam("address"), cursor, limit)
	if err != nil {
		return err
	}
	return answer(c, list)
}

func (s *Server) rollback(c echo.Context) error {
	cl := callOf(c)
	var q wire.RollbackRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	if q.To == "" {
		return fault.New(fault.ParameterInvalid, "the body names no version to go back to").WithNext(`send {"to": "@1"}, or another version`)
	}
	// what it does is stored even if the client does not wait for the answer
	ctx := context.WithoutCancel(c.Request().Context())
	out, err := s.store.Rollback(ctx, cl.actor(), cl.ref(), q)
	if err != nil {
		return err
	}
	warn(c, out.QuotaWarnings)
	return answer(c, out)
}

func (s *Server) diff(c echo.Context) error {
	cl := callOf(c)
	q := store.DiffQuery{From: cmp.Or(c.QueryParam("from"), "@1"), To: cmp.Or(c.QueryParam("to"), "head"), Address: c.QueryParam("address")}
	var err error
	if q.Reveal, err = flag(c, "reveal"); err != nil {
		return err
	}
	d, err := s.store.Diff(c.Request().Context(), cl.actor(), cl.ref(), q)
	if err != nil {
		return err
	}
	return answer(c, d)
}

// flag reads a query parameter that is true or false, "" for false.
func flag(c echo.Context, name string) (bool, error) {
	switch v := c.QueryParam(name); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fault.New(fault.ParameterInvalid, "%s can be true or false, not %.40q", name, v).WithNext("send %s=true, or leave it out", name)
	}
}

func (s *Server) tags(c echo.Context) error {
	list, err := s.store.Tags(c.Request().Context(), callOf(c).ref())
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) setTag(c echo.Context) error {
	cl := callOf(c)
	var q wire.TagRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	if q.Version == "" {
		return fault.New(fault.ParameterInvalid, "the body names no version").WithNext(`send {"version": "head"}, or another version`)
	}
	tag, err := s.store.SetTag(c.Request().Context(), cl.actor(), cl.ref(), c.Param("tag"), string(q.Version))
	if err != nil {
		return err
	}
	return answer(c, tag)
}

func (s *Server) unsetTag(c echo.Context) error {
	cl := callOf(c)
	if err := s.store.UnsetTag(c.Request().Context(), cl.actor(), cl.ref(), c.Param("tag")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
