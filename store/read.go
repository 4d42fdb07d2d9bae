package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/wire"
)

// readBatch is how many stored bytes one read transaction copies: none stays
// open while chunks are decoded or written to a client.
const readBatch = 256 << 10

// stored reads the stored chunks of the entries from i on, until the batch is
// full, and returns the index behind the last one read. Patches come with
// their bases.
func (s *Store) stored(sid uint64, es []entry, i int) (chunks, bases [][]byte, next int, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		size := 0
		for next = i; next < len(es) && size < readBatch; next++ {
			e := &es[next]
			c := get(tx, bChunk, key(sid, e.id))
			if c == nil {
				return fmt.Errorf("%w: chunk %d of state %d is missing", errDamaged, e.id, sid)
			}
			var b []byte
			if e.base != 0 {
				if b = get(tx, bChunk, key(sid, e.base)); b == nil {
					return fmt.Errorf("%w: chunk %d of state %d, a base, is missing", errDamaged, e.base, sid)
				}
			}
			chunks, bases = append(chunks, c), append(bases, b)
			size += len(c) + len(b)
		}
		return nil
	})
	return chunks, bases, next, err
}

// decodeChunk appends the bytes of a stored chunk to dst and verifies them
// when e is given.
func (s *Store) decodeChunk(sid uint64, dst, chunk, base []byte, e *entry) ([]byte, error) {
	dict, err := chunkDict(chunk)
	if err != nil {
		return dst, err
	}
	c, err := s.codecOf(dict, &head{sid: sid})
	if err != nil {
		return dst, err
	}
	n := len(dst)
	dst, err = c.decode(dst, chunk, func() ([]byte, error) {
		if base == nil {
			return nil, errDamaged
		}
		return s.decodeChunk(sid, nil, base, nil, nil)
	})
	if err != nil {
		return dst, err
	}
	if e != nil && (len(dst)-n != int(e.size) || xxh3.Hash128Seed(dst[n:], s.seed).Bytes() != e.hash) {
		return dst, fmt.Errorf("%w: chunk %d of state %d has other bytes than were written", errDamaged, e.id, sid)
	}
	return dst, nil
}

// eachPiece decodes the entries in order and calls f with their bytes, which
// are good until f returns.
func (s *Store) eachPiece(sid uint64, es []entry, f func(b []byte) error) error {
	var buf []byte
	for i := 0; i < len(es); {
		chunks, bases, next, err := s.stored(sid, es, i)
		if err != nil {
			return err
		}
		for k := range chunks {
			if buf, err = s.decodeChunk(sid, buf[:0], chunks[k], bases[k], &es[i+k]); err != nil {
				return err
			}
			if err = f(buf); err != nil {
				return err
			}
		}
		i = next
	}
	return nil
}

// oldBytes returns the bytes of a region's old entries.
func (s *Store) oldBytes(p *plan, r region) ([]byte, error) {
	es := p.head.entries[r.from:r.to]
	n := 0
	for i := range es {
		n += int(es[i].size)
	}
	if p.oldBody != nil {
		return p.oldBody[r.pos : r.pos+n], nil
	}
	b := make([]byte, 0, n)
	err := s.eachPiece(p.head.sid, es, func(piece []byte) error {
		b = append(b, piece...)
		return nil
	})
	return b, err
}

// baseFor returns what a fresh chunk is compared with to become a patch: its
// base, or, which is as good and costs no decoding, a patch of that base that
// is in memory, together with how much of it is the base's.
func (s *Store) baseFor(p *plan, f fresh) (was []byte, of span, err error) {
	o := p.head.entries[f.base]
	of = wholeSpan
	var stored []byte
	id := o.id
	if p.oldBody != nil {
		was = p.oldBody[f.basePos : f.basePos+int(o.size)]
		if o.base == 0 {
			return was, of, nil
		}
	} else if o.base != 0 {
		id = o.base
	}
	err = s.view(func(tx *bbolt.Tx) error {
		if stored = peek(tx, bChunk, key(p.head.sid, id)); stored == nil {
			return fmt.Errorf("%w: chunk %d of state %d, a base, is missing", errDamaged, id, p.head.sid)
		}
		if was != nil {
			of, err = patchSpan(stored)
			return err
		}
		stored = bytes.Clone(stored)
		return nil
	})
	if err == nil && was == nil {
		was, err = s.decodeChunk(p.head.sid, nil, stored, nil, nil)
	}
	return was, of, err
}

