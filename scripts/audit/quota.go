package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"kl/client"
	"kl/scripts/rig"
	"kl/wire"
)

// counted has as many instances as its variable says.
const counted = httpBackend + `
variable "n" {
  type = number
}
resource "terraform_data" "x" {
  count = var.n
  input = count.index
}
`

// limited makes an environment with limits, and a directory in it with a
// configuration.
func (r *record) limited(ctx context.Context, config string, l wire.LimitsPatch) (wire.Environment, string, *dir, error) {
	a := r.a
	e, err := a.environment(ctx, a.org.WorkspaceID, "limited-"+strings.ToLower(r.ID), wire.EnvironmentPatch{LimitsPatch: l})
	if err != nil {
		return e, "", nil, err
	}
	r.ids["environment"] = e.EnvPublicID
	token, err := r.tokenFor(ctx, e.EnvPublicID)
	if err != nil {
		return e, "", nil, err
	}
	d, err := r.initDir(ctx, "dir", config, r.at(a.org.WorkspaceID, e.EnvPublicID, r.stateName(), token))
	return e, token, d, err
}

func limit(n int64) *int64 { return &n }

func vars(n int) []string { return []string{"-var", fmt.Sprintf("n=%d", n)} }

// quotaBeforehand plays 7: soft limit 3, hard limit 5, and plans for 2, 4 and 6.
func quotaBeforehand(ctx context.Context, _ *audit, r *record) error {
	_, _, d, err := r.limited(ctx, counted, wire.LimitsPatch{StateSoftLimit: limit(3), StateHardLimit: limit(5)})
	if err != nil {
		return err
	}
	if err := d.must(ctx, append([]string{"apply"}, vars(1)...)...); err != nil {
		return err
	}
	var left wire.Quota
	if err := d.klJSON(ctx, &left, "quota", "remaining"); err != nil {
		return err
	}
	r.expect(left.State.Current == 1 && left.State.RemainingSoft != nil && *left.State.RemainingSoft == 2 && left.State.RemainingHard != nil && *left.State.RemainingHard == 4,
		"kl quota remaining: got %+v, want 1 there, 2 up to the soft limit and 4 up to the hard one", left.State)
	for _, c := range []struct {
		n, exit int
		status  string
	}{{2, 0, "ok"}, {4, 0, "soft"}, {5, 0, "soft"}, {6, 4, "hard"}} {
		plan := fmt.Sprintf("%d.tfplan", c.n)
		if err := d.must(ctx, append([]string{"plan", "-out=" + plan}, vars(c.n)...)...); err != nil {
			return err
		}
		for _, verb := range [][]string{{"quota", "check", "--tf-plan", plan}, append([]string{"plan", "-no-color"}, vars(c.n)...)} {
			res, err := d.kl(ctx, verb...)
			if err != nil {
				return err
			}
			r.expect(res.Code == c.exit, "kl %s for %d instances: exit code %d, want %d", verb[0], c.n, res.Code, c.exit)
			r.expect(c.status == "ok" || strings.Contains(res.Out, c.status+" limit"), "kl %s for %d instances does not speak of the %s limit: %s", verb[0], c.n, c.status, short(res))
		}
	}
	return nil
}

// klJSON runs a verb with --json and reads its answer.
func (d *dir) klJSON(ctx context.Context, into any, args ...string) error {
	args = append(args, "--json")
	res, err := d.kl(ctx, args...)
	if err := succeeded(res, err, "kl "+strings.Join(args, " ")); err != nil {
		return err
	}
	return json.Unmarshal([]byte(res.Stdout), into)
}

// quotaBoundary plays 7A.
func quotaBoundary(ctx context.Context, a *audit, r *record) error {
	e, _, d, err := r.limited(ctx, counted, wire.LimitsPatch{StateHardLimit: limit(5)})
	if err != nil {
		return err
	}
	if err := d.must(ctx, append([]string{"apply"}, vars(5)...)...); err != nil {
		return err
	}
	if err := d.fails(ctx, refusal{"one instance above the hard limit", 403, "quota", "state_quota"}, append([]string{"apply"}, vars(6)...)...); err != nil {
		return err
	}
	r.expect(d.has("errored.tfstate"), "the refused apply has left no errored.tfstate")
	if err := r.tellsOfQuota(ctx, 6, 5); err != nil {
		return err
	}
	s, err := a.op.State(ctx, e.EnvPublicID, r.stateName())
	if err != nil {
		return err
	}
	r.expect(s.ResourceCount == 5, "the state has %d instances, want the 5 of the boundary", s.ResourceCount)
	return nil
}

