// Package kltest has what tests of other packages need: a real server on a
// real file, and realistic states. It is imported by tests only.
package kltest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"kl/server"
	"kl/store"
	"kl/wire"
)

// Option changes how Store and Start open things.
type Option func(*options)

type options struct {
	store  store.Options
	server server.Options
	tls    [2]string // certificate and key files
}

// WithStore changes the options of the store.
func WithStore(f func(*store.Options)) Option { return func(o *options) { f(&o.store) } }

// WithServer changes the options of the server.
func WithServer(f func(*server.Options)) Option { return func(o *options) { f(&o.server) } }

// WithTLS makes the server speak TLS with a certificate and a key in files.
func WithTLS(certFile, keyFile string) Option {
	return func(o *options) { o.tls = [2]string{certFile, keyFile} }
}

func gather(tb testing.TB, opts []Option) options {
	var o options
	o.store.Path = filepath.Join(tb.TempDir(), "kl.db")
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Store opens a store on a new file. When the test ends, the file is checked:
// a broken invariant fails the test.
func Store(tb testing.TB, opts ...Option) *store.Store {
	tb.Helper()
	o := gather(tb, opts).store
	st := open(tb, o)
	tb.Cleanup(func() { closeAndCheck(tb, st, o) })
	return st
}

func open(tb testing.TB, o store.Options) *store.Store {
	tb.Helper()
	st, err := store.Open(o)
	if err != nil {
		tb.Fatalf("open %s: %v", o.Path, err)
	}
	return st
}

// closeAndCheck closes the store and checks the file as it then is, so that
// what the store holds in memory cannot hide what the file lacks.
func closeAndCheck(tb testing.TB, st *store.Store, o store.Options) {
	tb.Helper()
	if err := st.Close(); err != nil {
		tb.Errorf("close of the file: %v", err)
	}
	o.ReadOnly = true
	st = open(tb, o)
	report, err := st.Check(context.Background(), nil)
	if err != nil {
		tb.Errorf("check of the file: %v", err)
	}
	for _, p := range report.Problems {
		tb.Errorf("check of the file: %s", p)
	}
	if err := st.Close(); err != nil {
		tb.Errorf("close of the checked file: %v", err)
	}
}

// Server is a real server on a real file.
type Server struct {
	URL       string // base URL
	Bootstrap wire.Bootstrap
	Store     *store.Store
	Log       *Log
	Client    *http.Client // follows no redirect

	tb    testing.TB
	opt   options
	stop  context.CancelFunc
	ended chan error
}

// Start makes a store, bootstraps it and serves it on a free port of the
// loopback address. When the test ends, the server is stopped and the file
// checked.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s := &Server{tb: tb, opt: gather(tb, opts), Log: &Log{}}
	s.Client = &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.Store = open(tb, s.opt.store)
	boot, err := s.Store.Bootstrap(context.Background())
	if err != nil {
		tb.Fatalf("bootstrap: %v", err)
	}
	s.Bootstrap = boot
	s.serve("127.0.0.1:0")
	tb.Cleanup(func() {
		s.Stop()
		closeAndCheck(tb, s.Store, s.opt.store)
	})
	return s
}

func (s *Server) serve(address string) {
	s.tb.Helper()
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		s.tb.Fatalf("listen: %v", err)
	}
	o := s.opt.server
	o.Store, o.Log = s.Store, zerolog.New(s.Log)
	scheme := "http://"
	var certs *server.Certs
	if s.opt.tls[0] != "" {
		scheme = "https://"
		if certs, err = server.NewCerts(s.opt.tls[0], s.opt.tls[1], o.Log); err != nil {
			s.tb.Fatalf("certificates: %v", err)
		}
	}
	s.URL = scheme + ln.Addr().String()
	srv := server.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	s.stop, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- srv.Serve(ctx, ln, certs) }()
}

// Stop ends the server gracefully and waits for it; the store stays open. A
// second Stop does nothing.
func (s *Server) Stop() {
	s.tb.Helper()
	if s.stop == nil {
		return
	}
	s.stop()
	s.stop = nil
	if err := <-s.ended; err != nil {
		s.tb.Errorf("serve: %v", err)
	}
	s.Client.CloseIdleConnections()
}

