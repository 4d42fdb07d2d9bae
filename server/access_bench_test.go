package server_test

import (
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"kl/kltest"
	"kl/server"
	"kl/store"
	"kl/wire"
)

// BenchmarkAdmit is what it costs to find out who asks and whether they may,
// with 10,000 tokens in the file: alone (store/…), and in whole requests without
// a connection, beside one that asks nobody who they are.
func BenchmarkAdmit(b *testing.B) {
	st := kltest.Store(b)
	boot, err := st.Bootstrap(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	p, err := st.Authenticate(b.Context(), boot.ControlToken)
	if err != nil {
		b.Fatal(err)
	}
	root := store.Actor{Principal: p}
	w, err := st.CreateWorkspace(b.Context(), root, wire.WorkspaceRequest{Name: "team"})
	if err != nil {
		b.Fatal(err)
	}
	slug := "prod"
	e, err := st.CreateEnvironment(b.Context(), root, w.WorkspaceID, wire.EnvironmentPatch{Slug: &slug})
	if err != nil {
		b.Fatal(err)
	}
	u, err := st.CreateUser(b.Context(), root, wire.UserRequest{Name: "ana"})
	if err != nil {
		b.Fatal(err)
	}
	if p, err = st.Authenticate(b.Context(), u.ControlToken); err != nil {
		b.Fatal(err)
	}
	pat, err := st.CreatePAT(b.Context(), store.Actor{Principal: p}, wire.PATRequest{Name: "pat"})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := st.SetMember(b.Context(), root, w.WorkspaceID, wire.MemberRequest{User: "ana"}); err != nil {
		b.Fatal(err)
	}
	if _, err := st.SetGrant(b.Context(), root, e.EnvPublicID, "ana", "write"); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	var robot wire.Token
	for i := range 100 {
		wg.Go(func() {
			for j := range 100 {
				t, err := st.CreateToken(b.Context(), root, e.EnvPublicID, wire.TokenRequest{Name: fmt.Sprint(i, j)})
				if err != nil {
					b.Error(err)
				}
				if i == 50 && j == 50 {
					robot = t
				}
			}
		})
	}
	wg.Wait()
	h := server.New(server.Options{Store: st}).Handler()
	for name, c := range map[string]struct{ method, path, secret string }{
		"nobody":  {"GET", "/healthz", ""},
		"robot":   {"GET", wire.StatePath(w.WorkspaceID, e.EnvPublicID, "none"), robot.Secret},
		"pat":     {"GET", wire.StatePath(w.WorkspaceID, e.EnvPublicID, "none"), pat.Secret},
		"control": {"GET", "/v1/whoami", u.ControlToken},
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(c.method, c.path, nil)
			if c.secret != "" {
				r.Header.Set("Authorization", "Bearer "+c.secret)
			}
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
	// the part that asks the store, alone
	for name, secret := range map[string]string{"robot": robot.Secret, "pat": pat.Secret} {
		b.Run("store/"+name, func(b *testing.B) {
			for b.Loop() {
				p, err := st.Authenticate(b.Context(), secret)
				if err == nil {
					_, err = st.Authorize(b.Context(), p, w.WorkspaceID, e.EnvPublicID, 1)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
