package client_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kl/client"
	"kl/fault"
)

// answering starts something that is not a kl server: what stands here must be
// told apart from one, or comes from a newer one.
func answering(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return connect(t, client.Options{Base: srv.URL})
}

func connect(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatalf("New(%+v): %v", o, err)
	}
	return c
}

func TestRefusals(t *testing.T) {
	problem := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("KL-Request-Id", "req_header")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tc := range map[string]struct {
		h         http.HandlerFunc
		code      fault.Code
		class     fault.Class
		wire      string // the server's code
		detail    string // part of the sentence
		requestID string
	}{
		"known": {
			problem(409, `{"code":"serial_conflict","class":"conflict","status":409,"detail":"serial 3 is not after 7","next_step":"plan again","request_id":"req_1","latest_serial":7}`),
			fault.SerialConflict, fault.Conflict, "serial_conflict", "serial 3 is not after 7", "req_1",
		},
		"request id only in the header": {
			problem(423, `{"code":"locked","class":"lock","status":423,"detail":"held by ana","ID":"x"}`),
			fault.Locked, fault.Lock, "locked", "held by ana", "req_header",
		},
		"code of a newer server, class and status known": {
			problem(423, `{"code":"lock_frozen","class":"lock","status":423,"detail":"frozen"}`),
			fault.ClientTooNew, fault.Lock, "lock_frozen", "frozen", "req_header",
		},
		"code and status of a newer server, class known": {
			problem(402, `{"code":"unpaid","class":"quota","status":402,"detail":"not paid"}`),
			fault.BytesQuota, fault.Quota, "unpaid", "not paid", "req_header",
		},
		"class of a newer server": {
			problem(418, `{"code":"teapot","class":"pots","status":418,"detail":"short and stout"}`),
			fault.Internal, fault.Unknown, "teapot", "short and stout", "req_header",
		},
		"proxy's page": {
			problem(502, `<html>bad gateway</html>`),
			fault.Unreachable, fault.Unavailable, "unreachable", "answered 502 Bad Gateway", "req_header",
		},
		"other program's 404": {
			problem(404, `{"error":"no route"}`), fault.NotFound, fault.Invalid, "not_found", "answered 404", "req_header",
		},
		"empty 401":     {problem(401, ""), fault.CredentialsInvalid, fault.Auth, "credentials_invalid", "answered 401", "req_header"},
		"200 with HTML": {problem(200, "<html>"), fault.ParameterInvalid, fault.Invalid, "parameter_invalid", "does not answer as a kl server", ""},
		"redirect": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://user:geheim@login.example/", http.StatusFound)
			},
			fault.ParameterInvalid, fault.Invalid, "parameter_invalid", "redirects to", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := answering(t, tc.h).Whoami(t.Context())
			e := fault.Of(err)
			if e == nil {
				t.Fatalf("got %v, want a fault", err)
			}
			if e.Code != tc.code || e.Class() != tc.class || client.Code(err) != tc.wire {
				t.Errorf("got %s/%s/%s, want %s/%s/%s", e.Code, e.Class(), client.Code(err), tc.code, tc.class, tc.wire)
			}
			if !strings.Contains(e.Detail, tc.detail) || strings.Contains(err.Error(), "geheim") {
				t.Errorf("sentence %q, want a part %q and no password", err, tc.detail)
			}
			if got := client.RequestID(err); got != tc.requestID {
				t.Errorf("request id %q, want %q", got, tc.requestID)
			}
		})
	}
}

func TestUnreachableNamesTheAddress(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close() // nobody listens there now
	_, err := connect(t, client.Options{Base: srv.URL}).Whoami(t.Context())
	if !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.Of(err).Detail, srv.URL) {
		t.Errorf("got %v, want unreachable with %s", err, srv.URL)
	}
}

func TestCanceledIsNoFault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := c.Whoami(ctx)
	if !errors.Is(err, context.Canceled) || fault.Of(err) != nil {
		t.Errorf("got %v, want context.Canceled and no fault", err)
	}
}