// Restart stops the server, closes the file, opens it again and serves it on
// the same address.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Stop()
	if err := s.Store.Close(); err != nil {
		s.tb.Fatalf("close of the file: %v", err)
	}
	s.Store = open(s.tb, s.opt.store)
	_, address, _ := strings.Cut(s.URL, "://")
	s.serve(address)
}

// StateURL is the data plane's address of a state in the bootstrap environment.
func (s *Server) StateURL(name string) string {
	return s.URL + wire.StatePath(s.Bootstrap.WorkspaceID, s.Bootstrap.EnvPublicID, name)
}

// LockURL is the alias of StateURL for locking with standard methods.
func (s *Server) LockURL(name string) string {
	return s.URL + wire.LockPath(s.Bootstrap.WorkspaceID, s.Bootstrap.EnvPublicID, name)
}

// APIURL is the control API's address of a state, followed by rest.
func (s *Server) APIURL(name, rest string) string {
	return s.URL + wire.ControlStatePath(s.Bootstrap.EnvPublicID, name) + rest
}

// Credentials are set on a request.
type Credentials func(*http.Request)

// Automation are the bootstrap environment's automation token as Basic
// credentials.
func (s *Server) Automation() Credentials {
	return Basic(s.Bootstrap.WorkspaceID, s.Bootstrap.AutomationToken)
}

// Operator is the operator's control token.
func (s *Server) Operator() Credentials { return Bearer(s.Bootstrap.ControlToken) }

// Basic are Basic credentials.
func Basic(user, password string) Credentials {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

// Bearer is a bearer token.
func Bearer(token string) Credentials {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// Nobody sends no credentials.
func Nobody(*http.Request) {}

// Do sends a request, with headers in pairs of name and value, and reads the
// whole answer. A request that is not answered ends the test; call it only from
// the test's own goroutine, and Try from others.
func (s *Server) Do(as Credentials, method, url string, body []byte, headers ...string) *Answer {
	s.tb.Helper()
	a, err := s.Try(context.Background(), as, method, url, body, headers...)
	if err != nil {
		s.tb.Fatalf("%s %s: %v", method, url, err)
	}
	return a
}

// Try is Do for any goroutine.
func (s *Server) Try(ctx context.Context, as Credentials, method, url string, body []byte, headers ...string) (*Answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	as(r)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	start := time.Now()
	res, err := s.Client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	return &Answer{Status: res.StatusCode, Header: res.Header, Body: b, Took: time.Since(start)}, nil
}

// Answer is a whole answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Took   time.Duration
}

// Problem is the problem document of a refusal; its Status is 0 when the
// answer is none.
func (a *Answer) Problem() wire.Problem {
	var p wire.Problem
	if a.Header.Get("Content-Type") != wire.MediaProblem || json.Unmarshal(a.Body, &p) != nil {
		return wire.Problem{}
	}
	return p
}

// LockInfo is the answer read as Terraform reads a refused LOCK.
func (a *Answer) LockInfo() (wire.LockInfo, error) {
	var i wire.LockInfo
	err := json.Unmarshal(a.Body, &i)
	return i, err
}

// Into decodes a JSON answer.
func (a *Answer) Into(tb testing.TB, v any) {
	tb.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		tb.Fatalf("answer %d %q: %v", a.Status, a.Body, err)
	}
}

// LockBody is the LockInfo that a client sends.
func LockBody(id, operation string) []byte {
	b, _ := json.Marshal(wire.LockInfo{
		ID: id, Operation: operation, Who: "ana@laptop", Version: "1.11.4", Created: "2026-01-02T03:04:05.678901Z",
	}) // strings always marshal
	return b
}

// Log collects what the server logs, a JSON object a line.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is everything logged so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Line is the line of a request, nil when it is not there yet.
func (l *Log) Line(requestID string) map[string]any {
	for line := range strings.Lines(l.String()) {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["request_id"] == requestID {
			return m
		}
	}
	return nil
}
