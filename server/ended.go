package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/store"
)

// keepEnded looks at a write whose credentials have expired or were revoked, or
// have lost their rights. It is refused in any case. But when it names an open
// session that these very credentials took, it tells of what exists already:
// then its body is read and kept. Nobody else gets as far as that. The same goes
// for writes of a live run.
func (s *Server) keepEnded(c echo.Context, cl *call, rt Route, refusal error) error {
	write := (rt.Path == dataPath || rt.Path == runStatePath) && (rt.Method == http.MethodPost || rt.Method == http.MethodPut)
	if !write || !slices.Contains(rightsEnded, fault.Of(refusal).Code) {
		return refusal
	}
	ctx := c.Request().Context()
	user, secret, basic := credentials(c.Request())
	id, err := queryLockID(c)
	if err != nil {
		return refusal
	}
	var p auth.Principal
	var ok bool
	if rt.Path == runStatePath {
		ref, ws, err := s.store.RunRef(ctx, c.Param("run"))
		if err != nil || basic && user != ws {
			return refusal
		}
		cl.workspace, cl.environment, cl.state, cl.runID = ws, ref.Environment, ref.Name, c.Param("run")
		p, ok = s.store.EndedRun(ctx, secret, ref, cl.runID)
	} else {
		if id == "" || basic && user != cl.workspace || setState(c, cl) != nil {
			return refusal
		}
		p, ok = s.store.EndedSession(ctx, secret, cl.workspace, cl.ref(), id)
	}
	if !ok {
		return refusal
	}
	cl.principal, cl.known = p, true
	body, err := s.receive(c)
	if err != nil {
		return refusal
	}
	defer body.Release()
	err = s.store.KeepRefused(context.WithoutCancel(ctx), store.WriteRequest{Ref: cl.ref(), Actor: cl.actor(), LockID: id, Run: cl.runID, Body: body}, fault.Of(refusal))
	if fault.ClassOf(err) == fault.Invalid {
		return refusal // no state: there is nothing to keep
	}
	return err
}

// rightsEnded are the codes of rights that may have been there when a lock was
// taken.
var rightsEnded = []fault.Code{fault.CredentialsExpired, fault.CredentialsRevoked, fault.NotMember, fault.NoGrant, fault.RoleTooLow}
