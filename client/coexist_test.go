package client_test

import (
	"slices"
	"testing"
	"time"

	"kl/client"
	"kl/fault"
	"kl/kltest"
	"kl/wire"
)

// TestCoexistenceOverTheWire goes from a new environment and its token to a
// refused write that is merged.
func TestCoexistenceOverTheWire(t *testing.T) {
	s := kltest.Start(t)
	ctx, b := t.Context(), s.Bootstrap
	op := connect(t, client.Options{Base: s.URL, Bearer: b.ControlToken})
	slug, mode := "ci", "exclusive"
	e, err := op.CreateEnvironment(ctx, b.WorkspaceID, wire.EnvironmentPatch{Slug: &slug, LockMode: &mode})
	if err != nil || e.Slug != slug || e.EnvPublicID == "" {
		t.Fatalf("created %+v, %v", e, err)
	}
	_, err = op.CreateEnvironment(ctx, b.WorkspaceID, wire.EnvironmentPatch{Slug: &slug})
	want(t, err, fault.ParameterInvalid)
	tok, err := op.CreateToken(ctx, e.EnvPublicID, wire.TokenRequest{Name: "ci", ExpiresIn: wire.Duration(time.Hour)})
	if err != nil || tok.Secret == "" {
		t.Fatalf("issued %+v, %v", tok, err)
	}
	tf := connect(t, client.Options{Base: s.URL, Username: b.WorkspaceID, Password: tok.Secret})
	ref := client.Ref{Workspace: b.WorkspaceID, Environment: e.EnvPublicID, State: "demo"}
	if _, err := tf.Push(ctx, ref, "", stateBytes(1, "a")); err != nil {
		t.Fatal(err)
	}
	mode = "optimistic"
	st, err := tf.PatchState(ctx, ref.Environment, ref.State, wire.StatePatch{LockMode: &mode})
	if err != nil || st.LockMode != mode {
		t.Fatalf("patched to %+v, %v", st, err)
	}
	for _, id := range []string{"l1", "l2"} {
		if err := tf.Lock(ctx, ref, lockInfo(id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tf.Push(ctx, ref, "l1", stateBytes(2, "a", "b")); err != nil {
		t.Fatal(err)
	}
	if w, err := tf.Push(ctx, ref, "l2", stateBytes(2, "a", "c")); err != nil || w != (client.Written{Version: 3, Serial: 3, Merged: true}) {
		t.Fatalf("merged %+v, %v", w, err)
	}

	lost := stateBytes(2, "a", "d")
	r, err := tf.AddRefused(ctx, ref.Environment, ref.State, lost)
	if err != nil || r.Status != "open" || !slices.Equal(r.UnknownToHead, []string{"terraform_data.d"}) {
		t.Fatalf("brought in %+v, %v", r, err)
	}
	m, err := tf.MergeRefused(ctx, ref.Environment, ref.State, r.ID, wire.MergeRequest{DryRun: true})
	if err != nil || !m.DryRun || !slices.Equal(m.Added, []string{"terraform_data.d"}) || m.Status != "open" {
		t.Fatalf("dry run %+v, %v", m, err)
	}
	m, err = tf.MergeRefused(ctx, ref.Environment, ref.State, r.ID, wire.MergeRequest{Take: &wire.Take{All: wire.TakeDisjoint}})
	if err != nil || m.DryRun || m.Status != "merged" || m.Version != 4 {
		t.Fatalf("merge %+v, %v", m, err)
	}
	_, err = tf.AddRefused(ctx, ref.Environment, ref.State, nil)
	want(t, err, fault.BodyInvalid)
	_, err = tf.MergeRefused(ctx, ref.Environment, ref.State, r.ID, wire.MergeRequest{})
	want(t, err, fault.ParameterInvalid)

	toks, err := client.Collect(op.Tokens(ctx, e.EnvPublicID), 0)
	if err != nil || len(toks) != 1 || toks[0].ID != tok.ID || toks[0].Secret != "" {
		t.Errorf("tokens: %+v, %v", toks, err)
	}
	if err := op.RevokeToken(ctx, e.EnvPublicID, tok.ID); err != nil {
		t.Fatal(err)
	}
	_, err = tf.Whoami(ctx)
	want(t, err, fault.CredentialsRevoked)
}
