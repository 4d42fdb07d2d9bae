package client_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"kl/client"
	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

func TestOperations(t *testing.T) {
	s := kltest.Start(t)
	ctx := context.Background()
	op, err := client.New(client.Options{Base: s.URL, Bearer: s.Bootstrap.ControlToken})
	if err != nil {
		t.Fatal(err)
	}
	st := kltest.NewState(30, 1)
	for n := range 4 {
		if a := s.Do(s.Automation(), "POST", s.StateURL("demo"), st.Bytes()); a.Status != 200 {
			t.Fatalf("write %d: %d %s", n, a.Status, a.Body)
		}
		st.Mutate(2)
	}
	one := int64(1)
	if _, err := op.PatchEnvironment(ctx, s.Bootstrap.EnvPublicID, wire.EnvironmentPatch{KeepLast: &one}); err != nil {
		t.Fatal(err)
	}
	dry, err := op.Prune(ctx, s.Bootstrap.EnvPublicID, wire.PruneRequest{DryRun: true, State: "demo"})
	if err != nil || dry.Versions != 3 || !dry.DryRun || dry.Bytes <= 0 {
		t.Fatalf("%+v, %v", dry, err)
	}
	did, err := op.Prune(ctx, s.Bootstrap.EnvPublicID, wire.PruneRequest{})
	if err != nil || did.Versions != 3 || did.Bytes != dry.Bytes || did.States[0].Oldest != 4 {
		t.Fatalf("%+v, %v", did, err)
	}
	_, err = op.Prune(ctx, s.Bootstrap.EnvPublicID, wire.PruneRequest{State: "nothing"})
	want(t, err, fault.NotFound)

	var b bytes.Buffer
	var last, total int64
	n, err := op.Backup(ctx, &b, 1<<30, func(d, all int64) { last, total = d, all })
	if err != nil || n != int64(b.Len()) || last != n || total != n {
		t.Fatalf("%d of %d bytes, told of %d of %d: %v", n, b.Len(), last, total, err)
	}
	path := filepath.Join(t.TempDir(), "backup.db")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.VerifyFile(path); err != nil {
		t.Error(err)
	}
	_, err = op.Backup(ctx, &b, 1, nil)
	want(t, err, fault.ParameterInvalid)
	tf, err := client.New(client.Options{Base: s.URL, Username: s.Bootstrap.WorkspaceID, Password: s.Bootstrap.AutomationToken})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tf.Backup(ctx, &b, 0, nil)
	want(t, err, fault.CredentialsInvalid)

	// a lost control token is replaced, and the old one ends
	u, err := op.CreateUser(ctx, "ana")
	if err != nil {
		t.Fatal(err)
	}
	again, err := op.NewUserToken(ctx, "ana")
	if err != nil || again.UserID != u.UserID || again.ControlToken == u.ControlToken {
		t.Fatalf("%+v, %v", again, err)
	}
	for secret, code := range map[string]fault.Code{u.ControlToken: fault.CredentialsRevoked, again.ControlToken: ""} {
		c, err := client.New(client.Options{Base: s.URL, Bearer: secret})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Whoami(ctx); code == "" && err != nil || code != "" && !fault.Is(err, code) {
			t.Errorf("whoami: %v, want %q", err, code)
		}
	}
	_, err = op.NewUserToken(ctx, "nobody")
	want(t, err, fault.NotFound)
}

// What does not arrive whole, or with another digest, is no backup.
func TestBackupIsVerified(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"digest": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderSHA256, "00")
			_, _ = w.Write([]byte("data"))
		},
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("data"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(answer)
			defer s.Close()
			c, err := client.New(client.Options{Base: s.URL, Bearer: "kl_ctl_x"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Backup(context.Background(), &bytes.Buffer{}, 0, nil); !fault.Is(err, fault.Unreachable) {
				t.Fatal(err)
			}
		})
	}
}