// tellsOfQuota demands the counts in the response of the failure that was met
// last.
func (r *record) tellsOfQuota(ctx context.Context, resulting, hard float64) error {
	q, err := r.a.op.Request(ctx, r.Met[len(r.Met)-1].RequestID)
	if err != nil {
		return err
	}
	_, soft := q.Members["soft_limit"]
	r.expect(q.Members["resulting_count"] == resulting && q.Members["hard_limit"] == hard && soft,
		"the response has resulting_count %v, hard_limit %v, soft_limit %v; want %v, %v and a soft limit",
		q.Members["resulting_count"], q.Members["hard_limit"], q.Members["soft_limit"], resulting, hard)
	r.expect(strings.Contains(q.Detail, "limit") && q.NextStep != "", "the sentence does not speak of a limit: %s", q.Detail)
	return nil
}

// quotaSpike plays 7B: what replaces comes before what goes, and a checkpoint of
// that moment is above the limit. Ctrl-C makes Terraform send one.
func quotaSpike(ctx context.Context, a *audit, r *record) error {
	config := func(key string) string {
		return httpBackend + `
resource "terraform_data" "x" {
  for_each = toset(["` + key + `"])
  provisioner "local-exec" {
    when    = destroy
    command = "touch $GATE/${each.key}.begun; while [ -d $GATE ] && [ ! -e $GATE/${each.key}.open ]; do sleep 0.05; done"
  }
}
`
	}
	_, _, d, err := r.limited(ctx, config("old"), wire.LimitsPatch{StateSoftLimit: limit(1), StateHardLimit: limit(1)})
	if err != nil {
		return err
	}
	if err := errors.Join(d.must(ctx, "apply"), d.write("main.tf", config("new"))); err != nil {
		return err
	}
	p, err := d.atGate(ctx, "old", "apply")
	if err != nil {
		return err
	}
	// the other instance is made beside it
	err = rig.Await(ctx, "the new instance", func() (bool, error) {
		return strings.Contains(p.Out.String(), `x["new"]: Creation complete`), nil
	})
	if err != nil {
		return err
	}
	r.did("Ctrl-C")
	if err := p.Signal(syscall.SIGINT); err != nil {
		return err
	}
	res, err := d.finish(ctx, p)
	if err != nil {
		return err
	}
	if err := d.meets(ctx, res, refusal{"for a moment there are both", 403, "quota", "state_quota"}); err != nil {
		return err
	}
	r.note("kl why: %s", r.Met[len(r.Met)-1].Explanation)
	return r.tellsOfQuota(ctx, 2, 1)
}

// quotaOfEnvironment plays 7C.
func quotaOfEnvironment(ctx context.Context, a *audit, r *record) error {
	e, token, d, err := r.limited(ctx, counted, wire.LimitsPatch{EnvironmentHardLimit: limit(4)})
	if err != nil {
		return err
	}
	if err := d.must(ctx, append([]string{"apply"}, vars(3)...)...); err != nil {
		return err
	}
	other, err := r.initDir(ctx, "other", counted, r.at(a.org.WorkspaceID, e.EnvPublicID, r.stateName()+"-other", token))
	if err != nil {
		return err
	}
	if err := other.fails(ctx, refusal{"two states together above the environment's limit", 403, "quota", "environment_quota"}, append([]string{"apply"}, vars(2)...)...); err != nil {
		return err
	}
	if err := r.tellsOfQuota(ctx, 5, 4); err != nil {
		return err
	}
	refused, err := client.Collect(a.op.RefusedList(ctx, e.EnvPublicID, r.stateName()+"-other"), 0)
	if err != nil {
		return err
	}
	for _, w := range refused {
		if err := a.op.DiscardRefused(ctx, e.EnvPublicID, r.stateName()+"-other", w.ID); err != nil {
			return err
		}
	}
	r.did("archive the state %s", r.stateName())
	if _, err := a.op.ArchiveState(ctx, e.EnvPublicID, r.stateName()); err != nil {
		return err
	}
	if err := other.must(ctx, append([]string{"apply"}, vars(2)...)...); err != nil {
		return err
	}
	q, err := a.op.Quota(ctx, e.EnvPublicID, r.stateName()+"-other")
	if err != nil {
		return err
	}
	r.expect(q.Environment.Current == 2, "the environment counts %d instances with one state archived, want 2", q.Environment.Current)
	return nil
}

