package server_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"kl/kltest"
	"kl/server"
	"kl/wire"
)

// handler is the real handler on a small real store, without a network.
func handler(f *testing.F) (h http.Handler, boot wire.Bootstrap) {
	f.Helper()
	st := kltest.Store(f)
	boot, err := st.Bootstrap(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	return server.New(server.Options{Store: st, MaxBody: 1 << 20, Hold: -1}).Handler(), boot
}

// ask sends one request and demands what holds for all: never a 5xx, never a
// redirect, always an id.
func ask(t *testing.T, h http.Handler, b wire.Bootstrap, method, path string, body []byte) int {
	t.Helper()
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.SetBasicAuth(b.WorkspaceID, b.AutomationToken)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code >= 500 || w.Code/100 == 3 || w.Code == http.StatusTooManyRequests || w.Header().Get(wire.HeaderRequestID) == "" {
		t.Fatalf("%s of %q: %d %s", method, body, w.Code, w.Body)
	}
	return w.Code
}

func FuzzUnlockBody(f *testing.F) {
	for _, s := range []string{"", "{}", `{"ID":"l1"}`, `{"id":"l1"}`, `{"ID":"l2"}`, `{"ID":1}`, "null", "[]", "\x00", `{"ID":"l1","Created":"x"}`, `{"ID":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Add(kltest.LockBody("l1", apply))
	h, b := handler(f)
	path := wire.StatePath(b.WorkspaceID, b.EnvPublicID, "app")
	alias := wire.LockPath(b.WorkspaceID, b.EnvPublicID, "app")
	f.Fuzz(func(t *testing.T, body []byte) {
		ask(t, h, b, "LOCK", path, kltest.LockBody("l1", apply))
		code := ask(t, h, b, "UNLOCK", path, body)
		if code == http.StatusMethodNotAllowed {
			t.Fatalf("UNLOCK of %q: 405", body)
		}
		if other := ask(t, h, b, "DELETE", alias, body); code == 200 && other != 200 {
			t.Fatalf("the same release again by the alias: %d, then %d", code, other)
		}
		ask(t, h, b, "UNLOCK", path, kltest.LockBody("l1", apply))
		// as the body of a LOCK: whatever it takes is released again
		ask(t, h, b, "LOCK", path, body)
		ask(t, h, b, "UNLOCK", path, nil)
	})
}

func FuzzPostBody(f *testing.F) {
	st := kltest.NewState(3, 1)
	f.Add(st.Bytes())
	st.Mutate(1)
	f.Add(st.Compact())
	for _, s := range []string{
		"", "{}", "null", "[]", `{"version":4}`, `{"version":4,"serial":1,"lineage":"x"}`, `{"version":3,"serial":1,"lineage":"x","modules":[]}`,
		`{"serial":2,"lineage":"x","meta":{},"encrypted_data":"AA==","encryption_version":"v0"}`,
		`{"version":4,"serial":18446744073709551616,"lineage":"x","resources":[]}`,
	} {
		f.Add([]byte(s))
	}
	h, b := handler(f)
	path := wire.StatePath(b.WorkspaceID, b.EnvPublicID, "app")
	control := wire.ControlStatePath(b.EnvPublicID, "app")
	f.Fuzz(func(t *testing.T, body []byte) {
		if ask(t, h, b, "POST", path, body) == 200 {
			r := httptest.NewRequest("GET", path, nil)
			r.SetBasicAuth(b.WorkspaceID, b.AutomationToken)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), body) {
				t.Fatalf("stored %q, served %d %q", body, w.Code, w.Body)
			}
		}
		// the next input meets an empty state again
		ask(t, h, b, "DELETE", path, nil)
		ask(t, h, b, "POST", control+"/purge", nil)
	})
}
