package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"kl/fault"
	"kl/server"
)

// fieldAddress is the log field with the address that is listened on.
const fieldAddress = "address"

// serveOptions are the flags of kl serve.
type serveOptions struct {
	data, listen, external string
	cert, key              string
	logFormat              string
	maxBody                size
	backups                schedule
	runLease               time.Duration
}

func (o serveOptions) validate(cmd *cobra.Command) error {
	var errs []error
	if (o.cert == "") != (o.key == "") {
		errs = append(errs, usage(cmd, "--tls-cert and --tls-key belong together, but one of them is missing"))
	}
	if o.runLease < time.Second {
		errs = append(errs, usage(cmd, "--run-lease %s is shorter than a second", o.runLease))
	}
	if o.logFormat != "console" && o.logFormat != "json" {
		errs = append(errs, usage(cmd, "--log-format is %q; it can be console or json", o.logFormat))
	}
	errs = append(errs, o.backups.validate(cmd))
	_, _, err := baseAddress(o.external, o.listen, o.cert != "")
	return joined(append(errs, err))
}

// joined makes one failure with all the complaints.
func joined(errs []error) error {
	var first *fault.Error
	for _, err := range errs {
		e := fault.Of(err)
		switch {
		case e == nil:
		case first == nil:
			first = e
		default:
			first.Detail += "; " + e.Detail
		}
	}
	if first == nil {
		return nil
	}
	return first
}

func (a *app) serveCmd() *cobra.Command {
	o := serveOptions{maxBody: size(server.DefaultMaxBody)}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve states from a data file",
		Long: `Serve states from a data file. When the file is not there it is created, and the
tokens and a backend block to paste are printed, once.

SIGINT and SIGTERM stop the server: it takes nothing new, ends what it has begun
within 30 seconds, closes the file and exits with 0.`,
		Example: `  kl serve
  kl serve --data /var/lib/kl/kl.db --listen :8443 --tls-cert cert.pem --tls-key key.pem
  kl serve --external-url https://state.example.org --log-format json`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd); err != nil {
				return err
			}
			return a.serve(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.data, "data", defaultData, "data file; created when it is not there")
	f.StringVar(&o.listen, "listen", defaultListen, "address to listen on; port 0 takes a free one")
	f.StringVar(&o.external, "external-url", "", "address under which clients reach the server, when it is another")
	f.StringVar(&o.cert, "tls-cert", "", "PEM file with the certificate; read again when it changes")
	f.StringVar(&o.key, "tls-key", "", "PEM file with the certificate's key")
	f.StringVar(&o.logFormat, "log-format", "console", "console or json")
	f.Var(&o.maxBody, "max-body", "largest state that is taken")
	o.backups.add(f)
	f.DurationVar(&o.runLease, "run-lease", 15*time.Minute, "how long a run lives after its last request")
	return cmd
}

// The heap of a server is a few large buffers with the bytes of states, which
// cost the collector nothing to look at, and little else. gcPercent keeps it
// close to what is in use; the ballast, address space that is never touched,
// keeps the collector from running after every request while little is in use.
// GOGC overrides both.
const (
	gcPercent = 20
	ballast   = 48 << 20
)

func (a *app) serve(ctx context.Context, o serveOptions) (err error) {
	if a.env.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
		defer runtime.KeepAlive(make([]byte, ballast))
	}
	log := a.logger(o.logFormat)
	var certs *server.Certs
	if o.cert != "" {
		if certs, err = server.NewCerts(o.cert, o.key, log); err != nil {
			return err
		}
	}
	// before the file: the port belongs into the block that bootstrap prints
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fault.Wrap(fault.ParameterInvalid, err, "the address %s cannot be listened on", o.listen).
			WithNext("choose another with --listen (KL_LISTEN), or stop what uses it")
	}
	// harmless after Serve, which closes it too
	defer func() { _ = ln.Close() }()
	d, err := a.openData(o.data, o.runLease)
	if err != nil {
		return err
	}
	here := ln.Addr().String()
	base, remark, err := baseAddress(o.external, here, certs != nil)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	b, isNew, err := d.bootstrap(ctx, base)
	if err == nil && isNew {
		err = a.printBootstrap(o.data, base, remark, b)
	}
	if err != nil {
		return errors.Join(err, d.discard())
	}
	defer func() { err = errors.Join(err, d.Close()) }()

	srv := server.New(server.Options{
		Store: d.Store, Log: log, Version: build(), ExternalURL: base, MaxBody: int64(o.maxBody), Now: a.env.Now,
	})
	if o.backups.dir != "" {
		stop, err := a.scheduleBackups(ctx, d.Store, o.backups, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	a.announce(log, o.logFormat, ln.Addr(), certs != nil)
	if err := srv.Serve(ctx, ln, certs); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	log.Info().Msg("stopped")
	return nil
}

// announce says that the server accepts, and where.
func (a *app) announce(log zerolog.Logger, format string, at net.Addr, tls bool) {
	scheme := "http://"
	if tls {
		scheme = "https://"
	}
	if tcp, ok := at.(*net.TCPAddr); ok && !tls && !tcp.IP.IsLoopback() {
		log.Warn().Str(fieldAddress, at.String()).
			Msg("listening beyond this machine without TLS: tokens and states cross the network in clear; see --tls-cert and --tls-key")
	}
	if format == "json" {
		log.Info().Str(fieldAddress, scheme+at.String()).Msg("listening")
		return
	}
	a.note("listening on %s%s", scheme, at)
}

func (a *app) logger(format string) zerolog.Logger {
	w := a.env.Stderr
	if format == "console" {
		w = &consoleLog{out: a.env.Stderr, color: terminal(a.env.Stderr)}
	}
	return zerolog.New(w).With().Timestamp().Logger()
}
