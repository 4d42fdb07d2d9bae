package server

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"kl/fault"
)

// Certs is a certificate and its key in files. They are read again when they
// change, so that a renewed certificate needs no restart.
type Certs struct {
	certFile, keyFile string
	log               zerolog.Logger

	mu    sync.Mutex
	cert  *tls.Certificate
	stamp stamp
}

// stamp tells whether the files have changed.
type stamp struct{ cert, key fileStamp }

type fileStamp struct {
	modified time.Time
	size     int64
}

// NewCerts reads the files, PEM both. The code of a failure is
// parameter_invalid. log is told of reloads.
func NewCerts(certFile, keyFile string, log zerolog.Logger) (*Certs, error) {
	c := &Certs{certFile: certFile, keyFile: keyFile, log: log}
	now, err := c.look()
	if err == nil {
		err = c.load(now)
	}
	if err != nil {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the certificate %s and the key %s cannot be used", certFile, keyFile).
			WithNext("give --tls-cert and --tls-key the two PEM files that belong together")
	}
	return c, nil
}

// get is tls.Config.GetCertificate. Files that cannot be used, for example
// because only one of the two is written yet, leave the certificate as it was.
func (c *Certs) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.look()
	if err == nil && now == c.stamp {
		return c.cert, nil
	}
	if err == nil {
		err = c.load(now)
	}
	if err != nil {
		c.log.Warn().Err(err).Msg("certificate not reloaded")
	} else {
		c.log.Info().Str(fieldPath, c.certFile).Msg("certificate reloaded")
	}
	return c.cert, nil
}

func (c *Certs) look() (s stamp, err error) {
	for _, f := range []struct {
		path string
		to   *fileStamp
	}{{c.certFile, &s.cert}, {c.keyFile, &s.key}} {
		fi, err := os.Stat(f.path)
		if err != nil {
			return s, err
		}
		*f.to = fileStamp{fi.ModTime(), fi.Size()}
	}
	return s, nil
}

func (c *Certs) load(s stamp) error {
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("load certificate: %w", err)
	}
	c.cert, c.stamp = &cert, s
	return nil
}
