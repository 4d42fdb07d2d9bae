package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/wire"
)

// retryAfter is how many seconds a client that meets 503 should wait. Terraform
// heeds it, and gives up after its third attempt.
const retryAfter = 5

// problem turns an error into the document that answers it, and into the cause
// that only the log may show. An error without a fault in its chain is a bug.
func problem(id string, err error) (wire.Problem, error) {
	f := fault.Of(err)
	var cause error
	switch he := (*echo.HTTPError)(nil); {
	case f != nil:
		cause = f.Err
	case errors.As(err, &he) && he.Code == http.StatusNotFound:
		f = fault.New(fault.NotFound, "this server has no such address").WithNext("see /v1/openapi.json")
	case errors.As(err, &he) && he.Code == http.StatusMethodNotAllowed:
		f = fault.New(fault.MethodNotAllowed, "this address does not know the method")
	default:
		f, cause = fault.New(fault.Internal, "internal error"), err
	}
	if f.Code == fault.Internal || !f.Code.Known() {
		f, cause = fault.New(fault.Internal, "internal error"), err
	}
	i := f.Code.Info()
	p := wire.Problem{
		Type: "/errors/" + string(f.Code), Title: i.Title, Status: i.Status, Detail: auth.Redact(f.Detail),
		Code: string(f.Code), Class: string(i.Class), NextStep: auth.Redact(f.Next), RequestID: id, Extra: map[string]any{},
	}
	if member := reasonMember[i.Class]; member != "" && i.Reason != "" {
		p.Extra[member] = i.Reason
	}
	for k, v := range f.Details {
		if info, ok := v.(wire.LockInfo); ok && k == "holder" {
			spread(p.Extra, info)
			continue
		}
		p.Extra[k] = v
	}
	return p, cause
}

// reasonMember names the member that tells one code of a class from another.
var reasonMember = map[fault.Class]string{
	fault.Auth: "reason", fault.Scope: "reason", fault.Conflict: "kind", fault.Lifecycle: "hold",
}

// spread puts the members of a LockInfo beside those of the problem: clients
// read the refusal of a LOCK as the LockInfo of its holder.
func spread(m map[string]any, i wire.LockInfo) {
	m["ID"], m["Operation"], m["Info"], m["Who"], m["Version"], m["Path"] = i.ID, i.Operation, i.Info, i.Who, i.Version, i.Path
	if i.Created != "" {
		m["Created"] = i.Created
	}
}

// asLockInfo makes the refusal of a LOCK one that Terraform can read. It prints
// nothing of a refused LOCK but the ID of a LockInfo that comes with status
// 423, so a reason other than a holder goes there. Those stay as they are: 401
// and 403 of class auth (clients have texts of their own for them), a body that
// is no LockInfo, and bugs.
func asLockInfo(p *wire.Problem) {
	switch fault.Code(p.Code) {
	case fault.LockInfoInvalid, fault.BodyDigest, fault.BodyIncomplete, fault.BodyInvalid, fault.BodyTooLarge, fault.Internal:
		return
	default:
	}
	if p.Class == string(fault.Auth) {
		return
	}
	p.Status = http.StatusLocked
	if _, held := p.Extra["ID"]; held {
		return
	}
	for k := range p.Extra {
		if lockMembers[strings.ToLower(k)] {
			delete(p.Extra, k) // clients match members without regard to case
		}
	}
	spread(p.Extra, wire.LockInfo{ID: p.Detail + "; next: " + p.NextStep})
}

var lockMembers = map[string]bool{"id": true, "operation": true, "info": true, "who": true, "version": true, "created": true, "path": true}

// writeProblem sends the document.
func writeProblem(c echo.Context, p wire.Problem) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	h := c.Response().Header()
	for _, name := range []string{"ETag", wire.HeaderVersion, wire.HeaderSerial, wire.HeaderMerged, wire.HeaderQuotaWarning} {
		h.Del(name) // a handler may have set them before it failed
	}
	h.Set(echo.HeaderContentLength, strconv.Itoa(len(b)+1))
	h.Set(echo.HeaderCacheControl, "no-store")
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set(echo.HeaderWWWAuthenticate, `Basic realm="kl"`)
	case http.StatusServiceUnavailable:
		h.Set(echo.HeaderRetryAfter, strconv.Itoa(retryAfter))
	}
	return c.Blob(p.Status, wire.MediaProblem, append(b, '\n'))
}
