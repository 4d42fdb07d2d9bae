package tfstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"kl/fault"
)

// PlanCounts is what a plan does to the managed instances of a state. Data
// sources and deposed objects do not count, as they do not in a state.
type PlanCounts struct {
	Create  int64 `json:"create"`
	Update  int64 `json:"update"`
	Replace int64 `json:"replace"`
	Delete  int64 `json:"delete"`
	Forget  int64 `json:"forget"`
	Import  int64 `json:"import"`
	Move    int64 `json:"move"`
	// Lost are instances that a refresh has found to be gone: the state still
	// has them, what the plan leads to has not.
	Lost int64 `json:"lost"`
	// Delta is how many more instances the state has when all is done.
	Delta int64 `json:"delta"`
	// Peak is by how many it may grow at most while that happens: what is
	// created may come before what goes.
	Peak int64 `json:"peak"`
	// Errored says that planning failed and this is only a part.
	Errored bool `json:"errored,omitempty"`
}

// Changes reports whether the plan does anything to managed instances.
func (p PlanCounts) Changes() bool {
	return p.Create+p.Update+p.Replace+p.Delete+p.Forget+p.Import+p.Move > 0
}

// PlanChange is what kl reads of a member of resource_changes or resource_drift
// (https://developer.hashicorp.com/terraform/internals/json-format). No value is
// kept.
type PlanChange struct {
	Address         string              `json:"address"`
	PreviousAddress string              `json:"previous_address"`
	Mode            tfjson.ResourceMode `json:"mode"`
	Deposed         string              `json:"deposed"`
	Change          struct {
		Actions   tfjson.Actions  `json:"actions"`
		Importing json.RawMessage `json:"importing"`
	} `json:"change"`
}

// Imports reports whether the change takes in an object that exists already.
func (c *PlanChange) Imports() bool {
	return len(c.Change.Importing) > 0 && string(c.Change.Importing) != "null"
}

// CountPlan reads what terraform show -json prints of a saved plan. Values are
// skipped and not kept. The code of a failure is parameter_invalid.
func CountPlan(r io.Reader) (PlanCounts, error) {
	var p PlanCounts
	d := json.NewDecoder(r)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return p, noPlan(err)
	}
	version, changes := "", false
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return p, noPlan(err)
		}
		switch t {
		case "format_version":
			err = d.Decode(&version)
		case "errored":
			err = d.Decode(&p.Errored)
		case "resource_changes":
			changes = true
			err = eachChange(d, p.change)
		case "resource_drift":
			err = eachChange(d, p.drift)
		case "planned_values":
			changes = true // a plan without changes may leave the list out
			fallthrough
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return p, noPlan(err)
		}
	}
	if _, err := d.Token(); err != nil {
		return p, noPlan(err)
	}
	switch {
	case version == "":
		return p, noPlan(errors.New("it has no format_version"))
	case !strings.HasPrefix(version, "1.") && !strings.HasPrefix(version, "0."):
		return p, noPlan(fmt.Errorf("its format_version is %.20q, and 1 is known", version))
	case !changes:
		return p, noPlan(errors.New("it is the JSON of a state, not of a plan"))
	}
	return p, nil
}

func noPlan(err error) error {
	if errors.Is(err, io.EOF) || err == nil {
		err = errors.New("it is empty, cut short, or no JSON object")
	}
	return fault.New(fault.ParameterInvalid, "this is not the JSON of a plan: %s", err).
		WithNext("make it with: terraform plan -out=FILE; terraform show -json FILE")
}

// eachChange decodes a list one by one: a plan may be long.
func eachChange(d *json.Decoder, f func(c *PlanChange)) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil: // null
		return nil
	case t != json.Delim('['):
		return errors.New("a list of changes is no list")
	}
	for d.More() {
		var c PlanChange
		if err := d.Decode(&c); err != nil {
			return err
		}
		if c.Mode == tfjson.ManagedResourceMode && c.Deposed == "" {
			f(&c)
		}
	}
	_, err = d.Token()
	return err
}

// change counts what the plan does to one instance.
func (p *PlanCounts) change(c *PlanChange) {
	creates, ends, forgets := false, false, false
	for _, a := range c.Change.Actions {
		switch a {
		case tfjson.ActionCreate:
			creates = true
		case tfjson.ActionDelete:
			ends = true
		case tfjson.ActionForget:
			ends, forgets = true, true
		case tfjson.ActionUpdate:
			p.Update++
		case tfjson.ActionNoop, tfjson.ActionRead:
		}
	}
	if c.Imports() { // the state does not have it yet
		p.Import++
		p.grow(1)
	}
	if c.PreviousAddress != "" {
		p.Move++
	}
	switch {
	case creates && ends: // an object in the place of another; the old one is deposed meanwhile
		p.Replace++
	case creates:
		p.Create++
		p.grow(1)
	case forgets:
		p.Forget++
		p.grow(-1)
	case ends:
		p.Delete++
		p.grow(-1)
	}
}

func (p *PlanCounts) grow(n int64) {
	p.Delta += n
	p.Peak += max(n, 0)
}

// drift counts what a refresh has found to be gone. It goes from the state with
// the first write, so that the peak is lower as well.
func (p *PlanCounts) drift(c *PlanChange) {
	if c.Change.Actions.Delete() {
		p.Lost++
		p.Delta--
		p.Peak--
	}
}
