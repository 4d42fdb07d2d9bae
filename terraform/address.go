package terraform

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"kl/fault"
	"kl/tfstate"
)

// parseAddress reads an address as Terraform prints it.
func parseAddress(text string) (tfstate.Scope, error) {
	s, err := tfstate.ParseScope(text)
	if err != nil {
		return s, fault.New(fault.ParameterInvalid, "%q is not the address of a resource or module", text).
			WithNext("write it as Terraform does: aws_vpc.main, aws_subnet.a[0], module.net or 'module.net[\"a\"].aws_vpc.main'")
	}
	return s, nil
}

// notTypes are names at which references begin that are not resources.
var notTypes = []string{"local", "var", "each", "count", "self", "path", "terraform", "output", "provider"}

// addressOf takes an address off the front of a traversal; false when there is
// none. What is left are attributes of the thing addressed.
func addressOf(tr hcl.Traversal) (tfstate.Scope, hcl.Traversal, bool) {
	var text strings.Builder
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
	for {
		kind, ok := name()
		words := []string{kind}
		if kind == tfstate.ModeData {
			kind, ok = name()
			words = append(words, kind)
		}
		last, ok2 := name()
		if !ok || !ok2 || (len(words) == 1 && slices.Contains(notTypes, kind)) {
			return tfstate.Scope{}, tr, false
		}
		if text.Len() > 0 {
			text.WriteByte('.')
		}
		text.WriteString(strings.Join(append(words, last), "."))
		if len(tr) > 0 {
			if ix, ok := tr[0].(hcl.TraverseIndex); ok {
				if k, ok := keyOf(ix.Key); ok {
					text.WriteString(k.String())
					tr = tr[1:]
				}
			}
		}
		if kind != "module" || len(tr) == 0 {
			s, err := tfstate.ParseScope(text.String())
			return s, tr, err == nil
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
