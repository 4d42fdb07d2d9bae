package server

import (
	"cmp"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/wire"
)

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

func (s *Server) tokens(c echo.Context) error {
	list, err := s.store.Tokens(c.Request().Context(), callOf(c).environment)
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) createToken(c echo.Context) error {
	var q wire.TokenRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	var expires time.Time
	if q.ExpiresIn > 0 {
		expires = s.opt.Now().Add(time.Duration(q.ExpiresIn))
	}
	cl := callOf(c)
	t, err := s.store.CreateToken(c.Request().Context(), cl.actor(), cl.environment, q.Name, auth.Role(cmp.Or(q.Role, string(auth.Write))), expires)
	if err != nil {
		return err
	}
	return created(c, t)
}

func (s *Server) revokeToken(c echo.Context) error {
	cl := callOf(c)
	if err := s.store.RevokeToken(c.Request().Context(), cl.actor(), cl.environment, c.Param("id")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
