package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
)

// What bbolt 1.4 and later write (its internal/common/page.go and meta.go):
// integers in the machine's order, a header before each page, and two copies of
// the root, the newer of which counts.
const (
	pageHeader   = 16 // id, flags, count, overflow
	pageElement  = 16 // of leaf and branch pages alike
	pageBranch   = 0x01
	pageLeaf     = 0x02
	pageFreelist = 0x10
	leafBucket   = 0x01 // flag of an element whose value is a bucket
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	metaSize     = 64
	noFreelist   = ^uint64(0)
	bucketHeader = 16 // root page, sequence
	maxDepth     = 64
	maxPageSize  = 64 << 10
)

// pageCheck walks over a data file's pages before bbolt does: bbolt trusts
// them, and panics, reads elsewhere or never ends when it may not.
type pageCheck struct {
	f        io.ReaderAt
	size     int64
	pageSize int64
	pages    uint64 // in use, or free for reuse
	seen     []uint64
	problems []string
	// fatal says that the tree of pages must not be walked at all: there is no
	// root, or pages are reached twice, which may be a ring.
	fatal bool
	// oneRoot says that nothing is wrong but one of the two copies of the root.
	oneRoot bool
	badCopy bool
}

// inUse is how many bytes the pages that were reached take.
func (c *pageCheck) inUse() (n int64) {
	for _, word := range c.seen {
		n += int64(bits.OnesCount64(word))
	}
	return n * c.pageSize
}

// meta is a copy of the root.
type meta struct {
	pageSize             uint32
	root, freelist, high uint64
	txid                 uint64
}

// checkPages verifies the structure of a data file that nobody writes to.
func checkPages(f io.ReaderAt, size int64) *pageCheck {
	c := &pageCheck{f: f, size: size}
	m, ok := c.root()
	if !ok {
		c.fatal = true
		return c
	}
	c.pageSize, c.pages = int64(m.pageSize), m.high
	if need := int64(m.high) * c.pageSize; need > size {
		c.problem("the file is cut off: it has %d bytes of %d", size, need)
	}
	if m.high > uint64(size)/512+1024 { // else the bits alone would take the memory of the machine
		c.fatal = true
		return c
	}
	c.seen = make([]uint64, m.high/64+1)
	if m.freelist != noFreelist {
		c.freelist(m.freelist)
	}
	before := len(c.problems)
	c.tree("the list of buckets", m.root, nil, nil, 0)
	c.oneRoot = before == 1 && len(c.problems) == 1 && c.badCopy
	return c
}

