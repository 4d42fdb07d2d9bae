package server_test

import (
	"strings"
	"testing"
	"time"

	"kl/server"
	"kl/wire"
)

// TestOddRequests: forms of HTTP that few clients use are answered like others.
func TestOddRequests(t *testing.T) {
	s, _ := seeded(t)
	path := strings.TrimPrefix(s.StateURL("app"), s.URL)
	auth := authHeader(t, s.Automation())
	for name, c := range map[string]struct {
		head   string
		status int
	}{
		"OPTIONS of the server": {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		"absolute form":         {"GET " + s.StateURL("app") + " HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 200},
		"HTTP/1.0":              {"GET " + path + " HTTP/1.0\r\n" + auth + "\r\n", 200},
		"lower case method":     {"get " + path + " HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 405},
		"query on a GET":        {"GET " + path + "?ID=x&y=%zz HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 200},
		"fragment":              {"GET " + path + "#x HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 400},
		"GET with a body":       {"GET " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n" + auth + "\r\nabc", 200},
		"dots":                  {"GET /states/../states/x/y/z HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 422},
		"Expect without credentials": {
			"POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", 401,
		},
		"Expect of a large body without credentials": {
			"POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\nExpect: 100-continue\r\n\r\n", 401,
		},
	} {
		conn := dial(t, s)
		start := time.Now()
		send(t, conn, []byte(c.head))
		a := readAnswer(t, conn, "GET")
		if a.Status != c.status || a.Header.Get(wire.HeaderRequestID) == "" {
			t.Errorf("%s: %d, want %d with a request id: %v %s", name, a.Status, c.status, a.Header, cut(a.Body))
		}
		if took := time.Since(start); took > server.DefaultStall/2 { // it waited for a body
			t.Errorf("%s: answered after %v", name, took)
		}
	}
}

// TestConnectionIsKept: refusals without a body left over do not cost the
// client its connection.
func TestConnectionIsKept(t *testing.T) {
	s, _ := seeded(t)
	path := strings.TrimPrefix(s.StateURL("app"), s.URL)
	conn := dial(t, s)
	for range 3 {
		send(t, conn, []byte("POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"))
		if a := readAnswer(t, conn, "POST"); a.Status != 401 {
			t.Fatalf("POST: %d", a.Status)
		}
		send(t, conn, []byte("GET "+path+" HTTP/1.1\r\nHost: x\r\n"+authHeader(t, s.Automation())+"\r\n"))
		if a := readAnswer(t, conn, "GET"); a.Status != 200 {
			t.Fatalf("GET: %d", a.Status)
		}
	}
}
