package server_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"kl/auth"
	"kl/fault"
	"kl/kltest"
	"kl/server"
)

// TestFailuresAreLimited: who fails too often is told to wait, and nobody with
// a good token ever is.
func TestFailuresAreLimited(t *testing.T) {
	clock := kltest.NewClock()
	s := kltest.Start(t, kltest.WithServer(func(o *server.Options) { o.Now = clock.Now }))
	want(t, "seed", s.Do(s.Automation(), "POST", s.StateURL("app"), kltest.NewState(1, 1).Bytes()), 200)
	old, oldAs := token(t, s, `{"name":"old"}`)
	want(t, "revoke", s.Do(s.Operator(), "DELETE", envURL(s, "/tokens/"+old.ID), nil), 204)
	_, unused := token(t, s, `{"name":"never used yet"}`)

	bad := kltest.Basic(s.Bootstrap.WorkspaceID, auth.NewSecret(auth.Automation))
	fails := func(as kltest.Credentials, code fault.Code) int {
		t.Helper()
		a := s.Do(as, "GET", s.StateURL("app"), nil)
		p := refused(t, "failure", a, http.StatusUnauthorized, code)
		wait, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		remembered := s.Do(s.Operator(), "GET", s.URL+"/v1/requests/"+p.RequestID, nil).Status == 200
		if remembered == (wait > 0) {
			t.Errorf("told to wait %d s, remembered: %v", wait, remembered)
		}
		return wait
	}
	for i := range 20 {
		if wait := fails(bad, fault.CredentialsInvalid); (wait > 0) != (i >= 10) || wait > 11 {
			t.Fatalf("failure %d of one secret: wait %d s", i+1, wait)
		}
	}
	clock.Advance(10 * time.Second)
	if fails(bad, fault.CredentialsInvalid) != 0 || fails(bad, fault.CredentialsInvalid) == 0 {
		t.Error("one more failure after ten seconds, not two")
	}

	waited := 0
	for range 150 {
		if fails(kltest.Basic(s.Bootstrap.WorkspaceID, auth.NewSecret(auth.Automation)), fault.CredentialsInvalid) > 0 {
			waited++
		}
		want(t, "a good token from the same address", s.Do(s.Automation(), "GET", s.StateURL("app"), nil), 200)
	}
	if waited < 30 {
		t.Errorf("%d of 150 failures from one address were told to wait", waited)
	}
	want(t, "a token that was never seen before", s.Do(unused, "GET", s.StateURL("app"), nil), 200)
	for range 20 {
		fails(oldAs, fault.CredentialsRevoked) // is told the truth, however often
	}
	// a control token that is tried where it is not valid stays good elsewhere
	for range 20 {
		refused(t, "control token on a state", s.Do(s.Operator(), "GET", s.StateURL("app"), nil), 401, fault.CredentialsInvalid)
	}
	want(t, "control token", s.Do(s.Operator(), "GET", s.URL+"/v1/whoami", nil), 200)
}
