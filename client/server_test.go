package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"kl/client"
	"kl/fault"
	"kl/kltest"
	"kl/wire"
)

const lineage = "6f2a7b1e-0000-4000-8000-000000000001"

func stateBytes(serial uint64, ids ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"version":4,"terraform_version":"1.11.4","serial":%d,"lineage":%q,"outputs":{},"resources":[`, serial, lineage)
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"mode":"managed","type":"terraform_data","name":%q,"provider":"p","instances":[{"schema_version":0,"attributes":{"id":%q}}]}`, id, id)
	}
	b.WriteString(`],"check_results":null}`)
	return []byte(b.String())
}

// parties are two clients of one server: Terraform's and the operator's.
func parties(t *testing.T) (tf, op *client.Client, ref client.Ref) {
	t.Helper()
	s := kltest.Start(t)
	b := s.Bootstrap
	tf = connect(t, client.Options{Base: s.URL, Username: b.WorkspaceID, Password: b.AutomationToken, PageSize: 2})
	op = connect(t, client.Options{Base: s.URL, Bearer: b.ControlToken, PageSize: 2})
	return tf, op, client.Ref{Workspace: b.WorkspaceID, Environment: b.EnvPublicID, State: "demo"}
}

func readAll(t *testing.T, b *client.Bytes, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	got, err := io.ReadAll(b)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func want(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Fatalf("got %v, want %s", err, code)
	}
	if client.RequestID(err) == "" || fault.Of(err).Next == "" {
		t.Errorf("%v has no request id or no next step: %+v", err, fault.Of(err))
	}
}

func TestStatesOverTheWire(t *testing.T) {
	tf, op, ref := parties(t)
	ctx := t.Context()
	_, err := tf.Pull(ctx, ref)
	want(t, err, fault.NotFound)

	// a session of five checkpoints, more than two pages of versions
	if err := tf.Lock(ctx, ref, lockInfo("l1")); err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for serial := uint64(1); serial <= 5; serial++ {
		ids = append(ids, fmt.Sprintf("r%d", serial))
		w, err := tf.Push(ctx, ref, "l1", stateBytes(serial, ids...))
		if err != nil || w != (client.Written{Version: serial, Serial: serial}) {
			t.Fatalf("push of serial %d: %+v, %v", serial, w, err)
		}
	}
	err = tf.Lock(ctx, ref, lockInfo("l2"))
	want(t, err, fault.Locked)
	if got := fault.Of(err).Details["ID"]; got != "l1" {
		t.Errorf("the holder's ID is %v", got)
	}
	l, err := tf.LockState(ctx, ref.Environment, ref.State)
	if err != nil || len(l.Holders) != 1 || l.Holders[0].ID != "l1" || l.Holders[0].Checkpoints != 5 {
		t.Errorf("lock: %+v, %v", l, err)
	}
	if err := tf.Unlock(ctx, ref, lockInfo("l1")); err != nil {
		t.Fatal(err)
	}

	for _, c := range []*client.Client{tf, op} {
		vs, err := client.Collect(c.Versions(ctx, ref.Environment, ref.State), 0)
		if err != nil || len(vs) != 5 || vs[0].Version != 5 || vs[4].Version != 1 {
			t.Errorf("versions: %+v, %v", vs, err)
		}
		b, err := c.VersionBytes(ctx, ref.Environment, ref.State, "@3")
		if got := readAll(t, b, err); !bytes.Equal(got, stateBytes(2, "r1", "r2")) || b.Version != 2 || b.Serial != 2 || b.SHA256 == "" || b.Length != int64(len(got)) {
			t.Errorf("version @3: %q, %+v", got, b)
		}
		s, err := c.State(ctx, ref.Environment, ref.State)
		if err != nil || s.Version != 5 || s.ResourceCount != 5 || s.Lineage != lineage {
			t.Errorf("state: %+v, %v", s, err)
		}
	}
	if vs, err := client.Collect(op.Versions(ctx, ref.Environment, ref.State), 3); err != nil || len(vs) != 3 {
		t.Errorf("three versions: %+v, %v", vs, err)
	}
	b, err := tf.Pull(ctx, ref)
	if got := readAll(t, b, err); !bytes.Equal(got, stateBytes(5, ids...)) {
		t.Errorf("pull: %q", got)
	}
}

