package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kl/client"
	"kl/wire"
)

// automationToken plays 1A.
func automationToken(ctx context.Context, a *audit, r *record) error {
	d, err := r.tokenDir(ctx, a.org.WorkspaceID, a.env.EnvPublicID, httpBackend+item("a", `"1"`))
	if err != nil {
		return err
	}
	if err := errors.Join(d.must(ctx, "plan"), d.must(ctx, "apply")); err != nil {
		return err
	}
	if err := d.backedBy(ctx, "automation"); err != nil {
		return err
	}
	refused, known := r.logged(func(l map[string]any) bool { return l["state"] == r.stateName() && l["class"] == "auth" })
	r.expect(!known || !refused, "a request was refused for its credentials")
	return nil
}

// backedBy demands that the server, and its log, say which kind of token the
// directory's requests had.
func (d *dir) backedBy(ctx context.Context, kind string) error {
	r := d.r
	var who wire.Whoami
	if err := d.klJSON(ctx, &who, "whoami"); err != nil {
		return err
	}
	r.expect(who.Kind == kind, "kl whoami says that the token is of the kind %s, want %s", who.Kind, kind)
	found, known := r.logged(func(l map[string]any) bool {
		status, _ := l["status"].(float64)
		return l["state"] == r.stateName() && l["principal_kind"] == kind && status == 200
	})
	if !known {
		r.elsewhere("whether it says that the token is of the kind %s", kind)
		return nil
	}
	r.expect(found, "the log does not say that the token is of the kind %s", kind)
	return nil
}

// newPAT makes a personal access token of ana's.
func (r *record) newPAT(ctx context.Context, p *person) (wire.Token, error) {
	t, err := p.client.CreatePAT(ctx, wire.PATRequest{Name: "audit-" + strings.ToLower(r.ID)})
	if err == nil {
		r.ids["pat "+t.ID] = p.Name
	}
	return t, err
}

// granted makes a person with a personal access token and a grant, and a
// directory in which it works.
func (r *record) granted(ctx context.Context) (*person, wire.Token, *dir, error) {
	a := r.a
	p, err := a.person(ctx, "ben-"+strings.ToLower(r.ID))
	if err != nil {
		return nil, wire.Token{}, nil, err
	}
	r.ids["user "+p.UserID] = p.Name
	pat, err := r.newPAT(ctx, p)
	if err != nil {
		return nil, wire.Token{}, nil, err
	}
	if _, err := a.op.Grant(ctx, a.env.EnvPublicID, p.UserID, "write"); err != nil {
		return nil, wire.Token{}, nil, err
	}
	d, err := r.initDir(ctx, "dir", httpBackend+item("a", `"1"`), r.at(a.org.WorkspaceID, a.env.EnvPublicID, r.stateName(), pat.Secret))
	if err != nil {
		return nil, wire.Token{}, nil, err
	}
	return p, pat, d, d.must(ctx, "apply")
}

// personalToken plays 1B.
func personalToken(ctx context.Context, _ *audit, r *record) error {
	_, _, d, err := r.granted(ctx)
	if err != nil {
		return err
	}
	if err := d.backedBy(ctx, "pat"); err != nil {
		return err
	}
	return d.must(ctx, "plan", "-detailed-exitcode")
}

// withoutGrant plays 2A.
func withoutGrant(ctx context.Context, a *audit, r *record) error {
	pat, err := r.newPAT(ctx, a.ana)
	if err != nil {
		return err
	}
	d, err := r.dir("dir", httpBackend, r.at(a.org.WorkspaceID, a.env.EnvPublicID, r.stateName(), pat.Secret))
	if err != nil {
		return err
	}
	return d.fails(ctx, refusal{"a token without a grant", 403, "auth", "no_grant"}, "init")
}

// fails runs terraform and demands that it meets a refusal.
func (d *dir) fails(ctx context.Context, want refusal, args ...string) error {
	res, err := d.tf(ctx, args...)
	if err != nil {
		return err
	}
	return d.meets(ctx, res, want)
}

// misdirected runs init at a path that leads nowhere.
func (r *record) misdirected(ctx context.Context, workspace, environment string, want refusal) (*dir, error) {
	a := r.a
	token, err := r.tokenFor(ctx, a.env.EnvPublicID)
	if err != nil {
		return nil, err
	}
	env := append(r.at(workspace, environment, r.stateName(), token), "TF_HTTP_USERNAME="+a.org.WorkspaceID)
	d, err := r.dir("dir", httpBackend, env)
	if err != nil {
		return nil, err
	}
	return d, d.fails(ctx, want, "init")
}

// wrongWorkspace plays 2B.
func wrongWorkspace(ctx context.Context, a *audit, r *record) error {
	_, err := r.misdirected(ctx, a.personal.WorkspaceID, a.env.EnvPublicID, refusal{"the path names another workspace", 422, "scope", "workspace_mismatch"})
	return err
}

// wrongEnvironment plays 2C.
func wrongEnvironment(ctx context.Context, a *audit, r *record) error {
	_, err := r.misdirected(ctx, a.org.WorkspaceID, "env_000000000000", refusal{"the path names no environment", 422, "scope", "unknown_environment"})
	return err
}

