package server

import (
	"context"

	"github.com/labstack/echo/v4"

	"kl/store"
	"kl/wire"
)

// patchState changes a state's settings.
func (s *Server) patchState(c echo.Context) error {
	var p wire.StatePatch
	if err := decode(c, &p); err != nil {
		return err
	}
	if err := s.mayPatch(c, p); err != nil {
		return err
	}
	cl := callOf(c)
	st, err := s.store.PatchState(c.Request().Context(), cl.actor(), cl.ref(), p)
	if err != nil {
		return err
	}
	return answer(c, st)
}

// addRefused keeps a document, such as an errored.tfstate, as if it had been
// refused.
func (s *Server) addRefused(c echo.Context) error {
	cl := callOf(c)
	body, err := s.receive(c)
	if err != nil {
		return err
	}
	defer body.Release()
	ctx := context.WithoutCancel(c.Request().Context())
	r, err := s.store.AddRefused(ctx, store.WriteRequest{Ref: cl.ref(), Actor: cl.actor(), Body: body})
	if err != nil {
		return err
	}
	return answer(c, r)
}

// mergeRefused merges a refused write into the head, or shows what that would
// do.
func (s *Server) mergeRefused(c echo.Context) error {
	var q wire.MergeRequest
	if err := decodeIfAny(c, &q); err != nil {
		return err
	}
	cl := callOf(c)
	// once asked for, it is done, as a write is
	ctx := context.WithoutCancel(c.Request().Context())
	out, err := s.store.MergeRefused(ctx, cl.actor(), cl.ref(), c.Param("id"), q)
	if err != nil {
		return err
	}
	warn(c, out.QuotaWarnings)
	return answer(c, out)
}
