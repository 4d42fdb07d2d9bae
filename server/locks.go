package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/store"
	"kl/wire"
)

// lock takes a state's lock, for LOCK and the alias's POST and PUT.
func (s *Server) lock(c echo.Context) error {
	cl := callOf(c)
	info, err := readLockInfo(c)
	if err != nil {
		return err
	}
	if info.ID == "" {
		return fault.New(fault.LockInfoInvalid, "the body names no lock ID").
			WithNext(`send a JSON object with an ID, such as {"ID":"…","Operation":"OperationTypeApply"}`)
	}
	if info.Operation != wire.OperationPlan {
		// the route lets everybody in who may lock for a plan
		if _, err := s.store.Authorize(c.Request().Context(), cl.principal, cl.workspace, cl.environment, auth.WriteState); err != nil {
			return err
		}
	}
	start := time.Now()
	err = s.store.Lock(c.Request().Context(), store.LockRequest{
		Ref: cl.ref(), Actor: cl.actor(), Info: info, Hold: max(s.opt.Hold, 0), Stop: s.stopping.Done(), // the client is to come back to the next server
	})
	s.metrics.lock(time.Since(start), err)
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}

// unlock gives a lock back, for UNLOCK and the alias's DELETE. Without an ID it
// is terraform force-unlock, which does not send the ID that was typed; an ID
// with nothing beside it is that of tofu force-unlock. Both may release what
// others took, which needs the right to write.
func (s *Server) unlock(c echo.Context) error {
	cl := callOf(c)
	info, err := readLockInfo(c)
	if err != nil {
		return err
	}
	force := info.ID == "" || info.Operation == "" && info.Who == ""
	if force {
		_, err := s.store.Authorize(c.Request().Context(), cl.principal, cl.workspace, cl.environment, auth.WriteState)
		if err != nil && info.ID == "" {
			return err
		}
		force = err == nil
	}
	// a client that left while its release was on the way must not leave a lock
	ctx := context.WithoutCancel(c.Request().Context())
	if err := s.store.Unlock(ctx, store.UnlockRequest{Ref: cl.ref(), Actor: cl.actor(), ID: info.ID, Force: force}); err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}

func (s *Server) lockState(c echo.Context) error {
	l, err := s.store.LockState(c.Request().Context(), callOf(c).ref())
	if err != nil {
		return err
	}
	return answer(c, l)
}

func (s *Server) forceUnlock(c echo.Context) error {
	cl := callOf(c)
	id := c.QueryParam("id")
	if err := checkLockID(id); err != nil {
		return err
	}
	cl.lockID = id
	if err := s.store.Unlock(c.Request().Context(), store.UnlockRequest{Ref: cl.ref(), Actor: cl.actor(), ID: id, Force: true}); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// readLockInfo reads the body of LOCK and UNLOCK.
func readLockInfo(c echo.Context) (wire.LockInfo, error) {
	b, err := readSmall(c, maxLockBody)
	if err != nil {
		return wire.LockInfo{}, err
	}
	info, err := parseLockInfo(b)
	if err != nil {
		return wire.LockInfo{}, err
	}
	callOf(c).lockID = info.ID
	return info, nil
}

// parseLockInfo reads what clients send: a whole LockInfo, an ID alone, or
// nothing. Members are matched without regard to case, as Terraform does, and
// unknown ones are let pass.
func parseLockInfo(b []byte) (wire.LockInfo, error) {
	var info wire.LockInfo
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return info, nil
	}
	if b[0] != '{' {
		return info, fault.New(fault.LockInfoInvalid, "the body is not a JSON object")
	}
	if err := json.Unmarshal(b, &info); err != nil {
		f := fault.New(fault.LockInfoInvalid, "the body is not the JSON of a LockInfo")
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			f = f.With("offset", syntax.Offset)
		}
		return wire.LockInfo{}, f
	}
	if err := checkLockID(info.ID); err != nil {
		return wire.LockInfo{}, err
	}
	if _, err := time.Parse(time.RFC3339, info.Created); err != nil {
		// it comes back to whoever meets this lock, and a client drops the
		// whole LockInfo when it cannot read the date
		info.Created = ""
	}
	return info, nil
}
