package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/rs/zerolog"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// statusGone is what the log shows when the client left before the answer. It
// is never sent.
const statusGone = 499

// frame is around every request, matched or not: it gives it an id, turns
// errors and panics into answers, and writes its line in the log.
func (s *Server) frame(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		rc := http.NewResponseController(c.Response().Writer)
		cl := &call{id: auth.NewRequestID(), start: s.opt.Now(), path: c.Path()}
		if r.ContentLength != 0 {
			cl.body = &stallReader{ReadCloser: r.Body, rc: rc, stall: s.opt.Stall, want: r.ContentLength}
		}
		c.Set(callKey, cl)
		c.Response().Writer = &stallWriter{ResponseWriter: c.Response().Writer, rc: rc, stall: s.opt.Stall, body: cl.body}
		c.Response().Header().Set(wire.HeaderRequestID, cl.id)
		c.Response().Header().Set("X-Content-Type-Options", "nosniff")

		err := s.run(next, c, cl)
		cut := err != nil && c.Response().Committed
		if err != nil {
			s.refuse(c, cl, err)
		}
		s.finish(c, cl)
		if cut || cl.gone {
			// the status is out already, or none was sent, which net/http would
			// make a 200 of: breaking the connection off is the only way left
			// to say that this is no whole answer
			panic(http.ErrAbortHandler)
		}
		if cl.body != nil && r.ProtoMajor == 1 {
			cl.body.discard()
		}
		return nil
	}
}

// run calls the handler; a panic becomes an error.
func (s *Server) run(next echo.HandlerFunc, c echo.Context, cl *call) (err error) {
	defer func() {
		if p := recover(); p != nil {
			cl.stack = debug.Stack()
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return next(c)
}

// refuse answers with a problem document.
func (s *Server) refuse(c echo.Context, cl *call, err error) {
	if c.Request().Context().Err() != nil && errors.Is(err, context.Canceled) {
		cl.gone = true
		return
	}
	if cl.route == nil {
		err = s.astray(c, cl, err)
	}
	p, cause := problem(cl.id, err)
	if cl.locks {
		asLockInfo(&p)
	}
	cl.refusal, cl.cause = &p, cause
	// asking why is nothing to be asked about: the answer would be the question
	if asks := strings.HasPrefix(cl.path, "/v1/requests/"); !cl.throttled && !asks && (cl.known || p.Code != string(fault.NotFound) && p.Code != string(fault.MethodNotAllowed)) {
		s.store.NoteRequest(cl.note(c.Request().Method))
	}
	if !c.Response().Committed {
		if werr := writeProblem(c, p); werr != nil {
			cl.gone = true
		}
	}
}

// astray looks at a request that met no route: one that was meant for a state
// is told how such paths look. Terraform takes 404 for a state that was never
// written, and would plan to make everything anew.
func (s *Server) astray(c echo.Context, cl *call, err error) error {
	var he *echo.HTTPError
	noun := meantFor(c.Request().URL.Path)
	if noun == "" || !errors.As(err, &he) || he.Code != http.StatusNotFound {
		return err
	}
	m := c.Request().Method
	cl.locks = m == methodLock || noun == "locks" && (m == http.MethodPost || m == http.MethodPut)
	return malformed(noun)
}

// meantFor says for what a path was meant that leads nowhere: states or locks,
// also in other letters, below a prefix that a proxy has left there, or when
// only a workspace or an environment is named; "" for neither.
func meantFor(path string) string {
	segments := strings.Split(strings.TrimLeft(path, "/"), "/")
	if segments[0] == "v1" || segments[0] == "errors" {
		return ""
	}
	noun := ""
	for _, seg := range segments {
		switch lower := strings.ToLower(seg); {
		case lower == "states", lower == "locks":
			return lower
		case strings.HasPrefix(lower, "ws_"), strings.HasPrefix(lower, "env_"):
			noun = "states"
		}
	}
	return noun
}

// note is what is remembered of a refused request.
func (cl *call) note(method string) wire.Request {
	p := cl.refusal
	return wire.Request{
		RequestID: cl.id, Time: cl.start.UTC(), Method: short(method), Route: cl.path,
		Status: p.Status, Class: p.Class, Code: p.Code, Detail: p.Detail, NextStep: p.NextStep,
		Principal: cl.principal.Display(), PrincipalID: cl.principal.ID, User: cl.principal.User,
		Workspace: short(cl.workspace), Environment: short(cl.environment), State: short(cl.state), LockID: short(cl.lockID), RunID: short(cl.runID),
		Members: p.Extra,
	}
}

// short bounds what the request itself named, and takes tokens out of it: one
// that was put in the wrong place must not be there for others to read.
func short(s string) string {
	s = auth.Redact(s)
	if len(s) > maxLockID {
		return s[:maxLockID]
	}
	return s
}

// finish writes the request's log line and counts it.
func (s *Server) finish(c echo.Context, cl *call) {
	took := s.opt.Now().Sub(cl.start)
	status := c.Response().Status
	if cl.gone {
		status = statusGone
	}
	s.metrics.request(c.Request().Method, cl, status, took)

	ev := s.opt.Log.Info()
	if cl.refusal != nil && cl.refusal.Status >= http.StatusInternalServerError {
		ev = s.opt.Log.Error()
	}
	if !ev.Enabled() {
		return
	}
	ev.Str(fieldMethod, short(c.Request().Method)).Str(fieldRoute, cl.path).Int(fieldStatus, status).
		Dur(fieldDuration, took).Int64(fieldBytes, c.Response().Size).Str(fieldRequestID, cl.id)
	if cl.body != nil {
		ev.Int64(fieldBodyBytes, cl.body.n)
	}
	if cl.known {
		ev.Str(fieldPrincipalKind, string(cl.principal.Kind)).Str(fieldPrincipalID, cl.principal.ID).
			Str(fieldPrincipalName, cl.principal.Display())
	}
	optional(ev, fieldWorkspace, cl.workspace)
	optional(ev, fieldEnvironment, cl.environment)
	optional(ev, fieldState, cl.state)
	optional(ev, fieldLockID, cl.lockID)
	optional(ev, fieldRunID, cl.runID)
	if p := cl.refusal; p != nil {
		ev.Str(fieldClass, p.Class).Str(fieldCode, p.Code)
		if serial, ok := p.Extra["latest_serial"]; ok {
			ev.Interface(fieldLatestSerial, serial).Str(fieldNextStep, p.NextStep)
		}
		if a, ok := p.Extra["conflicting_addresses"].([]string); ok {
			ev.Strs(fieldAddresses, a[:min(len(a), maxLoggedAddresses)]).Interface(fieldAddressCount, p.Extra["conflicting_count"])
		}
	}
	if cl.cause != nil {
		ev.AnErr(fieldError, cl.cause)
	}
	if cl.stack != nil {
		ev.Bytes(fieldStack, cl.stack)
	}
	ev.Msg("request")
}

func optional(ev *zerolog.Event, field, value string) {
	if value != "" {
		ev.Str(field, short(value))
	}
}
