package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"kl/auth"
	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

func wantCode(t *testing.T, what string, err error, code fault.Code) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}

func kinds(t *testing.T, s *store.Store, f store.EventFilter) map[string]int {
	t.Helper()
	list, err := s.Events(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, e := range list.Items {
		out[e.Kind]++
	}
	return out
}

func TestCreateEnvironment(t *testing.T) {
	ctx, s := context.Background(), kltest.Store(t)
	b, err := s.Bootstrap(ctx)
	if err != nil {
		t.Fatal(err)
	}
	slug, other, mode, off := "ci", "default", "optimistic", false
	by := store.Actor{Principal: auth.Principal{Name: "operator", Operator: true}}
	e, err := s.CreateEnvironment(ctx, by, b.WorkspaceID, wire.EnvironmentPatch{Slug: &slug, LockMode: &mode, RecoveryHold: &off})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Environment(ctx, b.EnvPublicID)
	if err != nil {
		t.Fatal(err)
	}
	want := first
	want.EnvPublicID, want.Slug, want.LockMode, want.RecoveryHold, want.CreatedAt = e.EnvPublicID, slug, mode, false, e.CreatedAt
	if e != want {
		t.Errorf("created %+v, want the defaults and what was asked for: %+v", e, want)
	}
	if got, err := s.Environment(ctx, e.EnvPublicID); err != nil || got != e {
		t.Errorf("read back %+v, %v", got, err)
	}
	if all, err := s.Environments(ctx, b.WorkspaceID); err != nil || len(all) != 2 {
		t.Errorf("environments: %+v, %v", all, err)
	}
	if n := kinds(t, s, store.EventFilter{Environment: e.EnvPublicID})["environment_created"]; n != 1 {
		t.Errorf("%d events of the creation", n)
	}

	bad, empty := "Not A Slug", ""
	for name, c := range map[string]struct {
		ws    string
		patch wire.EnvironmentPatch
		code  fault.Code
	}{
		"slug taken":        {b.WorkspaceID, wire.EnvironmentPatch{Slug: &slug}, fault.ParameterInvalid},
		"no slug":           {b.WorkspaceID, wire.EnvironmentPatch{LockMode: &mode}, fault.ParameterInvalid},
		"empty slug":        {b.WorkspaceID, wire.EnvironmentPatch{Slug: &empty}, fault.ParameterInvalid},
		"bad slug":          {b.WorkspaceID, wire.EnvironmentPatch{Slug: &bad}, fault.ParameterInvalid},
		"unknown mode":      {b.WorkspaceID, wire.EnvironmentPatch{Slug: &other, LockMode: &bad}, fault.ParameterInvalid},
		"unknown workspace": {"ws_aaaaaaaaaaaa", wire.EnvironmentPatch{Slug: &other}, fault.NotFound},
	} {
		_, err := s.CreateEnvironment(ctx, by, c.ws, c.patch)
		wantCode(t, name, err, c.code)
	}
	if _, err := s.PatchEnvironment(ctx, by, e.EnvPublicID, wire.EnvironmentPatch{Slug: &other}); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("rename to a slug that is taken: %v", err)
	}
}

