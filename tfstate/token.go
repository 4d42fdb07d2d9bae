package tfstate

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// CutKind says what kind of element begins at a cut. The values are part of kl's file format.
type CutKind uint8

// The kinds of elements.
const (
	CutStart    CutKind = iota // the document itself
	CutOutput                  // a member of outputs
	CutResource                // an element of resources
	CutInstance                // an element of a resource's instances
	CutCheck                   // an element of check_results
)

// Context is the state of a scan at a place where an element may begin. Two scans that stand at equal bytes with
// equal Contexts go on equally. The zero Context is that of the document's start. Contexts may be compared with ==.
type Context struct {
	Kind CutKind
	// First is true directly after the opening bracket, where the container may also end; false after a comma, where
	// an element must follow.
	First    bool
	Top      uint16   // members of the document begun so far, the one around this place included
	Res      uint16   // CutInstance only: members of the resource begun so far, instances included
	Resource Resource // CutInstance only
	// Rest is a hash of what else the resource says before its instances, such as its provider; CutInstance only. It
	// does not change with white space or the order of the members.
	Rest uint64
}

// Hash is a hash of all that the Context says.
func (c Context) Hash(seed uint64) uint64 {
	h := uint64(c.Kind) | uint64(c.Top)<<16 | uint64(c.Res)<<32
	if c.First {
		h |= 1 << 8
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], h)
	binary.BigEndian.PutUint64(b[8:], c.Rest)
	return c.Resource.hash(xxh3.HashSeed(b[:], seed))
}

// Token is one element of a state.
type Token struct {
	Kind CutKind
	Cut  bool // a chunk may begin at Start
	// Ctx is the Context just before Start; it means something only when Cut is true. Cut is false for the first
	// instance of a resource, whose resource is the cut, and for all instances of a resource that names itself only
	// after its instances.
	Ctx Context
	// Start and End are the element's span in the scanned bytes. An output spans from its name's opening quote to the
	// end of its value. A resource's token ends just after the '[' of its instances, or with the object when it has
	// none; its instances follow as tokens of their own.
	Start, End int
	Value      int      // CutOutput: offset of the output's value
	Name       string   // CutOutput: decoded name
	Inst       Instance // CutInstance
	Resource   Resource // CutResource, CutInstance
	raw        []byte
}

// Raw returns the bytes from Start to End. They alias the scanned input.
func (t *Token) Raw() []byte { return t.raw }

// StartHash identifies the element, not its content, so that the same element is found again in another version of
// the document: by an output's name, a resource's or instance's identity, the object and configuration address of a
// check result.
func (t *Token) StartHash(seed uint64) uint64 {
	seed += uint64(t.Kind)
	switch t.Kind {
	case CutOutput:
		return xxh3.HashStringSeed(t.Name, seed)
	case CutResource:
		return t.Resource.hash(seed)
	case CutInstance:
		return t.Inst.IdentityHash(seed)
	case CutCheck:
		return checkHash(t.raw, seed)
	default:
		return seed
	}
}

// Label names the element as people do: an instance's or a resource's address, an output's name, the address of what a
// check is about.
func (t *Token) Label() string {
	switch t.Kind {
	case CutOutput:
		return t.Name
	case CutResource:
		return t.Resource.Address()
	case CutInstance:
		return t.Inst.Address()
	case CutCheck:
		return checkLabel(t.raw)
	default:
		return ""
	}
}

// Content is the element's content hash: Hasher.Content of an instance, Value of an output's value, Check of a check
// result. A resource has none, for it is its instances.
func (t *Token) Content(h *Hasher) [16]byte {
	switch t.Kind {
	case CutOutput:
		return h.Value(t.raw[t.Value-t.Start:])
	case CutInstance:
		return h.Content(&t.Inst)
	case CutCheck:
		return h.Check(t.raw)
	default:
		return [16]byte{}
	}
}

func checkLabel(raw []byte) string {
	label := "check_results"
	i := 1
	for first := true; ; first = false {
		name, value, closed, f := nextMember(raw, i, first)
		if f != ok || closed {
			return label
		}
		if i, f = skipValue(raw, value, 0); f != ok {
			return label
		}
		if string(name) == "config_addr" {
			if s := text(raw[value:i]); s != "" {
				label = s
			}
		}
	}
}

func checkHash(raw []byte, seed uint64) uint64 {
	h, found := seed, false
	i := 1
	for first := true; ; first = false {
		name, value, closed, f := nextMember(raw, i, first)
		if f != ok || closed {
			break
		}
		if i, f = skipValue(raw, value, 0); f != ok {
			break
		}
		switch string(name) {
		case "config_addr", "object_addr":
			found = true
			h += xxh3.HashSeed(raw[value:i], seed+uint64(name[0]))
		}
	}
	if !found {
		return xxh3.HashSeed(raw, seed)
	}
	return h
}
