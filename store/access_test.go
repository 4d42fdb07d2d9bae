package store_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"kl/auth"
	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// people is a store with the means to make users do things.
type people struct {
	t    *testing.T
	s    *store.Store
	now  time.Time
	root store.Actor
	boot wire.Bootstrap
}

func newPeople(t *testing.T) *people {
	t.Helper()
	p := &people{t: t, now: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)}
	p.s = kltest.Store(t, kltest.WithStore(func(o *store.Options) { o.Now = func() time.Time { return p.now } }))
	var err error
	if p.boot, err = p.s.Bootstrap(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.root = p.as(p.boot.ControlToken)
	return p
}

// tick lets time pass, so that what follows is later.
func (p *people) tick() { p.now = p.now.Add(time.Second) }

func (p *people) as(secret string) store.Actor {
	p.t.Helper()
	who, err := p.s.Authenticate(context.Background(), secret)
	if err != nil {
		p.t.Fatal(err)
	}
	return store.Actor{Principal: who, RequestID: "req_test"}
}

func (p *people) user(name string) (store.Actor, string) {
	p.t.Helper()
	u, err := p.s.CreateUser(context.Background(), p.root, wire.UserRequest{Name: name})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.as(u.ControlToken), u.ControlToken
}

func (p *people) organization(by store.Actor) (ws, env string) {
	p.t.Helper()
	w, err := p.s.CreateWorkspace(context.Background(), by, wire.WorkspaceRequest{Name: "team"})
	if err != nil {
		p.t.Fatal(err)
	}
	slug := "prod"
	e, err := p.s.CreateEnvironment(context.Background(), by, w.WorkspaceID, wire.EnvironmentPatch{Slug: &slug})
	if err != nil {
		p.t.Fatal(err)
	}
	return w.WorkspaceID, e.EnvPublicID
}

