package cli

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"kl/fault"
	"kl/store"
	"kl/wire"
)

const (
	defaultData   = "kl.db"
	defaultListen = "127.0.0.1:8080"
)

// dataFile is an open data file and whether this run has created it.
type dataFile struct {
	*store.Store
	path  string
	fresh bool
}

// openData opens the data file for reading and writing and creates it when it
// is not there.
func (a *app) openData(path string, runLease time.Duration) (*dataFile, error) {
	_, err := os.Lstat(path)
	d := &dataFile{path: path, fresh: errors.Is(err, fs.ErrNotExist)}
	if d.Store, err = store.Open(store.Options{Path: path, Now: a.env.Now, RunLease: runLease}); err != nil {
		return nil, err
	}
	return d, nil
}

// discard closes the file and removes it when this run has created it: the
// secrets in it are known to nobody.
func (d *dataFile) discard() error {
	err := d.Close()
	if d.fresh {
		err = errors.Join(err, os.Remove(d.path))
	}
	return err
}

// bootstrap fills an empty file; ok is false when it is not empty. base is the
// address under which clients reach the server.
func (d *dataFile) bootstrap(ctx context.Context, base string) (b wire.Bootstrap, ok bool, err error) {
	empty, err := d.Empty()
	if err != nil || !empty {
		return b, false, err
	}
	if b, err = d.Bootstrap(ctx); err != nil {
		return b, false, err
	}
	b.Address = base + wire.StatePath(b.WorkspaceID, b.EnvPublicID, "demo")
	return b, true, nil
}

// printBootstrap shows what the first start has made, once.
func (a *app) printBootstrap(path, base, remark string, b wire.Bootstrap) error {
	if a.asJSON {
		return a.printJSON(b)
	}
	block := newBackend(base, b.WorkspaceID, b.EnvPublicID, "demo", b.AutomationToken)
	if remark != "" {
		remark = "\n" + remark + "\n"
	}
	return a.printf(`Created %s. The tokens below are shown this once; keep them.

control token     %s   (the operator's, for kl)
workspace         %s
environment       %s   (slug: default)
automation token  %s   (for terraform)
%s
Paste this into a configuration and run terraform init. The state is named demo;
kl backend NAME prints the block for another.

%s
To look at it with kl from another terminal:

export KL_ADDRESS=%s KL_TOKEN=%s

`, path, b.ControlToken, b.WorkspaceID, b.EnvPublicID, b.AutomationToken, remark, block.hcl(), base, b.ControlToken)
}

// baseAddress is the address under which clients reach a server that listens
// on hostport, and a remark when that is a guess.
func baseAddress(external, hostport string, tls bool) (base, remark string, err error) {
	if external != "" {
		u, err := url.Parse(external)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return "", "", fault.New(fault.ParameterInvalid, "--external-url is not the address of a server").
				WithNext("give it as https://HOST or https://HOST/PATH, without user name, query and fragment")
		}
		return strings.TrimRight(external, "/"), "", nil
	}
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", "", fault.Wrap(fault.ParameterInvalid, err, "--listen is not an address").
			WithNext("give it as HOST:PORT, such as %s", defaultListen)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		remark = "The server listens on every address of this machine; 127.0.0.1 below is good on this\nmachine only. From elsewhere use its name, or start with --external-url."
		host = "127.0.0.1"
	}
	scheme := "http"
	if tls {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port), remark, nil
}
