package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kl/client"
)

// TestAccessTexts pins what the real client prints when it may not come in:
// these fixed texts are all that a user sees, so docs/backend.md explains them.
func TestAccessTexts(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	config := httpBackend + item("a", `"1"`)
	initWorkdir(t, config, s.env("prod")).must("apply")
	secret := s.boot.AutomationToken

	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"no credentials":    {[]string{"TF_HTTP_USERNAME=", "TF_HTTP_PASSWORD="}, "HTTP remote state endpoint requires auth"},
		"wrong password":    {[]string{"TF_HTTP_PASSWORD=kl_env_wrong"}, "HTTP remote state endpoint requires auth"},
		"control token":     {[]string{"TF_HTTP_PASSWORD=" + s.boot.ControlToken}, "HTTP remote state endpoint"},
		"another workspace": {[]string{"TF_HTTP_USERNAME=ws_000000000000"}, "Unexpected HTTP response code 422"},
		"slug for an id":    {[]string{"TF_HTTP_ADDRESS=" + strings.Replace(s.stateURL("prod"), s.boot.EnvPublicID, "default", 1)}, "Unexpected HTTP response code 422"},
		"bad state name":    {[]string{"TF_HTTP_ADDRESS=" + s.stateURL("-prod")}, "Unexpected HTTP response code 400"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkdir(t, config, append(s.env("prod"), c.env...))
			if out := w.fails([]string{"init"}, c.want); strings.Contains(out, secret) {
				t.Errorf("the screen shows the token:\n%s", out)
			}
		})
	}

	t.Run("deleted", func(t *testing.T) {
		initWorkdir(t, config, s.env("gone")).must("apply")
		s.mustKL("state", "delete", "gone")
		newWorkdir(t, config, s.env("gone")).fails([]string{"init"}, "HTTP remote state endpoint invalid auth")
		s.mustKL("state", "restore", "gone")
		initWorkdir(t, config, s.env("gone")).must("plan", "-detailed-exitcode")
	})

	t.Run("lock refused for another reason than a holder", func(t *testing.T) {
		w := initWorkdir(t, config, s.env("prod"))
		w.setenv("TF_HTTP_LOCK_ADDRESS=" + strings.Replace(s.stateURL("prod"), s.boot.EnvPublicID, "default", 1))
		w.fails([]string{"plan"}, "already locked: ID=", "kl backend STATE")
	})
	if log := s.proc.out.String(); strings.Contains(log, secret) || strings.Contains(log, s.boot.ControlToken) {
		t.Error("the server's log shows a token")
	}
}

// TestTooLarge refuses a state above --max-body: the client keeps what it built.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--max-body", "2KiB")
	w := initWorkdir(t, httpBackend+item("a", `"1"`), s.env("prod"))
	w.must("apply")
	w.write("main.tf", httpBackend+item("a", `join("", [for i in range(500) : "0123456789"])`))
	w.fails([]string{"apply"}, "Failed to save state", "HTTP error: 413")
	if !exists(w.path("errored.tfstate")) {
		t.Error("there is no errored.tfstate")
	}
	if got := s.head("prod"); got.Version != 1 {
		t.Errorf("head: version %d, want 1", got.Version)
	}
	s.wantUnlocked("prod")
}

// TestTLS serves with a certificate of a private authority, as an air-gapped
// network has it, and exchanges the certificate while the server runs.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t)
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca.issue(t, certFile, keyFile, 2)
	s := startServer(t, "--tls-cert", certFile, "--tls-key", keyFile)
	caFile := filepath.Join(dir, "ca.crt")
	writeFile(t, caFile, ca.pem)
	s.c = s.clientFor(client.Options{
		Bearer: s.boot.ControlToken, Username: s.boot.WorkspaceID, Password: s.boot.AutomationToken, CAFile: caFile,
	})

	config := httpBackend + item("a", `"1"`)
	newWorkdir(t, config, s.env("prod")).fails([]string{"init"}, "certificate")
	trusting := append(s.env("prod"), "TF_HTTP_CLIENT_CA_CERTIFICATE_PEM="+ca.pem)
	w := initWorkdir(t, config, trusting)
	w.must("apply")

	other := newAuthority(t)
	other.issue(t, certFile, keyFile, 3)
	await(t, "the new certificate is served", func() bool {
		// a new workdir's client opens a new connection
		return newWorkdir(t, config, trusting).run("init").code == 1
	})
	initWorkdir(t, config, append(s.env("prod"), "TF_HTTP_CLIENT_CA_CERTIFICATE_PEM="+other.pem)).must("plan", "-detailed-exitcode")
	writeFile(t, caFile, other.pem)
	s.c = s.clientFor(client.Options{
		Bearer: s.boot.ControlToken, Username: s.boot.WorkspaceID, Password: s.boot.AutomationToken, CAFile: caFile,
	})
	if got := s.head("prod"); got.Version != 1 {
		t.Errorf("head: version %d, want 1", got.Version)
	}
}

// authority signs certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "home authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, pem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// issue writes a certificate for 127.0.0.1 and its key.
func (a *authority) issue(t *testing.T, certFile, keyFile string, number int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(crand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: "kl"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	writeFile(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}
