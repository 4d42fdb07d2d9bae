package tfstate

import "slices"

// Resource is s without the key at its end: the whole resource, or the whole module.
func (s Scope) Resource() Scope {
	steps := slices.Clone(s.steps)
	if n := len(steps); n > 0 {
		steps[n-1].key = Key{}
	}
	return Scope{steps}
}

// Configured is s without any key, as the configuration has it.
func (s Scope) Configured() Scope {
	steps := slices.Clone(s.steps)
	for i := range steps {
		steps[i].key = Key{}
	}
	return Scope{steps}
}

// Parent is the module that s lies in; false when that is the root.
func (s Scope) Parent() (Scope, bool) {
	if len(s.steps) < 2 {
		return Scope{}, false
	}
	return Scope{s.steps[:len(s.steps)-1]}, true
}

// Top is the resource of the root, or the module called from it, that s is or lies in.
func (s Scope) Top() Scope { return Scope{s.steps[:min(1, len(s.steps))]} }