// revokedToken plays 2D.
func revokedToken(ctx context.Context, _ *audit, r *record) error {
	p, pat, d, err := r.granted(ctx)
	if err != nil {
		return err
	}
	r.did("revoke the token")
	if err := p.client.RevokePAT(ctx, pat.ID); err != nil {
		return err
	}
	if err := d.fails(ctx, refusal{"the token was revoked", 401, "auth", "credentials_revoked"}, "plan"); err != nil {
		return err
	}
	who, err := p.client.Whoami(ctx)
	r.expect(err == nil && who.Name != "", "the user's control token does not work any more: %v", err)
	return nil
}

// memberLeaves plays 3A.
func memberLeaves(ctx context.Context, a *audit, r *record) error {
	p, pat, d, err := r.granted(ctx)
	if err != nil {
		return err
	}
	r.did("the member leaves the workspace")
	if err := p.client.Leave(ctx, a.org.WorkspaceID); err != nil {
		return err
	}
	if err := d.fails(ctx, refusal{"the token's user has left", 403, "auth", "not_member"}, "plan"); err != nil {
		return err
	}
	for t, err := range p.client.PATs(ctx) {
		if err != nil {
			return err
		}
		r.expect(t.ID != pat.ID || t.RevokedAt.IsZero(), "the token was revoked, which leaving should not need")
	}
	return nil
}

// tokenDeleted plays 3B.
func tokenDeleted(ctx context.Context, a *audit, r *record) error {
	none, err := a.person(ctx, "cem")
	if err != nil {
		return err
	}
	p, pat, d, err := r.granted(ctx)
	if err != nil {
		return err
	}
	before, err := a.access(ctx, p.UserID)
	if err != nil {
		return err
	}
	r.expect(before.PATStatus == wire.PATActive && before.GrantStatus == wire.GrantActive && before.GrantCount == 1,
		"before: got PAT %s, grant %s, %d grants; want active, active, 1", before.PATStatus, before.GrantStatus, before.GrantCount)
	r.did("delete the token")
	if err := p.client.RevokePAT(ctx, pat.ID); err != nil {
		return err
	}
	after, err := a.access(ctx, p.UserID)
	if err != nil {
		return err
	}
	r.expect(after.PATStatus != wire.PATActive && after.GrantStatus == wire.GrantEnded && after.GrantCount == 0,
		"after: got PAT %s, grant %s, %d grants; want no active PAT, an ended grant, 0", after.PATStatus, after.GrantStatus, after.GrantCount)
	other, err := a.access(ctx, none.UserID)
	if err != nil {
		return err
	}
	r.expect(other.PATStatus == wire.PATNone && other.GrantCount == 0, "a member without a token: got %q and %d grants, want %q and 0",
		other.PATStatus, other.GrantCount, wire.PATNone)
	r.note("kl grant list: before %q with %d grants, after %q with %d; a member who never had a token: %q",
		before.PATStatus, before.GrantCount, after.PATStatus, after.GrantCount, other.PATStatus)
	if _, err := r.newPAT(ctx, p); err != nil {
		return err
	}
	again, err := a.access(ctx, p.UserID)
	if err != nil {
		return err
	}
	r.expect(again.GrantCount == 0, "a new token has brought back %d grants", again.GrantCount)
	return d.fails(ctx, refusal{"the token was deleted", 401, "auth", "credentials_revoked"}, "plan")
}

func (a *audit) access(ctx context.Context, user string) (wire.Access, error) {
	all, err := client.Collect(a.op.Access(ctx, a.env.EnvPublicID), 0)
	if err != nil {
		return wire.Access{}, err
	}
	for _, item := range all {
		if item.UserID == user {
			return item, nil
		}
	}
	return wire.Access{}, fmt.Errorf("the access list has no %s", user)
}

// documentedPath plays 4A: the block that kl prints, and the password from the
// environment.
func documentedPath(ctx context.Context, a *audit, r *record) error {
	token, err := r.tokenFor(ctx, a.env.EnvPublicID)
	if err != nil {
		return err
	}
	block, err := r.operator(ctx, a.env.EnvPublicID, "backend", r.stateName())
	if err != nil {
		return err
	}
	r.states[r.stateName()] = true
	d, err := r.dir("dir", item("a", `"1"`), []string{"TF_HTTP_PASSWORD=" + token})
	if err != nil {
		return err
	}
	r.expect(strings.Contains(block.Stdout, a.org.WorkspaceID) && strings.Contains(block.Stdout, a.env.EnvPublicID), "the block lacks an id:\n%s", block.Stdout)
	if err := errors.Join(d.write("backend.tf", block.Stdout), d.must(ctx, "init"), d.must(ctx, "plan"), d.must(ctx, "apply")); err != nil {
		return err
	}
	res, err := d.kl(ctx, "doctor")
	return succeeded(res, err, "kl doctor")
}

// slugForID plays 4B.
func slugForID(ctx context.Context, a *audit, r *record) error {
	d, err := r.misdirected(ctx, a.org.WorkspaceID, a.env.Slug, refusal{"the path has the environment's slug", 422, "scope", "slug_not_id"})
	if err != nil {
		return err
	}
	res, err := d.kl(ctx, "doctor")
	if err != nil {
		return err
	}
	r.expect(res.Code != 0 && strings.Contains(res.Out, a.env.Slug), "kl doctor does not name the slug (exit code %d)", res.Code)
	return nil
}
