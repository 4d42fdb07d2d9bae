package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
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
