package terraform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	tfjson "github.com/hashicorp/terraform-json"

	"kl/fault"
	"kl/tfstate"
)

// Plan is what a saved plan does, as far as others have to know it.
type Plan struct {
	// Changes are the managed instances that it changes, in Terraform's order.
	// Those that it leaves alone are not among them.
	Changes []Change `json:"changes"`
	// Write is what its apply may change in the state, Read is what the changes
	// depend on: addresses of instances, resources and modules, without keys for
	// all keys. Both are sorted, and nothing of Read is in Write.
	Write []string `json:"write_set"`
	Read  []string `json:"read_set"`
	// Outputs counts the root outputs that change.
	Outputs int `json:"output_changes"`
	// Errored says that planning failed and this is only a part.
	Errored bool `json:"-"`
	// Digest is the SHA-256 of the configuration that was planned, with its
	// modules and dependency lock, "" when the plan file does not show it.
	Digest string `json:"-"`
}

// Change is what a plan does to one managed instance.
type Change struct {
	Address  string `json:"address"`
	Previous string `json:"previous_address,omitempty"` // where it is now, when it moves
	// Action is create, update, replace, delete, forget, import, move or refresh:
	// the last when only what the state knows of it changes.
	Action string `json:"action"`
}

// The actions of a Change.
const (
	Create  = "create"
	Update  = "update"
	Replace = "replace"
	Delete  = "delete"
	Forget  = "forget"
	Import  = "import"
	Move    = "move"
	Refresh = "refresh"
)

// Destroys reports whether the change ends an object.
func (c Change) Destroys() bool { return c.Action == Delete || c.Action == Replace }

// Scope is the change's address; the zero scope for one that is no address.
func (c Change) Scope() tfstate.Scope {
	s, _ := tfstate.ParseScope(c.Address)
	return s
}

// String tells the change in a line.
func (c Change) String() string {
	if c.Previous != "" {
		return fmt.Sprintf("%s %s (was %s)", c.Action, c.Address, c.Previous)
	}
	return c.Action + " " + c.Address
}

// planDocument is what counts of terraform show -json of a plan.
type planDocument struct {
	Changes  []tfstate.PlanChange `json:"resource_changes"`
	Drift    []tfstate.PlanChange `json:"resource_drift"`
	Deferred []struct {
		Change tfstate.PlanChange `json:"resource_change"`
	} `json:"deferred_changes"`
	Outputs map[string]struct {
		Actions tfjson.Actions `json:"actions"`
	} `json:"output_changes"`
	Config  planConfig `json:"configuration"`
	Errored bool       `json:"errored"`
}

// actionOf names the change; "" for none.
func actionOf(c *tfstate.PlanChange) string {
	a := c.Change.Actions
	switch {
	case a.Replace(), slices.Contains(a, tfjson.ActionForget) && slices.Contains(a, tfjson.ActionCreate):
		return Replace
	case a.Create():
		return Create
	case a.Delete():
		return Delete
	case slices.Contains(a, tfjson.ActionForget):
		return Forget
	case c.Imports():
		return Import
	case a.Update():
		return Update
	case c.PreviousAddress != "":
		return Move
	}
	return ""
}

// ReadPlan reads what terraform show -json prints of a plan, and the saved plan
// itself, for what the JSON does not tell; view is the state that the plan was
// made on. A plan file that cannot be looked into, such as one that OpenTofu has
// encrypted, makes Read wider and leaves Digest empty. The code of a failure is
// parameter_invalid.
func ReadPlan(shown, planFile, view []byte) (*Plan, error) {
	var doc planDocument
	if err := json.Unmarshal(shown, &doc); err != nil {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the plan cannot be read")
	}
	p := &Plan{Changes: []Change{}, Errored: doc.Errored}
	for _, o := range doc.Outputs {
		if !o.Actions.NoOp() {
			p.Outputs++
		}
	}
	s := &sets{write: map[string]bool{}, read: map[string]bool{}, untouched: map[string]bool{}}
	r := newReferences(doc.Config)
	if opened := openPlan(planFile); opened != nil {
		p.Digest = opened.digest()
		r.locals = opened.locals()
		if err := s.refreshed(p, opened.state, view); err != nil {
			return nil, err
		}
	}
	for _, c := range doc.Changes {
		if err := s.change(p, r, c); err != nil {
			return nil, err
		}
	}
	for _, c := range doc.Drift {
		if c.Mode != tfjson.ManagedResourceMode {
			continue
		}
		a, err := parseAddress(c.Address)
		if err != nil {
			return nil, err
		}
		s.write[a.String()] = true
	}
	for _, d := range doc.Deferred {
		a, err := parseAddress(d.Change.Address)
		if err != nil {
			return nil, err
		}
		s.write[a.Resource().String()] = true // its keys need not be known yet
	}
	s.reads(r)
	p.onlyRefreshed()
	var err error
	p.Write, p.Read, err = s.result()
	return p, err
}

