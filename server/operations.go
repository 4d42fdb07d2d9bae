package server

import (
	"io"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"kl/fault"
	"kl/wire"
)

// prune removes versions that are no longer kept.
func (s *Server) prune(c echo.Context) error {
	var q wire.PruneRequest
	if err := decode(c, &q); err != nil {
		return err
	}
	cl := callOf(c)
	r, err := s.store.Prune(c.Request().Context(), cl.actor(), cl.environment, q)
	if err != nil {
		return err
	}
	return answer(c, r)
}

// backup sends a copy of the file as of this moment. The copy is made beside
// the file first: a transaction that stayed open until a slow client has read
// all would keep every page from being used again.
func (s *Server) backup(c echo.Context) error {
	limit, err := queryRate(c)
	if err != nil {
		return err
	}
	b, err := s.store.Backup(c.Request().Context(), callOf(c).actor())
	if err != nil {
		return err
	}
	defer b.Close()
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, mediaBytes)
	h.Set(echo.HeaderContentLength, strconv.FormatInt(b.Size, 10))
	h.Set(echo.HeaderCacheControl, "no-store")
	h.Set(echo.HeaderContentDisposition, `attachment; filename="kl-backup.db"`)
	h.Set(wire.HeaderSHA256, b.SHA256)
	c.Response().WriteHeader(http.StatusOK)
	var from io.Reader = b
	if limit > 0 {
		from = &slowReader{c: c, r: b, l: rate.NewLimiter(rate.Limit(limit), slowPiece)}
	}
	_, err = io.Copy(c.Response(), from)
	return err
}

func queryRate(c echo.Context) (int64, error) {
	v := c.QueryParam("rate")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < slowPiece {
		return 0, fault.New(fault.ParameterInvalid, "rate %.40q is not a number of bytes per second from %d on", v, slowPiece).WithNext("leave rate out to send without a limit")
	}
	return n, nil
}

// slowPiece is what a slowReader gives at a time.
const slowPiece = 16 << 10

// slowReader gives no more than its limiter allows.
type slowReader struct {
	c echo.Context
	r io.Reader
	l *rate.Limiter
}

func (s *slowReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:min(len(p), slowPiece)])
	if n > 0 {
		if werr := s.l.WaitN(s.c.Request().Context(), n); werr != nil {
			return n, werr
		}
	}
	return n, err
}

// newUserToken issues a user's control token once more.
func (s *Server) newUserToken(c echo.Context) error {
	u, err := s.store.NewUserToken(c.Request().Context(), callOf(c).actor(), c.Param("user"))
	if err != nil {
		return err
	}
	return created(c, u)
}
