package store

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // Content-MD5 is what Terraform sends
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"kl/fault"
)

// Body is a received body with its digests. Its memory is used again after the
// last Release, so neither Bytes nor parts of it may be kept beyond.
type Body struct {
	buf    []byte
	hashed sync.WaitGroup // the digests are being computed
	sha    [sha256.Size]byte
	md5    [md5.Size]byte
	want   []byte // what md5 must be, nil for anything
	refs   atomic.Int32
	pool   *bufPool
	onDone func() // gives the room for bodies in flight back
	once   sync.Once
}

// Bytes are the body's bytes; they must not be changed.
func (b *Body) Bytes() []byte { return b.buf }

// Len is the body's length.
func (b *Body) Len() int { return len(b.buf) }

// SHA256 is the digest of the whole body. It waits until it is computed.
func (b *Body) SHA256() [sha256.Size]byte {
	b.hashed.Wait()
	return b.sha
}

// Expect says what the body's MD5 must be. Whatever is done with a body that
// has another one is refused with body_digest_mismatch.
func (b *Body) Expect(md5 []byte) { b.want = md5 }

// verify waits for the digests and compares with what Expect said. It comes
// last: hashing takes longer than anything else that is done with a body.
func (b *Body) verify() error {
	b.hashed.Wait()
	if b.want != nil && !bytes.Equal(b.want, b.md5[:]) {
		return fault.New(fault.BodyDigest, "the %d bytes that arrived do not have the digest that Content-MD5 announced", len(b.buf))
	}
	return nil
}

// Release ends the caller's use of the body.
func (b *Body) Release() {
	b.once.Do(b.onDone)
	b.unref()
}

func (b *Body) unref() {
	if b.refs.Add(-1) == 0 {
		b.hashed.Wait() // it reads the memory
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

// budget is the room for the bytes of bodies in flight.
type budget struct {
	room *semaphore.Weighted
	held atomic.Int64
}

// Acquire waits for n bytes of room.
func (b *budget) Acquire(ctx context.Context, n int64) error {
	err := b.room.Acquire(ctx, n)
	if err == nil {
		b.held.Add(n)
	}
	return err
}

// Release gives n bytes back.
func (b *budget) Release(n int64) {
	b.held.Add(-n)
	b.room.Release(n)
}

// hashAside is the size from which on a body is hashed by goroutines of their
// own, while it arrives and while it is looked at; below, waking them costs
// more than it saves.
const hashAside = 32 << 10

// hashStep is how much is handed to them at a time: little enough that those
// who compute begin while even a small body is still arriving.
const hashStep = 64 << 10

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
	h := b.startHashing(length)
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
	h.finish(b)
	return nil
}

// hashing hands a growing body over to those who compute its digests.
type hashing struct {
	done  int // bytes handed over
	lanes []chan []byte
}

func (b *Body) startHashing(length int64) *hashing {
	h := &hashing{}
	if length < hashAside { // or not known: then the buffer may move while it grows
		return h
	}
	lane := func(to hash.Hash, sum []byte) {
		c := make(chan []byte, 64)
		h.lanes = append(h.lanes, c)
		b.hashed.Go(func() {
			for p := range c {
				_, _ = to.Write(p)
			}
			to.Sum(sum)
		})
	}
	lane(sha256.New(), b.sha[:0])
	lane(md5.New(), b.md5[:0]) //nolint:gosec // as above
	return h
}

// write is told of all bytes so far and hands new ones over, a good piece at a
// time unless all is set.
func (h *hashing) write(b []byte, all bool) {
	if len(b)-h.done >= hashStep || all && len(b) > h.done {
		for _, l := range h.lanes {
			l <- b[h.done:]
		}
		h.done = len(b)
	}
}

// abandon ends the lanes.
func (h *hashing) abandon() {
	for _, l := range h.lanes {
		close(l)
	}
	h.lanes = nil
}

// finish hands over the rest; the digests are there once b.hashed is done.
func (h *hashing) finish(b *Body) {
	if h.lanes == nil {
		b.sha, b.md5 = sha256.Sum256(b.buf), md5.Sum(b.buf) //nolint:gosec // as above
		return
	}
	h.write(b.buf, true)
	h.abandon()
}
