package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"kl/fault"
	"kl/kltest"
	"kl/server"
	"kl/store"
	"kl/wire"
)

func TestCreateEnvironment(t *testing.T) {
	s := kltest.Start(t)
	url := s.URL + "/v1/workspaces/" + s.Bootstrap.WorkspaceID + "/environments"
	a := s.Do(s.Operator(), "POST", url, []byte(`{"slug":"ci","lock_mode":"optimistic","lock_idle_ttl":"2h"}`))
	want(t, "create", a, http.StatusCreated)
	var e wire.Environment
	a.Into(t, &e)
	if e.Slug != "ci" || e.LockMode != "optimistic" || !e.RecoveryHold || time.Duration(e.LockIdleTTL) != 2*time.Hour || e.WorkspaceID != s.Bootstrap.WorkspaceID {
		t.Errorf("created %+v", e)
	}
	for body, code := range map[string]fault.Code{
		`{"slug":"ci"}`: fault.ParameterInvalid, `{}`: fault.ParameterInvalid, `{"slug":""}`: fault.ParameterInvalid,
		`{"slug":"x","colour":"red"}`: fault.ParameterInvalid, `{"slug":"x","lock_mode":"none"}`: fault.ParameterInvalid, ``: fault.ParameterInvalid,
	} {
		refused(t, body, s.Do(s.Operator(), "POST", url, []byte(body)), 400, code)
	}
	refused(t, "unknown workspace", s.Do(s.Operator(), "POST", s.URL+"/v1/workspaces/ws_aaaaaaaaaaaa/environments", []byte(`{"slug":"x"}`)), 404, fault.NotFound)
	refused(t, "not the operator", s.Do(kltest.Bearer(s.Bootstrap.AutomationToken), "POST", url, []byte(`{"slug":"x"}`)), 401, fault.CredentialsInvalid)

	// a token of the new environment writes there, and nowhere else
	a = s.Do(s.Operator(), "POST", s.URL+wire.EnvironmentPath(e.EnvPublicID)+"/tokens", []byte(`{"name":"ci"}`))
	want(t, "token", a, http.StatusCreated)
	var tok wire.Token
	a.Into(t, &tok)
	as := kltest.Basic(s.Bootstrap.WorkspaceID, tok.Secret)
	body := kltest.NewState(1, 1).Bytes()
	want(t, "write", s.Do(as, "POST", s.URL+wire.StatePath(e.WorkspaceID, e.EnvPublicID, "app"), body), 200)
	refused(t, "write elsewhere", s.Do(as, "POST", s.StateURL("app"), body), 422, fault.UnknownEnvironment)
}

func TestTokensOfAnEnvironment(t *testing.T) {
	s, _ := seeded(t)
	tok, as := token(t, s, `{"name":"ci","expires_in":"1h"}`)
	if tok.Role != "write" || tok.Secret == "" || tok.ExpiresAt.Sub(tok.CreatedAt) < 59*time.Minute {
		t.Errorf("issued %+v", tok)
	}
	reader, readAs := token(t, s, `{"name":"reader","role":"read"}`)
	want(t, "read", s.Do(readAs, "GET", s.StateURL("app"), nil), 200)
	refused(t, "write with role read", s.Do(readAs, "POST", s.StateURL("app"), nil), 403, fault.RoleTooLow)

	list := s.Do(s.Operator(), "GET", envURL(s, "/tokens"), nil)
	want(t, "list", list, 200)
	if bytes.Contains(list.Body, []byte("kl_env_")) || bytes.Contains(list.Body, []byte("secret")) {
		t.Error("the list has secrets")
	}
	var all wire.List[wire.Token]
	list.Into(t, &all)
	if len(all.Items) != 3 || !all.Items[2].ExpiresAt.IsZero() {
		t.Errorf("tokens: %+v", all.Items)
	}
	for body := range map[string]bool{`{"role":"write"}`: true, `{"name":"x","role":"owner"}`: true, `{"name":"x","expires_in":"-1h"}`: true, `{"name":"x","expires_in":3}`: true, `[]`: true} {
		refused(t, body, s.Do(s.Operator(), "POST", envURL(s, "/tokens"), []byte(body)), 400, fault.ParameterInvalid)
	}
	for _, method := range []string{"GET", "POST"} {
		refused(t, method+" by a token", s.Do(as, method, envURL(s, "/tokens"), []byte(`{"name":"x"}`)), 401, fault.CredentialsInvalid)
	}
	for range 2 {
		want(t, "revoke", s.Do(s.Operator(), "DELETE", envURL(s, "/tokens/"+reader.ID), nil), http.StatusNoContent)
	}
	refused(t, "revoked", s.Do(readAs, "GET", s.StateURL("app"), nil), 401, fault.CredentialsRevoked)
	refused(t, "revoke of none", s.Do(s.Operator(), "DELETE", envURL(s, "/tokens/tok_none"), nil), 404, fault.NotFound)
	if strings.Contains(s.Log.String(), tok.Secret) {
		t.Error("a secret is in the log")
	}
}