func TestBadAddresses(t *testing.T) {
	for _, base := range []string{"", "localhost:8080", "ftp://x", "http://", "http://x/?a=b", "http://x/#f", "://", "http://u:geheim@"} {
		_, err := client.New(client.Options{Base: base})
		if !fault.Is(err, fault.ParameterInvalid) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("New(%q): got %v, want parameter_invalid without a password", base, err)
		}
	}
}

// Which credentials go where, and that those of the address are taken out of it.
func TestCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		o             client.Options
		control, data string
	}{
		"none":   {client.Options{}, "", ""},
		"bearer": {client.Options{Bearer: "t"}, "Bearer t", "Bearer t"},
		"basic":  {client.Options{Username: "u", Password: "p"}, "Basic dTpw", "Basic dTpw"},
		"both":   {client.Options{Bearer: "t", Username: "u", Password: "p"}, "Bearer t", "Basic dTpw"},
		"user without password": {
			client.Options{Bearer: "t", Username: "u"}, "Bearer t", "Bearer t",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r.Header.Get("Authorization")
				_, _ = io.WriteString(w, "{}")
			}))
			defer srv.Close()
			tc.o.Base = srv.URL + "/"
			c := connect(t, tc.o)
			if _, err := c.Whoami(t.Context()); err != nil || got != tc.control {
				t.Errorf("control: got %q, %v; want %q", got, err, tc.control)
			}
			if err := c.Unlock(t.Context(), client.Ref{}, lockInfo("x")); err != nil || got != tc.data {
				t.Errorf("data: got %q, %v; want %q", got, err, tc.data)
			}
		})
	}
	c := connect(t, client.Options{Base: "https://u:p@h/prefix/"})
	if c.Base() != "https://h/prefix" {
		t.Errorf("Base = %q", c.Base())
	}
}

func TestListingStopsAtARepeatedCursor(t *testing.T) {
	n := 0
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		n++
		_, _ = fmt.Fprint(w, `{"items":[{"name":"a"}],"next":"same"}`)
	})
	got, err := client.Collect(c.States(t.Context(), "env_x"), 0)
	if err != nil || len(got) != 2 || n != 2 {
		t.Errorf("got %d items in %d pages, %v", len(got), n, err)
	}
}

func TestChangedBytesAreRefused(t *testing.T) {
	sum := sha256.Sum256([]byte(`{"version":4}`))
	for name, tc := range map[string]struct {
		body, length string
		ok           bool
	}{
		"whole":   {`{"version":4}`, "", true},
		"changed": {`{"version":5}`, "", false},
		"cut":     {`{"versi`, "13", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
				w.Header().Set("KL-Version", "12")
				if tc.length != "" {
					w.Header().Set("Content-Length", tc.length)
				}
				_, _ = io.WriteString(w, tc.body)
			})
			b, err := c.Pull(t.Context(), client.Ref{Workspace: "w", Environment: "e", State: "s"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			got, err := io.ReadAll(b)
			if tc.ok && (err != nil || string(got) != tc.body || b.Version != 12) {
				t.Errorf("got %q of version %d, %v", got, b.Version, err)
			}
			if !tc.ok && !fault.Is(err, fault.Unreachable) {
				t.Errorf("got %q, %v; want unreachable", got, err)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // the refused handshakes are meant
	srv.StartTLS()
	defer srv.Close()
	_, err := connect(t, client.Options{Base: srv.URL}).Whoami(t.Context())
	if !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.Of(err).Next, "--ca-file") {
		t.Errorf("unknown CA: got %v", err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, client.Options{Base: srv.URL, CAFile: file}).Whoami(t.Context()); err != nil {
		t.Errorf("known CA: %v", err)
	}
	_, err = connect(t, client.Options{Base: strings.Replace(srv.URL, "https", "http", 1), CAFile: file}).Whoami(t.Context())
	if fault.Of(err) == nil {
		t.Errorf("http to https: got %v, want a fault", err)
	}
	for _, bad := range []string{filepath.Join(t.TempDir(), "absent"), "errors_test.go"} {
		if _, err := client.New(client.Options{Base: srv.URL, CAFile: bad}); !fault.Is(err, fault.ParameterInvalid) {
			t.Errorf("CAFile %s: got %v", bad, err)
		}
	}
}
