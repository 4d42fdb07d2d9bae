package server

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

func (s *Server) refusedList(c echo.Context) error {
	list, err := s.store.RefusedList(c.Request().Context(), callOf(c).ref())
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) refusedBytes(c echo.Context) error {
	cl := callOf(c)
	snap, err := s.store.RefusedBody(c.Request().Context(), cl.ref(), c.Param("id"))
	if err != nil {
		return err
	}
	defer snap.Close()
	s.store.NoteRead(cl.actor(), cl.ref(), 0, c.Param("id"))
	return serveBytes(c, snap, mediaBytes)
}

func (s *Server) discardRefused(c echo.Context) error {
	cl := callOf(c)
	if err := s.store.DiscardRefused(c.Request().Context(), cl.actor(), cl.ref(), c.Param("id")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
