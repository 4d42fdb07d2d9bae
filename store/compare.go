package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"kl/fault"
	"kl/tfstate"
)

// chunkScan reads the elements of some chunks of a version, chunk by chunk: no
// more of the document is in memory than one chunk.
type chunkScan struct {
	s        *Store
	sid      uint64
	es       []entry
	sc       *tfstate.Scanner
	last     int             // the chunk read last, -1 before
	ctx      tfstate.Context // where the scan stands behind it
	provider string          // of the resource that is open
}

func (s *Store) newChunkScan(sid uint64, es []entry) *chunkScan {
	return &chunkScan{s: s, sid: sid, es: es, last: -1, sc: tfstate.NewScanner(nil, tfstate.Options{Fragment: true, Reordered: true})}
}

// errEnough ends a scan early.
var errEnough = errors.New("enough was read")

// run scans the chunks that want picks, in order, and calls f with their
// elements, which are good until it returns. f may end the scan with errEnough.
func (c *chunkScan) run(ctx context.Context, want func(i int) bool, f func(chunk int, t *tfstate.Token) error) error {
	for i := 0; i < len(c.es); {
		if !want(i) {
			i++
			continue
		}
		end := i + 1
		for end < len(c.es) && want(end) {
			end++
		}
		if err := c.standAt(i); err != nil {
			return err
		}
		err := c.s.eachPiece(c.sid, c.es[i:end], func(b []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.last++
			return c.chunk(b, f)
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
		i = end
	}
	return nil
}

func (c *chunkScan) chunk(b []byte, f func(chunk int, t *tfstate.Token) error) error {
	c.sc.Reset(b, 0, c.ctx)
	for {
		t, err := c.sc.Next()
		if errors.Is(err, io.EOF) {
			c.ctx = c.sc.Context()
			return nil
		}
		if err != nil {
			return fmt.Errorf("scan chunk %d of state %d: %w", c.es[c.last].id, c.sid, err)
		}
		if t.Kind == tfstate.CutResource {
			c.provider = tfstate.Provider(t.Raw())
		}
		if err := f(c.last, t); err != nil {
			return err
		}
	}
}

// standAt makes the scan stand at the start of a chunk. One that begins within
// a resource needs the chunk in which that begins.
func (c *chunkScan) standAt(i int) error {
	if i > 0 && c.last == i-1 {
		return nil // by having come there
	}
	e := &c.es[i]
	c.last = i - 1
	c.ctx = tfstate.Context{Kind: tfstate.CutKind(e.kind), First: e.first, Top: e.top, Res: e.res}
	if c.ctx.Kind != tfstate.CutInstance {
		return nil
	}
	k := i - 1
	for k >= 0 && c.es[k].last < 0 {
		k--
	}
	if k < 0 {
		return fmt.Errorf("%w: chunk %d of state %d begins within a resource that begins nowhere", errDamaged, e.id, c.sid)
	}
	return c.s.eachPiece(c.sid, c.es[k:k+1], func(b []byte) error {
		at := int(c.es[k].last)
		if at >= len(b) {
			return fmt.Errorf("%w: chunk %d of state %d has no byte %d", errDamaged, c.es[k].id, c.sid, at)
		}
		r, err := tfstate.ResourceAt(b, at)
		if err != nil {
			return fmt.Errorf("resource open behind chunk %d of state %d: %w", c.es[k].id, c.sid, err)
		}
		c.ctx.Resource, c.ctx.Rest = r.Resource, r.Rest
		c.provider = tfstate.Provider(b[at:])
		return nil
	})
}

// found is an element of a version, as a comparison needs to know it.
type found struct {
	element
	id       uint64 // tfstate.Token.StartHash
	content  [16]byte
	chunk    int // index in the version's chunk list
	rest     uint64
	provider string
	object   string // objectOf, what a move is told by
}

// sides is an element on both sides of a comparison.
type sides struct{ before, after *found }

// comparison is what two versions have differently, each part in order.
type comparison struct {
	added, removed []*found
	changed, moved []sides // moved ones are not among added and removed
}

// compare finds the elements that two versions have differently. Chunks that
// both have are not read: their elements are the same. Instances that went from
// one address and came to another are moved when they tell of the same object
// (type, provider and attribute id) and no other instance does.
func (s *Store) compare(ctx context.Context, sid uint64, before, after []entry) (*comparison, error) {
	was := map[uint64]*found{}
	err := s.eachFound(ctx, sid, before, without(before, after), func(f *found) { was[f.id] = f })
	if err != nil {
		return nil, err
	}
	c := &comparison{}
	err = s.eachFound(ctx, sid, after, without(after, before), func(f *found) {
		o := was[f.id]
		delete(was, f.id)
		switch {
		case o == nil:
			c.added = append(c.added, f)
		case o.content != f.content:
			c.changed = append(c.changed, sides{o, f})
		}
	})
	if err != nil {
		return nil, err
	}
	for _, f := range was {
		c.removed = append(c.removed, f)
	}
	c.pairMoves()
	byElement := func(a, b *found) int { return a.compare(b.element) }
	slices.SortFunc(c.added, byElement)
	slices.SortFunc(c.removed, byElement)
	byAfter := func(a, b sides) int { return a.after.compare(b.after.element) }
	slices.SortFunc(c.changed, byAfter)
	slices.SortFunc(c.moved, byAfter)
	return c, nil
}

// without picks the chunks of a list that the other one does not have.
func without(es, other []entry) func(i int) bool {
	known := make(map[uint64]struct{}, len(other))
	for i := range other {
		known[other[i].id] = struct{}{}
	}
	return func(i int) bool {
		_, both := known[es[i].id]
		return !both
	}
}

func (s *Store) eachFound(ctx context.Context, sid uint64, es []entry, want func(i int) bool, f func(*found)) error {
	h, scan := tfstate.NewHasher(s.seed), s.newChunkScan(sid, es)
	return scan.run(ctx, want, func(chunk int, t *tfstate.Token) error {
		if t.Kind == tfstate.CutResource {
			return nil
		}
		e := &found{element: elementOf(t), id: t.StartHash(s.seed), content: t.Content(h), chunk: chunk}
		if t.Kind == tfstate.CutInstance {
			e.rest, e.provider = t.Inst.Rest, scan.provider
			e.object = objectOf(t, scan.provider)
		}
		f(e)
		return nil
	})
}

// objectOf is what tells that an instance elsewhere is of the same object: type,
// provider and attribute id; "" for data and for what has no id.
func objectOf(t *tfstate.Token, provider string) string {
	id := tfstate.ObjectID(t.Raw())
	if id == "" || !t.Inst.Managed() {
		return ""
	}
	return t.Resource.Type + "\x00" + providerSource(provider) + "\x00" + id
}

// providerSource is a provider without the module that configures it and the
// alias of its configuration: an object that moves to another module has the
// same provider still.
func providerSource(provider string) string {
	i := strings.Index(provider, `provider["`)
	if i < 0 {
		return provider
	}
	source, _, _ := strings.Cut(provider[i:], "]")
	return source
}

// pairMoves takes moves out of what was added and removed.
func (c *comparison) pairMoves() {
	index := func(list []*found) map[string]*found {
		m := map[string]*found{}
		for _, f := range list {
			if f.object == "" {
				continue
			}
			if _, twice := m[f.object]; twice {
				m[f.object] = nil
				continue
			}
			m[f.object] = f
		}
		return m
	}
	from, to := index(c.removed), index(c.added)
	gone := map[*found]bool{}
	for object, f := range from {
		if t := to[object]; f != nil && t != nil {
			c.moved = append(c.moved, sides{f, t})
			gone[f], gone[t] = true, true
		}
	}
	moved := func(f *found) bool { return gone[f] }
	c.added, c.removed = slices.DeleteFunc(c.added, moved), slices.DeleteFunc(c.removed, moved)
}

// rawOf reads the bytes of elements of a version again. It ends early when they
// are more than limit together; those that follow are not in the answer.
func (s *Store) rawOf(ctx context.Context, sid uint64, es []entry, wanted []*found, limit int) (map[uint64][]byte, error) {
	chunks, ids := map[int]bool{}, map[uint64]bool{}
	for _, f := range wanted {
		chunks[f.chunk], ids[f.id] = true, true
	}
	out := make(map[uint64][]byte, len(wanted))
	err := s.newChunkScan(sid, es).run(ctx, func(i int) bool { return chunks[i] }, func(_ int, t *tfstate.Token) error {
		id := t.StartHash(s.seed)
		if t.Kind == tfstate.CutResource || !ids[id] {
			return nil
		}
		raw := t.Raw()
		if t.Kind == tfstate.CutOutput {
			raw = raw[t.Value-t.Start:]
		}
		if limit -= len(raw); limit < 0 {
			return errEnough
		}
		out[id] = slices.Clone(raw)
		return nil
	})
	return out, err
}

// looking runs what reads versions chunk by chunk, and keeps them from being
// pruned meanwhile. When the state is purged under it, it is not_found.
func (s *Store) looking(ctx context.Context, ref Ref, f func() error) error {
	if err := s.reading.holdAll(ctx); err != nil {
		return err
	}
	defer s.reading.releaseAll()
	err := f()
	if err == nil || fault.Of(err) != nil && !fault.Is(err, fault.DataDamaged) {
		return err
	}
	gone := s.view(func(tx *bbolt.Tx) error {
		_, _, err := find(tx, ref)
		return err
	})
	if fault.Is(gone, fault.NotFound) {
		return gone
	}
	return err
}

// chunksOf reads the record of a version and its chunk list.
func chunksOf(tx *bbolt.Tx, sid, version uint64) (*versionRec, []entry, error) {
	v, err := getVersion(tx, sid, version)
	if err != nil {
		return nil, nil, err
	}
	es, err := manifestOf(tx, sid, version)
	return v, es, err
}