func TestListingsCrossPages(t *testing.T) {
	tf, op, ref := parties(t)
	for _, name := range []string{"a", "b.c", "d-e", "f_g", "h"} {
		r := ref
		r.State = name
		if _, err := tf.Push(t.Context(), r, "", stateBytes(1)); err != nil {
			t.Fatal(err)
		}
	}
	names := ""
	for s, err := range tf.States(t.Context(), ref.Environment) {
		if err != nil {
			t.Fatal(err)
		}
		names += s.Name + " "
	}
	if names != "a b.c d-e f_g h " {
		t.Errorf("states: %q", names)
	}
	events, err := client.Collect(op.Events(t.Context(), client.EventFilter{State: "b.c", Environment: ref.Environment, Workspace: ref.Workspace}), 0)
	if err != nil || len(events) == 0 {
		t.Errorf("events: %+v, %v", events, err)
	}
	for _, e := range events {
		if e.State != "b.c" {
			t.Errorf("an event of %q", e.State)
		}
	}
	if all, err := client.Collect(op.Events(t.Context(), client.EventFilter{}), 0); err != nil || len(all) <= len(events) {
		t.Errorf("all events: %d, %v", len(all), err)
	}
	if later, err := client.Collect(op.Events(t.Context(), client.EventFilter{Since: time.Now().Add(time.Hour)}), 0); err != nil || len(later) != 0 {
		t.Errorf("events of the future: %+v, %v", later, err)
	}
	_, err = client.Collect(tf.Events(t.Context(), client.EventFilter{}), 0)
	if e := fault.Of(err); e == nil || e.Class() != fault.Auth {
		t.Errorf("events for Terraform: %v", err)
	}
	ws, err := client.Collect(op.Workspaces(t.Context()), 0)
	if err != nil || len(ws) != 1 || ws[0].WorkspaceID != ref.Workspace {
		t.Errorf("workspaces: %+v, %v", ws, err)
	}
	es, err := client.Collect(op.Environments(t.Context(), ref.Workspace), 0)
	if err != nil || len(es) != 1 || es[0].EnvPublicID != ref.Environment {
		t.Errorf("environments: %+v, %v", es, err)
	}
}

func TestRefusedWritesOverTheWire(t *testing.T) {
	tf, op, ref := parties(t)
	ctx := t.Context()
	if _, err := tf.Push(ctx, ref, "", stateBytes(1, "a")); err != nil {
		t.Fatal(err)
	}
	_, err := tf.Push(ctx, ref, "gone", stateBytes(2, "a", "b"))
	want(t, err, fault.LockNotHeld)
	id := client.RequestID(err)
	list, err := client.Collect(op.RefusedList(ctx, ref.Environment, ref.State), 0)
	if err != nil || len(list) != 1 {
		t.Fatalf("refused: %+v, %v", list, err)
	}
	b, err := op.RefusedBody(ctx, ref.Environment, ref.State, list[0].ID)
	if got := readAll(t, b, err); !bytes.Equal(got, stateBytes(2, "a", "b")) {
		t.Errorf("refused bytes: %q", got)
	}
	if err := op.DiscardRefused(ctx, ref.Environment, ref.State, list[0].ID); err != nil {
		t.Error(err)
	}
	// notes of refusals do not wait for the disk, but stand before later writes
	r, err := op.Request(ctx, id)
	if err != nil || r.Code != string(fault.LockNotHeld) || r.State != ref.State {
		t.Errorf("why: %+v, %v", r, err)
	}
	want(t, op.DiscardRefused(ctx, ref.Environment, ref.State, "rw_nothing"), fault.NotFound)
}

func TestLifecycleOverTheWire(t *testing.T) {
	tf, op, ref := parties(t)
	ctx, env := t.Context(), ref.Environment
	if _, err := tf.Push(ctx, ref, "", stateBytes(3, "a")); err != nil {
		t.Fatal(err)
	}
	if err := op.Allow(ctx, env, ref.State, wire.Allow{LowerSerial: true}); err != nil {
		t.Fatal(err)
	}
	if w, err := tf.Push(ctx, ref, "", stateBytes(2)); err != nil || w.Version != 2 {
		t.Errorf("a lower serial with a ticket: %+v, %v", w, err)
	}
	if err := tf.Lock(ctx, ref, lockInfo("x")); err != nil {
		t.Fatal(err)
	}
	if err := op.ReleaseLock(ctx, env, ref.State, "x"); err != nil {
		t.Error(err)
	}
	if err := op.DeleteState(ctx, env, ref.State); err != nil {
		t.Fatal(err)
	}
	_, err := tf.Pull(ctx, ref)
	want(t, err, fault.StateDeleted)
	if s, err := op.RestoreState(ctx, env, ref.State); err != nil || s.Lifecycle != "active" {
		t.Errorf("restored: %+v, %v", s, err)
	}
	if err := errors.Join(op.DeleteState(ctx, env, ref.State), op.PurgeState(ctx, env, ref.State)); err != nil {
		t.Error(err)
	}
	_, err = tf.Pull(ctx, ref)
	want(t, err, fault.NotFound)
}

func TestAccountsOverTheWire(t *testing.T) {
	tf, op, ref := parties(t)
	ctx := t.Context()
	w, err := tf.Whoami(ctx)
	if err != nil || w.Kind != "automation" || w.Environment != ref.Environment || w.Workspace != ref.Workspace || w.Role != "write" {
		t.Errorf("terraform is %+v, %v", w, err)
	}
	if w, err = op.Whoami(ctx); err != nil || w.Kind != "control" || !w.Operator {
		t.Errorf("operator is %+v, %v", w, err)
	}
	if _, err := op.Version(ctx); err != nil {
		t.Error(err)
	}
	ttl, off := wire.Duration(90*time.Second), false
	e, err := op.PatchEnvironment(ctx, ref.Environment, wire.EnvironmentPatch{LockIdleTTL: &ttl, RecoveryHold: &off})
	if err != nil || e.LockIdleTTL != ttl || e.RecoveryHold {
		t.Errorf("patched: %+v, %v", e, err)
	}
	if got, err := tf.Environment(ctx, ref.Environment); err != nil || got != e {
		t.Errorf("environment: %+v, %v; want %+v", got, err, e)
	}
	// the control token is not valid on state paths
	_, err = op.Pull(ctx, ref)
	want(t, err, fault.CredentialsInvalid)
}
