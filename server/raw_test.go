package server_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"kl/kltest"
	"kl/server"
)

// Requests that net/http's client would not send.

func limit1MB(o *server.Options) { o.MaxBody = 1 << 20 }

func dial(t *testing.T, s *kltest.Server) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("dialled a %T", conn)
	}
	return tcp
}

func send(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	if _, err := conn.Write(b); err != nil {
		t.Fatalf("send: %v", err)
	}
}

func closeWrite(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func readAnswer(t *testing.T, conn net.Conn, method string) *kltest.Answer {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("answer cut short: %v", err)
	}
	return &kltest.Answer{Status: res.StatusCode, Header: res.Header, Body: b}
}

func authHeader(t *testing.T, as kltest.Credentials) string {
	t.Helper()
	r, err := http.NewRequest("GET", "http://x", nil)
	if err != nil {
		t.Fatal(err)
	}
	as(r)
	return "Authorization: " + r.Header.Get("Authorization") + "\r\n"
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
