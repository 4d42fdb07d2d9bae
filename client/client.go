// Package client is a typed client of kl's HTTP API, for the command line and
// for other programs.
//
// Every refusal comes back as a *fault.Error rebuilt from the server's problem
// document: code, sentence, next step and the class's members are the
// server's, and RequestID gives the id under which the server remembers the
// refusal. When no answer comes at all the code is fault.Unreachable. A
// canceled context comes back as context.Canceled and is no fault.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"kl/fault"
	"kl/wire"
)

// dialTimeout bounds each step of making a connection.
const dialTimeout = 15 * time.Second

// maxJSON bounds what is read of a JSON answer. Listings come in pages far
// smaller than this.
const maxJSON = 64 << 20

// Options say which server a client talks to, and as whom.
type Options struct {
	// Base is the server's address, http or https, with or without a path in
	// front of the server's own. User name and password in it serve as
	// Username and Password where these are empty.
	Base string
	// Bearer is sent to the control API (/v1), and to state paths where
	// Username is empty.
	Bearer string
	// Username and Password are sent to state paths as HTTP Basic, and to the
	// control API where Bearer is empty.
	Username, Password string
	// HTTP makes the requests; nil means a client of its own with CAFile.
	HTTP *http.Client
	// CAFile names a PEM file with the certificates that are trusted instead of
	// the system's; it is read once. Not together with HTTP.
	CAFile string
	// CA holds such certificates itself, as PEM; CAFile goes before it.
	CA string
	// UserAgent names the caller in the server's view; "" means "kl".
	UserAgent string
	// PageSize is how many items a listing asks for at a time; 0 means 500,
	// and servers give at most 1000.
	PageSize int
}

// Client talks to one server. It is safe for concurrent use.
type Client struct {
	base      string // without a slash at the end
	bearer    string
	username  string
	password  string
	http      *http.Client
	userAgent string
	pageSize  int
}

// New makes a client; it sends nothing yet. The code of a failure is
// parameter_invalid, or credentials_invalid for what cannot be a token.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.Base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fault.New(fault.ParameterInvalid, "%q is not the address of a server", hideUserinfo(o.Base)).
			WithNext("give it as http://HOST:PORT or https://HOST (--address, KL_ADDRESS)")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fault.New(fault.ParameterInvalid, "the server's address %s has a query or a fragment", u.Redacted()).
			WithNext("leave out what stands behind ? and #")
	}
	if strings.ContainsFunc(o.Bearer, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fault.New(fault.CredentialsInvalid, "the token has a blank, a line break or another character in it that no token has").
			WithNext("check --token (KL_TOKEN)")
	}
	c := &Client{bearer: o.Bearer, username: o.Username, password: o.Password, http: o.HTTP, userAgent: o.UserAgent, pageSize: o.PageSize}
	if u.User != nil && c.username == "" {
		c.username = u.User.Username()
		c.password, _ = u.User.Password()
	}
	u.User = nil
	c.base = strings.TrimRight(u.String(), "/")
	if c.userAgent == "" {
		c.userAgent = "kl"
	}
	if c.pageSize <= 0 {
		c.pageSize = 500
	}
	if c.http == nil {
		if c.http, err = newHTTP(o.CAFile, o.CA); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Base is the server's address, without credentials and without a slash at
// the end.
func (c *Client) Base() string { return c.base }

func newHTTP(caFile, ca string) (*http.Client, error) {
	// no time limit on answers: a LOCK may be held open, a large body takes its time
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true, // states are verified against the digest of the bytes as stored
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fault.Wrap(fault.ParameterInvalid, err, "the certificate file %s cannot be read", caFile).
				WithNext("check --ca-file (KL_CA_FILE)")
		}
		ca = string(pem)
	}
	if ca != "" || caFile != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(ca)) {
			return nil, fault.New(fault.ParameterInvalid, "%s holds no PEM certificate", cmp.Or(caFile, "what should be a certificate")).
				WithNext("check --ca-file (KL_CA_FILE), or TF_HTTP_CLIENT_CA_CERTIFICATE_PEM, which is a certificate and not a file's name")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{
		Transport: t,
		// a redirect would turn a POST into a GET and carry the credentials elsewhere
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// plane says which credentials a request prefers.
type plane int

const (
	control plane = iota // /v1: Bearer before Basic
	data                 // state paths: Basic before Bearer
)

// do sends a request and returns its answer when the status is 2xx; the caller
// closes the body. Any other status comes back as an error.
func (c *Client) do(ctx context.Context, p plane, method, path string, query url.Values, body []byte, header http.Header) (*http.Response, error) {
	addr := c.base + path
	if len(query) > 0 {
		addr += "?" + query.Encode()
	}
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, addr, r)
	if err != nil {
		return nil, fmt.Errorf("make request %s %s: %w", method, path, err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("User-Agent", c.userAgent)
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	basic := c.username != "" && c.password != ""
	switch {
	case basic && (p == data || c.bearer == ""):
		req.SetBasicAuth(c.username, c.password)
	case c.bearer != "":
		req.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, c.refusal(res)
}

// call sends in as JSON where it is not nil and reads the answer into out
// where that is not nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body []byte
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("write %s %s: %w", method, path, err)
		}
		body = b
	}
	return c.answer(ctx, method, path, query, body, nil, out)
}

// answer sends a body as it is and reads the JSON of the answer into out where
// that is not nil.
func (c *Client) answer(ctx context.Context, method, path string, query url.Values, body []byte, header http.Header, out any) error {
	h := http.Header{"Accept": {"application/json"}}
	maps.Copy(h, header)
	res, err := c.do(ctx, control, method, path, query, body, h)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxJSON+1))
	if err != nil {
		return c.unreachable(ctx, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fault.Wrap(fault.ParameterInvalid, err, "%s does not answer as a kl server (%s on %s %s)",
			c.base, contentType(res), method, path).WithNext("check --address (KL_ADDRESS)")
	}
	return nil
}

func contentType(res *http.Response) string {
	if t := res.Header.Get("Content-Type"); t != "" {
		return t
	}
	return "no content type"
}

// WithoutBearer is the client with user name and password alone, as Terraform
// has them.
func (c *Client) WithoutBearer() *Client {
	plain := *c
	plain.bearer = ""
	return &plain
}

// Reached is what a first contact with a server tells.
type Reached struct {
	Version wire.ServerVersion
	Date    time.Time     // of the server's clock, in whole seconds; zero when it tells none
	Took    time.Duration // until the answer
}

// Reach asks the server for what takes no credentials.
func (c *Client) Reach(ctx context.Context) (r Reached, err error) {
	bare := c.WithoutBearer()
	bare.username = ""
	start := time.Now()
	res, err := bare.do(ctx, control, http.MethodGet, "/version", nil, nil, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return r, err
	}
	defer func() { _ = res.Body.Close() }()
	r.Took = time.Since(start)
	r.Date, _ = http.ParseTime(res.Header.Get("Date"))
	if err := json.NewDecoder(io.LimitReader(res.Body, maxJSON)).Decode(&r.Version); err != nil {
		return r, fault.Wrap(fault.ParameterInvalid, err, "%s does not answer as a kl server (%s on GET /version)", c.base, contentType(res)).
			WithNext("check --address (KL_ADDRESS)")
	}
	return r, nil
}
