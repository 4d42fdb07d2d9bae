package store

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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
	formRaw   = 0
	formS2    = 1
	formZstd  = 2 // of long records, never of chunks
	formSum   = 3 // of records: a sum of 8 bytes, and what it is of, raw
	formSumS2 = 4 // of records: a sum of 8 bytes, and what it is of, compressed with S2
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

// span is how much of a chunk stands in another one, too: at its beginning and
// at its end.
type span struct{ prefix, suffix int }

var wholeSpan = span{math.MaxInt, math.MaxInt}

// encode returns the stored form of raw, a patch of base when base is given
// and that is worth it. Only what lies in the span counts as the base's: the
// rest of base is what a patch of it has instead. work is memory to work in, workFor(raw) of it: what is
// kept until the commit should not hold the spare room.
func (c *codec) encode(work, raw, base []byte, of span) (stored []byte, patched bool) {
	if base != nil {
		p, q := common(base, raw)
		p, q = min(p, of.prefix), min(q, of.suffix)
		// a patch of most of the chunk would only make the next one's base older
		if mid := raw[p : len(raw)-q]; len(mid) <= len(raw)/2 {
			out := c.header(work, codecPatch)
			out = binary.AppendUvarint(out, uint64(p))
			out = binary.AppendUvarint(out, uint64(q))
			return slices.Clone(c.body(out, mid)), true
		}
	}
	return slices.Clone(c.body(c.header(work, codecWhole), raw)), false
}

// workFor is how much memory it takes to encode raw.
func workFor(raw []byte) int {
	const header = 3 + 2*binary.MaxVarintLen64 + 1
	return header + max(s2.MaxEncodedLen(len(raw)), len(raw))
}

func (c *codec) header(work []byte, kind byte) []byte {
	return binary.BigEndian.AppendUint16(append(work[:0], kind), c.dict)
}

// body appends raw to out, compressed if that helps: the byte before says.
func (c *codec) body(out, raw []byte) []byte {
	n := len(out) + 1
	out = append(out, formS2)
	var enc []byte
	if dst := out[n : n+s2.MaxEncodedLen(len(raw))]; c.d != nil {
		enc = c.d.Encode(dst, raw)
	} else {
		enc = s2.Encode(dst, raw)
	}
	if len(enc) < len(raw) {
		return out[:n+len(enc)]
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
		of, mid, err := splitPatch(rest)
		if err != nil {
			return dst, err
		}
		b, err := base()
		if err != nil {
			return dst, err
		}
		if of.prefix > len(b) || of.suffix > len(b)-of.prefix {
			return dst, errDamaged
		}
		dst = append(dst, b[:of.prefix]...)
		if dst, err = c.unbody(dst, mid); err != nil {
			return dst, err
		}
		return append(dst, b[len(b)-of.suffix:]...), nil
	}
	return dst, errDamaged
}

// splitPatch reads what of a patch is its base's, and returns the body that
// comes between.
func splitPatch(b []byte) (of span, mid []byte, err error) {
	p, n := binary.Uvarint(b)
	q, m := binary.Uvarint(b[max(n, 0):])
	if n <= 0 || m <= 0 || len(b) <= n+m || p > maxChunk || q > maxChunk {
		return of, nil, errDamaged
	}
	return span{int(p), int(q)}, b[n+m:], nil
}

// patchSpan is what of a stored patch is its base's.
func patchSpan(stored []byte) (span, error) {
	if len(stored) < 4 || stored[0] != codecPatch {
		return span{}, errDamaged
	}
	of, _, err := splitPatch(stored[3:])
	return of, err
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
	for prefix+8 <= n && word(a[prefix:]) == word(b[prefix:]) {
		prefix += 8
	}
	for prefix < n && a[prefix] == b[prefix] {
		prefix++
	}
	n -= prefix
	for suffix+8 <= n && word(a[len(a)-suffix-8:]) == word(b[len(b)-suffix-8:]) {
		suffix += 8
	}
	for suffix < n && a[len(a)-1-suffix] == b[len(b)-1-suffix] {
		suffix++
	}
	return prefix, suffix
}

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

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

// Long records are few, so that zstd, which is slower and denser than what
// chunks are kept in, is worth its time. Encoder and decoder are safe for
// concurrent use.
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

// packQuick is the size up to which records are compressed with S2: each write
// has one of its own, and zstd would save a few hundred bytes in ten times the
// time.
const packQuick = 4 << 10

// pack compresses a record if that helps. Each form has a checksum: what a
// record says is not verified by anything else.
func pack(raw []byte) []byte {
	summed := func(form byte, room int) []byte {
		return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9+room), form), xxh3.Hash(raw))
	}
	if len(raw) <= packQuick {
		out := summed(formSumS2, s2.MaxEncodedLen(len(raw)))
		out = out[:9+len(s2.Encode(out[9:cap(out)], raw))]
		if len(out) < 9+len(raw) {
			return out
		}
	} else if out := recordEncoder.EncodeAll(raw, []byte{formZstd}); len(out) <= len(raw)+8 {
		return out
	}
	return append(summed(formSum, len(raw)), raw...)
}

// unpack reverses pack.
func unpack(b []byte) (out []byte, err error) {
	switch {
	case len(b) > 0 && b[0] == formZstd:
		out, err = recordDecoder.DecodeAll(b[1:], nil)
	case len(b) > 0 && b[0] == formRaw: // as records were written before they had sums
		return bytes.Clone(b[1:]), nil
	case len(b) < 9:
		return nil, errDamaged
	case b[0] == formSum:
		out = bytes.Clone(b[9:])
	case b[0] == formSumS2:
		if n, err := s2.DecodedLen(b[9:]); err != nil || n > packQuick {
			return nil, errDamaged
		}
		out, err = s2.Decode(nil, b[9:])
	default:
		return nil, errDamaged
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if b[0] != formZstd && binary.BigEndian.Uint64(b[1:]) != xxh3.Hash(out) {
		return nil, errDamaged
	}
	return out, nil
}
