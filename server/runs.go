package server

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/store"
	"kl/wire"
)

// reserveHold is how long a run that waits is held open: long enough that few
// requests are made, short enough for proxies that cut what is silent.
const reserveHold = 20 * time.Second

var liveRuns = []Param{{"live", "true: only those that go on"}}

func (s *Server) runs(c echo.Context) error {
	live := c.QueryParam("live")
	if live != "" && live != "true" && live != "false" {
		return fault.New(fault.ParameterInvalid, "live is true or false").WithNext("leave it out for all runs that are remembered")
	}
	list, err := s.store.Runs(c.Request().Context(), callOf(c).ref(), live == "true")
	if err != nil {
		return err
	}
	return answer(c, listOf(list))
}

func (s *Server) startRun(c echo.Context) error {
	var q wire.RunRequest
	if err := decodeIfAny(c, &q); err != nil {
		return err
	}
	cl := callOf(c)
	r, err := s.store.StartRun(c.Request().Context(), cl.actor(), cl.ref(), q)
	if err != nil {
		return err
	}
	return created(c, r)
}

func (s *Server) oneRun(c echo.Context) error {
	r, err := s.store.Run(c.Request().Context(), callOf(c).ref(), c.Param("run"))
	if err != nil {
		return err
	}
	return answer(c, r)
}

// reserve answers when the sets are reserved, or when others are in the way;
// who waits is held open for a while.
func (s *Server) reserve(c echo.Context) error {
	var q wire.ReserveRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	hold := min(time.Duration(q.Wait), reserveHold)
	if s.opt.Hold < 0 {
		hold = 0
	}
	cl := callOf(c)
	start := time.Now()
	r, err := s.store.Reserve(c.Request().Context(), store.ReserveRequest{
		Ref: cl.ref(), Actor: cl.actor(), Run: c.Param("run"), Want: q, Hold: hold, Stop: s.stopping.Done(),
	})
	s.metrics.reserve(time.Since(start), err)
	if err != nil {
		return err
	}
	return answer(c, r)
}

func (s *Server) renewRun(c echo.Context) error {
	var q wire.RunRenewal
	if err := decodeIfAny(c, &q); err != nil {
		return err
	}
	if q.Status != "" && q.Status != wire.RunApplying {
		return fault.New(fault.ParameterInvalid, "a renewal cannot make a run %q", q.Status).
			WithNext(`send {"status":"applying"} when its apply begins, and no status else`)
	}
	return s.changeRun(c, func(ctx context.Context, by store.Actor, ref store.Ref, id string) (wire.Run, error) {
		return s.store.RenewRun(ctx, by, ref, id, q.Status == wire.RunApplying)
	})
}

func (s *Server) rebaseRun(c echo.Context) error { return s.changeRun(c, s.store.RebaseRun) }

func (s *Server) changeRun(c echo.Context, change func(context.Context, store.Actor, store.Ref, string) (wire.Run, error)) error {
	cl := callOf(c)
	r, err := change(c.Request().Context(), cl.actor(), cl.ref(), c.Param("run"))
	if err != nil {
		return err
	}
	return answer(c, r)
}

func (s *Server) finishRun(c echo.Context) error {
	return s.endRun(c, func(ctx context.Context, cl *call, q wire.RunEnd) (wire.Run, error) {
		return s.store.FinishRun(ctx, cl.actor(), cl.ref(), c.Param("run"), q)
	})
}

// abortRun ends a run; that of others is forced, which needs the right to
// write.
func (s *Server) abortRun(c echo.Context) error {
	return s.endRun(c, func(ctx context.Context, cl *call, q wire.RunEnd) (wire.Run, error) {
		if q.Status != "" && q.Status != wire.RunAborted {
			return wire.Run{}, fault.New(fault.ParameterInvalid, "an abort has no status of its own").WithNext(`send {"reason":"…"}, or end the run with finish`)
		}
		foreign := cl.role.Allows(auth.WriteState)
		return s.store.AbortRun(ctx, cl.actor(), cl.ref(), c.Param("run"), q.Reason, foreign)
	})
}

func (s *Server) endRun(c echo.Context, end func(context.Context, *call, wire.RunEnd) (wire.Run, error)) error {
	var q wire.RunEnd
	if err := decodeIfAny(c, &q); err != nil {
		return err
	}
	// a client that leaves while it gives up must not leave reservations
	r, err := end(context.WithoutCancel(c.Request().Context()), callOf(c), q)
	if err != nil {
		return err
	}
	return answer(c, r)
}

// admitRun finds the state of the run in the path and checks the route's rule
// there. A run that the caller has no part in is answered like one that does
// not exist.
func (s *Server) admitRun(c echo.Context, cl *call, rt Route, user string, basic bool) error {
	ctx := c.Request().Context()
	cl.runID = c.Param("run")
	ref, ws, err := s.store.RunRef(ctx, cl.runID)
	if err != nil {
		return err
	}
	role, err := s.store.Authorize(ctx, cl.principal, ws, ref.Environment, rt.Action)
	switch {
	case fault.Is(err, fault.RoleTooLow):
		return s.keepEnded(c, cl, rt, err)
	case err != nil:
		if kept := s.keepEnded(c, cl, rt, err); fault.Of(kept).Details["refused_write"] != nil {
			return kept
		}
		return fault.New(fault.UnknownRun, "there is no run %.64q", cl.runID)
	}
	if basic && user != ws {
		return otherWorkspace(cl.principal, ws)
	}
	cl.role, cl.workspace, cl.environment, cl.state = role, ws, ref.Environment, ref.Name
	return nil
}

// getRunState serves what the run sees, to GET and HEAD.
func (s *Server) getRunState(c echo.Context) error {
	cl := callOf(c)
	snap, err := s.store.RunState(c.Request().Context(), cl.actor(), cl.ref(), cl.runID)
	if err != nil {
		return err
	}
	defer snap.Close()
	return serveBytes(c, snap, echo.MIMEApplicationJSON)
}

// lockRun takes the lock within a run.
func (s *Server) lockRun(c echo.Context) error {
	cl := callOf(c)
	info, err := readLockInfo(c)
	if err != nil {
		return err
	}
	if err := s.store.LockRun(c.Request().Context(), cl.actor(), cl.ref(), cl.runID, info); err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}

// unlockRun gives the lock within a run back; without an ID whoever holds it.
func (s *Server) unlockRun(c echo.Context) error {
	cl := callOf(c)
	info, err := readLockInfo(c)
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(c.Request().Context())
	if err := s.store.UnlockRun(ctx, cl.actor(), cl.ref(), cl.runID, info.ID); err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}
