package server

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/fault"
	"kl/store"
	"kl/wire"
)

// getState serves the newest version, to GET and HEAD, or of it what the role
// outputs may see.
func (s *Server) getState(c echo.Context) error {
	cl := callOf(c)
	open := func() (*store.Snapshot, error) { return s.store.Head(c.Request().Context(), cl.ref()) }
	if !cl.role.Allows(auth.ReadState) {
		open = func() (*store.Snapshot, error) {
			return s.store.Outputs(c.Request().Context(), cl.ref(), cl.principal.Sensitive)
		}
	}
	snap, err := open()
	if err != nil {
		return err
	}
	defer snap.Close()
	return serveBytes(c, snap, echo.MIMEApplicationJSON)
}

// serveBytes answers with the exact bytes of a snapshot.
func serveBytes(c echo.Context, snap *store.Snapshot, media string) error {
	h := c.Response().Header()
	etag := `"` + snap.SHA256 + `"`
	h.Set("ETag", etag)
	h.Set(echo.HeaderCacheControl, "no-store")
	if snap.Version.Version > 0 {
		h.Set(wire.HeaderVersion, strconv.FormatUint(snap.Version.Version, 10))
	}
	h.Set(wire.HeaderSerial, strconv.FormatUint(snap.Serial, 10))
	if fresh(c.Request().Header.Values("If-None-Match"), etag) {
		return c.NoContent(http.StatusNotModified)
	}
	h.Set(echo.HeaderContentType, media)
	h.Set(echo.HeaderContentLength, strconv.FormatInt(snap.Bytes, 10))
	if c.Request().Method == http.MethodHead {
		return c.NoContent(http.StatusOK)
	}
	_, err := snap.WriteTo(c.Response())
	if err == nil && !c.Response().Committed {
		return c.NoContent(http.StatusOK) // no bytes at all
	}
	return err
}

// fresh reports whether the client has this very content.
func fresh(ifNoneMatch []string, etag string) bool {
	for _, v := range ifNoneMatch {
		for tag := range strings.SplitSeq(v, ",") {
			tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
			if tag == etag || tag == "*" {
				return true
			}
		}
	}
	return false
}

// postState stores a version.
func (s *Server) postState(c echo.Context) error {
	cl := callOf(c)
	id, err := queryLockID(c)
	if err != nil {
		return err
	}
	body, err := s.receive(c)
	if err != nil {
		return err
	}
	defer body.Release()
	// the body is whole: what it tells of exists already, so it is stored even
	// if the client does not wait for the answer
	ctx := context.WithoutCancel(c.Request().Context())
	done, err := s.store.Write(ctx, store.WriteRequest{Ref: cl.ref(), Actor: cl.actor(), LockID: id, Run: cl.runID, Body: body})
	if fault.Is(err, fault.BodyInvalid) && cl.runID == "" && isLockInfo(body) {
		return fault.New(fault.BodyInvalid, "the body is no state; it looks like the taking of a lock").
			WithNext(`set lock_address to the same address with /locks/ for /states/: %s`, wire.LockPath(cl.workspace, cl.environment, cl.state))
	}
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h.Set(wire.HeaderVersion, strconv.FormatUint(done.Version, 10))
	h.Set(wire.HeaderSerial, strconv.FormatUint(done.Serial, 10))
	if done.Merged {
		h.Set(wire.HeaderMerged, "true")
	}
	warn(c, done.Warnings)
	return c.NoContent(http.StatusOK)
}

// isLockInfo reports whether a body is what clients send to take a lock: with
// lock_method = "POST" and the state's own address each lock comes as a write.
func isLockInfo(b *store.Body) bool {
	if b.Len() > maxLockBody {
		return false
	}
	info, err := parseLockInfo(b.Bytes())
	return err == nil && info.ID != "" && info.Operation != ""
}

// queryLockID is the lock that a write names by ?ID=.
func queryLockID(c echo.Context) (string, error) {
	query, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil { // the ID may be in the part that cannot be read
		return "", fault.New(fault.ParameterInvalid, "the query of the address cannot be read").WithNext("escape what is no letter or digit, as in ?ID=a%%20b")
	}
	ids := query["ID"]
	if len(ids) > 1 {
		return "", fault.New(fault.ParameterInvalid, "the query names %d lock IDs", len(ids)).WithNext("send one ID")
	}
	if len(ids) == 0 {
		return "", nil
	}
	if err := checkLockID(ids[0]); err != nil {
		return "", err
	}
	callOf(c).lockID = ids[0]
	return ids[0], nil
}

// deleteDataState moves a state to the trash, unless the request is a release
// of a lock that was sent to the wrong address: with unlock_method = "DELETE"
// and the state's own address, every unlock would otherwise delete the state.
func (s *Server) deleteDataState(c echo.Context) error {
	r := c.Request()
	if r.ContentLength != 0 || r.Header.Get("Content-MD5") != "" {
		cl := callOf(c)
		return fault.New(fault.BodyInvalid, "a DELETE of a state has no body; this one looks like the release of a lock").
			WithNext(`set unlock_address to the same address with /locks/ for /states/: %s`, wire.LockPath(cl.workspace, cl.environment, cl.state))
	}
	if err := s.trash(c); err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}

// trash moves the state of the path to the trash.
func (s *Server) trash(c echo.Context) error {
	cl := callOf(c)
	id, err := queryLockID(c)
	if err != nil {
		return err
	}
	return s.store.Delete(c.Request().Context(), cl.actor(), cl.ref(), id)
}

func (s *Server) states(c echo.Context) error {
	cursor, limit, err := page(c)
	if err != nil {
		return err
	}
	list, err := s.store.States(c.Request().Context(), callOf(c).environment, cursor, limit)
	if err != nil {
		return err
	}
	return answer(c, list)
}

func (s *Server) state(c echo.Context) error {
	st, err := s.store.State(c.Request().Context(), callOf(c).ref())
	if err != nil {
		return err
	}
	return answer(c, st)
}

func (s *Server) deleteState(c echo.Context) error {
	if err := s.trash(c); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) archiveState(c echo.Context) error {
	cl := callOf(c)
	st, err := s.store.Archive(c.Request().Context(), cl.actor(), cl.ref())
	if err != nil {
		return err
	}
	return answer(c, st)
}

func (s *Server) restoreState(c echo.Context) error {
	cl := callOf(c)
	st, err := s.store.Restore(c.Request().Context(), cl.actor(), cl.ref())
	if err != nil {
		return err
	}
	warn(c, st.QuotaWarnings)
	return answer(c, st)
}

func (s *Server) purgeState(c echo.Context) error {
	cl := callOf(c)
	if err := s.store.Purge(c.Request().Context(), cl.actor(), cl.ref()); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) allowState(c echo.Context) error {
	var a wire.Allow
	if err := decode(c, &a); err != nil {
		return err
	}
	if !a.Lineage && !a.LowerSerial {
		return fault.New(fault.ParameterInvalid, "the body allows nothing").WithNext(`send {"lineage":true} or {"lower_serial":true}`)
	}
	cl := callOf(c)
	if err := s.store.Allow(c.Request().Context(), cl.actor(), cl.ref(), a); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