// suspended plays 8A, in the personal workspace, so that others go on.
func suspended(ctx context.Context, a *audit, r *record) error {
	const reason = "the audit holds it"
	return r.held(ctx, a.personal.WorkspaceID, a.home.EnvPublicID, "workspace_suspended", func() error {
		r.did("suspend the workspace")
		_, err := a.op.SuspendWorkspace(ctx, a.personal.WorkspaceID, reason)
		return err
	}, func() error {
		_, err := a.op.ResumeWorkspace(ctx, a.personal.WorkspaceID)
		return err
	}, reason)
}

// archived plays 8B.
func archived(ctx context.Context, a *audit, r *record) error {
	return r.held(ctx, a.org.WorkspaceID, a.env.EnvPublicID, "state_archived", func() error {
		r.did("archive the state")
		_, err := a.op.ArchiveState(ctx, a.env.EnvPublicID, r.stateName())
		return err
	}, func() error {
		_, err := a.op.RestoreState(ctx, a.env.EnvPublicID, r.stateName())
		return err
	}, "archived")
}

// held begins a hold while an apply is at work: its write is refused and kept,
// new locks are refused with a sentence, reading goes on.
func (r *record) held(ctx context.Context, workspace, environment, code string, begin, end func() error, word string) error {
	before := httpBackend + item("before", `"x"`)
	d, err := r.tokenDir(ctx, workspace, environment, before)
	if err != nil {
		return err
	}
	if err := errors.Join(d.must(ctx, "apply"), d.write("main.tf", before+gated("gate", `"x"`))); err != nil {
		return err
	}
	p, err := d.atGate(ctx, "gate", "apply")
	if err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	res, err := d.through(ctx, "gate", p)
	if err != nil {
		return errors.Join(err, end())
	}
	err = d.meets(ctx, res, refusal{"the hold began while an apply was at work", 403, "lifecycle", code})
	r.expect(d.has("errored.tfstate"), "the refused apply has left no errored.tfstate")
	if err == nil {
		err = r.onHold(ctx, d, code, word)
	}
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	// what was built comes in after the hold
	refused, err := client.Collect(r.a.op.RefusedList(ctx, environment, r.stateName()), 0)
	if err != nil {
		return err
	}
	r.expect(len(refused) == 1, "%d refused writes are kept, want 1", len(refused))
	for _, w := range refused {
		if _, err := r.a.op.MergeRefused(ctx, environment, r.stateName(), w.ID, wire.MergeRequest{}); err != nil {
			return err
		}
	}
	return d.must(ctx, "plan", "-detailed-exitcode")
}

// onHold looks at a state on hold.
func (r *record) onHold(ctx context.Context, d *dir, code, word string) error {
	res, err := d.tf(ctx, "plan")
	if err != nil {
		return err
	}
	r.expect(strings.Contains(rig.Flatten(res.Out), word), "the refused lock does not say %q: %s", word, short(res))
	if err := d.meets(ctx, res, refusal{"a lock during the hold", 423, "lifecycle", code}); err != nil {
		return err
	}
	return d.must(ctx, "plan", "-lock=false")
}

