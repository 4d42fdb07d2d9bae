package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"kl/client"
	"kl/scripts/rig"
	"kl/wire"
)

// pair makes a state with one resource and two directories, each with a token of
// its own, whose configuration has two gated resources more, in files of their
// own.
func (r *record) pair(ctx context.Context) (first, second *dir, err error) {
	a := r.a
	var dirs []*dir
	for _, name := range []string{"first", "second"} {
		t, err := a.op.CreateToken(ctx, a.env.EnvPublicID, wire.TokenRequest{Name: "audit-" + strings.ToLower(r.ID) + "-" + name})
		if err != nil {
			return nil, nil, err
		}
		d, err := r.initDir(ctx, name, httpBackend+item("shared", `"1"`), r.at(a.org.WorkspaceID, a.env.EnvPublicID, r.stateName(), t.Secret))
		if err != nil {
			return nil, nil, err
		}
		dirs = append(dirs, d)
	}
	if err := dirs[0].must(ctx, "apply"); err != nil {
		return nil, nil, err
	}
	for _, d := range dirs {
		if err := errors.Join(d.write("a.tf", gated("gate_a", `"a"`)), d.write("b.tf", gated("gate_b", `"b"`))); err != nil {
			return nil, nil, err
		}
	}
	return dirs[0], dirs[1], nil
}

// orchestrated starts kl apply --orchestrated and waits until it stands at a
// gate.
func (d *dir) orchestrated(ctx context.Context, gate string, args ...string) (*rig.Process, error) {
	p, err := d.launch(d.r.a.bin, append([]string{"apply", "--orchestrated", "--yes", "-no-color"}, args...)...)
	if err != nil {
		return nil, err
	}
	return p, rig.AwaitFile(ctx, d.path+"/"+gate+".begun", p)
}

// orchestratedApplies plays F1: one by its file, the other by its target.
func orchestratedApplies(ctx context.Context, a *audit, r *record) error {
	first, second, err := r.pair(ctx)
	if err != nil {
		return err
	}
	pa, err := first.orchestrated(ctx, "gate_a", "--file", "a.tf")
	if err != nil {
		return err
	}
	pb, err := second.orchestrated(ctx, "gate_b", "--target", "terraform_data.gate_b")
	if err != nil {
		return err
	}
	runs, err := client.Collect(a.op.Runs(ctx, a.env.EnvPublicID, r.stateName(), true), 0)
	if err != nil {
		return err
	}
	r.expect(len(runs) == 2, "%d runs while both applies are at work, want 2", len(runs))
	for _, run := range runs {
		r.note("run %s of %s has reserved %s", run.ID, run.Actor, strings.Join(run.WriteSet, ", "))
	}
	ra, err := first.through(ctx, "gate_a", pa)
	if err != nil {
		return err
	}
	rb, err := second.through(ctx, "gate_b", pb)
	if err != nil {
		return err
	}
	r.expect(ra.Code == 0 && rb.Code == 0, "exit codes %d and %d, want 0 and 0: %s %s", ra.Code, rb.Code, short(ra), short(rb))
	got, err := first.addresses(ctx)
	if err != nil {
		return err
	}
	want := []string{"terraform_data.gate_a", "terraform_data.gate_b", "terraform_data.shared"}
	r.expect(slices.Equal(got, want), "the state has %v, want %v", got, want)
	return first.must(ctx, "plan", "-detailed-exitcode")
}