// find reads the record of a state. The code is not_found when there is none.
func find(tx *bbolt.Tx, ref Ref) (uint64, *stateRec, error) { return findBy(tx, ref, getRec[stateRec]) }

// find is the same, for what every request does.
func (s *Store) find(tx *bbolt.Tx, ref Ref) (uint64, *stateRec, error) {
	return findBy(tx, ref, s.heads.get)
}

func findBy(tx *bbolt.Tx, ref Ref, read func(tx *bbolt.Tx, bucket, k []byte) (*stateRec, bool, error)) (uint64, *stateRec, error) {
	k := peek(tx, bName, pair(ref.Environment, ref.Name))
	if k == nil {
		return 0, nil, noState(ref)
	}
	sid, err := sidOf(k)
	if err != nil {
		return 0, nil, err
	}
	r, ok, err := read(tx, bState, k)
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("%w: state %d has a name but no record", errRecord, sid)
	case r.Name != ref.Name || r.Environment != ref.Environment:
		err = fmt.Errorf("%w: the name %s leads to state %d, which has another", errRecord, ref.Name, sid)
	}
	return sid, r, err
}

func noState(ref Ref) *fault.Error {
	return fault.New(fault.NotFound, "the state %s was never written", ref.Name).WithNext("list what exists with: kl state list")
}

// written is find for what has at least one version.
func written(tx *bbolt.Tx, ref Ref) (uint64, *stateRec, error) {
	sid, r, err := find(tx, ref)
	if err == nil && r.Head == 0 {
		err = noState(ref)
	}
	return sid, r, err
}

// Head opens the newest version of a state. Codes: not_found when it was never
// written, state_deleted when it is in the trash.
func (s *Store) Head(ctx context.Context, ref Ref) (*Snapshot, error) {
	return s.open(ctx, ref, "head", true)
}

// Version opens the version that a reference names: a number, @N (N back from
// the head), serial:N, a tag, or head. Codes: not_found, parameter_invalid.
func (s *Store) Version(ctx context.Context, ref Ref, version string) (*Snapshot, error) {
	return s.open(ctx, ref, version, false)
}

func (s *Store) open(ctx context.Context, ref Ref, version string, plane bool) (*Snapshot, error) {
	for range maxAttempts {
		snap, again, err := s.openOnce(ctx, ref, version, plane)
		if again == nil {
			return snap, err
		}
		select {
		case <-again:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fault.New(fault.Busy, "the version %s of the state %s is pruned while it is asked for", version, ref.Name)
}

// gone is a channel that need not be waited for.
func gone() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// openOnce opens a version. again says that it was being pruned: what the
// reference names is to be looked up once more when the channel is closed.
func (s *Store) openOnce(ctx context.Context, ref Ref, version string, plane bool) (snap *Snapshot, again <-chan struct{}, err error) {
	var sid, n uint64
	var rec *stateRec
	var v *versionMeta
	var es []entry
	var body *Body
	l := s.peek(ref)
	err = s.view(func(tx *bbolt.Tx) (err error) {
		if sid, rec, err = s.find(tx, ref); err != nil {
			return err
		}
		if rec.Head == 0 {
			return noState(ref)
		}
		if plane && rec.Lifecycle == lifecycleDeleted {
			return deleted(ref, rec)
		}
		if n, err = resolve(tx, sid, rec, version); err != nil {
			return err
		}
		if n == rec.Head && l != nil {
			var h *head
			if h, body = s.cache.find(l, sid, n); h != nil {
				es = h.entries
			}
			if body != nil && h.meta != nil && plane {
				v = h.meta
				return nil
			}
		}
		if body == nil {
			return nil
		}
		r, err := getVersion(tx, sid, n)
		if err == nil {
			v = &r.versionMeta
		}
		return err
	})
	if err != nil {
		if body != nil {
			body.unref()
		}
		return nil, nil, err
	}
	if body != nil {
		return inMemory(v, body), nil, nil
	}
	k := versionKey{sid, n}
	if again := s.reading.hold(k); again != nil {
		return nil, again, nil
	}
	letGo := func() { s.reading.release(k) }
	err = s.view(func(tx *bbolt.Tx) (err error) {
		if !has(tx, bVersion, key(sid, n)) {
			again = gone()
			return nil
		}
		r, err := getVersion(tx, sid, n)
		if err != nil {
			return err
		}
		v = &r.versionMeta
		if n == rec.Head && !bytes.Equal(v.SHA256, rec.SHA256) {
			return fmt.Errorf("%w: the state %s has another newest version than version %d", errRecord, ref.Name, n)
		}
		if es == nil {
			es, err = manifestOf(tx, sid, n)
		}
		return err
	})
	if err != nil || again != nil {
		letGo()
		return nil, again, err
	}
	if n == rec.Head && v.Bytes <= s.opt.CacheLargest {
		defer letGo()
		if body, err = s.loadHead(ctx, ref, sid, v, es); err != nil {
			return nil, nil, err
		}
		return inMemory(v, body), nil, nil
	}
	return &Snapshot{
		Version: v.wire(), close: letGo,
		write: func(w io.Writer) error { return s.writeVersion(w, sid, v, es) },
	}, nil, nil
}

// inMemory is a snapshot of bytes to which the caller has a reference.
func inMemory(v *versionMeta, body *Body) *Snapshot {
	b := body.Bytes()
	return &Snapshot{Version: v.wire(), close: body.unref, write: func(w io.Writer) error { _, err := w.Write(b); return err }}
}

// writeVersion writes a version's bytes as they are decoded. The last piece is
// held back until the digest of all is right: chunks vouch for themselves, but
// not for their order.
func (s *Store) writeVersion(w io.Writer, sid uint64, v *versionMeta, es []entry) error {
	sum := sha256.New()
	var last []byte
	err := s.eachPiece(sid, es, func(b []byte) error {
		if len(last) > 0 { // an empty write would begin the answer, and a failure could not be told any more
			if _, err := w.Write(last); err != nil {
				return err
			}
		}
		_, _ = sum.Write(b) // never fails
		last = append(last[:0], b...)
		return nil
	})
	if err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), v.SHA256) {
		return fmt.Errorf("%w: version %d of state %d has other bytes than were written", errDamaged, v.Version, sid)
	}
	_, err = w.Write(last)
	return err
}

