package tfstate

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// Hasher computes content hashes and keeps its buffer from one to the next. It must not be used by two goroutines at a
// time. The zero Hasher has the seed 0.
type Hasher struct {
	seed uint64
	buf  []byte
}

// NewHasher returns a Hasher; hashes are comparable only when their seeds are equal.
func NewHasher(seed uint64) *Hasher { return &Hasher{seed: seed} }

// InstanceHash is NewHasher(seed).Instance(raw).
func InstanceHash(raw []byte, seed uint64) [16]byte {
	h := Hasher{seed: seed, buf: make([]byte, 0, len(raw)+hashMargin)}
	return h.Instance(raw)
}

// ValueHash is NewHasher(seed).Value(raw).
func ValueHash(raw []byte, seed uint64) [16]byte {
	h := Hasher{seed: seed, buf: make([]byte, 0, len(raw))}
	return h.Value(raw)
}

// hashMargin is what the hash of an instance's member needs beside its bytes.
const hashMargin = 64

// Instance is a content hash of one instance object. It does not change with white space outside strings, with the
// order of the instance's members, or with the order of the elements of dependencies and sensitive_attributes, and it
// leaves identity_schema_version out; everything else counts as it is written, so that two numbers are equal only when
// their texts are. raw must be what a Scanner reported: it is not validated again, and the hash of anything else says
// nothing.
func (h *Hasher) Instance(raw []byte) [16]byte { return h.object(raw, true) }

// Check is a content hash of one element of check_results. It does not change with white space outside strings, with
// the order of the members, or with that of the elements of objects.
func (h *Hasher) Check(raw []byte) [16]byte { return h.object(raw, false) }

func (h *Hasher) object(raw []byte, instance bool) [16]byte {
	if len(raw) == 0 || raw[0] != '{' {
		return h.Value(raw)
	}
	var all sum
	i := 1
	for first := true; ; first = false {
		name, value, closed, f := nextMember(raw, i, first)
		if closed || f != ok {
			break
		}
		var bit uint32
		set := !instance && string(name) == "objects"
		if instance {
			bit = instMember(name)
			set = bit == instDependencies || bit == instSensitiveAttributes
		}
		dst := append(h.buf[:0], '"')
		if bit != 0 {
			dst = append(dst, instNames[bits.TrailingZeros32(bit)]...)
		} else {
			dst = append(dst, name...)
		}
		dst = append(dst, '"', ':')
		if raw[value] == '[' && set {
			var elements sum
			elements, i = h.elements(dst, raw, value)
			dst = elements.append(append(dst, 'S')) // no JSON value begins like this
		} else {
			dst, i = appendCompact(dst, raw, value)
		}
		h.buf = dst
		if bit != instIdentitySchemaVersion {
			all.add(xxh3.Hash128Seed(dst, h.seed))
		}
	}
	h.buf = all.append(h.buf[:0])
	return xxh3.Hash128Seed(h.buf, h.seed).Bytes()
}

// Content is a content hash of an instance together with what its resource says of all its instances, such as their
// provider: Instance of i.Raw, and i.Rest.
func (h *Hasher) Content(i *Instance) [16]byte {
	sum := h.Instance(i.Raw)
	h.buf = binary.BigEndian.AppendUint64(append(h.buf[:0], sum[:]...), i.Rest)
	return xxh3.Hash128Seed(h.buf, h.seed).Bytes()
}

// Value is a content hash of a JSON value in which only white space outside strings does not count.
func (h *Hasher) Value(raw []byte) [16]byte {
	dst, i := appendCompact(h.buf[:0], raw, space(raw, 0))
	if i = space(raw, i); i < len(raw) {
		dst = append(dst, raw[i:]...)
	}
	h.buf = dst
	return xxh3.Hash128Seed(dst, h.seed).Bytes()
}

// sum adds up hashes, so that their order does not matter while their number does.
type sum struct{ hi, lo, n uint64 }

func (s *sum) add(h xxh3.Uint128) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, h.Lo, 0)
	s.hi, _ = bits.Add64(s.hi, h.Hi, carry)
	s.n++
}

