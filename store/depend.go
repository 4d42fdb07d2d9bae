package store

import (
	"slices"

	"kl/fault"
	"kl/merge"
	"kl/tfstate"
)

// dependence is an instance of ours that depends on what others deleted.
type dependence struct {
	element     element
	address, on string
}

// guardDependencies refuses to bring in what depends on resources that others
// have deleted since, where no side was chosen for it.
func (s *Store) guardDependencies(ref Ref, p *plan, m *merging, others map[element]foreign, verdicts map[element]merge.Verdict, choose take) (*fault.Error, error) {
	gone := map[string]uint64{}
	for i := range p.changes {
		// ours has it as it was read, the head has it no more
		if c := &p.changes[i]; c.op == opAdd && c.class == classInstance && verdicts[c.element] == merge.Theirs {
			gone[ConfigAddress(c.address)] = others[c.element].by
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	for i := range p.ours {
		t := &p.ours[i].tok
		if t.Kind != tfstate.CutInstance || verdicts[elementOf(t)] != merge.Ours {
			continue
		}
		for _, d := range tfstate.Dependencies(t.Inst.Raw) {
			if _, ok := gone[d]; ok {
				m.depends = append(m.depends, dependence{elementOf(t), t.Inst.Address(), d})
			}
		}
	}
	if len(m.depends) == 0 {
		return nil, nil
	}
	head, err := s.headBytes(p)
	if err != nil {
		return nil, err
	}
	// instances of the resource may remain
	if err := eachInstance(head, s.seed, func(a string, _ bool, _ func() [16]byte) { delete(gone, ConfigAddress(a)) }); err != nil {
		return nil, err
	}
	m.depends = slices.DeleteFunc(m.depends, func(d dependence) bool {
		_, isGone := gone[d.on]
		_, decided := m.by[d.address] // it overlaps, and is to be as ours has it
		return !isGone || decided
	})
	on := m.dependsOn()
	for _, d := range m.depends {
		if _, again := m.by[d.address]; again {
			continue
		}
		m.by[d.address] = gone[d.on]
		side, ok := choose.pick(d.address, true)
		if !ok {
			m.conflicts = append(m.conflicts, d.address)
		} else {
			m.chosen = append(m.chosen, d.address)
		}
		if side != merge.Ours {
			m.leave(d.element, verdicts)
		}
	}
	if len(m.conflicts) == 0 {
		return nil, nil
	}
	slices.Sort(m.conflicts)
	first := m.conflicts[0]
	return fault.New(fault.DependencyConflict, "%s depends on %s, which others deleted from the state %s since this run read it%s", first, on[first], ref.Name, andMore(len(m.conflicts)-1)).
		WithNext("plan again: terraform plan; what was sent is kept: kl recover list --state %s", ref.Name).
		With("kind", "dependency").With("depends_on", on), nil
}

// dependsOn tells for instances of ours on what they depend that others deleted.
func (m *merging) dependsOn() map[string]string {
	on := map[string]string{}
	for _, d := range m.depends {
		if on[d.address] == "" {
			on[d.address] = d.on
		}
	}
	return on
}

// leave keeps the head's side of an element that was to be ours.
func (m *merging) leave(e element, verdicts map[element]merge.Verdict) {
	verdicts[e] = merge.Theirs
	m.takes = slices.DeleteFunc(m.takes, func(c change) bool {
		if c.element != e {
			return false
		}
		m.kept = append(m.kept, c)
		return true
	})
}
