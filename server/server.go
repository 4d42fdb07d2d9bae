// Package server answers the HTTP API: the data plane that Terraform and
// OpenTofu talk to, the control API under /v1, and a few pages for people and
// monitors.
//
// All routes stand in one table (Routes). A request passes frame, which gives
// it an id, turns panics and errors into answers and writes the log line; then
// admit, which finds out who asks and whether they may; then a handler that
// reads, calls the store and answers. The store decides; this package only
// translates.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	stdlog "log" //nolint:depguard // net/http reports on connections to no other kind
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/rs/zerolog"

	"kl/query"
	"kl/store"
	"kl/wire"
)

// Defaults of Options.
const (
	DefaultMaxBody int64         = 512 << 20
	DefaultHold    time.Duration = 5 * time.Second
	DefaultGrace   time.Duration = 30 * time.Second
	DefaultStall   time.Duration = 30 * time.Second
)

const (
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 15 * time.Second
	idleTimeout       = 3 * time.Minute // longer than the 16 s between a waiting client's LOCKs
)

// Options say how a server is made. Only Store is required.
type Options struct {
	Store   *store.Store
	Log     zerolog.Logger     // the zero Logger writes nothing
	Version wire.ServerVersion // what GET /version answers
	// ExternalURL is the base URL under which clients reach the server; the
	// OpenAPI document names it. "" leaves it to the reader.
	ExternalURL string
	MaxBody     int64         // bytes of a state; default DefaultMaxBody
	Hold        time.Duration // how long a repeated LOCK is held open; default DefaultHold, negative: not at all
	Grace       time.Duration // how long a stop waits for requests in flight; default DefaultGrace
	Stall       time.Duration // how long a client may send or take nothing; default DefaultStall
	Query       query.Limits  // of questions in SQL
	Now         func() time.Time
}

// Server answers requests. It is safe for concurrent use.
type Server struct {
	opt      Options
	store    *store.Store
	engine   *query.Engine
	echo     *echo.Echo
	metrics  *metrics
	throttle *throttle
	stopping context.Context // done once the server takes nothing new
	stop     context.CancelFunc
}

// New makes a server for an open store. The store stays the caller's to close.
func New(o Options) *Server {
	if o.MaxBody == 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.Hold == 0 {
		o.Hold = DefaultHold
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Stall == 0 {
		o.Stall = DefaultStall
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{opt: o, store: o.Store, engine: query.New(o.Store, o.Query), echo: echo.New(), metrics: newMetrics(o.Store), throttle: newThrottle()}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.echo.Logger.SetOutput(io.Discard) // everything worth saying is in the request's line
	s.echo.Use(s.frame)
	for _, rt := range Routes() {
		s.echo.Add(rt.Method, echoPath(rt.Path), s.admitted(rt))
	}
	return s
}

// Handler answers all routes. It is for tests and for embedding; deadlines
// against slow clients need a real connection.
func (s *Server) Handler() http.Handler { return s.echo }

// Serve accepts connections until ctx is done, then stops: nothing new is
// accepted, LOCK requests that wait are answered at once, and requests in
// flight get Options.Grace to end. With certs it speaks TLS. It returns nil
// after a stop, also when connections had to be cut.
func (s *Server) Serve(ctx context.Context, ln net.Listener, certs *Certs) error {
	srv := &http.Server{
		Handler:                      s.echo,
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // it would answer without a request id
		ErrorLog:                     stdlog.New(connLog{s.opt.Log}, "", 0),
	}
	ended := make(chan error, 1)
	go func() {
		if certs == nil {
			ended <- srv.Serve(ln)
			return
		}
		srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certs.get}
		ended <- srv.ServeTLS(ln, "", "")
	}()
	select {
	case err := <-ended:
		s.stop()
		return err
	case <-ctx.Done():
	}
	s.stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.Grace)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		s.opt.Log.Warn().Err(err).Msg("connections cut at the end of the grace period")
		_ = srv.Close() // its only errors are of listeners that Shutdown has closed
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// connLog takes what net/http says about single connections, such as failed
// TLS handshakes.
type connLog struct{ log zerolog.Logger }

func (l connLog) Write(p []byte) (int, error) {
	l.log.Debug().Str(fieldError, string(p)).Msg("connection")
	return len(p), nil
}