// loadHead decodes a head into memory, keeps it there for the next reader and
// returns a reference to it.
func (s *Store) loadHead(ctx context.Context, ref Ref, sid uint64, v *versionMeta, es []entry) (*Body, error) {
	if err := s.flight.Acquire(ctx, v.Bytes); err != nil {
		return nil, err
	}
	defer s.flight.Release(v.Bytes)
	b := &Body{pool: &s.bufs, onDone: func() {}}
	b.buf = s.bufs.get(int(v.Bytes))
	b.refs.Store(1)
	buf := b.buf[:0]
	err := s.eachPiece(sid, es, func(p []byte) error {
		if len(buf)+len(p) > cap(b.buf) {
			return fmt.Errorf("%w: version %d of state %d is longer than it was", errDamaged, v.Version, sid)
		}
		buf = append(buf, p...)
		return nil
	})
	if err == nil && len(buf) != int(v.Bytes) {
		err = fmt.Errorf("%w: version %d of state %d is shorter than it was", errDamaged, v.Version, sid)
	}
	if err != nil {
		b.unref()
		return nil, err
	}
	if b.sha = sha256.Sum256(buf); !bytes.Equal(b.sha[:], v.SHA256) {
		b.unref()
		return nil, fmt.Errorf("%w: version %d of state %d has other bytes than were written", errDamaged, v.Version, sid)
	}
	l := s.live(ref)
	// only if nobody writes: a head put by a writer is newer
	select {
	case l.write <- struct{}{}:
		if h, old := s.cache.find(l, sid, v.Version); h == nil || old == nil {
			b.refs.Add(1)
			n := &head{sid: sid, version: v.Version, meta: v, entries: es, lastTop: v.top(), body: b, bodyBytes: v.Bytes}
			if h != nil {
				n.ids = h.ids
			}
			s.cache.put(l, n)
		} else {
			old.unref()
		}
		l.unlockWrite()
	default:
	}
	return b, nil
}

func (v *versionMeta) top() topState { return topState{v.Serial, v.Lineage, v.TerraformVersion} }

// peek returns the memory of a state if there is any.
func (s *Store) peek(ref Ref) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives[ref]
}