func (c *pageCheck) problem(format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// root reads both copies of the root and returns the newer.
func (c *pageCheck) root() (meta, bool) {
	first, err := c.meta(0)
	if err != nil {
		// where the second copy is follows from the page size, which is unknown then
		for n := int64(1 << 10); n <= maxPageSize; n *= 2 {
			if m, err2 := c.meta(n); err2 == nil && int64(m.pageSize) == n {
				c.badCopy = true
				c.problem("the first copy of the file's root is damaged (%v); the newest write may be missing", err)
				return m, true
			}
		}
		c.problem("the file's root cannot be read: %v", err)
		return first, false
	}
	second, err := c.meta(int64(first.pageSize))
	switch {
	case err != nil:
		c.badCopy = true
		c.problem("the second copy of the file's root is damaged (%v); the newest write may be missing", err)
		return first, true
	case second.pageSize != first.pageSize:
		c.problem("the two copies of the file's root do not fit each other")
		return first, false
	case second.txid > first.txid:
		return second, true
	}
	return first, true
}

func (c *pageCheck) meta(at int64) (m meta, err error) {
	b := make([]byte, metaSize)
	if _, err := c.f.ReadAt(b, at+pageHeader); err != nil {
		return m, fmt.Errorf("it cannot be read: %w", err)
	}
	ne := binary.NativeEndian
	sum := fnv.New64a()
	_, _ = sum.Write(b[:56]) // never fails
	m = meta{pageSize: ne.Uint32(b[8:]), root: ne.Uint64(b[16:]), freelist: ne.Uint64(b[32:]), high: ne.Uint64(b[40:]), txid: ne.Uint64(b[48:])}
	switch {
	case ne.Uint32(b) != metaMagic:
		return m, errors.New("it is none of bbolt's")
	case ne.Uint32(b[4:]) != metaVersion:
		return m, fmt.Errorf("it has version %d", ne.Uint32(b[4:]))
	case ne.Uint64(b[56:]) != sum.Sum64():
		return m, errors.New("its checksum is wrong")
	case m.pageSize < 1<<10 || m.pageSize > maxPageSize || m.pageSize&(m.pageSize-1) != 0 || m.high < 4:
		return m, fmt.Errorf("it tells of %d pages of %d bytes", m.high, m.pageSize)
	}
	return m, nil
}

// filePage is one page with what overflows it.
type filePage struct {
	flags, count uint16
	b            []byte
}

// load reads a page that is reached once.
func (c *pageCheck) load(what string, id uint64) (p filePage, ok bool) {
	if id < 2 || id >= c.pages {
		c.problem("%s leads to page %d, which is not there", what, id)
		return p, false
	}
	head := make([]byte, pageHeader)
	if _, err := c.f.ReadAt(head, int64(id)*c.pageSize); err != nil {
		c.problem("page %d of %s cannot be read: %v", id, what, err)
		return p, false
	}
	ne := binary.NativeEndian
	overflow := uint64(ne.Uint32(head[12:]))
	if ne.Uint64(head) != id || id+overflow >= c.pages {
		c.problem("page %d of %s is damaged: it says that it is page %d with %d more", id, what, ne.Uint64(head), overflow)
		return p, false
	}
	for i := id; i <= id+overflow; i++ {
		if c.seen[i/64]&(1<<(i%64)) != 0 {
			c.problem("page %d is reached twice, the second time by %s", i, what)
			c.fatal = true
			return p, false
		}
		c.seen[i/64] |= 1 << (i % 64)
	}
	p.flags, p.count = ne.Uint16(head[8:]), ne.Uint16(head[10:])
	p.b = make([]byte, (int64(overflow)+1)*c.pageSize)
	if _, err := c.f.ReadAt(p.b, int64(id)*c.pageSize); err != nil {
		c.problem("page %d of %s cannot be read: %v", id, what, err)
		return p, false
	}
	return p, true
}

// tree verifies the pages from id on, whose keys lie between low and high; nil
// for no bound.
func (c *pageCheck) tree(what string, id uint64, low, high []byte, depth int) {
	p, ok := c.load(what, id)
	if !ok {
		return
	}
	if depth > maxDepth {
		c.problem("%s is deeper than %d pages", what, maxDepth)
		c.fatal = true
		return
	}
	switch p.flags {
	case pageLeaf:
		c.leaf(what, id, p, low, high, depth)
	case pageBranch:
		c.branch(what, id, p, low, high, depth)
	default:
		c.problem("page %d of %s is damaged: it is of kind %#x", id, what, p.flags)
	}
}

// keys returns the keys of a page in order, and what follows each.
func (c *pageCheck) keys(what string, id uint64, p filePage, low, high []byte, f func(i int, key, value []byte, flags uint32, child uint64)) bool {
	ne := binary.NativeEndian
	if pageHeader+int(p.count)*pageElement > len(p.b) {
		c.problem("page %d of %s is damaged: %d elements do not fit into it", id, what, p.count)
		return false
	}
	last := low
	for i := range int(p.count) {
		at := pageHeader + i*pageElement
		e := p.b[at : at+pageElement]
		var flags uint32
		var pos, klen, vlen, child uint64
		if p.flags == pageLeaf {
			flags, pos, klen, vlen = ne.Uint32(e), uint64(ne.Uint32(e[4:])), uint64(ne.Uint32(e[8:])), uint64(ne.Uint32(e[12:]))
		} else {
			pos, klen, child = uint64(ne.Uint32(e)), uint64(ne.Uint32(e[4:])), ne.Uint64(e[8:])
		}
		start := uint64(at) + pos
		if start+klen+vlen > uint64(len(p.b)) || start < pageHeader+uint64(p.count)*pageElement {
			c.problem("page %d of %s is damaged: element %d reaches beyond it", id, what, i)
			return false
		}
		k := p.b[start : start+klen]
		order := bytes.Compare(k, last)
		if order < 0 || order == 0 && i > 0 || high != nil && bytes.Compare(k, high) >= 0 {
			c.problem("page %d of %s is damaged: its keys are not in order", id, what)
			return false
		}
		last = k
		f(i, k, p.b[start+klen:start+klen+vlen], flags, child)
	}
	return true
}

func (c *pageCheck) leaf(what string, id uint64, p filePage, low, high []byte, depth int) {
	c.keys(what, id, p, low, high, func(_ int, k, v []byte, flags uint32, _ uint64) {
		switch {
		case flags == 0:
		case flags != leafBucket || len(v) < bucketHeader:
			c.problem("page %d of %s is damaged: the element %.40q is of kind %#x", id, what, k, flags)
		default:
			c.bucket(fmt.Sprintf("the bucket %.40q", k), id, v, depth)
		}
	})
}

// bucket verifies what is in a bucket: pages of its own, or one that is kept in
// its value.
func (c *pageCheck) bucket(what string, id uint64, v []byte, depth int) {
	if root := binary.NativeEndian.Uint64(v); root != 0 {
		c.tree(what, root, nil, nil, depth+1)
		return
	}
	b := v[bucketHeader:]
	if len(b) < pageHeader {
		c.problem("page %d is damaged: %s is cut off", id, what)
		return
	}
	ne := binary.NativeEndian
	p := filePage{flags: ne.Uint16(b[8:]), count: ne.Uint16(b[10:]), b: b}
	if p.flags != pageLeaf {
		c.problem("page %d is damaged: %s is of kind %#x", id, what, p.flags)
		return
	}
	c.leaf(what, id, p, nil, nil, depth+1)
}

func (c *pageCheck) branch(what string, id uint64, p filePage, low, high []byte, depth int) {
	if p.count == 0 {
		c.problem("page %d of %s is damaged: it leads nowhere", id, what)
		return
	}
	keys, children := make([][]byte, 0, p.count+1), make([]uint64, 0, p.count)
	if !c.keys(what, id, p, low, high, func(_ int, k, _ []byte, _ uint32, child uint64) {
		keys, children = append(keys, k), append(children, child)
	}) {
		return
	}
	keys = append(keys, high)
	for i, child := range children {
		if c.fatal {
			return
		}
		c.tree(what, child, keys[i], keys[i+1], depth+1)
	}
}

// freelist verifies a list of free pages, which files of other programs, and
// none of kl, have.
func (c *pageCheck) freelist(id uint64) {
	p, ok := c.load("the list of free pages", id)
	if !ok {
		c.fatal = true
		return
	}
	n, from := uint64(p.count), 0
	if p.count == 0xFFFF && len(p.b) >= pageHeader+8 {
		n, from = binary.NativeEndian.Uint64(p.b[pageHeader:]), 1
	}
	if p.flags != pageFreelist || n > uint64(len(p.b)/8) || pageHeader+(int(n)+from)*8 > len(p.b) {
		c.problem("page %d, the list of free pages, is damaged", id)
		c.fatal = true
	}
}
