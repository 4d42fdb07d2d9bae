package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/rs/zerolog"

	"kl/fault"
	"kl/store"
	"kl/wire"
)

// withRoute is a server on a real file with one route more, for handlers that
// fail as no handler of the table should.
func withRoute(t *testing.T, log io.Writer, handle func(*Server, echo.Context) error) *Server {
	t.Helper()
	st, err := store.Open(store.Options{Path: filepath.Join(t.TempDir(), "kl.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	s := New(Options{Store: st, Log: zerolog.New(log)})
	rt := Route{Method: http.MethodGet, Path: "/fails", Access: Public, handle: handle}
	s.echo.Add(rt.Method, rt.Path, s.admitted(rt))
	return s
}

// TestBugsAreOneAnswer: a panic or an unclassified error is a 500 that shows
// nothing, its line has all, and the server goes on.
func TestBugsAreOneAnswer(t *testing.T) {
	for name, handle := range map[string]func(*Server, echo.Context) error{
		"panic":         func(*Server, echo.Context) error { panic("disk on fire") },
		"runtime error": func(_ *Server, c echo.Context) error { return errors.New("disk on fire" + c.ParamValues()[0]) },
		"plain error":   func(*Server, echo.Context) error { return errors.New("disk on fire") },
		"headers set": func(_ *Server, c echo.Context) error {
			c.Response().Header().Set("ETag", `"x"`)
			c.Response().Header().Set(echo.HeaderContentLength, "1000000")
			return errors.New("disk on fire")
		},
	} {
		var log bytes.Buffer
		s := withRoute(t, &log, handle)
		for range 2 {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/fails", nil))
			var p wire.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if w.Code != 500 || p.Code != "internal" || p.RequestID == "" || p.RequestID != w.Header().Get(wire.HeaderRequestID) ||
				strings.Contains(w.Body.String(), "fire") || w.Header().Get("ETag") != "" {
				t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
			}
			var line map[string]any
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatalf("%s: log %q: %v", name, log.String(), err)
			}
			if line[fieldRequestID] != p.RequestID || line["level"] != "error" || line[fieldError] == nil ||
				(line[fieldStack] != nil) != (name == "panic" || name == "runtime error") {
				t.Errorf("%s: line %v", name, line)
			}
			log.Reset()
		}
	}
}

// TestFailureInTheMiddleOfAnAnswer: what has begun to go out cannot become a
// refusal; the client must see that the answer is not whole.
func TestFailureInTheMiddleOfAnAnswer(t *testing.T) {
	for _, length := range []string{"1000000", ""} { // without a length the answer is chunked
		s := withRoute(t, io.Discard, func(_ *Server, c echo.Context) error {
			if length != "" {
				c.Response().Header().Set(echo.HeaderContentLength, length)
			}
			_, _ = c.Response().Write(make([]byte, 500000))
			return errors.New("disk on fire")
		})
		srv := httptest.NewServer(s.Handler())
		res, err := http.Get(srv.URL + "/fails")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("length %q: %d bytes were taken for a whole answer", length, len(b))
		}
		_ = res.Body.Close()
		srv.Close()
	}
}

// TestNoAnswerIsNoSuccess: a handler that gave up because the client has gone
// must not leave the 200 that net/http sends for handlers that say nothing.
func TestNoAnswerIsNoSuccess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	s := withRoute(t, &log, func(_ *Server, c echo.Context) error {
		cancel()
		return c.Request().Context().Err()
	})
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("the handler ended with %v", err)
		}
		if !strings.Contains(log.String(), `"status":499`) {
			t.Errorf("log %s", log.String())
		}
	}()
	s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fails", nil).WithContext(ctx))
}

// TestNobodyIsLetInByDefault: a route without a rule answers nobody.
func TestNobodyIsLetInByDefault(t *testing.T) {
	s := withRoute(t, io.Discard, func(_ *Server, c echo.Context) error { return nil })
	rt := Route{Method: http.MethodGet, Path: "/open", handle: func(_ *Server, c echo.Context) error { return c.NoContent(200) }}
	s.echo.Add(rt.Method, rt.Path, s.admitted(rt))
	b, err := s.store.Bootstrap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", b.ControlToken, b.AutomationToken} {
		r := httptest.NewRequest(http.MethodGet, "/open", nil)
		r.Header.Set(echo.HeaderAuthorization, "Bearer "+token)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%.7s…: %d", token, w.Code)
		}
	}
}

// TestUnavailableSaysWhen: 503 is for what passes, and says when to come back.
func TestUnavailableSaysWhen(t *testing.T) {
	s := withRoute(t, io.Discard, func(*Server, echo.Context) error { return fault.New(fault.DiskFull, "no room in kl.db") })
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/fails", nil))
	if w.Code != 503 || w.Header().Get(echo.HeaderRetryAfter) == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	s.stop()
	w = httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if w.Code != 503 || !strings.Contains(w.Body.String(), string(fault.ShuttingDown)) {
		t.Errorf("readyz of a stopping server: %d %s", w.Code, w.Body)
	}
}
