package server

import (
	"errors"
	"io"
	"net/http"
	"time"

	"kl/fault"
)

// A client that stops in the middle must not keep a connection, and a body's
// memory, for ever; one that is merely slow must be served. So there are no
// deadlines for whole requests: each read and each piece written has one of
// its own, and a body must also arrive at a pace that no real line stays below.
const (
	minPace    = 512                    // bytes per second of a body, on average after the first minute
	pieceBytes = 256 << 10              // written under one deadline
	unreadWait = 5 * time.Second        // for the rest of a body that nobody will read
	unreadMax  = DefaultMaxBody         // bytes of it that are taken and thrown away
	touchEvery = 500 * time.Millisecond // deadlines move in steps, not at every read
)

// stallReader is a request's body under moving deadlines.
type stallReader struct {
	io.ReadCloser
	rc    *http.ResponseController
	stall time.Duration
	start time.Time
	set   time.Time // when the deadline was set
	n     int64
	want  int64 // announced length, -1 when not
	ended bool  // nothing more comes
}

func (r *stallReader) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(r.set) > touchEvery {
		if r.start.IsZero() {
			r.start = now
		}
		slowest := r.start.Add(time.Minute + time.Duration(r.n/minPace)*time.Second)
		_ = r.rc.SetReadDeadline(earlier(now.Add(r.stall), slowest)) // not supported: a test's recorder
		r.set = now
	}
	n, err := r.ReadCloser.Read(p)
	r.n += int64(n)
	if err == nil {
		return n, nil
	}
	r.ended = true
	// while the request is answered, which may take longer, nothing may time out
	_ = r.rc.SetReadDeadline(time.Time{})
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	return n, r.broken(err)
}

func (r *stallReader) broken(err error) error {
	if r.want < 0 {
		return fault.Wrap(fault.BodyIncomplete, err, "the body broke off after %d bytes", r.n)
	}
	return fault.Wrap(fault.BodyIncomplete, err, "the body broke off after %d of %d bytes", r.n, r.want)
}

// leave is called before an answer goes out while the body is not read to its
// end: net/http reads on for a while and must not wait for ever.
func (r *stallReader) leave() {
	if !r.ended {
		_ = r.rc.SetReadDeadline(time.Now().Add(unreadWait))
	}
}

// discard takes the rest of a refused body after the answer has gone out. To
// close the connection right away would make clients that are still sending
// see a reset instead of the answer. Small rests net/http takes itself.
func (r *stallReader) discard() {
	if r.ended || r.want >= 0 && r.want-r.n < 256<<10 {
		return
	}
	_ = r.rc.Flush()
	r.leave()
	_, _ = io.CopyN(io.Discard, r.ReadCloser, unreadMax)
}

// stallWriter writes an answer in pieces, each under a deadline of its own.
type stallWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	set   time.Time
	body  *stallReader
}

func (w *stallWriter) touch() {
	if now := time.Now(); now.Sub(w.set) > touchEvery {
		_ = w.rc.SetWriteDeadline(now.Add(w.stall))
		w.set = now
	}
}

// WriteHeader sends the status.
func (w *stallWriter) WriteHeader(status int) {
	w.touch()
	if w.body != nil {
		w.body.leave()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the answer.
func (w *stallWriter) Write(p []byte) (int, error) {
	done := 0
	for {
		piece := p[done:min(len(p), done+pieceBytes)]
		w.touch()
		n, err := w.ResponseWriter.Write(piece)
		done += n
		if err != nil || done == len(p) {
			return done, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
