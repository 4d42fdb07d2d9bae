package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"kl/fault"
	"kl/wire"
)

func (s *Server) users(c echo.Context) error {
	list, err := s.store.Users(c.Request().Context())
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) createUser(c echo.Context) error {
	var q wire.UserRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	u, err := s.store.CreateUser(c.Request().Context(), callOf(c).actor(), q)
	if err != nil {
		return err
	}
	return created(c, u)
}

func (s *Server) deleteUser(c echo.Context) error {
	if err := s.store.DeleteUser(c.Request().Context(), callOf(c).actor(), c.Param("user")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) workspaces(c echo.Context) error {
	list, err := s.store.Workspaces(c.Request().Context(), callOf(c).principal)
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) createWorkspace(c echo.Context) error {
	var q wire.WorkspaceRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	w, err := s.store.CreateWorkspace(c.Request().Context(), callOf(c).actor(), q)
	if err != nil {
		return err
	}
	return created(c, w)
}

func (s *Server) workspace(c echo.Context) error {
	cl := callOf(c)
	w, err := s.store.Workspace(c.Request().Context(), cl.principal, cl.workspace)
	if err != nil {
		return err
	}
	return answer(c, w)
}

func (s *Server) deleteWorkspace(c echo.Context) error {
	cl := callOf(c)
	if err := s.store.DeleteWorkspace(c.Request().Context(), cl.actor(), cl.workspace); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) suspend(c echo.Context) error {
	var q wire.Suspension
	if err := decode(c, &q); err != nil {
		return err
	}
	cl := callOf(c)
	w, err := s.store.Suspend(c.Request().Context(), cl.actor(), cl.workspace, q.Reason)
	if err != nil {
		return err
	}
	return answer(c, w)
}

func (s *Server) resume(c echo.Context) error {
	cl := callOf(c)
	w, err := s.store.Resume(c.Request().Context(), cl.actor(), cl.workspace)
	if err != nil {
		return err
	}
	return answer(c, w)
}

func (s *Server) members(c echo.Context) error {
	list, err := s.store.Members(c.Request().Context(), callOf(c).workspace)
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) setMember(c echo.Context) error {
	var q wire.MemberRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	cl := callOf(c)
	m, err := s.store.SetMember(c.Request().Context(), cl.actor(), cl.workspace, q)
	if err != nil {
		return err
	}
	return answer(c, m)
}

func (s *Server) removeMember(c echo.Context) error {
	cl := callOf(c)
	if err := s.store.RemoveMember(c.Request().Context(), cl.actor(), cl.workspace, c.Param("user")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) leave(c echo.Context) error {
	cl := callOf(c)
	if cl.principal.User == "" {
		return fault.New(fault.ParameterInvalid, "the operator is not a member of workspaces and cannot leave one").
			WithNext("remove somebody else with: kl member remove USER")
	}
	if err := s.store.RemoveMember(c.Request().Context(), cl.actor(), cl.workspace, cl.principal.User); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
