package store

import (
	"errors"
	"fmt"
	"io"

	"go.etcd.io/bbolt"

	"kl/tfstate"
)

// Content reads the elements of one version in the order of the document, or
// those near to what was asked for. It holds no transaction open. It must be
// closed.
type Content struct {
	m       *Moment
	st      *MomentState
	deps    bool // the keys of dependencies are wanted in the index
	entries []entry
	pick    []picked
	body    *Body // the whole version, nil when chunks are read one by one
	at      []int // where each entry begins in it
	index   *stateKeys
	version uint64

	next   int      // in pick
	batch  [][]byte // stored chunks of pick[first:]
	bases  [][]byte
	first  int
	buf    []byte // of the chunk that is read
	sc     *tfstate.Scanner
	plain  *tfstate.Scanner // for chunks in which no resource names itself late
	strict *tfstate.Scanner
	last   int             // entry that was read last, -1 before
	ctx    tfstate.Context // behind it
	from   string          // provider of the resource that is open
	noting *chunkKeys      // being gathered, nil when they are known
}

// Content opens a version of a state; 0 is the newest. When keys are given,
// elements that have not all of them may be left out: those are read that are
// stored near one that has. A version that is not there, or cannot be looked
// into, has no elements. dependencies says that keys of the kind KeyDependsOn
// will be asked for.
func (m *Moment) Content(st *MomentState, version uint64, dependencies bool, keys ...Key) (*Content, error) {
	c := &Content{m: m, st: st, deps: dependencies, version: version, last: -1}
	if version == 0 {
		c.version = st.Version
	}
	ref := Ref{st.Environment, st.Name}
	l := m.s.peek(ref)
	err := m.view(st, func(tx *bbolt.Tx) error {
		if c.version == 0 || c.version > st.Version || !has(tx, bVersion, key(st.sid, c.version)) {
			return nil
		}
		v, err := getVersion(tx, st.sid, c.version)
		if err != nil || v.Opaque {
			return err
		}
		if l != nil {
			if h, body := m.s.cache.find(l, st.sid, c.version); h != nil {
				c.entries, c.body = h.entries, body
				return nil
			}
		}
		c.entries, err = manifestOf(tx, st.sid, c.version)
		return err
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	if c.body != nil {
		c.at = make([]int, len(c.entries))
		pos := 0
		for i := range c.entries {
			c.at[i] = pos
			pos += int(c.entries[i].size)
		}
	}
	c.index = m.s.keys.of(st.sid)
	c.pick = c.index.pick(c.entries, dependencies, keys)
	return c, nil
}

// Close lets go of what is in memory.
func (c *Content) Close() {
	if c.body != nil {
		c.body.unref()
		c.body = nil
	}
	if c.index != nil {
		c.m.s.keys.settle(c.st.sid, c.index, c.entries)
		c.index = nil
	}
}

// Version is the number of the version that is read.
func (c *Content) Version() uint64 { return c.version }

// Provider is what the resource says of its provider to which the element
// that Next returned last belongs, "" when it says so only behind its
// instances.
func (c *Content) Provider() string { return c.from }

// Next returns the next element, good until the call after; io.EOF when there
// is none. Code: busy when the state was purged meanwhile.
func (c *Content) Next() (*tfstate.Token, error) {
	for {
		if c.sc != nil {
			t, err := c.sc.Next()
			if err == nil {
				c.token(t)
				return t, nil
			}
			if !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("scan version %d of state %s: %w", c.version, c.st.Name, err)
			}
			c.chunkEnds()
		}
		if c.next == len(c.pick) {
			return nil, io.EOF
		}
		if err := c.chunkBegins(); err != nil {
			return nil, err
		}
	}
}

// each calls f for what change lists name: instances, outputs, check results.
func (c *Content) each(f func(e element)) error {
	for {
		t, err := c.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if t.Kind != tfstate.CutResource {
			f(elementOf(t))
		}
	}
}

// token notes what the element is found by.
func (c *Content) token(t *tfstate.Token) {
	if t.Kind == tfstate.CutResource {
		if p := tfstate.Provider(t.Raw()); p != c.from {
			c.from = p
		}
	}
	if c.noting != nil {
		c.noting.add(t, c.deps)
	}
}

// chunkBegins sets a scanner on the next chunk.
func (c *Content) chunkBegins() error {
	i, known := c.pick[c.next].entry, c.pick[c.next].known
	b, err := c.bytes(i)
	if err != nil {
		return err
	}
	switch {
	case c.last == i-1: // the scan is there already
	case known != nil:
		c.ctx, c.from = known.ctx, known.provider
	default:
		return fmt.Errorf("%w: version %d of state %s is read from the middle", errDamaged, c.version, c.st.Name)
	}
	scanner := &c.strict
	if known != nil && known.plain {
		scanner = &c.plain
	}
	if *scanner == nil {
		// to look ahead for late names takes twice the time
		*scanner = tfstate.NewScanner(nil, tfstate.Options{Fragment: true, Reordered: scanner == &c.strict})
	}
	c.sc, c.last, c.noting = *scanner, i, nil
	c.sc.Reset(b, 0, c.ctx)
	if known == nil {
		c.noting = newChunkKeys(c.ctx, c.from)
	}
	c.next++
	return nil
}

func (c *Content) chunkEnds() {
	c.ctx = c.sc.Context()
	c.sc = nil
	if c.noting != nil {
		c.index.add(c.entries[c.last].id, c.noting, c.deps)
		c.noting = nil
	}
}

// bytes returns the bytes of an entry, good until the next call.
func (c *Content) bytes(i int) ([]byte, error) {
	if c.body != nil {
		return c.body.Bytes()[c.at[i] : c.at[i]+int(c.entries[i].size)], nil
	}
	if c.next >= c.first+len(c.batch) {
		if err := c.load(); err != nil {
			return nil, err
		}
	}
	k := c.next - c.first
	var err error
	c.buf, err = c.m.s.decodeChunk(c.st.sid, c.buf[:0], c.batch[k], c.bases[k], &c.entries[i])
	return c.buf, err
}

// load reads stored chunks from the next one on.
func (c *Content) load() error {
	es := make([]entry, 0, 64)
	for k := c.next; k < len(c.pick) && len(es) < cap(es); k++ {
		es = append(es, c.entries[c.pick[k].entry])
	}
	var err error
	c.first = c.next
	c.batch, c.bases, _, err = c.m.s.stored(c.st.sid, es, 0)
	if errors.Is(err, errDamaged) {
		err = c.m.view(c.st, func(*bbolt.Tx) error { return err })
	}
	return err
}
