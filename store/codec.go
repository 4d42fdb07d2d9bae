package store

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"
)

// A stored chunk: one of these, the number of its dictionary, and a body. A
// body begins with the form of what follows.
const (
	codecWhole = 1 // the body is the chunk
	codecPatch = 2 // prefix and suffix lengths in a base chunk, and a body that comes between
)

const (
	formRaw  = 0
	formS2   = 1
	formZstd = 2 // of records, never of chunks
	formSum  = 3 // of records: a sum of 8 bytes, and what it is of
)

// maxChunk bounds what one chunk decodes to.
const maxChunk = 1 << 30

// dictSize is the size of a state's dictionary, and dictMinState that of the
// smallest state that gets one.
const (
	dictSize     = 32 << 10
	dictSample   = 1 << 10
	dictMinState = 64 << 10
	dictRegrow   = 4 // a state this many times the size that its dictionary was taken from gets a new one
)

// sampleDict takes a dictionary out of a state: pieces from all over it.
func sampleDict(b []byte) []byte {
	if len(b) < dictMinState {
		return nil
	}
	d := make([]byte, 0, dictSize)
	n := dictSize / dictSample
	for i := range n {
		at := (len(b) - dictSample) / n * i
		d = append(d, b[at:at+dictSample]...)
	}
	return d
}

// codec compresses and decompresses chunks of one state with one dictionary.
// It is safe for concurrent use.
type codec struct {
	dict uint16
	d    *s2.Dict // nil: no dictionary
}

func newCodec(dict uint16, raw []byte) *codec {
	c := &codec{dict: dict}
	if dict != 0 {
		c.d = s2.MakeDict(raw, nil)
	}
	return c
}

// encode returns the stored form of raw, a patch of base when base is given
// and that is worth it.
func (c *codec) encode(raw, base []byte) (stored []byte, patched bool) {
	if base != nil {
		p, q := common(base, raw)
		// a patch of most of the chunk would only make the next one's base older
		if mid := raw[p : len(raw)-q]; len(mid) <= len(raw)/2 {
			out := c.header(codecPatch)
			out = binary.AppendUvarint(out, uint64(p))
			out = binary.AppendUvarint(out, uint64(q))
			return c.body(out, mid), true
		}
	}
	return c.body(c.header(codecWhole), raw), false
}

func (c *codec) header(kind byte) []byte {
	return binary.BigEndian.AppendUint16([]byte{kind}, c.dict)
}

// body appends raw to out, compressed if that helps: the byte before says.
func (c *codec) body(out, raw []byte) []byte {
	n := len(out) + 1
	out = slices.Grow(append(out, formS2), max(s2.MaxEncodedLen(len(raw)), len(raw)))
	var enc []byte
	if dst := out[n : n+s2.MaxEncodedLen(len(raw))]; c.d != nil {
		enc = c.d.Encode(dst, raw)
	} else {
		enc = s2.Encode(dst, raw)
	}
	if len(enc) < len(raw) {
		return slices.Clone(out[:n+len(enc)]) // what is kept until the commit should not hold the spare room
	}
	out[n-1] = formRaw
	return append(out, raw...)
}

var errDamaged = errors.New("the stored chunk is damaged")

// chunkDict is the dictionary that a stored chunk needs.
func chunkDict(stored []byte) (uint16, error) {
	if len(stored) < 4 {
		return 0, errDamaged
	}
	return binary.BigEndian.Uint16(stored[1:]), nil
}

// decode appends the bytes of a stored chunk to dst. base is called when it
// is a patch.
func (c *codec) decode(dst, stored []byte, base func() ([]byte, error)) ([]byte, error) {
	if len(stored) < 4 {
		return dst, errDamaged
	}
	switch rest := stored[3:]; stored[0] {
	case codecWhole:
		return c.unbody(dst, rest)
	case codecPatch:
		p, n := binary.Uvarint(rest)
		q, m := binary.Uvarint(rest[max(n, 0):])
		if n <= 0 || m <= 0 || len(rest) <= n+m {
			return dst, errDamaged
		}
		b, err := base()
		if err != nil {
			return dst, err
		}
		if p > uint64(len(b)) || q > uint64(len(b))-p {
			return dst, errDamaged
		}
		dst = append(dst, b[:p]...)
		if dst, err = c.unbody(dst, rest[n+m:]); err != nil {
			return dst, err
		}
		return append(dst, b[uint64(len(b))-q:]...), nil
	}
	return dst, errDamaged
}

