package cli

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/fault"
	"kl/terraform"
)

func TestSpecIsReadAsItWasWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kl-plan.json")
	want := &spec{
		Kind: specKind, Format: specFormat, Server: "http://h", Environment: envA, State: "demo", BaseVersion: 3, BaseSerial: 4, Configuration: "d",
		Tool: "Terraform v1.11.4", KL: "dev", Files: []string{"a.tf"}, Scope: []string{"a.b"}, Args: []string{"-var", "x=1"},
		Plan: terraform.Plan{Changes: []terraform.Change{{Address: "a.c", Previous: "a.b", Action: terraform.Move}}, Write: []string{"a.b", "a.c"}, Read: []string{}, Outputs: 1},
	}
	for range 2 { // the second is written over the first
		if err := want.write(file); err != nil {
			t.Fatal(err)
		}
		got, err := readSpec(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := want.write(filepath.Join(file, "below")); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("written below a file: %v", err)
	}
}

func TestSpecPermits(t *testing.T) {
	create := terraform.Change{Address: "a.b", Action: terraform.Create}
	s := &spec{Configuration: "one", Plan: terraform.Plan{Changes: []terraform.Change{create, {Address: "a.c", Action: terraform.Update}}}}
	for name, tc := range map[string]struct {
		plan terraform.Plan
		want fault.Code
	}{
		"the same":              {terraform.Plan{Digest: "one", Changes: s.Changes}, ""},
		"less":                  {terraform.Plan{Digest: "one", Changes: []terraform.Change{create}}, ""},
		"nothing":               {terraform.Plan{Digest: "one"}, ""},
		"a refresh":             {terraform.Plan{Digest: "one", Changes: []terraform.Change{{Address: "a.z", Action: terraform.Refresh}}}, ""},
		"no digest to compare":  {terraform.Plan{Changes: []terraform.Change{create}}, ""},
		"another configuration": {terraform.Plan{Digest: "two", Changes: []terraform.Change{create}}, fault.ParameterInvalid},
		"another address":       {terraform.Plan{Digest: "one", Changes: []terraform.Change{{Address: "a.z", Action: terraform.Create}}}, fault.OverlapConflict},
		"another action":        {terraform.Plan{Digest: "one", Changes: []terraform.Change{{Address: "a.c", Action: terraform.Replace}}}, fault.OverlapConflict},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.permits(&tc.plan)
			if (err == nil) != (tc.want == "") || (err != nil && !fault.Is(err, tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// The client's output goes through whole, however its lines are cut, and what
// it has done is counted in both of its forms.
func TestProgressCounts(t *testing.T) {
	var out, told bytes.Buffer
	p := &progress{w: &told, live: true}
	c := &counting{p: p, w: p.over(&out), run: "run_1", total: 3}
	text := "a.b: Creating...\n\x1b[0ma.b: Creation complete after 1s [id=x]\x1b[0m\n{\"type\":\"apply_complete\"}\na.c: Destruction complete after 0s\n"
	for i := range len(text) {
		if n, err := c.Write([]byte(text[i : i+1])); n != 1 || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	p.end()
	if out.String() != text {
		t.Errorf("passed on %q", out.String())
	}
	for _, want := range []string{"run run_1: applying 1 of 3", "applying 3 of 3"} {
		if !bytes.Contains(told.Bytes(), []byte(want)) {
			t.Errorf("%q is not in %q", want, told.String())
		}
	}
	quiet := &progress{w: &told}
	told.Reset()
	for range 2 {
		quiet.set("the same")
	}
	if told.String() != "the same\n" {
		t.Errorf("without a terminal: %q", told.String())
	}
}

func TestWhatIsWaitedFor(t *testing.T) {
	blocked := fault.New(fault.ReservedConflict, "x").With("blocking_runs", []map[string]any{{"run_id": "run_1", "actor": "ana@pc", "addresses": []string{"a.b"}}}).With("queue_position", float64(2))
	locked := fault.New(fault.ReservedConflict, "the state is locked").With("ID", "lock")
	over := fault.New(fault.ReservedConflict, "the run is aborted")
	for _, tc := range []struct {
		err   error
		waits bool
		says  string
	}{
		{blocked, true, "waiting (place 2 in the queue): run run_1 of ana@pc holds a.b"},
		{locked, true, "waiting: the state is locked"},
		{over, false, ""},
		{errors.New("other"), false, ""},
	} {
		if got := waits(tc.err); got != tc.waits {
			t.Errorf("%v: waits %v", tc.err, got)
		}
		if tc.says != "" && !bytes.HasPrefix([]byte(ahead(tc.err)), []byte(tc.says)) {
			t.Errorf("%v: %q", tc.err, ahead(tc.err))
		}
	}
}
