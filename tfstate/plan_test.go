package tfstate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/fault"
	"kl/tfstate"
)

// plan is the JSON of a plan with these changes and drifts.
func plan(changes, drift string) string {
	return fmt.Sprintf(`{"format_version":"1.2","planned_values":{"a":[{}]},"resource_changes":[%s],"resource_drift":[%s],"prior_state":{"x":1}}`, changes, drift)
}

func entry(actions, more string) string {
	return fmt.Sprintf(`{"address":"a.b","mode":"managed","change":{"actions":[%s],"before":{"n":9007199254740993},"after":null%s}}`, actions, more)
}

func TestCountPlan(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		want tfstate.PlanCounts
	}{
		"nothing":        {plan("", ""), tfstate.PlanCounts{}},
		"no list at all": {`{"format_version":"1.2","planned_values":{}}`, tfstate.PlanCounts{}},
		"null lists":     {`{"format_version":"1.2","resource_changes":null,"resource_drift":null}`, tfstate.PlanCounts{}},
		"no-op":          {plan(entry(`"no-op"`, ""), ""), tfstate.PlanCounts{}},
		"create":         {plan(entry(`"create"`, ""), ""), tfstate.PlanCounts{Create: 1, Delta: 1, Peak: 1}},
		"update":         {plan(entry(`"update"`, ""), ""), tfstate.PlanCounts{Update: 1}},
		"delete":         {plan(entry(`"delete"`, ""), ""), tfstate.PlanCounts{Delete: 1, Delta: -1}},
		"forget":         {plan(entry(`"forget"`, ""), ""), tfstate.PlanCounts{Forget: 1, Delta: -1}},
		"replace":        {plan(entry(`"delete","create"`, ""), ""), tfstate.PlanCounts{Replace: 1}},
		"create first":   {plan(entry(`"create","delete"`, ""), ""), tfstate.PlanCounts{Replace: 1}},
		"forget, create": {plan(entry(`"create","forget"`, ""), ""), tfstate.PlanCounts{Replace: 1}},
		"import":         {plan(entry(`"no-op"`, `,"importing":{"id":"x"}`), ""), tfstate.PlanCounts{Import: 1, Delta: 1, Peak: 1}},
		"import, update": {plan(entry(`"update"`, `,"importing":{"id":"x"}`), ""), tfstate.PlanCounts{Import: 1, Update: 1, Delta: 1, Peak: 1}},
		"import, replace": {
			plan(entry(`"delete","create"`, `,"importing":{"id":"x"}`), ""), tfstate.PlanCounts{Import: 1, Replace: 1, Delta: 1, Peak: 1},
		},
		"no import": {plan(entry(`"no-op"`, `,"importing":null`), ""), tfstate.PlanCounts{}},
		"move": {
			plan(`{"address":"a.b","previous_address":"a.c","mode":"managed","change":{"actions":["no-op"]}}`, ""), tfstate.PlanCounts{Move: 1},
		},
		"data source":      {plan(`{"mode":"data","change":{"actions":["create"]}}`, ""), tfstate.PlanCounts{}},
		"deposed":          {plan(`{"mode":"managed","deposed":"0a","change":{"actions":["delete"]}}`, ""), tfstate.PlanCounts{}},
		"rename":           {plan(entry(`"create"`, "")+","+entry(`"delete"`, ""), ""), tfstate.PlanCounts{Create: 1, Delete: 1, Peak: 1}},
		"lost and rebuilt": {plan(entry(`"create"`, ""), entry(`"delete"`, "")), tfstate.PlanCounts{Create: 1, Lost: 1}},
		"changed outside":  {plan("", entry(`"update"`, "")), tfstate.PlanCounts{}},
	} {
		got, err := tfstate.CountPlan(strings.NewReader(c.doc))
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%s: %v\n-want +got:\n%s", name, err, d)
		}
	}
	for name, doc := range map[string]string{
		"empty": "", "no JSON": "terraform", "a list": "[]", "a state": `{"format_version":"1.0","values":{}}`, "cut": plan(entry(`"create"`, ""), "")[:120],
		"no version": `{"resource_changes":[]}`, "another version": `{"format_version":"2.0","resource_changes":[]}`, "no list": `{"format_version":"1.2","resource_changes":{}}`,
	} {
		if got, err := tfstate.CountPlan(strings.NewReader(doc)); !fault.Is(err, fault.ParameterInvalid) {
			t.Errorf("%s: got %+v, %v, want parameter_invalid", name, got, err)
		}
	}
}

// Whatever stands in a file, reading it ends in counts that fit together, or in
// a classified error.
func FuzzCountPlan(f *testing.F) {
	f.Add(plan(entry(`"create","delete"`, ""), entry(`"delete"`, "")))
	f.Add(`{"format_version":"1.2","resource_changes":[{"mode":"managed","change":{"actions":["forget"]}}],"errored":true}`)
	f.Fuzz(func(t *testing.T, doc string) {
		p, err := tfstate.CountPlan(strings.NewReader(doc))
		switch {
		case err != nil && fault.Of(err) == nil:
			t.Errorf("unclassified: %v", err)
		case err == nil && (p.Delta != p.Create+p.Import-p.Delete-p.Forget-p.Lost || p.Peak < p.Delta):
			t.Errorf("counts do not fit together: %+v", p)
		}
	})
}
