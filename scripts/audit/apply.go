package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kl/client"
	"kl/fault"
	"kl/scripts/rig"
	"kl/wire"
)

// big is a directory with examples/big-state, small but slow: its chain of eight
// links takes over 60 seconds, in which Terraform sends three checkpoints, for it
// sends one at most every 20 seconds.
const (
	bigSize      = 120
	bigSeconds   = 9
	bigInstances = bigSize + 8
	checkpoints  = 3
)

func (r *record) big(ctx context.Context) (*dir, error) {
	a := r.a
	token, err := r.tokenFor(ctx, a.env.EnvPublicID)
	if err != nil {
		return nil, err
	}
	d, err := r.copyOfBig("big", r.at(a.org.WorkspaceID, a.env.EnvPublicID, r.stateName(), token))
	if err != nil {
		return nil, err
	}
	return d, d.must(ctx, "init")
}

// copyOfBig is a directory with the example's files.
func (r *record) copyOfBig(name string, env []string) (*dir, error) {
	d := &dir{r: r, path: filepath.Join(r.a.folder, strings.ToLower(r.ID), name), env: env}
	return d, os.CopyFS(d.path, os.DirFS(filepath.Join(r.a.root, "examples", "big-state")))
}

func bigVars(seconds int) []string {
	return []string{"-var", fmt.Sprintf("size=%d", bigSize), "-var", fmt.Sprintf("slow_seconds=%d", seconds)}
}

// sample is what the server tells of a state at one moment.
type sample struct {
	version uint64
	count   int64
}

// watch runs a command and samples the state until it ends.
func (d *dir) watch(ctx context.Context, args ...string) ([]sample, error) {
	p, err := d.start(args...)
	if err != nil {
		return nil, err
	}
	var seen []sample
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for p.Alive() {
		s, err := d.r.a.op.State(ctx, d.r.a.env.EnvPublicID, d.r.stateName())
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		seen = append(seen, sample{s.Version, s.ResourceCount})
		select {
		case <-tick.C:
		case <-p.Done:
		}
	}
	res, err := d.finish(ctx, p)
	return seen, succeeded(res, err, p.Name)
}

// steady demands that the count moved when a version was made, and never else.
func (r *record) steady(seen []sample) {
	counts := map[uint64]int64{}
	moves := 0
	for i, s := range seen {
		if c, ok := counts[s.version]; ok && c != s.count {
			r.failed("the count moved from %d to %d within version %d", c, s.count, s.version)
		}
		counts[s.version] = s.count
		if i > 0 && s.count != seen[i-1].count {
			moves++
		}
	}
	r.note("%d looks at the count while it ran: it moved %d times, with %d versions", len(seen), moves, len(counts))
}

// oneSession demands that versions were written by one session as checkpoints,
// and that none of its writes was refused.
func (r *record) oneSession(ctx context.Context, all []wire.Version) error {
	r.expect(len(all) >= checkpoints, "%d versions, want at least %d checkpoints", len(all), checkpoints)
	for _, v := range all {
		r.expect(v.LockID == all[0].LockID, "version %d was written with another lock", v.Version)
		r.note("version %d: serial %d, %d resources, %s", v.Version, v.Serial, v.ResourceCount, v.CreatedAt.Format(time.TimeOnly))
	}
	refused, err := client.Collect(r.a.op.RefusedList(ctx, r.a.env.EnvPublicID, r.stateName()), 0)
	if err != nil {
		return err
	}
	r.expect(len(refused) == 0, "%d writes were refused", len(refused))
	conflict, known := r.logged(func(l map[string]any) bool { return l["state"] == r.stateName() && l["status"] == 409.0 })
	r.expect(!known || !conflict, "the log has a 409")
	return nil
}

// largeApply plays 5A.
func largeApply(ctx context.Context, a *audit, r *record) error {
	d, err := r.big(ctx)
	if err != nil {
		return err
	}
	return d.long(ctx, "apply", bigInstances)
}

