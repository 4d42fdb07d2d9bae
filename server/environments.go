package server

import (
	"cmp"
	"net/http"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/wire"
)

func (s *Server) environments(c echo.Context) error {
	list, err := s.store.Environments(c.Request().Context(), callOf(c).workspace)
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) createEnvironment(c echo.Context) error {
	var p wire.EnvironmentPatch
	if err := decode(c, &p); err != nil {
		return err
	}
	cl := callOf(c)
	e, err := s.store.CreateEnvironment(c.Request().Context(), cl.actor(), cl.workspace, p)
	if err != nil {
		return err
	}
	return created(c, e)
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

func (s *Server) deleteEnvironment(c echo.Context) error {
	cl := callOf(c)
	if err := s.store.DeleteEnvironment(c.Request().Context(), cl.actor(), cl.environment); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) access(c echo.Context) error {
	list, err := s.store.Access(c.Request().Context(), callOf(c).environment)
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) setGrant(c echo.Context) error {
	var q wire.GrantRequest
	if err := decodeIfAny(c, &q); err != nil {
		return err
	}
	cl := callOf(c)
	role := auth.Role(cmp.Or(q.Role, string(auth.Write)))
	g, err := s.store.SetGrant(c.Request().Context(), cl.actor(), cl.environment, c.Param("user"), role)
	if err != nil {
		return err
	}
	return answer(c, g)
}

func (s *Server) endGrant(c echo.Context) error {
	cl := callOf(c)
	if err := s.store.EndGrant(c.Request().Context(), cl.actor(), cl.environment, c.Param("user")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
