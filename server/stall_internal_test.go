package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kl/fault"
)

// pipes is a listener whose connections are in memory, so that time can be
// simulated around them.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// readThen makes a handler that reads its body and then writes answer.
func readThen(answer []byte) func(*stallReader, *stallWriter) error {
	return func(body *stallReader, out *stallWriter) error {
		n, err := io.Copy(io.Discard, body)
		if err == nil && n != body.want {
			err = fmt.Errorf("%d bytes of %d", n, body.want)
		}
		if err == nil {
			_, err = out.Write(answer)
		}
		return err
	}
}

// serveStalling runs f as client of a handler, all under a stall of 10 s of
// simulated time. What the handler returned comes through read.
func serveStalling(t *testing.T, handle func(*stallReader, *stallWriter) error, f func(conn net.Conn, read <-chan error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		read := make(chan error, 1)
		srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			body := &stallReader{ReadCloser: r.Body, rc: rc, stall: 10 * time.Second, want: r.ContentLength}
			out := &stallWriter{ResponseWriter: w, rc: rc, stall: 10 * time.Second, body: body}
			read <- handle(body, out)
		})}
		ln := &pipes{make(chan net.Conn), make(chan struct{})}
		ended := make(chan error, 1)
		go func() { ended <- srv.Serve(ln) }()
		ours, theirs := net.Pipe()
		ln.conns <- theirs
		f(ours, read)
		_ = ours.Close()
		_ = srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		<-time.After(time.Minute) // net/http lingers on connections that it has cut
	})
}

func send(t *testing.T, conn net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(conn, s); err != nil {
		t.Errorf("send: %v", err)
	}
}

// TestSlowUploadIsServed: 3 MB at 1 KB a second take 50 minutes.
func TestSlowUploadIsServed(t *testing.T) {
	const pieces = 600
	serveStalling(t, readThen([]byte("done")), func(conn net.Conn, read <-chan error) {
		send(t, conn, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", pieces*5000))
		for range pieces {
			send(t, conn, strings.Repeat("x", 5000))
			<-time.After(5 * time.Second)
		}
		if err := <-read; err != nil {
			t.Errorf("a slow upload was refused: %v", err)
		}
		b := make([]byte, 15)
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != "HTTP/1.1 200 OK" {
			t.Errorf("answer %q, %v", b, err)
		}
	})
}

func TestStalledUploadIsCut(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "a part": "xxxxx"} {
		serveStalling(t, readThen(nil), func(conn net.Conn, read <-chan error) {
			start := time.Now()
			send(t, conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"+sent)
			err := <-read
			if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("%s: cut after %v, want 10 s", name, took)
			}
			if want := fmt.Sprintf("broke off after %d of 100 bytes", len(sent)); !fault.Is(err, fault.BodyIncomplete) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestTrickleIsCut: a byte now and then must not hold a body's memory for ever.
func TestTrickleIsCut(t *testing.T) {
	serveStalling(t, readThen(nil), func(conn net.Conn, read <-chan error) {
		start := time.Now()
		send(t, conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
		go func() { _, _ = io.Copy(io.Discard, conn) }() // a pipe holds nothing: the answer needs a taker
		for {
			select {
			case err := <-read:
				if took := time.Since(start); took < time.Minute || took > 80*time.Second || !fault.Is(err, fault.BodyIncomplete) {
					t.Errorf("cut after %v: %v", took, err)
				}
				return
			case <-time.After(3 * time.Second):
				_, _ = io.WriteString(conn, "x") // fails once the server has cut
			}
		}
	})
}

func TestSlowReaderIsServedAndStalledOneCut(t *testing.T) {
	answer := []byte(strings.Repeat("x", 40*pieceBytes))
	const request = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
	serveStalling(t, readThen(answer), func(conn net.Conn, read <-chan error) {
		send(t, conn, request)
		res, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		b := make([]byte, pieceBytes/2)
		for err == nil {
			<-time.After(4 * time.Second)
			var m int
			m, err = io.ReadFull(res.Body, b)
			n += m
		}
		if n != len(answer) {
			t.Errorf("a slow reader got %d of %d bytes: %v", n, len(answer), err)
		}
		if err := <-read; err != nil {
			t.Errorf("write to a slow reader: %v", err)
		}
	})
	serveStalling(t, readThen(answer), func(conn net.Conn, read <-chan error) {
		send(t, conn, request)
		start := time.Now()
		err := <-read
		var ne net.Error
		if took := time.Since(start); took > 11*time.Second || !errors.As(err, &ne) || !ne.Timeout() {
			t.Errorf("a reader that takes nothing was cut after %v: %v", took, err)
		}
	})
}

// TestUnreadBodyHoldsNothingUp: net/http reads the rest of a small body before
// it sends an answer; a client that never sends it is answered all the same.
func TestUnreadBodyHoldsNothingUp(t *testing.T) {
	refuse := func(_ *stallReader, out *stallWriter) error {
		out.WriteHeader(http.StatusUnauthorized)
		return nil
	}
	serveStalling(t, refuse, func(conn net.Conn, read <-chan error) {
		start := time.Now()
		send(t, conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%v, %v", res, err)
		}
		if took := time.Since(start); took > unreadWait {
			t.Errorf("answered after %v", took)
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
	})
}
