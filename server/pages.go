package server

import (
	"bytes"
	_ "embed" // error.html
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"kl/fault"
)

//go:embed error.html
var errorHTML string

var errorTemplate = template.Must(template.New("error").Parse(errorHTML))

// errorPage explains a code: the type of every problem document leads here.
func (s *Server) errorPage(c echo.Context) error {
	code := fault.Code(c.Param("code"))
	if !code.Known() {
		return fault.New(fault.NotFound, "there is no error code of this name").WithNext("the codes are listed in docs/errors.md")
	}
	page := struct {
		Code fault.Code
		fault.Info
	}{code, code.Info()}
	c.Response().Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	if prefersText(c.Request().Header.Get(echo.HeaderAccept)) {
		i := page.Info
		return c.String(http.StatusOK, fmt.Sprintf("%s\n\ncode:   %s\nclass:  %s\nstatus: %d\n\n%s\n\nnext: %s\n",
			i.Title, code, i.Class, i.Status, i.Why, i.Next))
	}
	var b bytes.Buffer
	if err := errorTemplate.Execute(&b, page); err != nil {
		return err
	}
	return c.HTMLBlob(http.StatusOK, b.Bytes())
}

// prefersText reports whether an Accept header ranks plain text above HTML.
func prefersText(accept string) bool {
	return quality(accept, "text/plain") > quality(accept, "text/html")
}

// quality is the weight that an Accept header gives to a media type. The most
// specific range decides.
func quality(accept, media string) float64 {
	main, _, _ := strings.Cut(media, "/")
	best, q := 0, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		rng, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		rank := map[string]int{"*/*": 1, main + "/*": 2, media: 3}[strings.ToLower(strings.TrimSpace(rng))]
		if rank <= best {
			continue
		}
		best, q = rank, 1
		for param := range strings.SplitSeq(params, ";") {
			if v, ok := strings.CutPrefix(strings.TrimSpace(param), "q="); ok {
				q, _ = strconv.ParseFloat(v, 64) // a bad weight counts as 0
			}
		}
	}
	return q
}

func (s *Server) healthz(c echo.Context) error { return c.String(http.StatusOK, "ok\n") }

// readyz is for load balancers: it turns bad as soon as the server stops, and
// when the store cannot be read.
func (s *Server) readyz(c echo.Context) error {
	if s.stopping.Err() != nil {
		return fault.New(fault.ShuttingDown, "the server is stopping")
	}
	if _, err := s.store.Empty(); err != nil {
		return err
	}
	return c.String(http.StatusOK, "ready\n")
}

func (s *Server) version(c echo.Context) error { return answer(c, s.opt.Version) }

func (s *Server) metricsPage(c echo.Context) error {
	s.metrics.page.ServeHTTP(c.Response(), c.Request())
	return nil
}
