package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"kl/fault"
	"kl/kltest"
	"kl/server"
	"kl/wire"
)

func TestLogLine(t *testing.T) {
	s, st := seeded(t)
	as := s.Automation()
	want(t, "LOCK", s.Do(as, "LOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
	st.SetSerial(1)
	st.Mutate(0)
	st.SetSerial(0)
	bad := st.Bytes()
	a := s.Do(as, "POST", s.StateURL("app")+"?ID=l1", bad)
	line := s.Log.Line(a.Header.Get(wire.HeaderRequestID))
	for field, value := range map[string]any{
		"method": "POST", "route": "/states/{ws}/{env}/{state}", "status": float64(a.Status), "bytes": float64(len(a.Body)),
		"body_bytes": float64(len(bad)), "principal_kind": "automation", "workspace": s.Bootstrap.WorkspaceID,
		"environment": s.Bootstrap.EnvPublicID, "state": "app", "lock_id": "l1", "class": a.Problem().Class, "code": a.Problem().Code,
		"message": "request", "level": "info",
	} {
		if line[field] != value {
			t.Errorf("log field %s is %v, want %v", field, line[field], value)
		}
	}
	for _, field := range []string{"duration", "principal_id", "principal_name"} {
		if v, ok := line[field]; !ok || v == "" {
			t.Errorf("log field %s is %v", field, v)
		}
	}
	if line["error"] != nil && a.Status < 500 && line["level"] != "info" {
		t.Errorf("a refusal is logged as %v", line["level"])
	}
	if a.Status == 409 && a.Problem().Class == "conflict" && line["latest_serial"] != float64(1) {
		t.Errorf("a conflict without the latest serial: %v", line)
	}

	a = s.Do(kltest.Nobody, "GET", s.URL+"/no/such/page", nil)
	if line = s.Log.Line(a.Header.Get(wire.HeaderRequestID)); line["status"] != float64(404) || line["code"] != "not_found" || line["route"] != "" {
		t.Errorf("line of an unknown page: %v", line)
	}
}

// TestSecretsStayOut sends every secret along every way and looks for them in
// the log and in the answers.
func TestSecretsStayOut(t *testing.T) {
	s, st := seeded(t)
	b := s.Bootstrap
	secrets := []string{b.AutomationToken, b.ControlToken}
	for _, secret := range secrets {
		for _, as := range []kltest.Credentials{
			kltest.Bearer(secret), kltest.Basic(b.WorkspaceID, secret), kltest.Basic(secret, secret), kltest.Basic(secret, "x"), kltest.Basic("x", secret),
			kltest.Bearer(secret + "x"), kltest.Basic(b.WorkspaceID, secret[:len(secret)-1]),
		} {
			for _, r := range [][2]string{
				{"GET", s.StateURL("app")},
				{"POST", s.StateURL("app")},
				{"LOCK", s.StateURL("app")},
				{"GET", s.URL + "/v1/whoami"},
				{"GET", s.URL + "/v1/workspaces"},
				{"GET", s.APIURL("app", "")},
				{"GET", s.URL + "/states/x"},
				{"GET", s.URL + "/nowhere"},
			} {
				a := s.Do(as, r[0], r[1], st.Bytes())
				for _, x := range secrets {
					if bytes.Contains(a.Body, []byte(x)) {
						t.Errorf("%s %s shows a token: %s", r[0], r[1], cut(a.Body))
					}
				}
			}
		}
	}
	for _, secret := range secrets { // by whom it is not known what goes where
		for _, path := range []string{
			"/states/" + secret + "/" + b.EnvPublicID + "/app", "/states/" + b.WorkspaceID + "/" + secret + "/app",
			"/states/" + b.WorkspaceID + "/" + b.EnvPublicID + "/" + secret, "/states/" + secret, "/" + secret,
			"/v1/environments/" + secret, "/v1/workspaces/" + secret, "/v1/requests/" + secret,
		} {
			for _, as := range []kltest.Credentials{s.Automation(), s.Operator()} {
				a := s.Do(as, "GET", s.URL+path, nil)
				if bytes.Contains(a.Body, []byte(secret)) {
					t.Errorf("GET %s shows a token: %s", path, cut(a.Body))
				}
				if id := a.Header.Get(wire.HeaderRequestID); bytes.Contains(s.Do(s.Operator(), "GET", s.URL+"/v1/requests/"+id, nil).Body, []byte(secret)) {
					t.Errorf("GET %s is remembered with a token", path)
				}
			}
		}
		refused(t, "as a lock's ID", s.Do(s.Automation(), "UNLOCK", s.StateURL("app"), kltest.LockBody(secret, apply)), 409, fault.LockMismatch)
	}
	for _, x := range secrets {
		if strings.Contains(s.Log.String(), x[:len(x)-1]) {
			t.Error("a token is in the log")
		}
	}
	if strings.Contains(s.Log.String(), "Basic ") || strings.Contains(s.Log.String(), "Bearer ") {
		t.Error("an Authorization header is in the log")
	}
	var ev wire.List[wire.Event]
	a := s.Do(s.Operator(), "GET", s.URL+"/v1/events?limit=1000", nil)
	a.Into(t, &ev)
	if bytes.Contains(a.Body, []byte("kl_env_")) || bytes.Contains(a.Body, []byte("kl_ctl_")) {
		t.Error("a token is in the audit trail")
	}
}

func TestMetrics(t *testing.T) {
	s, _ := seeded(t)
	want(t, "LOCK", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
	want(t, "LOCK of another", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l2", apply)), 423)
	for i := range 20 {
		s.Do(kltest.Nobody, "GET", s.URL+"/guess/"+strconv.Itoa(i), nil)
		s.Do(kltest.Nobody, "M"+strconv.Itoa(i), s.StateURL("app"), nil)
		s.Do(s.Automation(), "GET", s.StateURL("s"+strconv.Itoa(i)), nil)
	}
	a := s.Do(kltest.Nobody, "GET", s.URL+"/metrics", nil)
	want(t, "metrics", a, 200)
	page := string(a.Body)
	for _, line := range []string{
		`kl_http_requests_total{method="LOCK",route="/states/{ws}/{env}/{state}",status="423"} 1`,
		`kl_http_requests_total{method="POST",route="/states/{ws}/{env}/{state}",status="200"} 1`,
		`kl_http_requests_total{method="GET",route="/states/{ws}/{env}/{state}",status="404"} 20`,
		`kl_http_requests_total{method="other",route="unmatched",status="404"} 20`,
		`kl_http_requests_total{method="other",route="unmatched",status="405"} 20`,
		`kl_http_refusals_total{class="lock",code="locked"} 1`,
		`kl_lock_wait_seconds_count{outcome="granted"} 1`,
		`kl_lock_wait_seconds_count{outcome="locked"} 1`,
		`kl_store_sessions 1`, `kl_store_waiters 1`, `kl_store_states 1`, `kl_store_versions 1`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
	if strings.Contains(page, "guess") || strings.Contains(page, `"M1"`) || strings.Contains(page, "app") {
		t.Error("what clients choose has become a label")
	}
	for _, name := range []string{"kl_store_file_bytes", "kl_store_commits_total", "kl_http_body_bytes_sum", "kl_http_request_duration_seconds_bucket", "go_goroutines"} {
		if !strings.Contains(page, name) {
			t.Errorf("metrics lack %s", name)
		}
	}
}

func TestPages(t *testing.T) {
	s := kltest.Start(t, kltest.WithServer(func(o *server.Options) {
		o.Version = wire.ServerVersion{Version: "v1.2.3", Commit: "abc", Go: "go1"}
	}))
	for _, path := range []string{"/healthz", "/readyz"} {
		want(t, path, s.Do(kltest.Nobody, "GET", s.URL+path, nil), 200)
		want(t, path, s.Do(kltest.Nobody, "HEAD", s.URL+path, nil), 200)
	}
	var v wire.ServerVersion
	s.Do(kltest.Nobody, "GET", s.URL+"/version", nil).Into(t, &v)
	if v.Version != "v1.2.3" {
		t.Errorf("version %+v", v)
	}
	for _, code := range fault.Codes() {
		a := s.Do(kltest.Nobody, "GET", s.URL+"/errors/"+string(code), nil, "Accept", "text/html,*/*;q=0.8")
		want(t, string(code), a, 200)
		page := string(a.Body)
		if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") || !strings.Contains(page, string(code)) ||
			!strings.Contains(page, strconv.Itoa(code.Info().Status)) || !strings.Contains(page, string(code.Info().Class)) {
			t.Errorf("%s: %v %s", code, a.Header, page)
		}
		if strings.Contains(page, "<script") || strings.Contains(page, "src=") || strings.Contains(page, "href=") {
			t.Errorf("%s: the page needs something else", code)
		}
		a = s.Do(kltest.Nobody, "GET", s.URL+"/errors/"+string(code), nil, "Accept", "text/plain")
		if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") || !strings.Contains(string(a.Body), code.Info().Why) || !strings.Contains(string(a.Body), code.Info().Next) {
			t.Errorf("%s as text: %v %s", code, a.Header, a.Body)
		}
	}
	refused(t, "unknown code", s.Do(kltest.Nobody, "GET", s.URL+"/errors/no_such", nil), 404, fault.NotFound)
}

func TestControlAPI(t *testing.T) {
	s, st := seeded(t)
	first := st.Bytes()
	for range 4 {
		st.Mutate(1)
		want(t, "POST", s.Do(s.Automation(), "POST", s.StateURL("app"), st.Bytes()), 200)
	}
	want(t, "POST", s.Do(s.Automation(), "POST", s.StateURL("other"), kltest.NewState(1, 9).Bytes()), 200)
	op := s.Operator()

	var ws wire.List[wire.Workspace]
	s.Do(op, "GET", s.URL+"/v1/workspaces", nil).Into(t, &ws)
	if len(ws.Items) != 1 || ws.Items[0].WorkspaceID != s.Bootstrap.WorkspaceID || ws.Items[0].Kind != "personal" || ws.Items[0].Status != "active" {
		t.Errorf("workspaces %+v", ws)
	}
	var w wire.Workspace
	s.Do(op, "GET", s.URL+"/v1/workspaces/"+s.Bootstrap.WorkspaceID, nil).Into(t, &w)
	if len(ws.Items) == 1 && w != ws.Items[0] {
		t.Errorf("workspace %+v", w)
	}
	refused(t, "unknown workspace", s.Do(op, "GET", s.URL+"/v1/workspaces/ws_aaaaaaaaaaaa", nil), 404, fault.NotFound)
	var envs wire.List[wire.Environment]
	s.Do(op, "GET", s.URL+"/v1/workspaces/"+s.Bootstrap.WorkspaceID+"/environments", nil).Into(t, &envs)
	if len(envs.Items) != 1 || envs.Items[0].Slug != "default" || envs.Items[0].LockMode != "exclusive" || !envs.Items[0].RecoveryHold {
		t.Errorf("environments %+v", envs)
	}

	env := s.URL + wire.EnvironmentPath(s.Bootstrap.EnvPublicID)
	var e wire.Environment
	a := s.Do(op, "PATCH", env, []byte(`{"lock_idle_ttl":"90s","recovery_hold":false}`))
	want(t, "PATCH", a, 200)
	s.Do(s.Automation(), "GET", env, nil).Into(t, &e)
	if e.RecoveryHold || time.Duration(e.LockIdleTTL) != 90*time.Second || !bytes.Contains(a.Body, []byte(`"1m30s"`)) {
		t.Errorf("after the PATCH %+v, %s", e, a.Body)
	}
	refused(t, "PATCH by a token", s.Do(s.Automation(), "PATCH", env, []byte(`{}`)), 401, fault.CredentialsInvalid)

	var names []string
	for cursor := ""; ; {
		var page wire.List[wire.State]
		s.Do(s.Automation(), "GET", env+"/states?limit=1&cursor="+cursor, nil).Into(t, &page)
		for _, x := range page.Items {
			names = append(names, x.Name)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if strings.Join(names, " ") != "app other" {
		t.Errorf("states by pages of one: %v", names)
	}

	var versions []uint64
	for cursor := ""; ; {
		var page wire.List[wire.Version]
		s.Do(s.Automation(), "GET", s.APIURL("app", "/versions?limit=2&cursor="+cursor), nil).Into(t, &page)
		for _, x := range page.Items {
			versions = append(versions, x.Version)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(versions) != 5 || versions[0] != 5 || versions[4] != 1 {
		t.Errorf("versions by pages of two: %v", versions)
	}
	for ref, serial := range map[string]string{"1": "1", "@4": "1", "serial:1": "1", "head": "5", "@0": "5", "3": "3"} {
		a := s.Do(s.Automation(), "GET", s.APIURL("app", "/versions/"+ref), nil)
		want(t, ref, a, 200)
		if a.Header.Get(wire.HeaderSerial) != serial || a.Header.Get("ETag") != `"`+sha(a.Body)+`"` {
			t.Errorf("version %s: headers %v", ref, a.Header)
		}
		if serial == "1" && !bytes.Equal(a.Body, first) {
			t.Errorf("version %s: other bytes than were stored", ref)
		}
	}
	refused(t, "no such version", s.Do(s.Automation(), "GET", s.APIURL("app", "/versions/9"), nil), 404, fault.NotFound)
	refused(t, "no such state", s.Do(s.Automation(), "GET", s.APIURL("none", ""), nil), 404, fault.NotFound)

	foreign := kltest.NewState(2, 77)
	foreign.SetLineage("11111111-2222-3333-4444-555555555555")
	foreign.SetSerial(6)
	refused(t, "foreign lineage", s.Do(s.Automation(), "POST", s.StateURL("app"), foreign.Bytes()), 409, fault.LineageConflict)
	want(t, "allow", s.Do(s.Automation(), "POST", s.APIURL("app", "/allow"), []byte(`{"lineage":true}`)), 204)
	want(t, "allowed once", s.Do(s.Automation(), "POST", s.StateURL("app"), foreign.Bytes()), 200)

	var ev wire.List[wire.Event]
	s.Do(op, "GET", s.URL+"/v1/events?environment="+s.Bootstrap.EnvPublicID+"&limit=2", nil).Into(t, &ev)
	if len(ev.Items) != 2 || ev.Next == "" {
		t.Errorf("events: %+v", ev)
	}
}

// TestStopFinishesRequests: a body that is on its way when the stop comes is
// stored and answered.
func TestStopFinishesRequests(t *testing.T) {
	s, st := seeded(t)
	st.Mutate(1)
	b := st.Bytes()
	conn := dial(t, s)
	head := "POST " + strings.TrimPrefix(s.StateURL("app"), s.URL) + " HTTP/1.1\r\nHost: x\r\n" + authHeader(t, s.Automation()) +
		"Expect: 100-continue\r\nContent-Length: " + strconv.Itoa(len(b)) + "\r\n\r\n"
	send(t, conn, []byte(head))
	answer := make([]byte, 25)
	if _, err := conn.Read(answer); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 100") {
		t.Fatalf("the server does not read the body: %q, %v", answer, err)
	}
	send(t, conn, b[:10])
	stopped := make(chan struct{})
	go func() { s.Stop(); close(stopped) }()
	notAccepting(t, s)
	send(t, conn, b[10:])
	if a := readAnswer(t, conn, "POST"); a.Status != 200 {
		t.Errorf("the POST in flight: %d %s", a.Status, a.Body)
	}
	<-stopped
	s.Restart()
	if a := s.Do(s.Automation(), "GET", s.StateURL("app"), nil); !bytes.Equal(a.Body, b) {
		t.Error("the POST in flight is lost")
	}
}

// notAccepting waits until the server takes no connection.
func notAccepting(t *testing.T, s *kltest.Server) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			return
		}
		_ = conn.Close()
	}
	t.Fatal("the server still takes connections")
}

// TestGraceEnds: a client that never finishes cannot keep the server from
// stopping.
func TestGraceEnds(t *testing.T) {
	s, _ := seeded(t, kltest.WithServer(func(o *server.Options) { o.Grace = 50 * time.Millisecond }))
	conn := dial(t, s)
	send(t, conn, []byte("POST "+strings.TrimPrefix(s.StateURL("app"), s.URL)+" HTTP/1.1\r\nHost: x\r\n"+authHeader(t, s.Automation())+
		"Expect: 100-continue\r\nContent-Length: 100\r\n\r\n"))
	if _, err := conn.Read(make([]byte, 25)); err != nil {
		t.Fatal(err)
	}
	s.Stop() // returns
	if !strings.Contains(s.Log.String(), "connections cut") {
		t.Error("the log does not say that connections were cut")
	}
}

func TestTLSReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first := writeCert(t, certFile, keyFile, 1)
	s := kltest.Start(t, kltest.WithTLS(certFile, keyFile))
	serial := func(min uint16) int64 {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: pool(first), InsecureSkipVerify: true, MaxVersion: min}}).
			DialContext(context.Background(), "tcp", strings.TrimPrefix(s.URL, "https://"))
		if err != nil {
			return -1
		}
		defer func() { _ = conn.Close() }()
		c, ok := conn.(*tls.Conn)
		if !ok {
			t.Fatalf("dialled a %T", conn)
		}
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(tls.VersionTLS13); got != 1 {
		t.Fatalf("certificate %d, want 1", got)
	}
	if got := serial(tls.VersionTLS11); got != -1 {
		t.Error("TLS 1.1 is spoken")
	}
	s.Client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(first)}, ForceAttemptHTTP2: true}
	big := kltest.NewState(2000, 5).Bytes()
	want(t, "POST over HTTP/2", s.Do(s.Automation(), "POST", s.StateURL("app"), big), 200)
	if a := s.Do(s.Automation(), "GET", s.StateURL("app"), nil); !bytes.Equal(a.Body, big) {
		t.Error("other bytes over HTTP/2")
	}
	want(t, "LOCK over HTTP/2", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)

	if err := os.WriteFile(certFile, []byte("not yet whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := serial(tls.VersionTLS13); got != 1 {
		t.Errorf("certificate %d while the file is broken, want the old one", got)
	}
	writeCert(t, certFile, keyFile, 2)
	if got := serial(tls.VersionTLS13); got != 2 {
		t.Errorf("certificate %d after the change, want 2", got)
	}
	if _, err := server.NewCerts(filepath.Join(dir, "none"), keyFile, zerolog.Nop()); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("missing file: %v", err)
	}
}

func pool(cert []byte) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(cert)
	return p
}

func writeCert(t *testing.T, certFile, keyFile string, serial int64) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, b := range map[string][]byte{keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}), certFile: cert} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert
}