func (c *codec) unbody(dst, b []byte) ([]byte, error) {
	if len(b) == 0 {
		return dst, errDamaged
	}
	if b[0] == formRaw {
		return append(dst, b[1:]...), nil
	}
	n, err := s2.DecodedLen(b[1:])
	if err != nil || n > maxChunk || b[0] != formS2 {
		return dst, errDamaged
	}
	dst = slices.Grow(dst, n)
	to := dst[len(dst) : len(dst)+n]
	if c.d != nil {
		_, err = c.d.Decode(to, b[1:])
	} else {
		_, err = s2.Decode(to, b[1:])
	}
	if err != nil {
		return dst, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return dst[:len(dst)+n], nil
}

// common returns how long the common prefix and suffix of two texts are,
// which do not overlap in either.
func common(a, b []byte) (prefix, suffix int) {
	n := min(len(a), len(b))
	for prefix < n && a[prefix] == b[prefix] {
		prefix++
	}
	n -= prefix
	for suffix < n && a[len(a)-1-suffix] == b[len(b)-1-suffix] {
		suffix++
	}
	return prefix, suffix
}

// codecCache keeps the dictionaries of the states used last.
type codecCache struct {
	mu    sync.Mutex
	byKey map[codecKey]*list.Element
	order list.List // of *codecEntry
}

type codecKey struct {
	sid  uint64
	dict uint16
}

type codecEntry struct {
	key codecKey
	c   *codec
}

const maxCodecs = 64

// get returns the codec of a state's dictionary; load reads the dictionary.
func (cc *codecCache) get(sid uint64, dict uint16, load func() ([]byte, error)) (*codec, error) {
	k := codecKey{sid, dict}
	if dict == 0 {
		k.sid = 0 // all states share the one without a dictionary
	}
	cc.mu.Lock()
	if el := cc.byKey[k]; el != nil {
		cc.order.MoveToFront(el)
		cc.mu.Unlock()
		return el.Value.(*codecEntry).c, nil
	}
	cc.mu.Unlock()
	var raw []byte
	if dict != 0 {
		var err error
		if raw, err = load(); err != nil {
			return nil, err
		}
	}
	return cc.add(k, newCodec(dict, raw)), nil
}

func (cc *codecCache) add(k codecKey, c *codec) *codec {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if el := cc.byKey[k]; el != nil {
		return el.Value.(*codecEntry).c
	}
	if cc.byKey == nil {
		cc.byKey = map[codecKey]*list.Element{}
	}
	cc.byKey[k] = cc.order.PushFront(&codecEntry{k, c})
	for cc.order.Len() > maxCodecs {
		el := cc.order.Back()
		delete(cc.byKey, el.Value.(*codecEntry).key)
		cc.order.Remove(el)
	}
	return c
}

// Records are few and may be long, so that zstd, which is slower and denser
// than what chunks are kept in, is worth its time. Encoder and decoder are safe
// for concurrent use.
var (
	recordEncoder = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true), zstd.WithZeroFrames(true)))
	recordDecoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxChunk)))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return v
}

// pack compresses a record if that helps. Either form has a checksum: what a
// record says is not verified by anything else.
func pack(raw []byte) []byte {
	out := recordEncoder.EncodeAll(raw, []byte{formZstd})
	if len(out) <= len(raw)+8 {
		return out
	}
	return append(binary.BigEndian.AppendUint64([]byte{formSum}, xxh3.Hash(raw)), raw...)
}

// unpack reverses pack.
func unpack(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errDamaged
	}
	if b[0] == formSum && len(b) >= 9 && binary.BigEndian.Uint64(b[1:]) == xxh3.Hash(b[9:]) {
		return append([]byte(nil), b[9:]...), nil
	}
	if b[0] != formZstd {
		return nil, errDamaged
	}
	out, err := recordDecoder.DecodeAll(b[1:], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return out, nil
}