// restored plays 8C.
func restored(ctx context.Context, a *audit, r *record) error {
	d, err := r.tokenDir(ctx, a.org.WorkspaceID, a.env.EnvPublicID, httpBackend+item("a", `"1"`))
	if err != nil {
		return err
	}
	if err := d.must(ctx, "apply"); err != nil {
		return err
	}
	before, err := a.pull(ctx, a.env.EnvPublicID, r.stateName(), "head")
	if err != nil {
		return err
	}
	for _, c := range []struct {
		verb string
		do   func() error
	}{
		{"archive", func() error { _, err := a.op.ArchiveState(ctx, a.env.EnvPublicID, r.stateName()); return err }},
		{"delete", func() error { return a.op.DeleteState(ctx, a.env.EnvPublicID, r.stateName()) }},
	} {
		r.did("kl state %s, kl state restore", c.verb)
		if err := c.do(); err != nil {
			return err
		}
		if c.verb == "delete" {
			if err := d.fails(ctx, refusal{"the state is in the trash", 403, "lifecycle", "state_deleted"}, "plan", "-lock=false"); err != nil {
				return err
			}
		}
		if _, err := a.op.RestoreState(ctx, a.env.EnvPublicID, r.stateName()); err != nil {
			return err
		}
		after, err := a.pull(ctx, a.env.EnvPublicID, r.stateName(), "head")
		if err != nil {
			return err
		}
		r.expect(slices.Equal(before, after), "the bytes are not those from before kl state %s", c.verb)
		if err := d.must(ctx, "plan", "-detailed-exitcode"); err != nil {
			return err
		}
	}
	if err := d.write("main.tf", httpBackend+item("a", `"2"`)); err != nil {
		return err
	}
	if err := d.must(ctx, "apply"); err != nil {
		return err
	}
	all, err := a.versions(ctx, a.env.EnvPublicID, r.stateName())
	if err != nil {
		return err
	}
	r.expect(len(all) == 2 && all[1].Serial > all[0].Serial, "%d versions, want two with rising serials", len(all))
	return nil
}

// queryScope plays F5: two environments, and each credential sees its own.
func queryScope(ctx context.Context, a *audit, r *record) error {
	const question = "SELECT DISTINCT environment, state FROM instances WHERE state LIKE 'audit-f5%' ORDER BY state"
	second, err := a.environment(ctx, a.org.WorkspaceID, "second", wire.EnvironmentPatch{})
	if err != nil {
		return err
	}
	var dirs []*dir
	var want []string
	for i, e := range []wire.Environment{a.env, second} {
		token, err := r.tokenFor(ctx, e.EnvPublicID)
		if err != nil {
			return err
		}
		state := fmt.Sprintf("%s-%d", r.stateName(), i+1)
		d, err := r.initDir(ctx, filepath.Base(state), httpBackend+item("a", `"1"`), r.at(a.org.WorkspaceID, e.EnvPublicID, state, token))
		if err != nil {
			return err
		}
		if err := d.must(ctx, "apply"); err != nil {
			return err
		}
		dirs, want = append(dirs, d), append(want, state)
	}
	// a person who may read the first environment only
	p, err := a.person(ctx, "dea")
	if err != nil {
		return err
	}
	pat, err := r.newPAT(ctx, p)
	if err != nil {
		return err
	}
	if _, err := a.op.Grant(ctx, a.env.EnvPublicID, p.UserID, "read"); err != nil {
		return err
	}
	reader := &dir{r: r, path: dirs[0].path, env: append(slices.Clone(dirs[0].env), "TF_HTTP_PASSWORD="+pat.Secret)}
	operator := &dir{r: r, path: a.folder, env: []string{"KL_ADDRESS=" + a.base, "KL_TOKEN=" + a.token}}
	for _, c := range []struct {
		who  string
		dir  *dir
		want []string
	}{
		{"the token of the first environment", dirs[0], want[:1]},
		{"the token of the second environment", dirs[1], want[1:]},
		{"a user with a grant on the first", reader, want[:1]},
		{"the operator", operator, want},
	} {
		res, err := c.dir.kl(ctx, "query", "--csv", question)
		if err := succeeded(res, err, "kl query as "+c.who); err != nil {
			return err
		}
		var got []string
		for _, line := range strings.Fields(res.Stdout)[1:] {
			got = append(got, line[strings.LastIndexByte(line, ',')+1:])
		}
		r.expect(slices.Equal(got, c.want), "%s sees %v, want %v", c.who, got, c.want)
	}
	return nil
}
