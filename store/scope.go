package store

import (
	"strings"

	"kl/fault"
	"kl/tfstate"
)

// scope is a part of a state that a request names; nil is all of it.
type scope struct {
	text  string
	first string // its first step without a key, with which all begins that it covers
	parts tfstate.Scope
}

// parseScope reads the address of an instance, a resource or a module; "" is
// the whole state. Code: parameter_invalid.
func parseScope(address string) (*scope, error) {
	if address == "" {
		return nil, nil
	}
	parts, err := tfstate.ParseScope(address)
	if err != nil {
		return nil, fault.New(fault.ParameterInvalid, "%.200q is not the address of an instance, a resource or a module", address).
			WithNext(`write it as Terraform does: aws_instance.web, aws_instance.web[0], module.net["a"]; quote it for the shell`)
	}
	first, _, _ := strings.Cut(address, "[")
	if rest, ok := strings.CutPrefix(first, "module."); ok {
		name, _, _ := strings.Cut(rest, ".")
		first = "module." + name
	}
	return &scope{address, first, parts}, nil
}

// covers reports whether an element is within the scope. Outputs and check
// results are in none but the whole state.
func (s *scope) covers(e element) bool {
	if s == nil {
		return true
	}
	if e.class != classInstance || !strings.HasPrefix(e.address, s.first) {
		return false // to parse all addresses would take much longer
	}
	if e.address == s.text {
		return true
	}
	at, err := tfstate.ParseScope(e.address)
	return err == nil && s.parts.Covers(at)
}
