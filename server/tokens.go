package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"kl/wire"
)

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
	cl := callOf(c)
	t, err := s.store.CreateToken(c.Request().Context(), cl.actor(), cl.environment, q)
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

func (s *Server) pats(c echo.Context) error {
	list, err := s.store.PATs(c.Request().Context(), callOf(c).actor())
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) createPAT(c echo.Context) error {
	var q wire.PATRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	t, err := s.store.CreatePAT(c.Request().Context(), callOf(c).actor(), q)
	if err != nil {
		return err
	}
	return created(c, t)
}

func (s *Server) revokePAT(c echo.Context) error {
	if err := s.store.RevokePAT(c.Request().Context(), callOf(c).actor(), c.Param("id")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
