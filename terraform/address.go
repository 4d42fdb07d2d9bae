package terraform

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"kl/fault"
	"kl/tfstate"
)

// Address is the address of a module, a resource or one instance of either, in
// parts: module.net["a"].aws_vpc.main[0] is module.net, ["a"], aws_vpc.main,
// [0]. A part that is left out at the end means everything below.
type Address []string

// ParseAddress reads an address as Terraform writes it and its -target takes
// it; what follows the address of a deposed object is dropped. The code of a
// failure is parameter_invalid.
func ParseAddress(text string) (Address, error) {
	plain, _, _ := strings.Cut(text, " (deposed object ")
	tr, diags := hclsyntax.ParseTraversalAbs([]byte(plain), "", hcl.InitialPos)
	if !diags.HasErrors() {
		if a, rest := addressOf(tr); a != nil && len(rest) == 0 {
			return a, nil
		}
	}
	return nil, fault.New(fault.ParameterInvalid, "%q is not the address of a resource or module", text).
		WithNext("write it as Terraform does: aws_vpc.main, aws_subnet.a[0], module.net or 'module.net[\"a\"].aws_vpc.main'")
}

// String writes the address as Terraform does.
func (a Address) String() string {
	var b strings.Builder
	for i, p := range a {
		if i > 0 && !isKey(p) {
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	return b.String()
}

// Contains reports whether o is a or lies below it. A part of a without a key
// stands for all keys, as it does in reservations.
func (a Address) Contains(o Address) bool {
	for _, part := range a {
		for len(o) > 0 && isKey(o[0]) && !isKey(part) {
			o = o[1:]
		}
		if len(o) == 0 || o[0] != part {
			return false
		}
		o = o[1:]
	}
	return true
}

// Resource is the address without the key of its last instance: the whole
// resource, or the whole module.
func (a Address) Resource() Address {
	if n := len(a); n > 1 && isKey(a[n-1]) {
		return a[:n-1]
	}
	return a
}

// configured is the address as the configuration knows it, without any key.
func (a Address) configured() Address {
	return slices.DeleteFunc(slices.Clone(a), isKey)
}

// notTypes are names at which references begin that are not resources.
var notTypes = []string{"local", "var", "each", "count", "self", "path", "terraform", "output", "provider"}

func isKey(part string) bool { return strings.HasPrefix(part, "[") }

// addressOf takes an address off the front of a traversal; nil when there is
// none. What is left are attributes of the thing addressed.
func addressOf(tr hcl.Traversal) (Address, hcl.Traversal) {
	var a Address
	name := func() (string, bool) {
		if len(tr) == 0 {
			return "", false
		}
		switch s := tr[0].(type) {
		case hcl.TraverseRoot:
			tr = tr[1:]
			return s.Name, true
		case hcl.TraverseAttr:
			tr = tr[1:]
			return s.Name, true
		}
		return "", false
	}
	key := func() {
		if len(tr) == 0 {
			return
		}
		ix, ok := tr[0].(hcl.TraverseIndex)
		if !ok {
			return
		}
		if k, ok := keyOf(ix.Key); ok {
			a, tr = append(a, k.String()), tr[1:]
		}
	}
	for {
		first, ok := name()
		if !ok {
			return a, tr // a module's address ends where the traversal does
		}
		kind := ""
		if first == tfstate.ModeData || first == "ephemeral" {
			kind = first + "."
			if first, ok = name(); !ok {
				return nil, tr
			}
		}
		second, ok := name()
		if !ok || (kind == "" && slices.Contains(notTypes, first)) {
			return nil, tr
		}
		a = append(a, kind+first+"."+second)
		key()
		if kind != "" || first != "module" {
			return a, tr
		}
		if len(tr) == 0 {
			return a, tr
		}
	}
}

func keyOf(v cty.Value) (tfstate.Key, bool) {
	switch {
	case v.IsNull() || !v.IsKnown():
	case v.Type() == cty.String:
		return tfstate.Key{Kind: tfstate.KeyString, Text: v.AsString()}, true
	case v.Type() == cty.Number && v.AsBigFloat().IsInt():
		return tfstate.Key{Kind: tfstate.KeyInt, Text: v.AsBigFloat().Text('f', 0)}, true
	}
	return tfstate.Key{}, false
}
