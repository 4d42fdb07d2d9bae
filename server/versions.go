package server

import (
	"github.com/labstack/echo/v4"
)

func (s *Server) versions(c echo.Context) error {
	cursor, limit, err := page(c)
	if err != nil {
		return err
	}
	list, err := s.store.Versions(c.Request().Context(), callOf(c).ref(), cursor, limit)
	if err != nil {
		return err
	}
	return answer(c, list)
}

func (s *Server) versionBytes(c echo.Context) error {
	cl := callOf(c)
	snap, err := s.store.Version(c.Request().Context(), cl.ref(), c.Param("version"))
	if err != nil {
		return err
	}
	defer snap.Close()
	s.store.NoteRead(cl.actor(), cl.ref(), snap.Version.Version, "")
	return serveBytes(c, snap, mediaBytes)
}
