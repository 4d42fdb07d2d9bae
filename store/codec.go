package store

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Chunk codecs: the first byte of a stored chunk.
const (
	codecRaw   = 0 // the bytes
	codecZstd  = 1 // zstd with the dictionary that the second and third byte name
	codecPatch = 2 // what differs from a base chunk, between a common prefix and suffix
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
	raw  []byte // of the dictionary

	enc  sync.Pool // of *zstd.Encoder
	once sync.Once
	dec  *zstd.Decoder
	err  error
}

func newCodec(dict uint16, raw []byte) *codec { return &codec{dict: dict, raw: raw} }

// The id in a frame tells dictionaries apart; zstd reserves low ones.
func (c *codec) frameID() uint32 { return 1<<16 + uint32(c.dict) }

func (c *codec) encoder() (*zstd.Encoder, error) {
	if e, ok := c.enc.Get().(*zstd.Encoder); ok {
		return e, nil
	}
	opts := []zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(128 << 10), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true),
	}
	if c.dict != 0 {
		opts = append(opts, zstd.WithEncoderDictRaw(c.frameID(), c.raw))
	}
	e, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		return nil, fmt.Errorf("make an encoder: %w", err)
	}
	return e, nil
}

func (c *codec) decoder() (*zstd.Decoder, error) {
	c.once.Do(func() {
		opts := []zstd.DOption{zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxChunk), zstd.WithDecoderLowmem(true)}
		if c.dict != 0 {
			opts = append(opts, zstd.WithDecoderDictRaw(c.frameID(), c.raw))
		}
		c.dec, c.err = zstd.NewReader(nil, opts...)
	})
	return c.dec, c.err
}

// encode returns the stored form of raw, a patch of base when base is given
// and that is worth it.
func (c *codec) encode(raw, base []byte) (stored []byte, patched bool, err error) {
	e, err := c.encoder()
	if err != nil {
		return nil, false, err
	}
	defer c.enc.Put(e)
	if base != nil {
		p, q := common(base, raw)
		// a patch of most of the chunk would only make the next one's base older
		if mid := raw[p : len(raw)-q]; len(mid) <= len(raw)/2 {
			out := c.header(codecPatch)
			out = binary.AppendUvarint(out, uint64(p))
			out = binary.AppendUvarint(out, uint64(q))
			return c.body(e, out, mid), true, nil
		}
	}
	return c.body(e, c.header(codecZstd), raw), false, nil
}

func (c *codec) header(kind byte) []byte {
	return binary.BigEndian.AppendUint16([]byte{kind}, c.dict)
}

// body appends raw to out, compressed if that helps: the byte before says.
func (c *codec) body(e *zstd.Encoder, out, raw []byte) []byte {
	n := len(out)
	out = append(out, codecZstd)
	if out = e.EncodeAll(raw, out); len(out)-n-1 >= len(raw) {
		out = append(append(out[:n], codecRaw), raw...)
	}
	return out
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
	case codecZstd:
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
	if b[0] == codecRaw {
		return append(dst, b[1:]...), nil
	}
	d, err := c.decoder()
	if err != nil {
		return dst, fmt.Errorf("make a decoder: %w", err)
	}
	out, err := d.DecodeAll(b[1:], dst)
	if err != nil {
		return dst, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return out, nil
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

// codecCache keeps the codecs of the states used last: making an encoder for a
// dictionary takes longer than a checkpoint.
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

// plain compresses records that need no dictionary of a state.
var recordCodec = newCodec(0, nil)

// pack compresses a record if that helps.
func pack(raw []byte) ([]byte, error) {
	e, err := recordCodec.encoder()
	if err != nil {
		return nil, err
	}
	defer recordCodec.enc.Put(e)
	return recordCodec.body(e, nil, raw), nil
}

// unpack reverses pack.
func unpack(b []byte) ([]byte, error) { return recordCodec.unbody(nil, b) }
