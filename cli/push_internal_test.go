package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kl/kltest"
)

// A push that is interrupted in mid-write gives its lock back.
func TestInterruptedPushLeavesNoLock(t *testing.T) {
	s := kltest.Start(t)
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	locked := false
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case "LOCK":
			locked = true
		case http.MethodPost:
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see the client go
			interrupt()
			<-r.Context().Done()
			return
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	file := filepath.Join(t.TempDir(), "x.tfstate")
	if err := os.WriteFile(file, []byte(`{"version":4,"serial":1,"lineage":"l","resources":[],"outputs":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	exit := run(ctx, []string{
		"state", "push", "demo", file, "--address", proxy.URL, "--env", s.Bootstrap.EnvPublicID,
		"--username", s.Bootstrap.WorkspaceID, "--password", s.Bootstrap.AutomationToken,
	}, Env{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(string) string { return "" }, Now: time.Now, Dir: t.TempDir(),
	})
	if exit != ExitFailed || stdout.Len() > 0 || stderr.String() != "kl: interrupted\n" {
		t.Errorf("exit %d, stdout %q, stderr %q", exit, &stdout, &stderr)
	}
	var lock struct{ Holders []any }
	s.Do(s.Automation(), http.MethodGet, s.APIURL("demo", "/lock"), nil).Into(t, &lock)
	if !locked || len(lock.Holders) != 0 {
		t.Errorf("locked: %v, holders %v", locked, lock.Holders)
	}
}
