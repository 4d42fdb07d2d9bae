package client_test

import (
	"testing"
	"time"

	"kl/client"
	"kl/fault"
	"kl/kltest"
	"kl/wire"
)

// TestAccessOverTheWire goes from a new user to her first write, and to the end
// of her access.
func TestAccessOverTheWire(t *testing.T) {
	s := kltest.Start(t)
	ctx, b := t.Context(), s.Bootstrap
	op := connect(t, client.Options{Base: s.URL, Bearer: b.ControlToken})
	w, err := op.CreateWorkspace(ctx, wire.WorkspaceRequest{Name: "platform"})
	if err != nil || w.Kind != wire.Organization {
		t.Fatalf("created %+v, %v", w, err)
	}
	slug := "prod"
	e, err := op.CreateEnvironment(ctx, w.WorkspaceID, wire.EnvironmentPatch{Slug: &slug})
	if err != nil {
		t.Fatal(err)
	}
	u, err := op.CreateUser(ctx, "ana")
	if err != nil || u.ControlToken == "" || u.Status != wire.UserIsActive {
		t.Fatalf("created %+v, %v", u, err)
	}
	ana := connect(t, client.Options{Base: s.URL, Bearer: u.ControlToken})
	pat, err := ana.CreatePAT(ctx, wire.PATRequest{Name: "laptop", ExpiresIn: wire.Duration(time.Hour)})
	if err != nil || pat.Secret == "" || pat.ExpiresAt.IsZero() {
		t.Fatalf("issued %+v, %v", pat, err)
	}
	tf := connect(t, client.Options{Base: s.URL, Username: w.WorkspaceID, Password: pat.Secret})
	ref := client.Ref{Workspace: w.WorkspaceID, Environment: e.EnvPublicID, State: "demo"}
	push := func() error { _, err := tf.Push(ctx, ref, "", stateBytes(1, "a")); return err }

	want(t, push(), fault.NotMember)
	_, err = ana.Workspace(ctx, w.WorkspaceID)
	want(t, err, fault.NotFound)
	if m, err := op.AddMember(ctx, w.WorkspaceID, wire.MemberRequest{User: "ana"}); err != nil || m.UserID != u.UserID || m.Role != "member" {
		t.Fatalf("member %+v, %v", m, err)
	}
	want(t, push(), fault.NoGrant)
	_, err = tf.WhoamiIn(ctx, e.EnvPublicID)
	want(t, err, fault.NoGrant)
	if g, err := op.Grant(ctx, e.EnvPublicID, "ana", "write"); err != nil || g.Role != "write" || g.Status != wire.GrantActive {
		t.Fatalf("grant %+v, %v", g, err)
	}
	if err := push(); err != nil {
		t.Fatal(err)
	}

	if w, err := op.SuspendWorkspace(ctx, w.WorkspaceID, "audit"); err != nil || w.Status != "suspended" || w.SuspendedReason != "audit" {
		t.Fatalf("suspended %+v, %v", w, err)
	}
	who, err := tf.WhoamiIn(ctx, e.EnvPublicID)
	if err != nil || who.Role != "write" || who.Hold == "" {
		t.Errorf("who am I: %+v, %v", who, err)
	}
	want(t, tf.Lock(ctx, ref, lockInfo("l1")), fault.WorkspaceSuspended)
	for name, c := range map[string]*client.Client{"terraform's": tf, "ana's": ana} {
		if r, err := c.LastRequest(ctx); err != nil || r.Code != string(fault.WorkspaceSuspended) || len(r.Story) == 0 {
			t.Errorf("last request by %s credentials: %+v, %v", name, r, err)
		}
	}
	if w, err := op.ResumeWorkspace(ctx, w.WorkspaceID); err != nil || w.Status != "active" {
		t.Fatalf("resumed %+v, %v", w, err)
	}
	if st, err := tf.ArchiveState(ctx, ref.Environment, ref.State); err != nil || st.Lifecycle != "archived" {
		t.Fatalf("archived %+v, %v", st, err)
	}
	want(t, op.DeleteEnvironment(ctx, e.EnvPublicID), fault.ParameterInvalid)

	access, err := client.Collect(op.Access(ctx, e.EnvPublicID), 0)
	if err != nil || len(access) != 1 || access[0] != (wire.Access{
		UserID: u.UserID, Name: "ana", MemberRole: "member", PATStatus: wire.PATActive, GrantStatus: wire.GrantActive, GrantRole: "write", GrantCount: 1,
	}) {
		t.Errorf("access %+v, %v", access, err)
	}
	if err := op.EndGrant(ctx, e.EnvPublicID, u.UserID); err != nil {
		t.Fatal(err)
	}
	want(t, push(), fault.NoGrant)
	if err := ana.RevokePAT(ctx, pat.ID); err != nil {
		t.Fatal(err)
	}
	want(t, push(), fault.CredentialsRevoked)
	if pats, err := client.Collect(ana.PATs(ctx), 0); err != nil || len(pats) != 1 || pats[0].RevokedAt.IsZero() || pats[0].Secret != "" {
		t.Errorf("tokens %+v, %v", pats, err)
	}
	if err := ana.Leave(ctx, w.WorkspaceID); err != nil {
		t.Fatal(err)
	}
	if members, err := client.Collect(op.Members(ctx, w.WorkspaceID), 0); err != nil || len(members) != 0 {
		t.Errorf("members %+v, %v", members, err)
	}
	want(t, op.RemoveMember(ctx, w.WorkspaceID, "ana"), fault.NotFound)
	if err := op.DeleteUser(ctx, "ana"); err != nil {
		t.Fatal(err)
	}
	_, err = ana.Whoami(ctx)
	want(t, err, fault.CredentialsRevoked)
	if users, err := client.Collect(op.Users(ctx), 0); err != nil || len(users) != 1 || users[0].Status != wire.UserDeleted {
		t.Errorf("users %+v, %v", users, err)
	}
}

// TestReach contacts a server without credentials.
func TestReach(t *testing.T) {
	s := kltest.Start(t)
	r, err := connect(t, client.Options{Base: s.URL, Bearer: "no-token"}).Reach(t.Context())
	if err != nil || r.Date.IsZero() || r.Took <= 0 {
		t.Errorf("reached %+v, %v", r, err)
	}
	if _, err = connect(t, client.Options{Base: "http://127.0.0.1:1"}).Reach(t.Context()); !fault.Is(err, fault.Unreachable) {
		t.Errorf("reach of a port that nobody listens on: %v, want unreachable", err)
	}
}

func TestTokenWithALineBreak(t *testing.T) {
	if _, err := client.New(client.Options{Base: "http://h", Bearer: "kl_ctl_a\nkl_ctl_b"}); !fault.Is(err, fault.CredentialsInvalid) {
		t.Errorf("got %v, want credentials_invalid", err)
	}
}