// long runs an apply or a destroy in which checkpoints arrive, and demands that
// the state leads evenly to a count.
func (d *dir) long(ctx context.Context, verb string, count int64) error {
	r := d.r
	env := r.a.env.EnvPublicID
	before, err := r.a.versions(ctx, env, r.stateName())
	if err != nil {
		return err
	}
	seen, err := d.watch(ctx, append([]string{verb}, bigVars(bigSeconds)...)...)
	if err != nil {
		return err
	}
	r.steady(seen)
	all, err := r.a.versions(ctx, env, r.stateName())
	if err != nil {
		return err
	}
	if len(all) > 0 {
		end := all[len(all)-1].ResourceCount
		r.expect(end == count, "%d resources at the end, want %d", end, count)
	}
	return r.oneSession(ctx, all[min(len(before), len(all)):])
}

// largeDestroy plays 5B.
func largeDestroy(ctx context.Context, a *audit, r *record) error {
	d, err := r.big(ctx)
	if err != nil {
		return err
	}
	if err := d.hasten(ctx); err != nil {
		return err
	}
	return d.long(ctx, "destroy", 0)
}

// onCreation is what makes a link of the example slow to create.
const onCreation = `  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
`

// hasten makes the example's resources with a chain that is slow to destroy
// only.
func (d *dir) hasten(ctx context.Context) error {
	fast, err := d.r.copyOfBig("fast", d.env)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(fast.path, "slow.tf"))
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), onCreation); n != bigInstances-bigSize {
		return fmt.Errorf("examples/big-state has %d links that are slow to create, not %d", n, bigInstances-bigSize)
	}
	if err := fast.write("slow.tf", strings.ReplaceAll(string(text), onCreation, "")); err != nil {
		return err
	}
	if err := fast.must(ctx, "init"); err != nil {
		return err
	}
	return fast.must(ctx, append([]string{"apply"}, bigVars(bigSeconds)...)...)
}

// together starts two applies on one optimistic state, lets both read it before
// either writes, and returns what they showed, the first one's before the other's.
// The second one is terraform's, or kl's with withKL.
func (r *record) together(ctx context.Context, first, second string, withKL bool) (a, b *dir, ra, rb rig.Result, err error) {
	au := r.a
	env := au.env.EnvPublicID
	state := r.stateName()
	token, err := r.tokenFor(ctx, env)
	if err != nil {
		return a, b, ra, rb, err
	}
	other, err := au.op.CreateToken(ctx, env, wire.TokenRequest{Name: "audit-" + strings.ToLower(r.ID) + "-b"})
	if err != nil {
		return a, b, ra, rb, err
	}
	base := httpBackend + item("shared", `"old"`)
	if a, err = r.initDir(ctx, "a", base, r.at(au.org.WorkspaceID, env, state, token)); err != nil {
		return a, b, ra, rb, err
	}
	if b, err = r.initDir(ctx, "b", base, r.at(au.org.WorkspaceID, env, state, other.Secret)); err != nil {
		return a, b, ra, rb, err
	}
	if err = a.must(ctx, "apply"); err != nil {
		return a, b, ra, rb, err
	}
	mode := "optimistic"
	if _, err = au.op.PatchState(ctx, env, state, wire.StatePatch{LockMode: &mode}); err != nil {
		return a, b, ra, rb, err
	}
	if err = errors.Join(a.write("main.tf", httpBackend+first), b.write("main.tf", httpBackend+second)); err != nil {
		return a, b, ra, rb, err
	}
	pa, err := a.atGate(ctx, "gate_a", "apply")
	if err != nil {
		return a, b, ra, rb, err
	}
	start := func() (*rig.Process, error) { return b.start("apply") }
	if withKL {
		start = func() (*rig.Process, error) { return b.launch(au.bin, "apply", "--yes", "-no-color") }
	}
	pb, err := start()
	if err != nil {
		return a, b, ra, rb, err
	}
	if err = rig.AwaitFile(ctx, filepath.Join(b.path, "gate_b.begun"), pb); err != nil {
		return a, b, ra, rb, err
	}
	l, err := au.op.LockState(ctx, env, state)
	if err != nil {
		return a, b, ra, rb, err
	}
	r.expect(len(l.Holders) == 2, "%d sessions while both applies run, want 2", len(l.Holders))
	if ra, err = a.through(ctx, "gate_a", pa); err != nil {
		return a, b, ra, rb, err
	}
	rb, err = b.through(ctx, "gate_b", pb)
	return a, b, ra, rb, err
}

// atGate starts terraform and waits until it stands at a gate.
func (d *dir) atGate(ctx context.Context, gate string, args ...string) (*rig.Process, error) {
	p, err := d.start(args...)
	if err != nil {
		return nil, err
	}
	return p, rig.AwaitFile(ctx, filepath.Join(d.path, gate+".begun"), p)
}