// sets collects addresses.
type sets struct {
	write, read map[string]bool
	untouched   map[string]bool // configured addresses of managed resources that the plan looks at and leaves alone
}

func (s *sets) change(p *Plan, r *references, c tfstate.PlanChange) error {
	if c.Mode != tfjson.ManagedResourceMode {
		return nil
	}
	a, err := parseAddress(c.Address)
	if err != nil {
		return err
	}
	action := actionOf(&c)
	if action == "" {
		s.untouched[a.Configured().String()] = true
		return nil
	}
	address := c.Address
	if c.Deposed != "" {
		address += " (deposed object " + c.Deposed + ")"
	}
	p.Changes = append(p.Changes, Change{Address: address, Previous: c.PreviousAddress, Action: action})
	s.write[a.String()] = true
	if c.PreviousAddress != "" {
		was, err := parseAddress(c.PreviousAddress)
		if err != nil {
			return err
		}
		s.write[was.String()] = true
	}
	if action != Delete && action != Forget {
		r.ofResource(a.Configured())
	}
	return nil
}

// refreshed adds the instances that the refresh has changed: an apply writes
// them too. The JSON tells only of some of them, those with another value.
func (s *sets) refreshed(p *Plan, planned, view []byte) error {
	was, err := contents(view)
	if err != nil {
		return err
	}
	is, err := contents(planned)
	if err != nil {
		return err
	}
	var changed []string
	for a, c := range is {
		if was[a] != c {
			changed = append(changed, a)
		}
	}
	for a := range was {
		if _, there := is[a]; !there {
			changed = append(changed, a)
		}
	}
	slices.Sort(changed)
	for _, a := range changed {
		at, err := parseAddress(a)
		if err != nil {
			return err
		}
		s.write[at.String()] = true
		p.Changes = append(p.Changes, Change{Address: a, Action: Refresh})
	}
	return nil
}

// contents maps the managed instances of a state to their content hashes. It is
// empty for a state that cannot be looked into.
func contents(state []byte) (map[string][16]byte, error) {
	out := map[string][16]byte{}
	if len(bytes.TrimSpace(state)) == 0 {
		return out, nil
	}
	scan, hash := tfstate.NewScanner(state, tfstate.Options{Reordered: true}), tfstate.NewHasher(0)
	for {
		t, err := scan.Next()
		switch {
		case scan.Done():
			return out, nil
		case err != nil:
			return nil, fault.Wrap(fault.ParameterInvalid, err, "the state cannot be read")
		case t.Kind == tfstate.CutInstance && t.Inst.Resource.Mode == tfstate.ModeManaged:
			out[t.Inst.Address()] = hash.Content(&t.Inst)
		}
	}
}

// onlyRefreshed drops the refresh of instances that are changed anyway.
func (p *Plan) onlyRefreshed() {
	changed := map[string]bool{}
	for _, c := range p.Changes {
		if c.Action != Refresh {
			changed[c.Address], changed[c.Previous] = true, true
		}
	}
	p.Changes = slices.DeleteFunc(p.Changes, func(c Change) bool { return c.Action == Refresh && changed[c.Address] })
}

// reads makes the read set of what the changes refer to.
func (s *sets) reads(r *references) {
	maps.Copy(s.read, r.resources)
	if r.unknown {
		maps.Copy(s.read, s.untouched)
	}
}

// maxAddresses is how many addresses a reservation takes of each kind.
const maxAddresses = 10_000

// result makes the lists. One that is too long names whole resources, or whole
// modules.
func (s *sets) result() (write, read []string, err error) {
	if write, err = shorten(s.write); err != nil {
		return nil, nil, err
	}
	written := map[string]bool{}
	for _, w := range write {
		written[w] = true
	}
	for a := range s.read {
		if written[a] {
			delete(s.read, a)
		}
	}
	read, err = shorten(s.read)
	return write, read, err
}

func shorten(set map[string]bool) ([]string, error) {
	for _, coarser := range []func(tfstate.Scope) tfstate.Scope{
		tfstate.Scope.Resource, tfstate.Scope.Configured, func(a tfstate.Scope) tfstate.Scope { return a.Configured().Top() },
	} {
		if len(set) <= maxAddresses {
			break
		}
		next := map[string]bool{}
		for text := range set {
			a, err := parseAddress(text)
			if err != nil {
				return nil, err
			}
			next[coarser(a).String()] = true
		}
		set = next
	}
	if len(set) > maxAddresses {
		return nil, fault.New(fault.ParameterInvalid, "the plan is about %d resources, and %d can be reserved at once", len(set), maxAddresses).
			WithNext("plan a part at a time, with -f or --target")
	}
	list := slices.AppendSeq(make([]string, 0, len(set)), maps.Keys(set))
	slices.Sort(list)
	return list, nil
}
