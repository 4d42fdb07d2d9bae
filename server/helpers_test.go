package server_test

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/wire"
)

const (
	apply = wire.OperationApply
	plan  = wire.OperationPlan
)

func contentMD5(b []byte) string {
	sum := md5.Sum(b)
	return base64.StdEncoding.EncodeToString(sum[:])
}

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// want fails the test unless the answer has the status.
func want(t *testing.T, what string, a *kltest.Answer, status int) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("%s: status %d, want %d: %s", what, a.Status, status, cut(a.Body))
	}
}

func cut(b []byte) string { return string(b[:min(len(b), 600)]) }

// refused checks that an answer is a whole refusal: the status, a problem
// document with that code, its class and a next step, and one request id.
func refused(t *testing.T, what string, a *kltest.Answer, status int, code fault.Code) wire.Problem {
	t.Helper()
	p := a.Problem()
	if a.Status != status || p.Status != status || p.Code != string(code) {
		t.Errorf("%s: got %d %s, want %d %s: %s", what, a.Status, p.Code, status, code, cut(a.Body))
		return p
	}
	if p.Class != string(code.Info().Class) || p.Type != "/errors/"+p.Code || p.Title == "" || p.Detail == "" || p.NextStep == "" {
		t.Errorf("%s: the problem document is not whole: %s", what, cut(a.Body))
	}
	if id := a.Header.Get(wire.HeaderRequestID); id == "" || id != p.RequestID {
		t.Errorf("%s: request id %q in the header, %q in the body", what, id, p.RequestID)
	}
	if status == http.StatusUnauthorized && !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("%s: 401 without WWW-Authenticate", what)
	}
	if loc := a.Header.Get("Location"); loc != "" {
		t.Errorf("%s: redirected to %s", what, loc)
	}
	return p
}

// seeded is a server with a state app of three instances, version 1, serial 1.
func seeded(t *testing.T, opts ...kltest.Option) (*kltest.Server, *kltest.State) {
	t.Helper()
	s := kltest.Start(t, opts...)
	st := kltest.NewState(3, 1)
	want(t, "seed", s.Do(s.Automation(), "POST", s.StateURL("app"), st.Bytes()), 200)
	return s, st
}

// picture is what must stay as it is when a request is refused.
func picture(t *testing.T, s *kltest.Server, name string) string {
	t.Helper()
	var st wire.State
	var l wire.Lock
	s.Do(s.Operator(), "GET", s.APIURL(name, ""), nil).Into(t, &st)
	s.Do(s.Operator(), "GET", s.APIURL(name, "/lock"), nil).Into(t, &l)
	st.RefusedOpen = 0
	for i := range l.Holders {
		l.Holders[i].LastActivity = l.Holders[i].Since
		l.Holders[i].Info = ""
	}
	head := s.Do(s.Automation(), "GET", s.StateURL(name), nil)
	b, err := json.Marshal([]any{st, l, head.Status, sha(head.Body)})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func holders(t *testing.T, s *kltest.Server, name string) []string {
	t.Helper()
	var l wire.Lock
	s.Do(s.Operator(), "GET", s.APIURL(name, "/lock"), nil).Into(t, &l)
	ids := []string{}
	for _, h := range l.Holders {
		ids = append(ids, h.ID)
	}
	return ids
}