// reservationConflict plays F3: the second apply wants what the first one has
// reserved, and gets it after the first one's run was aborted.
func reservationConflict(ctx context.Context, a *audit, r *record) error {
	first, second, err := r.pair(ctx)
	if err != nil {
		return err
	}
	pa, err := first.orchestrated(ctx, "gate_a", "--target", "terraform_data.gate_a")
	if err != nil {
		return err
	}
	runs, err := client.Collect(a.op.Runs(ctx, a.env.EnvPublicID, r.stateName(), true), 0)
	if err != nil || len(runs) != 1 {
		return errors.Join(err, errors.New("the apply has not one run"))
	}
	id := runs[0].ID
	r.ids["run"] = id
	if err := second.write("gate_a.open", ""); err != nil { // the second one need not wait at it
		return err
	}
	again := []string{"apply", "--orchestrated", "--yes", "-no-color", "--target", "terraform_data.gate_a"}
	res, err := second.kl(ctx, again...)
	if err != nil {
		return err
	}
	if err := second.meets(ctx, res, refusal{"somebody else has reserved the address", 409, "conflict", "reservation_conflict"}); err != nil {
		return err
	}
	r.expect(res.Code == 2, "exit code %d, want 2", res.Code)
	for what, text := range map[string]string{"the run": id, "the address": "terraform_data.gate_a", "how to abort it": "kl apply abort --apply-id"} {
		r.expect(strings.Contains(rig.Flatten(res.Out), text), "the screen does not name %s: %s", what, short(res))
	}

	if _, err := r.operator(ctx, a.env.EnvPublicID, "apply", "abort", "--apply-id", id, "--reason", "the audit resolves it"); err != nil {
		return err
	}
	ra, err := first.through(ctx, "gate_a", pa)
	if err != nil {
		return err
	}
	r.expect(ra.Code != 0, "the aborted apply ended with exit code 0")
	res, err = second.kl(ctx, again...)
	if err := succeeded(res, err, "kl apply after the abort"); err != nil {
		return err
	}
	got, err := second.addresses(ctx)
	if err != nil {
		return err
	}
	r.expect(slices.Contains(got, "terraform_data.gate_a"), "the state has %v, and not what the second apply has made", got)
	live, err := client.Collect(a.op.Runs(ctx, a.env.EnvPublicID, r.stateName(), true), 0)
	if err != nil {
		return err
	}
	r.expect(len(live) == 0, "%d runs are live at the end", len(live))
	return nil
}

// rollbacks plays F4.
func rollbacks(ctx context.Context, a *audit, r *record) error {
	config := func(one, two string) string {
		return httpBackend + item("one", `"`+one+`"`) + item("two", `"`+two+`"`)
	}
	d, err := r.tokenDir(ctx, a.org.WorkspaceID, a.env.EnvPublicID, config("1", "1"))
	if err != nil {
		return err
	}
	if err := errors.Join(d.must(ctx, "apply"), d.write("main.tf", config("2", "2")), d.must(ctx, "apply")); err != nil {
		return err
	}
	for _, c := range []struct {
		what     string
		args     []string
		one, two string
	}{
		{"the whole state", []string{"rollback", "--to", "1"}, "1", "1"},
		{"back again", []string{"rollback", "--to", "2"}, "2", "2"},
		{"one resource", []string{"rollback", "--to", "1", "--address", "terraform_data.one"}, "1", "2"},
	} {
		before, err := a.op.State(ctx, a.env.EnvPublicID, r.stateName())
		if err != nil {
			return err
		}
		res, err := d.kl(ctx, c.args...)
		if err := succeeded(res, err, "kl "+strings.Join(c.args, " ")); err != nil {
			return err
		}
		after, err := a.versions(ctx, a.env.EnvPublicID, r.stateName())
		if err != nil {
			return err
		}
		head := after[len(after)-1]
		r.expect(head.Version == before.Version+1 && head.Serial == before.Serial+1 && head.Source == "rollback" && head.Lineage == before.Lineage,
			"%s: version %d, serial %d, source %s; want a new version of the same lineage with the next serial", c.what, head.Version, head.Serial, head.Source)
		// the content is what a configuration of it has nothing to do for
		if err := errors.Join(d.write("main.tf", config(c.one, c.two)), d.must(ctx, "plan", "-detailed-exitcode")); err != nil {
			return err
		}
	}
	return nil
}
