package tfstate

import (
	"cmp"
	"strconv"
	"strings"
	"unicode"

	"github.com/zeebo/xxh3"
)

// ModeManaged and ModeData are the resource modes that Terraform writes.
const (
	ModeManaged = "managed"
	ModeData    = "data"
)

// Resource is a resource's identity, as decoded text.
type Resource struct {
	Module string // path with instance keys, as the state has it: module.a["x"].module.b; empty for the root
	Mode   string // ModeManaged or ModeData
	Type   string
	Name   string
}

// Address returns the resource's address as Terraform prints it: module.a["x"].data.aws_ami.base.
func (r Resource) Address() string { return string(r.appendAddress(nil)) }

func (r Resource) appendAddress(dst []byte) []byte {
	if r.Module != "" {
		dst = append(append(dst, r.Module...), '.')
	}
	if r.Mode != ModeManaged {
		dst = append(append(dst, r.Mode...), '.')
	}
	dst = append(append(dst, r.Type...), '.')
	return append(dst, r.Name...)
}

// Compare orders resources as Terraform writes them: by module, mode, type and name.
func (r Resource) Compare(o Resource) int {
	return cmp.Or(
		strings.Compare(r.Module, o.Module), strings.Compare(r.Mode, o.Mode),
		strings.Compare(r.Type, o.Type), strings.Compare(r.Name, o.Name))
}

func (r Resource) hash(h uint64) uint64 {
	h = xxh3.HashStringSeed(r.Module, h)
	h = xxh3.HashStringSeed(r.Mode, h)
	h = xxh3.HashStringSeed(r.Type, h)
	return xxh3.HashStringSeed(r.Name, h)
}

// KeyKind is the type of an instance key.
type KeyKind uint8

// The types of instance keys. The values are part of kl's file format.
const (
	KeyNone   KeyKind = iota // neither count nor for_each
	KeyInt                   // count
	KeyString                // for_each
)

// Key is an instance key. The zero Key is that of a resource with a single instance. Keys are equal when their types
// and texts are: numbers are never converted, so 1 and 1.0 differ.
type Key struct {
	Kind KeyKind
	Text string // the number as written, or the decoded string
}

// String returns the key as it stands in an address: [0], ["a"], or nothing.
func (k Key) String() string { return string(k.append(nil)) }

func (k Key) append(dst []byte) []byte {
	switch k.Kind {
	case KeyInt:
		return append(append(append(dst, '['), k.Text...), ']')
	case KeyString:
		return append(appendQuoted(append(dst, '['), k.Text), ']')
	default:
		return dst
	}
}

// Compare orders keys as Terraform writes the instances of a resource: no key, then integers by value, then strings.
// Numbers that Terraform would not write, fractions for example, come by their texts after the integers.
func (k Key) Compare(o Key) int {
	if k.Kind != o.Kind || k.Kind != KeyInt {
		return cmp.Or(cmp.Compare(k.Kind, o.Kind), strings.Compare(k.Text, o.Text))
	}
	a, errA := strconv.ParseInt(k.Text, 10, 64)
	b, errB := strconv.ParseInt(o.Text, 10, 64)
	switch {
	case errA == nil && errB != nil:
		return -1
	case errA != nil && errB == nil:
		return 1
	case errA != nil:
		return strings.Compare(k.Text, o.Text)
	}
	return cmp.Or(cmp.Compare(a, b), strings.Compare(k.Text, o.Text))
}

// appendQuoted writes s as an HCL string literal, which is how Terraform prints string keys.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case (r == '$' || r == '%') && strings.HasPrefix(s[i+1:], "{"):
			dst = append(dst, byte(r), byte(r)) // else it would read as an interpolation
		case unicode.IsPrint(r):
			dst = append(dst, string(r)...)
		case r > 0xffff:
			dst = appendHex(append(dst, `\U`...), r, 8)
		default:
			dst = appendHex(append(dst, `\u`...), r, 4)
		}
	}
	return append(dst, '"')
}

func appendHex(dst []byte, r rune, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[r>>shift&15])
	}
	return dst
}

// Instance is one resource instance.
type Instance struct {
	Resource Resource
	Key      Key
	Deposed  string // key of a deposed object, empty for the current one
	Raw      []byte // the instance object's bytes; they alias the scanned input
	Rest     uint64 // Context.Rest of its resource
}

// Address returns the instance's address as Terraform prints it: module.m["k"].aws_x.n[0], followed by
// " (deposed object 01234567)" when it is a deposed one.
func (i *Instance) Address() string {
	dst := i.Key.append(i.Resource.appendAddress(make([]byte, 0, 96)))
	if i.Deposed != "" {
		dst = append(dst, " (deposed object "...)
		dst = append(append(dst, i.Deposed...), ')')
	}
	return string(dst)
}

// IdentityHash is a hash of what makes this instance itself: its resource, typed key and deposed key.
func (i *Instance) IdentityHash(seed uint64) uint64 {
	h := i.Resource.hash(seed)
	h = xxh3.HashStringSeed(i.Key.Text, h+uint64(i.Key.Kind))
	return xxh3.HashStringSeed(i.Deposed, h)
}

// Managed reports whether the instance counts toward quotas: it is managed by Terraform and not a deposed object.
func (i *Instance) Managed() bool { return i.Resource.Mode == ModeManaged && i.Deposed == "" }
