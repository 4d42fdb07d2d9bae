package client

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"kl/fault"
	"kl/wire"
)

// Members of fault.Details that this package adds.
const (
	detailRequestID = "request_id"
	detailCode      = "code"
)

// RequestID is the id of the request that err came from, "" when the server
// gave none.
func RequestID(err error) string {
	if e := fault.Of(err); e != nil {
		id, _ := e.Details[detailRequestID].(string)
		return id
	}
	return ""
}

// Code is the code that the server gave for err. It differs from the fault's
// own only when this program is older than the server and does not know it.
func Code(err error) string {
	e := fault.Of(err)
	if e == nil {
		return ""
	}
	if s, ok := e.Details[detailCode].(string); ok && s != "" {
		return s
	}
	return string(e.Code)
}

// Decoding failures of hand-made bodies must not hide the status, so anything
// that is no problem document is classified by its status alone.
func (c *Client) refusal(res *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	id := res.Header.Get(wire.HeaderRequestID)
	var p wire.Problem
	if json.Unmarshal(b, &p) == nil && p.Code != "" && p.Detail != "" {
		p.RequestID = cmp.Or(p.RequestID, id)
		return FromProblem(p)
	}
	return withID(c.foreign(res), id)
}

// FromProblem is the refusal that a problem document tells of.
func FromProblem(p wire.Problem) *fault.Error {
	e := &fault.Error{Code: knownCode(p), Detail: p.Detail, Next: p.NextStep, Details: fault.Details(p.Extra)}
	if string(e.Code) != p.Code {
		e = e.With(detailCode, p.Code)
	}
	return withID(e, p.RequestID)
}

func withID(e *fault.Error, id string) *fault.Error {
	if id == "" {
		return e
	}
	return e.With(detailRequestID, id)
}

// foreign describes an answer that a kl server does not give: a proxy's, or
// another program's.
func (c *Client) foreign(res *http.Response) *fault.Error {
	if res.StatusCode/100 == 3 {
		return fault.New(fault.ParameterInvalid, "%s redirects to %q instead of answering", c.base, cut(hideUserinfo(res.Header.Get("Location")))).
			WithNext("set --address (KL_ADDRESS) to where the server really is")
	}
	code := fault.Internal
	switch res.StatusCode {
	case http.StatusUnauthorized:
		code = fault.CredentialsInvalid
	case http.StatusForbidden:
		code = fault.RoleTooLow
	case http.StatusNotFound:
		code = fault.NotFound
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		code = fault.MethodNotAllowed
	case http.StatusRequestEntityTooLarge:
		code = fault.BodyTooLarge
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = fault.Unreachable
	}
	return fault.New(code, "%s answered %s, and not in the way of a kl server", c.base, res.Status).
		WithNext("check --address (KL_ADDRESS), and what stands between here and the server")
}

// knownCode is the code of p, or for one that this program does not know a
// code of the same class, of the same status where there is one, so that a
// newer server's refusals keep their meaning.
func knownCode(p wire.Problem) fault.Code {
	code := fault.Code(p.Code)
	if code.Known() {
		return code
	}
	codes := fault.Codes()
	slices.Sort(codes) // Codes has no order, and the choice must not change from run to run
	best := fault.Internal
	for _, c := range codes {
		i := c.Info()
		switch {
		case string(i.Class) != p.Class:
		case i.Status == p.Status:
			return c
		case best == fault.Internal:
			best = c
		}
	}
	return best
}

// unreachable describes a request that got no answer, or only part of one.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return err
	}
	// url.Error repeats method and address; the sentence names the address itself
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	e := fault.Wrap(fault.Unreachable, err, "no answer from %s", c.base)
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		e = e.WithNext("if the server's certificate is your own, name its CA: --ca-file FILE (KL_CA_FILE)")
	case errors.As(err, &name):
		e = e.WithNext("use a host name that the server's certificate is for in --address (KL_ADDRESS)")
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		// net/http has no exported error for this
		e = e.WithNext("the server speaks plain HTTP: use http:// in --address (KL_ADDRESS)")
	}
	return e
}

// hideUserinfo takes a password out of an address that may not even be one.
func hideUserinfo(addr string) string {
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok {
		scheme, rest = "", addr
	}
	host, path, hasPath := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = "…@" + host[i+1:]
	}
	out := host
	if ok {
		out = scheme + "://" + out
	}
	if hasPath {
		out += "/" + path
	}
	return out
}

func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
