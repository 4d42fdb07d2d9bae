package store

import (
	"kl/fault"
	"kl/tfstate"
)

// scope is a part of a state that a request names; nil is all of it.
type scope struct {
	text  string
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
	return &scope{address, parts}, nil
}

// covers reports whether an element is within the scope. Outputs and check
// results are in none but the whole state.
func (s *scope) covers(e element) bool {
	if s == nil {
		return true
	}
	if e.class != classInstance {
		return false
	}
	if e.address == s.text {
		return true
	}
	at, err := tfstate.ParseScope(e.address)
	return err == nil && s.parts.Covers(at)
}
