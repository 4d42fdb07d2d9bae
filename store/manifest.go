package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"kl/tfstate"
)

// entry is one chunk in the list of a version's chunks.
type entry struct {
	id    uint64
	base  uint64 // chunk that this one is a patch of, 0 for none; a base is never a patch itself
	size  uint32 // of its bytes
	last  int32  // offset in it of the resource that is open at its end; -1: that one began before, or none is open
	hash  [16]byte
	ctx   uint64 // hash of the scan's context at its start
	start uint64 // hash of the element that it starts with
	top   uint16 // tfstate.Context's members at its start, but for the resource
	res   uint16
	kind  uint8 // tfstate.CutKind, or kindOpaque
	first bool
}

// kindOpaque marks the chunks of a state that is not looked into.
const kindOpaque = 0x80

// splice says how a chunk list comes out of the one before: keep skip entries,
// drop del, put in ins, and so on; what remains is kept.
type splice struct {
	skip, del int
	ins       []entry
}

func appendEntry(b []byte, e *entry) []byte {
	b = binary.AppendUvarint(b, e.id)
	b = binary.AppendUvarint(b, e.base)
	b = binary.AppendUvarint(b, uint64(e.size))
	b = binary.AppendVarint(b, int64(e.last))
	flags := e.kind
	if e.first {
		flags |= 0x40
	}
	b = append(b, flags)
	b = append(b, e.hash[:]...)
	if e.kind == kindOpaque {
		return b
	}
	b = binary.BigEndian.AppendUint64(b, e.ctx)
	b = binary.BigEndian.AppendUint64(b, e.start)
	b = binary.AppendUvarint(b, uint64(e.top))
	return binary.AppendUvarint(b, uint64(e.res))
}

// reader decodes a binary record; the first failure sticks.
type reader struct {
	b   []byte
	err error
}

var errRecord = errors.New("the record is damaged")

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// length reads a number of things of which each takes at least size bytes.
func (r *reader) length(size int) int {
	v := r.uvarint()
	if v > uint64(len(r.b)/size) {
		r.fail()
		return 0
	}
	return int(v)
}

func (r *reader) count() int {
	v := r.uvarint()
	if v > 1<<40 {
		r.fail()
		return 0
	}
	return int(v)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return make([]byte, n)[:min(n, 64)]
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) fail() {
	if r.err == nil {
		r.err = errRecord
	}
	r.b = nil
}

func (r *reader) entry() (e entry) {
	e.id = r.uvarint()
	e.base = r.uvarint()
	e.size = uint32(r.uvarint())
	e.last = int32(r.varint())
	flags := r.take(1)[0]
	e.first = flags&0x40 != 0
	e.kind = flags &^ 0x40
	copy(e.hash[:], r.take(16))
	if e.kind == kindOpaque {
		return e
	}
	e.ctx, e.start = r.u64(), r.u64()
	e.top, e.res = uint16(r.uvarint()), uint16(r.uvarint())
	return e
}

// encodeManifest writes a whole chunk list.
func encodeManifest(es []entry) []byte {
	b := binary.AppendUvarint(make([]byte, 0, len(es)*48+8), uint64(len(es)))
	for i := range es {
		b = appendEntry(b, &es[i])
	}
	return b
}

func decodeManifest(b []byte) ([]entry, error) {
	r := &reader{b: b}
	es := make([]entry, r.length(20))
	for i := range es {
		es[i] = r.entry()
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail()
	}
	return es, r.err
}

// blocks is a chunk list in pieces, so that many splices can be applied to a
// long one without moving all of it each time.
type blocks [][]entry

const blockLen = 512

func newBlocks(es []entry) blocks {
	var bs blocks
	for c := range slices.Chunk(es, blockLen) {
		bs = append(bs, slices.Clone(c))
	}
	return bs
}

// apply applies the splices of one version.
func (bs *blocks) apply(sp []splice) error {
	at, i := 0, 0 // index in block i
	for _, s := range sp {
		for skip := s.skip; ; {
			if i == len(*bs) {
				if skip > 0 {
					return fmt.Errorf("%w: a splice reaches beyond the chunk list", errRecord)
				}
				break
			}
			if n := len((*bs)[i]) - at; skip > n || skip == n && i+1 < len(*bs) {
				skip -= n
				i, at = i+1, 0
				continue
			}
			at += skip
			break
		}
		for del := s.del; del > 0; {
			if i == len(*bs) {
				return fmt.Errorf("%w: a splice reaches beyond the chunk list", errRecord)
			}
			b := (*bs)[i]
			n := min(del, len(b)-at)
			(*bs)[i] = slices.Delete(b, at, at+n)
			if del -= n; del > 0 {
				i, at = i+1, 0
			}
		}
		if len(s.ins) == 0 {
			continue
		}
		if i == len(*bs) {
			*bs = append(*bs, nil)
			at = 0
		}
		(*bs)[i] = slices.Insert((*bs)[i], at, s.ins...)
		at += len(s.ins)
	}
	return nil
}

func (bs blocks) flat() []entry { return slices.Concat(bs...) }

// manifestPiece bounds the values that a whole chunk list is stored in.
const manifestPiece = 60 << 10

// putManifest stores a whole chunk list, packed already.
func putManifest(tx *bbolt.Tx, bucket []byte, sid, version uint64, packed []byte) error {
	for i := 0; len(packed) > 0; i++ {
		n := min(len(packed), manifestPiece)
		if err := put(tx, bucket, key(sid, version, uint64(i)), packed[:n]); err != nil {
			return err
		}
		packed = packed[n:]
	}
	return nil
}

// getPieces puts together what putManifest stored; nil when there is none.
func getPieces(tx *bbolt.Tx, bucket []byte, sid, version uint64) ([]byte, error) {
	var b []byte
	err := eachKV(tx, bucket, key(sid, version), func(_, v []byte) (bool, error) {
		b = append(b, v...)
		return true, nil
	})
	if err != nil || b == nil {
		return nil, err
	}
	return unpack(b)
}

// manifestOf rebuilds the chunk list of a version from the nearest whole one
// at or before it and the splices since.
func manifestOf(tx *bbolt.Tx, sid, version uint64) ([]entry, error) {
	var splices [][]splice
	v := version
	for {
		r, err := getVersion(tx, sid, v)
		if err != nil {
			return nil, err
		}
		if r.whole {
			break
		}
		splices = append(splices, r.splices)
		v = r.Previous
	}
	raw, err := getPieces(tx, bManifest, sid, v)
	if err != nil {
		return nil, fmt.Errorf("chunk list of version %d: %w", v, err)
	}
	es, err := decodeManifest(raw)
	if err != nil {
		return nil, fmt.Errorf("chunk list of version %d: %w", v, err)
	}
	if len(splices) == 0 {
		return es, nil
	}
	bs := newBlocks(es)
	for _, s := range slices.Backward(splices) {
		if err := bs.apply(s); err != nil {
			return nil, fmt.Errorf("chunk list of version %d: %w", version, err)
		}
	}
	return bs.flat(), nil
}

// openResource finds the resource that is open at b[pos], where the entries
// end; false means that it began before them.
func openResource(es []entry, b []byte, pos int) (ctx tfstate.Context, found bool, err error) {
	for k := len(es) - 1; k >= 0; k-- {
		pos -= int(es[k].size)
		if es[k].last < 0 {
			continue
		}
		if ctx, err = tfstate.ResourceAt(b, pos+int(es[k].last)); err != nil {
			err = fmt.Errorf("resource open behind chunk %d: %w", es[k].id, err)
		}
		return ctx, true, err
	}
	return ctx, false, nil
}
