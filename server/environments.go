package server

import (
	"github.com/labstack/echo/v4"

	"kl/fault"
	"kl/wire"
)

func (s *Server) workspaces(c echo.Context) error {
	list, err := s.store.Workspaces(c.Request().Context())
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) workspace(c echo.Context) error {
	list, err := s.store.Workspaces(c.Request().Context())
	if err != nil {
		return err
	}
	id := c.Param("ws")
	for _, w := range list {
		if w.WorkspaceID == id {
			return answer(c, w)
		}
	}
	return fault.New(fault.NotFound, "there is no workspace with this id").WithNext("list them with: kl workspace list")
}

func (s *Server) environments(c echo.Context) error {
	list, err := s.store.Environments(c.Request().Context(), c.Param("ws"))
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) environment(c echo.Context) error {
	e, err := s.store.Environment(c.Request().Context(), callOf(c).environment)
	if err != nil {
		return err
	}
	return answer(c, e)
}

func (s *Server) patchEnvironment(c echo.Context) error {
	var p wire.EnvironmentPatch
	if err := decode(c, &p); err != nil {
		return err
	}
	cl := callOf(c)
	e, err := s.store.PatchEnvironment(c.Request().Context(), cl.actor(), cl.environment, p)
	if err != nil {
		return err
	}
	return answer(c, e)
}