// TestEndedCredentials: a write by credentials that ended while their session
// was open is 401, and kept.
func TestEndedCredentials(t *testing.T) {
	for name, end := range map[string]struct {
		code fault.Code
		end  func(s *kltest.Server, clock *kltest.Clock, tokens ...wire.Token)
	}{
		"expired": {fault.CredentialsExpired, func(_ *kltest.Server, clock *kltest.Clock, _ ...wire.Token) { clock.Advance(time.Hour) }},
		"revoked": {fault.CredentialsRevoked, func(s *kltest.Server, _ *kltest.Clock, tokens ...wire.Token) {
			for _, tok := range tokens {
				s.Do(s.Operator(), "DELETE", envURL(s, "/tokens/"+tok.ID), nil)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := kltest.NewClock()
			s, st := seeded(t, kltest.WithStore(func(o *store.Options) { o.Now = clock.Now }), kltest.WithServer(func(o *server.Options) { o.Now = clock.Now }))
			tok, ci := token(t, s, `{"name":"ci","expires_in":"1h"}`)
			other, otherAs := token(t, s, `{"name":"other","expires_in":"1h"}`)
			share(t, s)
			lockIt(t, s, ci, "app", "of-ci")
			lockIt(t, s, otherAs, "app", "of-other")
			lockIt(t, s, ci, "second", "of-ci-there")
			end.end(s, clock, tok, other)
			lost := next(st, func(n *kltest.State) { n.Add("aws_instance.lost") })
			body, url := lost.Bytes(), s.StateURL("app")

			before := picture(t, s, "app")
			wrong := strings.ReplaceAll(url, s.Bootstrap.WorkspaceID, "ws_aaaaaaaaaaaa")
			for what, c := range map[string]struct {
				as      kltest.Credentials
				method  string
				url     string
				headers []string
			}{
				"no ID":                {ci, "POST", url, nil},
				"an ID of nobody":      {ci, "POST", url + "?ID=none", nil},
				"another's ID":         {ci, "POST", url + "?ID=of-other", nil},
				"ID of another state":  {ci, "POST", url + "?ID=of-ci-there", nil},
				"two IDs":              {ci, "POST", url + "?ID=of-ci&ID=of-ci", nil},
				"another method":       {ci, "DELETE", url + "?ID=of-ci", nil},
				"LOCK":                 {ci, "LOCK", url + "?ID=of-ci", nil},
				"lock address":         {ci, "POST", s.LockURL("app") + "?ID=of-ci", nil},
				"control API":          {ci, "POST", s.APIURL("app", "/refused") + "?ID=of-ci", nil},
				"another user":         {kltest.Basic("ws_aaaaaaaaaaaa", tok.Secret), "POST", url + "?ID=of-ci", nil},
				"another workspace":    {kltest.Bearer(tok.Secret), "POST", wrong + "?ID=of-ci", nil},
				"user and path differ": {ci, "POST", wrong + "?ID=of-ci", nil},
			} {
				a := s.Do(c.as, c.method, c.url, body, c.headers...)
				p := refused(t, what, a, 401, end.code)
				if n := s.Log.Line(p.RequestID)["body_bytes"]; n != nil && fmt.Sprint(n) != "0" {
					t.Errorf("%s: %v bytes of the body were read", what, n)
				}
			}
			refused(t, "MD5", s.Do(ci, "POST", url+"?ID=of-ci", body, "Content-MD5", contentMD5(nil)), 401, end.code)
			refused(t, "no state", s.Do(ci, "POST", url+"?ID=of-ci", []byte("{}")), 401, end.code)
			if kept := refusedOf(t, s, "app"); len(kept) != 0 {
				t.Fatalf("kept for no reason: %+v", kept)
			}

			p := refused(t, "POST", s.Do(ci, "POST", url+"?ID=of-ci", body), 401, end.code)
			kept := refusedOf(t, s, "app")
			if len(kept) != 1 || kept[0].Class != "auth" || kept[0].Code != string(end.code) || kept[0].SHA256 != sha(body) || kept[0].LockID != "of-ci" || kept[0].Principal != "ci" || p.Extra["refused_write"] != kept[0].ID {
				t.Fatalf("kept %+v, answered %v", kept, p.Extra)
			}
			if after := picture(t, s, "app"); after != before {
				t.Errorf("changed from %s to %s", before, after)
			}
			if line := s.Log.Line(p.RequestID); line["principal_id"] != tok.ID || fmt.Sprint(line["body_bytes"]) != fmt.Sprint(len(body)) {
				t.Errorf("log: %v", line)
			}
			// again, by PUT and as bearer: the same refused write
			refused(t, "PUT", s.Do(kltest.Bearer(tok.Secret), "PUT", url+"?ID=of-ci", body), 401, end.code)
			if again := refusedOf(t, s, "app"); len(again) != 1 {
				t.Errorf("kept twice: %+v", again)
			}
			// and somebody else brings it in
			want(t, "merge", s.Do(s.Automation(), "POST", s.APIURL("app", "/refused/"+kept[0].ID+"/merge"), nil), 200)
			if !strings.Contains(addresses(t, s, "app"), `"lost"`) {
				t.Error("what was kept is not in the head")
			}
		})
	}
}

// TestForceUnlockWithID is tofu force-unlock: an ID with nothing beside it.
func TestForceUnlockWithID(t *testing.T) {
	s, _ := seeded(t)
	share(t, s)
	_, planner := token(t, s, `{"name":"planner","role":"plan"}`)
	_, ci := token(t, s, `{"name":"ci"}`)
	url := s.StateURL("app")
	lockIt(t, s, s.Automation(), "app", "a")
	lockIt(t, s, s.Automation(), "app", "b")
	want(t, "LOCK", s.Do(planner, "LOCK", url, kltest.LockBody("p", plan)), 200)

	refused(t, "role plan, another's", s.Do(planner, "UNLOCK", url, []byte(`{"ID":"a"}`)), 409, fault.LockForeign)
	want(t, "role plan, its own", s.Do(planner, "UNLOCK", url, []byte(`{"ID":"p"}`)), 200)
	refused(t, "whole LockInfo of another's", s.Do(ci, "UNLOCK", url, kltest.LockBody("a", apply)), 409, fault.LockForeign)
	refused(t, "no such lock", s.Do(ci, "UNLOCK", url, []byte(`{"ID":"c"}`)), 409, fault.LockMismatch)
	if got := fmt.Sprint(holders(t, s, "app")); got != "[a b]" {
		t.Fatalf("held by %s, want [a b]", got)
	}
	for range 2 {
		want(t, "role write, another's", s.Do(ci, "UNLOCK", url, []byte(`{"ID":"a"}`)), 200)
	}
	want(t, "its own", s.Do(s.Automation(), "UNLOCK", url, []byte(`{"ID":"b"}`)), 200)
	var l wire.List[wire.Event]
	s.Do(s.Operator(), "GET", s.URL+"/v1/events?limit=1000", nil).Into(t, &l)
	got := map[string]string{}
	for _, e := range l.Items {
		if e.Kind == "unlocked" || e.Kind == "force_unlocked" {
			got[fmt.Sprint(e.Detail["lock_id"])] = e.Kind + " by " + e.Principal
		}
	}
	if want := map[string]string{"a": "force_unlocked by ci", "b": "unlocked by default", "p": "unlocked by planner"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("audited: %v, want %v", got, want)
	}
	refused(t, "role plan, empty", s.Do(planner, "UNLOCK", url, nil), 403, fault.RoleTooLow)
	refused(t, "role plan, no ID", s.Do(planner, "UNLOCK", url, []byte(`{"Who":"ana"}`)), 403, fault.RoleTooLow)
}