func (p *people) member(by store.Actor, ws, user, role string) {
	p.t.Helper()
	if _, err := p.s.SetMember(context.Background(), by, ws, wire.MemberRequest{User: user, Role: role}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *people) pat(by store.Actor, ttl time.Duration) wire.Token {
	p.t.Helper()
	t, err := p.s.CreatePAT(context.Background(), by, wire.PATRequest{Name: "laptop", ExpiresIn: wire.Duration(ttl)})
	if err != nil {
		p.t.Fatal(err)
	}
	return t
}

func (p *people) grant(by store.Actor, env, user string, role auth.Role) {
	p.t.Helper()
	if _, err := p.s.SetGrant(context.Background(), by, env, user, role); err != nil {
		p.t.Fatal(err)
	}
}

// can says what becomes of a request: "" for allowed, else the code.
func (p *people) can(secret, ws, env string, a auth.Action) fault.Code {
	p.t.Helper()
	who, err := p.s.Authenticate(context.Background(), secret)
	if err == nil {
		_, err = p.s.Authorize(context.Background(), who, ws, env, a)
	}
	switch f := fault.Of(err); {
	case err == nil:
		return ""
	case f == nil || f.Next == "":
		p.t.Errorf("refused without a code or a next step: %v", err)
		return "?"
	default:
		return f.Code
	}
}

func (p *people) expect(what, secret, ws, env string, a auth.Action, want fault.Code) {
	p.t.Helper()
	if got := p.can(secret, ws, env, a); got != want {
		p.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func (p *people) access(env, name string) wire.Access {
	p.t.Helper()
	list, err := p.s.Access(context.Background(), env)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, a := range list {
		if a.Name == name {
			return a
		}
	}
	return wire.Access{}
}

func TestPATNeedsMembershipAndGrant(t *testing.T) {
	p, ctx := newPeople(t), context.Background()
	ana, _ := p.user("ana")
	bob, _ := p.user("bob")
	ws, env := p.organization(ana)
	tok := p.pat(bob, 0)
	write := auth.WriteState

	p.expect("no member", tok.Secret, ws, env, write, fault.NotMember)
	p.expect("a workspace that does not exist", tok.Secret, "ws_aaaaaaaaaaaa", env, write, fault.NotMember)
	if _, err := p.s.SetGrant(ctx, ana, env, "bob", auth.Write); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("grant to somebody who is no member: %v", err)
	}
	p.member(ana, ws, "bob", "")
	p.expect("member without a grant", tok.Secret, ws, env, write, fault.NoGrant)
	p.expect("an environment elsewhere", tok.Secret, ws, p.boot.EnvPublicID, write, fault.UnknownEnvironment)
	p.expect("an environment that does not exist", tok.Secret, ws, "env_aaaaaaaaaaaa", write, fault.UnknownEnvironment)
	p.grant(ana, env, bob.User, auth.Plan)
	p.expect("beyond the grant", tok.Secret, ws, env, write, fault.RoleTooLow)
	p.expect("within the grant", tok.Secret, ws, env, auth.LockForPlan, "")
	p.grant(ana, env, "bob", auth.Write)
	p.expect("a higher grant", tok.Secret, ws, env, write, "")
	p.expect("no workspace named", tok.Secret, "", env, write, "")
	p.expect("slug as environment", tok.Secret, ws, "prod", write, fault.SlugNotID)

	if err := p.s.EndGrant(ctx, ana, env, "bob"); err != nil {
		t.Fatal(err)
	}
	p.expect("the grant was taken away", tok.Secret, ws, env, write, fault.NoGrant)
	p.grant(ana, env, "bob", auth.Write)

	if err := p.s.RemoveMember(ctx, bob, ws, bob.User); err != nil {
		t.Fatal(err)
	}
	p.expect("left", tok.Secret, ws, env, write, fault.NotMember)
	p.member(ana, ws, "bob", "member")
	p.expect("back, the old grant is not", tok.Secret, ws, env, write, fault.NoGrant)

	got := kinds(t, p.s, store.EventFilter{Workspace: ws})
	for kind, n := range map[string]int{"member_added": 2, "member_left": 1, "grant_given": 3, "grant_ended": 1, "workspace_created": 1, "environment_created": 1} {
		if got[kind] != n {
			t.Errorf("%d events %s, want %d (%v)", got[kind], kind, n, got)
		}
	}
}

func TestGrantsEndWithTheLastPAT(t *testing.T) {
	p, ctx := newPeople(t), context.Background()
	ana, _ := p.user("ana")
	bob, control := p.user("bob")
	ws, env := p.organization(ana)
	p.member(ana, ws, "bob", "")

	if a := p.access(env, "bob"); a.PATStatus != wire.PATNone || a.GrantStatus != wire.GrantNone || a.GrantCount != 0 || a.MemberRole != "member" {
		t.Errorf("access of a new member: %+v", a)
	}
	p.grant(ana, env, "bob", auth.Write)
	p.tick()
	first := p.pat(bob, time.Hour)
	p.expect("a grant that waited for its first token", first.Secret, ws, env, auth.WriteState, "")
	second := p.pat(bob, 0)
	if err := p.s.RevokePAT(ctx, bob, second.ID); err != nil {
		t.Fatal(err)
	}
	p.expect("the token that was revoked", second.Secret, ws, env, auth.WriteState, fault.CredentialsRevoked)
	p.expect("the other token", first.Secret, ws, env, auth.WriteState, "")
	if a := p.access(env, "bob"); a.PATStatus != wire.PATActive || a.GrantStatus != wire.GrantActive || a.GrantRole != "write" || a.GrantCount != 1 {
		t.Errorf("access with a token and a grant: %+v", a)
	}
	p.tick()
	for range 2 {
		if err := p.s.RevokePAT(ctx, bob, first.ID); err != nil {
			t.Fatal(err)
		}
	}
	if a := p.access(env, "bob"); a.PATStatus != wire.PATRevoked || a.GrantStatus != wire.GrantEnded || a.GrantCount != 0 {
		t.Errorf("access after the last token: %+v", a)
	}
	p.tick()
	third := p.pat(bob, time.Hour)
	p.expect("a new token", third.Secret, ws, env, auth.WriteState, fault.NoGrant)
	p.grant(ana, env, "bob", auth.Read)
	p.expect("a new grant", third.Secret, ws, env, auth.ReadState, "")

	p.now = p.now.Add(2 * time.Hour)
	p.expect("expired", third.Secret, ws, env, auth.ReadState, fault.CredentialsExpired)
	if a := p.access(env, "bob"); a.PATStatus != wire.PATRevoked || a.GrantStatus != wire.GrantEnded {
		t.Errorf("access after the last token has expired: %+v", a)
	}
	fourth := p.pat(bob, 0)
	p.expect("a token after the last has expired", fourth.Secret, ws, env, auth.ReadState, fault.NoGrant)
	if _, err := p.s.Authenticate(ctx, control); err != nil {
		t.Errorf("the control token ended with a personal one: %v", err)
	}

	list, err := p.s.PATs(ctx, bob)
	if err != nil || len(list) != 4 {
		t.Errorf("tokens of bob: %+v, %v", list, err)
	}
	for _, tok := range list {
		if tok.Secret != "" {
			t.Errorf("the list shows the secret of %s", tok.ID)
		}
	}
	wantCode(t, "revoke of another's token", p.s.RevokePAT(ctx, ana, fourth.ID), fault.NotFound)
	wantCode(t, "revoke of no token", p.s.RevokePAT(ctx, ana, "pat_aaaaaaaaaaaa"), fault.NotFound)
	wantCode(t, "revoke of a control token", p.s.RevokePAT(ctx, bob, bob.ID), fault.NotFound)
	if _, err := p.s.CreatePAT(ctx, p.root, wire.PATRequest{Name: "x"}); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("a personal token of the operator: %v", err)
	}
}

// TestGrantsEndWhenTheLastPATExpires: also what the grant allows a control
// token.
func TestGrantsEndWhenTheLastPATExpires(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	f := newFixture(t, store.Options{Now: func() time.Time { return now }})
	ctx := context.Background()
	root := store.Actor{Principal: auth.Principal{Kind: auth.Control, Operator: true, Name: "operator"}}
	for name, ttl := range map[string]time.Duration{"ana": time.Hour, "bob": 0} {
		w, err := f.s.CreateWorkspace(ctx, root, wire.WorkspaceRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		slug := "prod"
		env, err := f.s.CreateEnvironment(ctx, root, w.WorkspaceID, wire.EnvironmentPatch{Slug: &slug})
		if err != nil {
			t.Fatal(err)
		}
		u, err := f.s.CreateUser(ctx, root, wire.UserRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.s.Authenticate(ctx, u.ControlToken)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			second(f.s.CreatePAT(ctx, store.Actor{Principal: p}, wire.PATRequest{Name: "pat", ExpiresIn: wire.Duration(ttl)})),
			func() error {
				_, err := f.s.SetMember(ctx, root, w.WorkspaceID, wire.MemberRequest{User: name})
				return err
			}(),
			func() error { _, err := f.s.SetGrant(ctx, root, env.EnvPublicID, name, auth.Read); return err }(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.s.Authorize(ctx, p, "", env.EnvPublicID, auth.ReadState); err != nil {
			t.Errorf("%s before: %v", name, err)
		}
		now = now.Add(2 * time.Hour)
		f.reopen()
		if _, err := f.s.Authorize(ctx, p, "", env.EnvPublicID, auth.ReadState); (ttl > 0) != fault.Is(err, fault.NoGrant) {
			t.Errorf("%s, whose token lives for %s, two hours later: %v", name, ttl, err)
		}
	}
	if n := kinds(t, f.s, store.EventFilter{})["pat_expired"]; n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestDeletedUserIsOut(t *testing.T) {
	p, ctx := newPeople(t), context.Background()
	ana, _ := p.user("ana")
	bob, control := p.user("bob")
	ws, env := p.organization(ana)
	p.member(ana, ws, "bob", "admin")
	tok := p.pat(bob, 0)
	p.grant(ana, env, "bob", auth.Write)
	own, err := p.s.CreateWorkspace(ctx, bob, wire.WorkspaceRequest{Name: "mine", Kind: wire.Personal})
	if err != nil || own.MemberRole != "owner" {
		t.Fatal(own, err)
	}
	slug := "lab"
	lab, err := p.s.CreateEnvironment(ctx, bob, own.WorkspaceID, wire.EnvironmentPatch{Slug: &slug})
	if err != nil {
		t.Fatal(err)
	}
	robot, err := p.s.CreateToken(ctx, bob, lab.EnvPublicID, wire.TokenRequest{Name: "robot"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.s.DeleteUser(ctx, p.root, bob.User); err != nil {
		t.Fatal(err)
	}
	p.expect("PAT", tok.Secret, ws, env, auth.ReadOutputs, fault.CredentialsRevoked)
	p.expect("control token", control, "", env, auth.ReadOutputs, fault.CredentialsRevoked)
	p.expect("automation token of the personal workspace", robot.Secret, "", lab.EnvPublicID, auth.ReadOutputs, fault.CredentialsRevoked)
	if a := p.access(env, "bob"); a != (wire.Access{}) {
		t.Errorf("still in the access list: %+v", a)
	}
	p.tick()
	again, _ := p.user("bob")
	p.member(ana, ws, "bob", "")
	tok = p.pat(again, 0)
	p.expect("another user of that name", tok.Secret, ws, env, auth.ReadOutputs, fault.NoGrant)
	users, err := p.s.Users(ctx)
	if err != nil || len(users) != 3 || users[1].Status != wire.UserDeleted || users[2].Status != wire.UserIsActive {
		t.Errorf("users: %+v, %v", users, err)
	}
	for _, name := range []string{"ana", "", "usr_aaaaaaaaaaaa", "a b", "-a", strings.Repeat("a", 65)} {
		_, err := p.s.CreateUser(ctx, p.root, wire.UserRequest{Name: name})
		wantCode(t, "user named "+name, err, fault.ParameterInvalid)
	}
	_, err = p.s.CreatePAT(ctx, bob, wire.PATRequest{Name: "late"})
	wantCode(t, "a token asked for by a deleted user", err, fault.CredentialsRevoked)
	wantCode(t, "delete nobody", p.s.DeleteUser(ctx, p.root, "carl"), fault.NotFound)
}

func TestMembersKeepAnOwner(t *testing.T) {
	p, ctx := newPeople(t), context.Background()
	ana, _ := p.user("ana")
	bob, _ := p.user("bob")
	eve, _ := p.user("eve")
	ws, env := p.organization(ana)
	set := func(by store.Actor, user, role string) error {
		_, err := p.s.SetMember(ctx, by, ws, wire.MemberRequest{User: user, Role: role})
		return err
	}
	p.member(ana, ws, "bob", "admin")
	for what, c := range map[string]struct {
		err  error
		code fault.Code
	}{
		"the last owner leaves":                {p.s.RemoveMember(ctx, ana, ws, "ana"), fault.ParameterInvalid},
		"the operator removes the last owner":  {p.s.RemoveMember(ctx, p.root, ws, "ana"), fault.ParameterInvalid},
		"the last owner becomes a member":      {set(ana, "ana", "member"), fault.ParameterInvalid},
		"an admin makes an owner":              {set(bob, "eve", "owner"), fault.RoleTooLow},
		"an admin becomes an owner":            {set(bob, "bob", "owner"), fault.RoleTooLow},
		"an admin removes an owner":            {p.s.RemoveMember(ctx, bob, ws, "ana"), fault.RoleTooLow},
		"a stranger adds":                      {set(eve, "eve", "member"), fault.NotFound},
		"a stranger removes":                   {p.s.RemoveMember(ctx, eve, ws, "bob"), fault.NotFound},
		"nobody is added":                      {set(ana, "carl", "member"), fault.NotFound},
		"a role that is not known":             {set(ana, "eve", "boss"), fault.ParameterInvalid},
		"somebody who is no member is removed": {p.s.RemoveMember(ctx, ana, ws, "eve"), fault.NotFound},
	} {
		wantCode(t, what, c.err, c.code)
	}
	p.member(bob, ws, "eve", "member")
	wantCode(t, "a member removes another", p.s.RemoveMember(ctx, eve, ws, "bob"), fault.RoleTooLow)
	wantCode(t, "a member adds", set(eve, "eve", "admin"), fault.RoleTooLow)
	wantCode(t, "a member manages", p.s.AuthorizeAdmin(ctx, eve.Principal, env), fault.RoleTooLow)
	p.member(ana, ws, "bob", "owner")
	if err := p.s.RemoveMember(ctx, ana, ws, ana.User); err != nil {
		t.Errorf("an owner beside another leaves: %v", err)
	}
	list, err := p.s.Members(ctx, ws)
	if err != nil || len(list) != 2 || list[0].Name != "bob" || list[0].Role != "owner" || list[1].Role != "member" {
		t.Errorf("members: %+v, %v", list, err)
	}
	wantCode(t, "ana manages no more", p.s.AuthorizeAdmin(ctx, ana.Principal, env), fault.UnknownEnvironment)
	wantCode(t, "ana asks for the workspace", p.s.AuthorizeMember(ctx, ana.Principal, ws, auth.Member), fault.NotFound)
}

func TestPersonalWorkspaceHasOneMember(t *testing.T) {
	p, ctx := newPeople(t), context.Background()
	ana, _ := p.user("ana")
	p.user("bob")
	own, err := p.s.CreateWorkspace(ctx, ana, wire.WorkspaceRequest{Name: "mine", Kind: wire.Personal})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"another member": func() error {
			_, err := p.s.SetMember(ctx, ana, own.WorkspaceID, wire.MemberRequest{User: "bob"})
			return err
		}(),
		"another owner by the operator": func() error {
			_, err := p.s.SetMember(ctx, p.root, own.WorkspaceID, wire.MemberRequest{User: "bob", Role: "owner"})
			return err
		}(),
		"leave": p.s.RemoveMember(ctx, ana, own.WorkspaceID, ana.User),
		"second": func() error {
			_, err := p.s.CreateWorkspace(ctx, ana, wire.WorkspaceRequest{Name: "mine too", Kind: wire.Personal})
			return err
		}(),
		"without an owner": func() error {
			_, err := p.s.CreateWorkspace(ctx, p.root, wire.WorkspaceRequest{Name: "whose", Kind: wire.Personal})
			return err
		}(),
		"of another kind": func() error {
			_, err := p.s.CreateWorkspace(ctx, ana, wire.WorkspaceRequest{Name: "x", Kind: "club"})
			return err
		}(),
		"for somebody else": func() error {
			_, err := p.s.CreateWorkspace(ctx, ana, wire.WorkspaceRequest{Name: "x", Owner: "bob"})
			return err
		}(),
	} {
		wantCode(t, what, err, fault.ParameterInvalid)
	}
	// the workspace of the first start has no member yet
	p.member(p.root, p.boot.WorkspaceID, "bob", "")
	list, err := p.s.Members(ctx, p.boot.WorkspaceID)
	if err != nil || len(list) != 1 || list[0].Role != "owner" {
		t.Errorf("members: %+v, %v", list, err)
	}
	mine, err := p.s.Workspaces(ctx, ana.Principal)
	if err != nil || len(mine) != 1 || mine[0].WorkspaceID != own.WorkspaceID {
		t.Errorf("workspaces of ana: %+v, %v", mine, err)
	}
	if all, err := p.s.Workspaces(ctx, p.root.Principal); err != nil || len(all) != 2 {
		t.Errorf("workspaces of the operator: %+v, %v", all, err)
	}
	if _, err := p.s.Workspace(ctx, ana.Principal, p.boot.WorkspaceID); !fault.Is(err, fault.NotFound) {
		t.Errorf("a foreign workspace: %v", err)
	}
}

func TestDeleteEnvironment(t *testing.T) {
	p, ctx := newPeople(t), context.Background()
	env := p.boot.EnvPublicID
	robot := p.as(p.boot.AutomationToken)
	ref := store.Ref{Environment: env, Name: "app"}
	body, err := p.s.ReadBody(ctx, strings.NewReader(string(kltest.NewState(3, 1).Bytes())), -1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.s.Write(ctx, store.WriteRequest{Ref: ref, Actor: robot, Body: body}); err != nil {
		t.Fatal(err)
	}
	body.Release()
	never := store.Ref{Environment: env, Name: "never"}
	lock := store.LockRequest{Ref: never, Actor: robot, Info: wire.LockInfo{ID: "l1", Operation: wire.OperationApply}}
	if err := p.s.Lock(ctx, lock); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "with a state", p.s.DeleteEnvironment(ctx, p.root, env), fault.ParameterInvalid)
	if err := p.s.Delete(ctx, robot, ref, ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "with a lock", p.s.DeleteEnvironment(ctx, p.root, env), fault.ParameterInvalid)
	if err := p.s.Unlock(ctx, store.UnlockRequest{Ref: never, Actor: robot, ID: "l1"}); err != nil {
		t.Fatal(err)
	}
	if err := p.s.DeleteEnvironment(ctx, p.root, env); err != nil {
		t.Fatal(err)
	}
	p.expect("its token", p.boot.AutomationToken, "", env, auth.ReadOutputs, fault.CredentialsRevoked)
	p.expect("the operator", p.boot.ControlToken, "", env, auth.ReadOutputs, fault.UnknownEnvironment)
	wantCode(t, "a second time", p.s.DeleteEnvironment(ctx, p.root, env), fault.UnknownEnvironment)
	got := kinds(t, p.s, store.EventFilter{Workspace: p.boot.WorkspaceID, Environment: env})
	if got["environment_deleted"] != 1 || got["state_purged"] != 2 {
		t.Errorf("events: %v", got)
	}
	slug := "default"
	if _, err := p.s.CreateEnvironment(ctx, p.root, p.boot.WorkspaceID, wire.EnvironmentPatch{Slug: &slug}); err != nil {
		t.Errorf("the slug is not free again: %v", err)
	}
}

// TestDeleteWorkspace removes a workspace when nothing is left in it, and never
// the last one: a file without any counts as new.
func TestDeleteWorkspace(t *testing.T) {
	p, ctx := newPeople(t), context.Background()
	wantCode(t, "the only one", p.s.DeleteWorkspace(ctx, p.root, p.boot.WorkspaceID), fault.ParameterInvalid)
	ana, _ := p.user("ana")
	ws, env := p.organization(ana)
	wantCode(t, "with an environment", p.s.DeleteWorkspace(ctx, ana, ws), fault.ParameterInvalid)
	if err := p.s.DeleteEnvironment(ctx, ana, env); err != nil {
		t.Fatal(err)
	}
	if _, err := p.s.Suspend(ctx, p.root, ws, "unpaid"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "suspended", p.s.DeleteWorkspace(ctx, ana, ws), fault.ParameterInvalid)
	if _, err := p.s.Resume(ctx, p.root, ws); err != nil {
		t.Fatal(err)
	}
	if err := p.s.DeleteWorkspace(ctx, ana, ws); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a second time", p.s.DeleteWorkspace(ctx, p.root, ws), fault.NotFound)
	if _, err := p.s.Members(ctx, ws); !fault.Is(err, fault.NotFound) {
		t.Errorf("its members: %v, want not_found", err)
	}
	if got := kinds(t, p.s, store.EventFilter{Workspace: ws}); got["workspace_deleted"] != 1 {
		t.Errorf("events: %v", got)
	}
}

// TestSecretsAreNotInEvents looks for every secret that was made in all that
// the audit trail says.
func TestSecretsAreNotInEvents(t *testing.T) {
	p, ctx := newPeople(t), context.Background()
	ana, control := p.user("ana")
	ws, env := p.organization(ana)
	pat := p.pat(ana, 0)
	tok, err := p.s.CreateToken(ctx, ana, env, wire.TokenRequest{Name: "ci", Role: "outputs", Sensitive: true})
	if err != nil || !tok.Sensitive {
		t.Fatal(tok, err)
	}
	if _, err := p.s.Suspend(ctx, p.root, ws, "unpaid"); err != nil {
		t.Fatal(err)
	}
	list, err := p.s.Events(ctx, store.EventFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(sprint(list)), " ")
	for _, secret := range []string{control, pat.Secret, tok.Secret, p.boot.ControlToken, p.boot.AutomationToken} {
		if strings.Contains(text, secret) || strings.Contains(text, secret[8:]) {
			t.Errorf("an event holds a secret: %s", text)
		}
	}
}

func sprint(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
