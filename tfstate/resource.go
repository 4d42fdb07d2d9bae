package tfstate

import (
	"errors"

	"github.com/zeebo/xxh3"
)

// resource is a resource object that is being read, up to or beyond its instances.
type resource struct {
	Resource
	rest   uint64 // hash of the other members before the instances, such as provider
	seen   uint16 // members begun
	opened bool   // its instances array was entered
	ahead  bool   // identity was looked for beyond the instances
	late   bool   // and some of it was found there
}

type step uint8

const (
	stepMember step = iota // a member was read
	stepOpened             // the '[' of instances was read
	stepClosed             // the object ended
)

// depths: how many containers are around a value.
const (
	depthTop      = 1 // member of the document
	depthElement  = 2 // element of resources or check_results, member of outputs
	depthResource = 3 // member of a resource
	depthElemInst = 4 // element of instances
	depthInstance = 5 // member of an instance
)

// member reads one member and returns the offset after it.
func (r *resource) member(b []byte, i int, first bool) (int, step, error) {
	name, value, closed, f := nextMember(b, i, first)
	if f != ok {
		return 0, 0, syntaxError(b, value, f)
	}
	if closed {
		return value, stepClosed, nil
	}
	bit := resMember(name)
	if bit&r.seen != 0 {
		return 0, 0, ambiguous(b, value, string(name))
	}
	r.seen |= bit
	if bit&resIdentity != 0 {
		if r.opened && !r.ahead {
			return 0, 0, ErrReordered
		}
		end, err := r.identity(b, value, bit)
		return end, stepMember, err
	}
	if bit == ResInstances {
		switch b[value] {
		case '[':
			r.opened = true
			return value + 1, stepOpened, nil
		case 'n': // as an absent one
		default:
			return 0, 0, wrongType(b, value, depthResource, "instances", "an array")
		}
	}
	end, f := skipValue(b, value, depthResource)
	if f != ok {
		return 0, 0, syntaxError(b, end, f)
	}
	if !r.opened && bit != ResInstances {
		r.rest += restHash(name, b[value:end])
	}
	return end, stepMember, nil
}

// restHash is a resource member's part of Context.Rest. White space outside strings does not count.
func restHash(name, value []byte) uint64 {
	seed := xxh3.Hash(name)
	if value[0] == '{' || value[0] == '[' {
		value, _ = appendCompact(nil, value, 0)
	}
	return xxh3.HashSeed(value, seed)
}

func (r *resource) identity(b []byte, i int, bit uint16) (end int, err error) {
	var dst *string
	var what string
	switch bit {
	case ResModule:
		dst, what = &r.Module, "module"
	case ResMode:
		dst, what = &r.Mode, "mode"
	case ResType:
		dst, what = &r.Type, "type"
	default:
		dst, what = &r.Name, "name"
	}
	*dst, end, err = readString(b, i, depthResource, *dst, what)
	return end, err
}

// head reads the members from just after the '{' to the '[' of instances or to the object's end.
func (r *resource) head(b []byte, i int) (end int, s step, err error) {
	for first := true; ; first = false {
		if i, s, err = r.member(b, i, first); err != nil || s != stepMember {
			return i, s, err
		}
	}
}

// settle drops from the identity what was only kept from the resource before, for the sake of sharing strings.
func (r *resource) settle() {
	if r.seen&ResModule == 0 {
		r.Module = ""
	}
	if r.seen&ResMode == 0 {
		r.Mode = ""
	}
	if r.seen&ResType == 0 {
		r.Type = ""
	}
	if r.seen&ResName == 0 {
		r.Name = ""
	}
}

func (r *resource) missing() string {
	switch {
	case r.Mode == "":
		return "mode"
	case r.Type == "":
		return "type"
	case r.Name == "":
		return "name"
	}
	return ""
}

// complete checks the identity once the head was read; start is the object's offset.
func (r *resource) complete(b []byte, start int) error {
	m := r.missing()
	if m == "" {
		return nil
	}
	if r.opened && !r.ahead && r.seen&resIdentity|ResModule != resIdentity {
		return ErrReordered // the rest may still stand behind the instances
	}
	return shapeError(b, start, "a resource has no %s", m)
}

// lookAhead reads what follows the instances, whose '[' is at b[i], for members of the identity. When b ends within the
// resource, cut is true and nothing was learned.
func (r *resource) lookAhead(b []byte, i int) (cut bool, err error) {
	rest := *r
	rest.ahead = true
	end, f := skipValue(b, i, depthResource)
	if f != ok {
		return end >= len(b), syntaxError(b, end, f)
	}
	for at := stepMember; at != stepClosed; {
		if end, at, err = rest.member(b, end, false); err != nil {
			var syntax *SyntaxError
			return errors.As(err, &syntax) && syntax.Offset == int64(len(b)), err
		}
	}
	rest.settle()
	r.Resource = rest.Resource
	r.ahead = true
	r.late = rest.seen&^r.seen&resIdentity != 0
	return false, nil
}

// ResourceAt reads the head of the resource object at b[off], up to the '[' of its instances, and returns the
// Context that holds at its instances: identity, members begun (ResInstances included if it has instances) and Rest; Top
// and First are the caller's to know. It returns ErrReordered when the head does not name the resource, a *SyntaxError, a
// *ShapeError or ErrAmbiguous; bytes after the '[' are not looked at.
func ResourceAt(b []byte, off int) (Context, error) {
	start := space(b, off)
	if start >= len(b) || b[start] != '{' {
		return Context{}, syntaxError(b, start, failToken)
	}
	var r resource
	if _, _, err := r.head(b, start+1); err != nil {
		return Context{}, err
	}
	if err := r.complete(b, start); err != nil {
		return Context{}, err
	}
	return Context{Kind: CutInstance, Res: r.seen, Rest: r.rest, Resource: r.Resource}, nil
}