func (s *sum) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, s.hi)
	dst = binary.BigEndian.AppendUint64(dst, s.lo)
	return binary.BigEndian.AppendUint64(dst, s.n)
}

// elements sums up the array at raw[i] and returns the offset after it. It works behind the bytes of dst.
func (h *Hasher) elements(dst, raw []byte, i int) (sum, int) {
	var s sum
	n := len(dst)
	for i = space(raw, i+1); i < len(raw) && raw[i] != ']'; {
		before := i
		dst, i = appendCompact(dst[:n], raw, i)
		s.add(xxh3.Hash128Seed(dst[n:], h.seed))
		if i = space(raw, i); i < len(raw) && raw[i] == ',' {
			i = space(raw, i+1)
		}
		if i == before {
			break // only bytes that are no JSON stand still
		}
	}
	return s, min(i+1, len(raw))
}

// appendCompact appends the valid JSON value at src[i] without the white space outside its strings, and returns the
// offset after it.
func appendCompact(dst, src []byte, i int) ([]byte, int) {
	run, depth := i, 0
	for i < len(src) {
		switch src[i] {
		case '"':
			var f fail
			if i, f = skipString(src, i+1); f != ok {
				i = len(src)
			}
			if depth == 0 {
				return append(dst, src[run:i]...), i
			}
		case '{', '[':
			i++
			depth++
		case '}', ']':
			if depth > 0 {
				i++
				depth--
			}
			if depth == 0 {
				return append(dst, src[run:i]...), i
			}
		case ',':
			if depth == 0 {
				return append(dst, src[run:i]...), i
			}
			i++
		case ' ', '\n', '\r', '\t':
			dst = append(dst, src[run:i]...)
			if depth == 0 {
				return dst, i
			}
			i = skipSpace(src, i)
			run = i
		default:
			i++
		}
	}
	return append(dst, src[min(run, i):i]...), i
}

// member returns the value of the instance's member that bit names, or nil.
func member(raw []byte, bit uint32) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	i := 1
	for first := true; ; first = false {
		name, value, closed, f := nextMember(raw, i, first)
		if closed || f != ok {
			return nil
		}
		if i, f = skipValue(raw, value, 0); f != ok {
			return nil
		}
		if instMember(name) == bit {
			return raw[value:i:i]
		}
	}
}

// Attributes returns the bytes of an instance's attributes, aliasing raw, or nil when there are none. Attributes of
// the flat form that Terraform 0.11 wrote are not among them.
func Attributes(raw []byte) []byte {
	v := member(raw, instAttributes)
	if string(v) == "null" {
		return nil
	}
	return v
}

// ObjectID returns the text of an instance's attribute id, which tells a replaced object from an updated one; empty
// when there is none, or when it is not a string.
func ObjectID(raw []byte) string {
	attrs := Attributes(raw)
	if attrs == nil {
		attrs = member(raw, instAttributesFlat)
	}
	if len(attrs) == 0 || attrs[0] != '{' {
		return ""
	}
	i, id := 1, ""
	for first := true; ; first = false {
		name, value, closed, f := nextMember(attrs, i, first)
		if closed || f != ok {
			return id
		}
		if i, f = skipValue(attrs, value, 0); f != ok {
			return id
		}
		if string(name) == "id" {
			id = text(attrs[value:i])
		}
	}
}

// Dependencies returns the addresses of the resources that an instance says it depends on, in the order in which they
// stand.
func Dependencies(raw []byte) []string {
	array := member(raw, instDependencies)
	if len(array) == 0 || array[0] != '[' {
		return nil
	}
	var deps []string
	for i := space(array, 1); i < len(array) && array[i] != ']'; {
		end, f := skipValue(array, i, 0)
		if f != ok {
			break
		}
		if array[i] == '"' {
			deps = append(deps, text(array[i:end]))
		}
		if i = space(array, end); i < len(array) && array[i] == ',' {
			i = space(array, i+1)
		}
	}
	return deps
}