func TestTokens(t *testing.T) {
	ctx := context.Background()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	s := kltest.Store(t, kltest.WithStore(func(o *store.Options) { o.Now = func() time.Time { return now } }))
	b, err := s.Bootstrap(ctx)
	if err != nil {
		t.Fatal(err)
	}
	by := store.Actor{Principal: auth.Principal{Name: "operator", Operator: true}}
	mine, err := s.CreateToken(ctx, by, b.EnvPublicID, wire.TokenRequest{Name: "ci", ExpiresIn: wire.Duration(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Authenticate(ctx, mine.Secret)
	if err != nil || p.ID != mine.ID || p.Name != "ci" || p.Role != auth.Write || p.Workspace != b.WorkspaceID || p.Environment != b.EnvPublicID {
		t.Errorf("the token is good for %+v, %v", p, err)
	}
	list, err := s.Tokens(ctx, b.EnvPublicID)
	if err != nil || len(list) != 2 {
		t.Fatalf("tokens: %+v, %v", list, err)
	}
	for _, tok := range list {
		if tok.Secret != "" {
			t.Errorf("the list shows the secret of %s", tok.Name)
		}
		if tok.ID == mine.ID && !tok.LastUsedAt.Equal(now) {
			t.Errorf("%s was used at %s, the list says %s", tok.Name, now, tok.LastUsedAt)
		}
	}

	reader, err := s.CreateToken(ctx, by, b.EnvPublicID, wire.TokenRequest{Name: "reader", Role: "read"})
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	_, err = s.Authenticate(ctx, mine.Secret)
	wantCode(t, "expired", err, fault.CredentialsExpired)
	if _, err := s.Authenticate(ctx, reader.Secret); err != nil {
		t.Errorf("a token without an end has expired: %v", err)
	}
	for range 2 {
		if err := s.RevokeToken(ctx, by, b.EnvPublicID, reader.ID); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.Authenticate(ctx, reader.Secret)
	wantCode(t, "revoked", err, fault.CredentialsRevoked)
	got := kinds(t, s, store.EventFilter{Environment: b.EnvPublicID})
	if got["token_created"] != 2 || got["token_revoked"] != 1 {
		t.Errorf("events: %v", got)
	}

	other := "other"
	e, err := s.CreateEnvironment(ctx, by, b.WorkspaceID, wire.EnvironmentPatch{Slug: &other})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, "revoke from another environment", s.RevokeToken(ctx, by, e.EnvPublicID, mine.ID), fault.NotFound)
	wantCode(t, "revoke of none", s.RevokeToken(ctx, by, e.EnvPublicID, "tok_none"), fault.NotFound)
	wantCode(t, "revoke, unknown environment", s.RevokeToken(ctx, by, "env_aaaaaaaaaaaa", mine.ID), fault.UnknownEnvironment)
	for what, err := range map[string]error{
		"no name":       second(s.CreateToken(ctx, by, e.EnvPublicID, wire.TokenRequest{})),
		"control in it": second(s.CreateToken(ctx, by, e.EnvPublicID, wire.TokenRequest{Name: "a\nb"})),
		"unknown role":  second(s.CreateToken(ctx, by, e.EnvPublicID, wire.TokenRequest{Name: "a", Role: "owner"})),
		"sensitive":     second(s.CreateToken(ctx, by, e.EnvPublicID, wire.TokenRequest{Name: "a", Role: "read", Sensitive: true})),
		"already over":  second(s.CreateToken(ctx, by, e.EnvPublicID, wire.TokenRequest{Name: "a", ExpiresIn: -1})),
	} {
		wantCode(t, what, err, fault.ParameterInvalid)
	}
	_, err = s.CreateToken(ctx, by, "env_aaaaaaaaaaaa", wire.TokenRequest{Name: "a"})
	wantCode(t, "unknown environment", err, fault.UnknownEnvironment)
}

func second(_ wire.Token, err error) error { return err }

// TestDeleteEnvironmentNamesWhatIsLeft: a state that was never written may hold
// something all the same, and what is to be done with it can be done.
func TestDeleteEnvironmentNamesWhatIsLeft(t *testing.T) {
	f, ctx := newFixture(t, store.Options{}), context.Background()
	left := func(what, next string) {
		t.Helper()
		err := f.s.DeleteEnvironment(ctx, f.actor, f.env)
		wantCode(t, what, err, fault.ParameterInvalid)
		if e := fault.Of(err); e == nil || !strings.Contains(e.Next, next) {
			t.Errorf("%s: %v, want the next step %q", what, err, next)
		}
	}
	st := kltest.NewState(3, 1)
	_, err := f.write("lost", "gone", st.Bytes())
	id := refusedOf(t, err)
	left("a refused write", "kl recover list --state lost")
	preview, err := f.s.MergeRefused(ctx, f.actor, f.ref("lost"), id, wire.MergeRequest{DryRun: true})
	if err != nil || len(preview.Added) != len(st.Addresses()) {
		t.Errorf("what would become the first version: %+v, %v; want %d instances", preview, err, len(st.Addresses()))
	}
	if err := f.s.DiscardRefused(ctx, f.actor, f.ref("lost"), id); err != nil {
		t.Fatal(err)
	}
	if err := f.lock("held", "L", wire.OperationApply); err != nil {
		t.Fatal(err)
	}
	left("a lock", "kl lock show held")
	if err := f.unlock("held", "L"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.write("kept", "", st.Bytes()); err != nil {
		t.Fatal(err)
	}
	left("a state", "kl state delete kept")
	if err := f.s.Delete(ctx, f.actor, f.ref("kept"), ""); err != nil {
		t.Fatal(err)
	}
	if err := f.s.DeleteEnvironment(ctx, f.actor, f.env); err != nil {
		t.Error(err)
	}
}
