package tfstate

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// InstanceHash is a content hash of one instance object. It does not change with white space outside strings, with
// the order of the instance's members, or with the order of the elements of dependencies and sensitive_attributes,
// and it leaves identity_schema_version out; everything else counts as it is written, so that two numbers are equal
// only when their texts are. raw must be one that a Scanner reported; other bytes are hashed as they are.
func InstanceHash(raw []byte, seed uint64) [16]byte {
	var buf [hashBuffer]byte
	h := hasher{buf: buf[:0], seed: seed}
	return h.instance(raw)
}

// ValueHash is a content hash of a JSON value in which only white space outside strings does not count.
func ValueHash(raw []byte, seed uint64) [16]byte {
	var buf [hashBuffer]byte
	return xxh3.Hash128Seed(appendCompact(buf[:0], raw), seed).Bytes()
}

// hashBuffer holds most instances, so that hashing one seldom allocates.
const hashBuffer = 4 << 10

type hasher struct {
	buf  []byte
	seed uint64
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

func (h *hasher) instance(raw []byte) [16]byte {
	var all sum
	if len(raw) == 0 || raw[0] != '{' {
		return xxh3.Hash128Seed(raw, h.seed).Bytes()
	}
	i := 1
	for first := true; ; first = false {
		name, value, closed, f := nextMember(raw, i, first)
		if closed {
			break
		}
		if f == ok {
			i, f = skipValue(raw, value, 0)
		}
		if f != ok {
			return xxh3.Hash128Seed(raw, h.seed).Bytes()
		}
		bit := instMember(name)
		if bit == instIdentitySchemaVersion {
			continue
		}
		all.add(h.member(name, bit, raw[value:i]))
	}
	return xxh3.Hash128Seed(all.append(h.buf[:0]), h.seed).Bytes()
}

func (h *hasher) member(name []byte, bit uint32, value []byte) xxh3.Uint128 {
	set := value[0] == '[' && (bit == instDependencies || bit == instSensitiveAttributes)
	var elements sum
	if set {
		elements = h.elements(value)
	}
	dst := append(h.buf[:0], '"')
	if bit != 0 {
		dst = append(dst, instNames[bits.TrailingZeros32(bit)]...)
	} else {
		dst = append(dst, name...)
	}
	dst = append(dst, '"', ':')
	if set {
		dst = elements.append(append(dst, 'S')) // no JSON value begins like this
	} else {
		dst = appendCompact(dst, value)
	}
	h.buf = dst
	return xxh3.Hash128Seed(dst, h.seed)
}

func (h *hasher) elements(array []byte) sum {
	var s sum
	for i := space(array, 1); i < len(array) && array[i] != ']'; {
		end, f := skipValue(array, i, 0)
		if f != ok {
			break
		}
		h.buf = appendCompact(h.buf[:0], array[i:end])
		s.add(xxh3.Hash128Seed(h.buf, h.seed))
		if i = space(array, end); i < len(array) && array[i] == ',' {
			i = space(array, i+1)
		}
	}
	return s
}

// appendCompact appends JSON without the white space outside its strings.
func appendCompact(dst, src []byte) []byte {
	run := 0
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '"':
			end, f := skipString(src, i+1)
			if f != ok {
				return append(dst, src[run:]...)
			}
			i = end
		case c == ' ' || c == '\n' || c == '\r' || c == '\t':
			dst = append(dst, src[run:i]...)
			i = skipSpace(src, i)
			run = i
		default:
			i++
		}
	}
	return append(dst, src[run:]...)
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