// through opens a gate and waits for the end.
func (d *dir) through(ctx context.Context, gate string, p *rig.Process) (rig.Result, error) {
	if err := d.write(gate+".open", ""); err != nil {
		return rig.Result{}, err
	}
	return d.finish(ctx, p)
}

// addresses lists the resources of a state, as terraform names them.
func (d *dir) addresses(ctx context.Context) ([]string, error) {
	res, err := d.tf(ctx, "state", "list")
	return strings.Fields(res.Stdout), succeeded(res, err, "terraform state list")
}

// disjointApplies plays 6A.
func disjointApplies(ctx context.Context, _ *audit, r *record) error {
	shared := item("shared", `"old"`)
	a, _, ra, rb, err := r.together(ctx, shared+gated("gate_a", `"a"`), shared+gated("gate_b", `"b"`), false)
	if err != nil {
		return err
	}
	r.expect(ra.Code == 0 && rb.Code == 0, "exit codes %d and %d, want 0 and 0", ra.Code, rb.Code)
	got, err := a.addresses(ctx)
	if err != nil {
		return err
	}
	want := []string{"terraform_data.gate_a", "terraform_data.gate_b", "terraform_data.shared"}
	r.expect(slices.Equal(got, want), "the state has %v, want %v", got, want)
	return nil
}

// overlappingApplies plays 6B.
func overlappingApplies(ctx context.Context, _ *audit, r *record) error {
	return r.overlap(ctx, false)
}

// mixedApplies plays F2.
func mixedApplies(ctx context.Context, _ *audit, r *record) error {
	return r.overlap(ctx, true)
}

// overlap has two applies change one resource, behind their gates.
func (r *record) overlap(ctx context.Context, withKL bool) error {
	config := func(name string) string {
		return gated(name, `"x"`) + "\nresource \"terraform_data\" \"shared\" {\n  input      = \"of " + name + "\"\n  depends_on = [terraform_data." + name + "]\n}\n"
	}
	_, b, ra, rb, err := r.together(ctx, config("gate_a"), config("gate_b"), withKL)
	if err != nil {
		return err
	}
	r.expect(ra.Code == 0, "the first apply: exit code %d, want 0", ra.Code)
	r.expect(b.has("errored.tfstate"), "the second apply has left no errored.tfstate")
	if err := b.meets(ctx, rb, refusal{"both applies have changed one resource", 409, "conflict", "overlap_conflict"}); err != nil {
		return err
	}
	if withKL {
		r.expect(rb.Code == 2, "kl apply: exit code %d, want 2", rb.Code)
		r.expect(r.Met[0].Shows == clear, "kl apply does not show why: %s", r.Met[0].Because)
	}
	return r.tellsOfConflict(ctx, r.a, "terraform_data.shared")
}

// tellsOfConflict demands addresses, the latest serial and the next step in the
// response and in the log.
func (r *record) tellsOfConflict(ctx context.Context, a *audit, address string) error {
	state, err := a.op.State(ctx, a.env.EnvPublicID, r.stateName())
	if err != nil {
		return err
	}
	id := r.Met[len(r.Met)-1].RequestID
	q, err := a.op.Request(ctx, id)
	if err != nil {
		return err
	}
	addresses, _ := q.Members["conflicting_addresses"].([]any)
	serial, _ := q.Members["latest_serial"].(float64)
	r.expect(slices.Contains(addresses, any(address)), "the response names %v, want %s", addresses, address)
	r.expect(uint64(serial) == state.Serial, "the response says that the latest serial is %v; it is %d", serial, state.Serial)
	r.expect(q.NextStep != "", "the response has no next step")
	found, known := r.logged(func(l map[string]any) bool {
		named, _ := l["conflicting_addresses"].([]any)
		return l["request_id"] == id && l["latest_serial"] == serial && l["next_step"] == q.NextStep && slices.Contains(named, any(address))
	})
	if known {
		r.expect(found, "the log's line of %s lacks the address, the latest serial or the next step", id)
	} else {
		r.elsewhere("whether it has the address, the latest serial and the next step")
	}
	r.ids["refused_write"], _ = q.Members["refused_write"].(string)
	r.ids["request"] = id
	return nil
}