// resolve finds the version that a reference names.
func resolve(tx *bbolt.Tx, sid uint64, rec *stateRec, ref string) (uint64, error) {
	bad := func() error {
		return fault.New(fault.ParameterInvalid, "%.80q is not a version: give a number, @N, serial:N, a tag or head", ref).WithNext("list the versions with: kl history STATE")
	}
	none := func() error {
		return fault.New(fault.NotFound, "the state %s has no version %s", rec.Name, ref).WithNext("list the versions with: kl history %s", rec.Name)
	}
	switch {
	case ref == "head":
		return rec.Head, nil
	case strings.HasPrefix(ref, "@"):
		n, err := strconv.ParseUint(ref[1:], 10, 32)
		if err != nil {
			return 0, bad()
		}
		if n >= uint64(rec.Versions) {
			return 0, fault.New(fault.NotFound, "the state %s has no version %s: it has %d in all", rec.Name, ref, rec.Versions).WithNext("list the versions with: kl history %s", rec.Name)
		}
		v := rec.Head
		for range n {
			r, err := getVersion(tx, sid, v)
			if err != nil {
				return 0, err
			}
			v = r.Previous
		}
		return v, nil
	case strings.HasPrefix(ref, "serial:"):
		n, err := strconv.ParseUint(ref[len("serial:"):], 10, 64)
		if err != nil {
			return 0, bad()
		}
		for v := rec.Head; v != 0; {
			r, err := getVersion(tx, sid, v)
			if err != nil {
				return 0, err
			}
			if r.Serial == n {
				return v, nil
			}
			v = r.Previous
		}
		return 0, none()
	case validTag(ref):
		v := peek(tx, bTag, keyS(sid, ref))
		if v == nil {
			return 0, noTag(rec.Name, ref)
		}
		return sidOf(v)
	}
	n, err := strconv.ParseUint(ref, 10, 64)
	if err != nil {
		return 0, bad()
	}
	if n == 0 || !has(tx, bVersion, key(sid, n)) {
		return 0, none()
	}
	return n, nil
}

// wire is the version as the API shows it, without tags.
func (v *versionMeta) wire() wire.Version {
	return wire.Version{
		Version: v.Version, Serial: v.Serial, Lineage: v.Lineage, TerraformVersion: v.TerraformVersion, CreatedAt: v.CreatedAt,
		Principal: v.Principal, Who: v.Who, LockID: v.LockID, RunID: v.RunID, Source: v.Source, RollbackTo: v.RollbackTo, RollbackAddress: v.RollbackAddress, ResourceCount: v.Managed,
		Added: v.Added, Changed: v.Changed, Removed: v.Removed, Bytes: v.Bytes, StoredBytes: v.StoredBytes,
		SHA256: hex.EncodeToString(v.SHA256), Opaque: v.Opaque, Tags: []string{},
	}
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// page bounds the length of a listing.
func page(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, maxPage)
}

// Versions lists a state's versions, the newest first. cursor is the Next of
// the page before, "" for the first. Codes: not_found, parameter_invalid.
func (s *Store) Versions(ctx context.Context, ref Ref, cursor string, limit int) (wire.List[wire.Version], error) {
	out := wire.List[wire.Version]{Items: []wire.Version{}}
	err := s.view(func(tx *bbolt.Tx) error {
		sid, rec, err := written(tx, ref)
		if err != nil {
			return err
		}
		v := rec.Head
		if cursor != "" {
			if v, err = strconv.ParseUint(cursor, 10, 64); err != nil || !has(tx, bVersion, key(sid, v)) {
				return badCursor(cursor)
			}
		}
		tags, err := tagsOf(tx, sid)
		if err != nil {
			return err
		}
		for v != 0 {
			if len(out.Items) == page(limit) {
				out.Next = strconv.FormatUint(v, 10)
				return nil
			}
			r, err := getVersion(tx, sid, v)
			if err != nil {
				return err
			}
			w := r.wire()
			w.Tags = append(w.Tags, tags[v]...)
			out.Items = append(out.Items, w)
			v = r.Previous
		}
		return nil
	})
	return out, errors.Join(err, ctx.Err())
}

func badCursor(cursor string) error {
	return fault.New(fault.ParameterInvalid, "%q is not a cursor of this listing", cursor).WithNext("begin without a cursor")
}

// tagsOf returns the tags of each version.
func tagsOf(tx *bbolt.Tx, sid uint64) (map[uint64][]string, error) {
	tags := map[uint64][]string{}
	err := eachKV(tx, bTag, u64(sid), func(k, v []byte) (bool, error) {
		n, err := sidOf(v)
		tags[n] = append(tags[n], string(k[8:]))
		return true, err
	})
	return tags, err
}
