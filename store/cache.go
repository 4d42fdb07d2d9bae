package store

import (
	"container/list"
	"sync"
)

// bufPool keeps memory for the next bodies: fresh memory of the size of a large
// state costs as much as hashing it, and what waits for the garbage collector
// is memory that others cannot use.
type bufPool struct {
	small sync.Pool // of *[]byte, up to smallBuf

	mu   sync.Mutex
	free []byte // one large buffer: the next body of the state just written
}

// smallBuf is the size up to which buffers are pooled by the runtime, in steps
// of smallStep.
const (
	smallBuf  = 1 << 20
	smallStep = 64 << 10
)

// get returns a buffer of n bytes with any content.
func (p *bufPool) get(n int) []byte {
	if n <= smallBuf {
		if b, ok := p.small.Get().(*[]byte); ok && cap(*b) >= n {
			return (*b)[:n]
		}
		return make([]byte, n, max(1, (n+smallStep-1)/smallStep)*smallStep)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.free; cap(b) >= n && cap(b) <= 2*n { // a much larger one would be held by a small state
		p.free = nil
		return b[:n]
	}
	return make([]byte, n, n+n/32) // states grow a little from write to write
}

// put gives a buffer back.
func (p *bufPool) put(b []byte) {
	if cap(b) == 0 {
		return
	}
	if cap(b) <= smallBuf {
		p.small.Put(&b)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = b
}

// trim lets go of what waits, when nobody wrote for a while.
func (p *bufPool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = nil
}

// head is the newest version of a state as it is kept in memory. All but body
// is immutable.
type head struct {
	sid       uint64
	version   uint64
	meta      *versionMeta // of the version; nil: not known
	entries   []entry
	lastTop   topState            // what a scan of the whole document has found at its top level
	ids       map[uint64]struct{} // identities of all instances; nil: not known. Only the state's writer uses it
	body      *Body               // nil when the bytes are not in memory; the head has a reference
	bodyBytes int64
}

// cost is the memory that a head takes, about.
func (h *head) cost() int64 {
	c := int64(len(h.entries))*entryMemory + int64(len(h.ids))*24 + 512
	if h.body != nil {
		c += h.bodyBytes
	}
	return c
}

const entryMemory = 80

// headCache bounds the memory of all heads together; the one used longest ago
// goes first, and the one used last stays even if it is larger than the bound,
// up to largest. Taking a body's reference and dropping the cache's happen under
// one lock, so that a body that a reader found is not used again under it.
type headCache struct {
	limit   int64
	largest int64

	mu    sync.Mutex
	order list.List // of *cached, newest first
	size  int64
}

type cached struct {
	l    *live
	h    *head
	cost int64
	el   *list.Element
}

// find returns the head of l if it is that version, and a reference to its
// body if that is in memory.
func (c *headCache) find(l *live, sid, version uint64) (*head, *Body) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := l.cached
	if e == nil || e.h.sid != sid || e.h.version != version {
		return nil, nil
	}
	c.order.MoveToFront(e.el)
	if b := e.h.body; b != nil && b.ref() {
		return e.h, b
	}
	return e.h, nil
}

// put makes h the head of l in memory. A body too large for the cache is not
// kept. The caller has taken the cache's reference to h.body.
func (c *headCache) put(l *live, h *head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(l)
	if h.body != nil && h.bodyBytes > c.largest {
		h.body.unref()
		h.body = nil
	}
	e := &cached{l: l, h: h, cost: h.cost()}
	e.el = c.order.PushFront(e)
	l.cached = e
	c.size += e.cost
	for c.size > c.limit && c.order.Len() > 1 {
		c.drop(c.order.Back().Value.(*cached).l)
	}
}

// remove forgets the head of l.
func (c *headCache) remove(l *live) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(l)
}

func (c *headCache) drop(l *live) {
	e := l.cached
	if e == nil {
		return
	}
	c.order.Remove(e.el)
	c.size -= e.cost
	l.cached = nil
	if e.h.body != nil {
		e.h.body.unref()
		e.h.body = nil
	}
}

// bytes is the memory in use.
func (c *headCache) bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}
