package store

import (
	"context"
	"crypto/md5" //nolint:gosec // Content-MD5 is what Terraform sends
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"kl/fault"
)

// Body is a received body with its digests. Its memory is used again after the
// last Release, so neither Bytes nor parts of it may be kept beyond.
type Body struct {
	buf    []byte
	sha    [sha256.Size]byte
	md5    [md5.Size]byte
	refs   atomic.Int32
	pool   *bufPool
	onDone func() // gives the room for bodies in flight back
	once   sync.Once
}

// Bytes are the body's bytes; they must not be changed.
func (b *Body) Bytes() []byte { return b.buf }

// Len is the body's length.
func (b *Body) Len() int { return len(b.buf) }

// SHA256 is the digest of the whole body.
func (b *Body) SHA256() [sha256.Size]byte { return b.sha }

// MD5 is the digest that Content-MD5 is compared with.
func (b *Body) MD5() [md5.Size]byte { return b.md5 }

// Release ends the caller's use of the body.
func (b *Body) Release() {
	b.once.Do(b.onDone)
	b.unref()
}

func (b *Body) unref() {
	if b.refs.Add(-1) == 0 {
		b.pool.put(b.buf)
		b.buf = nil
	}
}

// ref keeps the body's memory; false means that it is gone already.
func (b *Body) ref() bool {
	for {
		n := b.refs.Load()
		if n == 0 {
			return false
		}
		if b.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// hashAside is the size from which on a body is hashed by goroutines of their
// own while it arrives; below, waking them costs more than it saves.
const hashAside = 512 << 10

// hashStep is how much is handed to them at a time.
const hashStep = 256 << 10

// waitForRoom is how long a body waits for other bodies to be done with.
const waitForRoom = 30 * time.Second

// ReadBody reads a body of the given length, or of any length when length is
// negative, and hashes it on the way. A body over limit is body_too_large, a
// shorter one than announced body_incomplete, and busy means that other bodies
// in flight leave no room. Other errors are those of r.
func (s *Store) ReadBody(ctx context.Context, r io.Reader, length, limit int64) (*Body, error) {
	if length > limit {
		return nil, tooLarge(limit)
	}
	room := length
	if length < 0 {
		room = limit // nothing is known: room for the largest
	}
	room = min(room, s.opt.BodyBytes)
	wait, cancel := context.WithTimeout(ctx, waitForRoom)
	defer cancel()
	if err := s.flight.Acquire(wait, room); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fault.Wrap(fault.Busy, err, "too many large states are being received at once")
	}
	b := &Body{pool: &s.bufs, onDone: func() { s.flight.Release(room) }}
	b.refs.Store(1)
	if err := b.read(r, length, limit); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

func tooLarge(limit int64) error {
	return fault.New(fault.BodyTooLarge, "the body is larger than this server's limit of %d bytes", limit).With("limit", limit)
}

func (b *Body) read(r io.Reader, length, limit int64) error {
	size := length
	if length < 0 {
		size = min(limit, 64<<10)
	}
	b.buf = b.pool.get(int(size))
	h := startHashing(length)
	n := 0
	for {
		if length >= 0 && int64(n) == length {
			break
		}
		if n == len(b.buf) { // only when the length is not known
			if int64(n) >= limit {
				// one byte more tells a body at the limit from one above it
				if m, err := io.ReadFull(r, make([]byte, 1)); m > 0 {
					h.abandon()
					return tooLarge(limit)
				} else if errors.Is(err, io.EOF) {
					break
				}
			}
			grown := b.pool.get(int(min(limit, 2*int64(n))))
			copy(grown, b.buf)
			b.pool.put(b.buf)
			b.buf = grown
		}
		m, err := r.Read(b.buf[n:])
		n += m
		h.write(b.buf[:n], false)
		if errors.Is(err, io.EOF) {
			if length >= 0 && int64(n) < length {
				h.abandon()
				return fault.New(fault.BodyIncomplete, "%d of %d bytes arrived", n, length)
			}
			break
		}
		if err != nil {
			h.abandon()
			return err
		}
	}
	b.buf = b.buf[:n]
	b.sha, b.md5 = h.finish(b.buf)
	return nil
}

// hashing computes both digests of a growing body.
type hashing struct {
	done  int // bytes handed over
	sha   hash.Hash
	md5   hash.Hash
	lanes []chan []byte
	wg    sync.WaitGroup
}

func startHashing(length int64) *hashing {
	h := &hashing{sha: sha256.New(), md5: md5.New()} //nolint:gosec // as above
	if length < hashAside {                          // or not known: then the buffer may move while it grows
		return h
	}
	h.lanes = []chan []byte{make(chan []byte, 64), make(chan []byte, 64)}
	for i, to := range []hash.Hash{h.sha, h.md5} {
		h.wg.Go(func() {
			for p := range h.lanes[i] {
				_, _ = to.Write(p)
			}
		})
	}
	return h
}

// write is told of all bytes so far and hands new ones over, a good piece at a
// time unless all is set.
func (h *hashing) write(b []byte, all bool) {
	if h.lanes == nil {
		return
	}
	if len(b)-h.done >= hashStep || all && len(b) > h.done {
		for _, l := range h.lanes {
			l <- b[h.done:]
		}
		h.done = len(b)
	}
}

// abandon ends the lanes and waits for them: they read the body's memory.
func (h *hashing) abandon() {
	for _, l := range h.lanes {
		close(l)
	}
	h.wg.Wait()
	h.lanes = nil
}

func (h *hashing) finish(b []byte) (sum [sha256.Size]byte, m [md5.Size]byte) {
	if h.lanes == nil {
		return sha256.Sum256(b), md5.Sum(b) //nolint:gosec // as above
	}
	h.write(b, true)
	h.abandon()
	h.sha.Sum(sum[:0])
	h.md5.Sum(m[:0])
	return sum, m
}
