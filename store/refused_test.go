package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// refusedOf returns the id of the refused write that a refusal names.
func refusedOf(t *testing.T, err error) string {
	t.Helper()
	f := fault.Of(err)
	if f == nil {
		t.Fatalf("not refused: %v", err)
	}
	id, _ := f.Details["refused_write"].(string)
	if id == "" {
		t.Fatalf("the refusal %v names no refused write", err)
	}
	return id
}

func (f *fixture) events(kind string) []wire.Event {
	f.tb.Helper()
	l, err := f.s.Events(context.Background(), store.EventFilter{Limit: 1000})
	if err != nil {
		f.tb.Fatal(err)
	}
	return slices.DeleteFunc(l.Items, func(e wire.Event) bool { return e.Kind != kind })
}

func (f *fixture) patch(p wire.EnvironmentPatch) {
	f.tb.Helper()
	if _, err := f.s.PatchEnvironment(context.Background(), f.actor, f.env, p); err != nil {
		f.tb.Fatal(err)
	}
}

// seeded is a fixture with a state s of serial 1.
func seeded(t *testing.T, opt store.Options) (*fixture, *kltest.State) {
	f := newFixture(t, opt)
	st := kltest.NewState(20, 1)
	st.SetSerial(1)
	if _, err := f.write("s", "", st.Bytes()); err != nil {
		t.Fatal(err)
	}
	return f, st
}

// stray is a document that lags behind and tells of objects of its own.
func stray(st *kltest.State, n int) *kltest.State {
	c := st.Clone()
	c.Add(fmt.Sprintf("null_resource.stray[%d]", n))
	return c
}

func TestRefusedWritesAreLimited(t *testing.T) {
	for name, c := range map[string]struct {
		patch wire.EnvironmentPatch
		wait  time.Duration
		left  int
	}{
		"number": {patch: wire.EnvironmentPatch{RefusedKeepLast: ptr(int64(3))}, left: 3},
		"bytes":  {patch: wire.EnvironmentPatch{RefusedKeepBytes: ptr(int64(1))}, left: 1},
		"age":    {patch: wire.EnvironmentPatch{RefusedKeepDays: ptr(int64(2))}, wait: 25 * time.Hour, left: 2},
		"none":   {patch: wire.EnvironmentPatch{RefusedKeepDays: ptr(int64(0)), RefusedKeepBytes: ptr(int64(0)), RefusedKeepLast: ptr(int64(0))}, left: 6},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
			f, st := seeded(t, store.Options{Now: func() time.Time { return now }})
			f.patch(c.patch)
			var ids []string
			for i := range 6 {
				now = now.Add(c.wait)
				_, err := f.write("s", "", stray(st, i).Bytes())
				ids = append(ids, refusedOf(t, err))
			}
			list, err := f.s.RefusedList(context.Background(), f.ref("s"))
			if err != nil {
				t.Fatal(err)
			}
			if len(list) != c.left {
				t.Errorf("%d refused writes are kept, want %d", len(list), c.left)
			}
			for i, r := range list {
				if want := ids[len(ids)-1-i]; r.ID != want && c.wait > 0 {
					t.Errorf("kept %s at %d, want %s", r.ID, i, want)
				}
			}
			if got := len(f.events("refused_write_dropped")); got != 6-c.left {
				t.Errorf("%d events of drops, want %d", got, 6-c.left)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestRecoveryHold(t *testing.T) {
	f, st := seeded(t, store.Options{})
	// an update of what the head knows heals by the next refresh
	update := st.Clone()
	update.Update(update.Addresses()[3])
	_, err := f.write("s", "", update.Bytes())
	refusedOf(t, err)
	if err := f.lock("s", "L1", wire.OperationApply); err != nil {
		t.Fatalf("an update holds back the next apply: %v", err)
	}
	if err := f.unlock("s", "L1"); err != nil {
		t.Fatal(err)
	}

	_, err = f.write("s", "", stray(st, 1).Bytes())
	id := refusedOf(t, err)
	err = f.lock("s", "L2", wire.OperationApply)
	if !fault.Is(err, fault.RecoveryHold) || fault.Of(err).Details["refused_write"] != id {
		t.Fatalf("an apply after a lost create: %v", err)
	}
	if err := f.lock("s", "L3", wire.OperationPlan); err != nil {
		t.Errorf("a plan is held back: %v", err)
	}
	if err := f.unlock("s", "L3"); err != nil {
		t.Fatal(err)
	}
	other := f.actor
	other.ID = "tok_other"
	err = f.s.Lock(context.Background(), store.LockRequest{Ref: f.ref("s"), Actor: other, Info: wire.LockInfo{ID: "L4", Operation: wire.OperationApply}})
	if err != nil {
		t.Errorf("somebody else is held back: %v", err)
	}
	if err := f.s.Unlock(context.Background(), store.UnlockRequest{Ref: f.ref("s"), Actor: other, ID: "L4"}); err != nil {
		t.Fatal(err)
	}
	if err := f.s.DiscardRefused(context.Background(), f.actor, f.ref("s"), id); err != nil {
		t.Fatal(err)
	}
	if err := f.lock("s", "L5", wire.OperationApply); err != nil {
		t.Errorf("still held back after a discard: %v", err)
	}
}

// An accepted state push that has all objects of a refused write settles it.
// A person whose token ran out during an apply comes back with another.
func TestRecoveryHoldOfAUser(t *testing.T) {
	f, st := seeded(t, store.Options{})
	as := func(token, user string) store.Actor {
		by := f.actor
		by.ID, by.User = token, user
		return by
	}
	lock := func(by store.Actor) error {
		return f.s.Lock(context.Background(), store.LockRequest{Ref: f.ref("s"), Actor: by, Info: wire.LockInfo{ID: "L-" + by.ID, Operation: wire.OperationApply}})
	}
	lost := stray(st, 1)
	_, err := f.writeAs(as("pat_old", "usr_ana"), "s", "", lost.Bytes())
	refusedOf(t, err)
	if err := lock(as("pat_new", "usr_ana")); !fault.Is(err, fault.RecoveryHold) {
		t.Errorf("an apply of the same user with another token: %v", err)
	}
	ben := as("pat_ben", "usr_ben")
	if err := lock(ben); err != nil {
		t.Errorf("an apply of somebody else: %v", err)
	}
	if err := f.s.Unlock(context.Background(), store.UnlockRequest{Ref: f.ref("s"), Actor: ben, ID: "L-pat_ben"}); err != nil {
		t.Fatal(err)
	}
	ana := as("pat_new", "usr_ana")
	push := store.LockRequest{Ref: f.ref("s"), Actor: ana, Info: wire.LockInfo{ID: "P", Operation: wire.OperationPush}}
	if err := f.s.Lock(context.Background(), push); err != nil {
		t.Fatal(err)
	}
	lost.SetSerial(2)
	if _, err := f.writeAs(ana, "s", "P", lost.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := f.s.Unlock(context.Background(), store.UnlockRequest{Ref: f.ref("s"), Actor: ana, ID: "P"}); err != nil {
		t.Fatal(err)
	}
	if err := lock(ana); err != nil {
		t.Errorf("after a push that has all of it: %v", err)
	}
}

func TestPushSettlesRefusedWrites(t *testing.T) {
	f, st := seeded(t, store.Options{})
	lost := stray(st, 1)
	_, err := f.write("s", "", lost.Bytes())
	id := refusedOf(t, err)
	if err := f.lock("s", "push", wire.OperationPush); err != nil {
		t.Fatal(err)
	}
	without := st.Clone()
	without.SetSerial(2)
	if _, err := f.write("s", "push", without.Bytes()); err != nil {
		t.Fatal(err)
	}
	if r, err := f.s.Refused(context.Background(), f.ref("s"), id); err != nil || r.Status != "open" {
		t.Fatalf("settled by a push that does not have its objects: %+v, %v", r, err)
	}
	lost.SetSerial(3)
	w, err := f.write("s", "push", lost.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := f.s.Refused(context.Background(), f.ref("s"), id); err != nil || r.Status != "superseded" {
		t.Errorf("after a push of its objects: %+v, %v", r, err)
	}
	l, err := f.s.Versions(context.Background(), f.ref("s"), "", 1)
	if err != nil || l.Items[0].Version != w.Version || l.Items[0].Source != "push" {
		t.Errorf("the version is %+v, %v", l.Items, err)
	}
}

func TestMergeOfRefusedWrite(t *testing.T) {
	ctx := context.Background()
	f, st := seeded(t, store.Options{})
	lost := stray(st, 1)
	contested := lost.Addresses()[2]
	lost.Update(contested)
	lost.SetSerial(2)
	winner := st.Clone()
	winner.SetSerial(2)
	winner.Update(contested)
	winner.Update(contested) // not the same update
	winner.Add("null_resource.winner[0]")
	if _, err := f.write("s", "", winner.Bytes()); err != nil {
		t.Fatal(err)
	}
	_, err := f.write("s", "", lost.Bytes())
	id := refusedOf(t, err)

	preview, err := f.s.MergeRefused(ctx, f.actor, f.ref("s"), id, wire.MergeRequest{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(preview.Added, []string{"null_resource.stray[1]"}) || len(preview.Overlapping) != 1 || preview.Overlapping[0].Address != contested ||
		preview.Overlapping[0].Version != 2 || !slices.Contains(preview.Newer, "null_resource.winner[0]") || preview.Version != 0 {
		t.Errorf("the preview is %+v", preview)
	}
	if _, err := f.s.MergeRefused(ctx, f.actor, f.ref("s"), id, wire.MergeRequest{}); !fault.Is(err, fault.OverlapConflict) {
		t.Errorf("a merge over an overlap without a choice: %v", err)
	}
	if err := f.lock("s", "L", "OperationTypeRefresh"); err != nil {
		t.Fatal(err)
	}
	take := &wire.Take{All: wire.TakeDisjoint}
	if _, err := f.s.MergeRefused(ctx, f.actor, f.ref("s"), id, wire.MergeRequest{Take: take}); !fault.Is(err, fault.LockRequired) {
		t.Errorf("a merge beside an exclusive lock: %v", err)
	}
	if err := f.unlock("s", "L"); err != nil {
		t.Fatal(err)
	}
	before := f.get("s", "head")
	done, err := f.s.MergeRefused(ctx, f.actor, f.ref("s"), id, wire.MergeRequest{Take: take})
	if err != nil {
		t.Fatal(err)
	}
	if done.Version != 3 || done.Serial != 3 || done.Status != "merged" {
		t.Errorf("the merge made %+v", done)
	}
	if got := f.get("s", "head"); len(got) <= len(before) {
		t.Errorf("the head has %d bytes after %d", len(got), len(before))
	}
	history, err := f.s.Versions(ctx, f.ref("s"), "", 1)
	if err != nil || history.Items[0].Source != "recover" || history.Items[0].Added != 1 || history.Items[0].Changed != 0 || history.Items[0].Removed != 0 {
		t.Errorf("the version is %+v, %v", history.Items, err)
	}
	if _, err := f.s.MergeRefused(ctx, f.actor, f.ref("s"), id, wire.MergeRequest{}); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("a second merge of the same: %v", err)
	}
}

// A mode that changes while sessions are open loses none of them.
func TestLockModeChangesUnderSessions(t *testing.T) {
	ctx := context.Background()
	f, st := seeded(t, store.Options{})
	if err := f.lock("s", "first", wire.OperationApply); err != nil {
		t.Fatal(err)
	}
	if err := f.lock("s", "second", wire.OperationApply); !fault.Is(err, fault.Locked) {
		t.Fatalf("in exclusive mode: %v", err)
	}
	if _, err := f.s.PatchState(ctx, f.actor, f.ref("s"), wire.StatePatch{LockMode: ptr("optimistic")}); err != nil {
		t.Fatal(err)
	}
	if err := f.lock("s", "second", wire.OperationApply); err != nil {
		t.Fatalf("in optimistic mode: %v", err)
	}
	a, b := st.Clone(), st.Clone()
	a.Add("null_resource.a[0]")
	b.Add("null_resource.b[0]")
	a.SetSerial(2)
	b.SetSerial(2)
	if _, err := f.write("s", "second", b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if w, err := f.write("s", "first", a.Bytes()); err != nil || !w.Merged {
		t.Fatalf("a session from before the change: %+v, %v", w, err)
	}
	if _, err := f.s.PatchState(ctx, f.actor, f.ref("s"), wire.StatePatch{LockMode: ptr("exclusive")}); err != nil {
		t.Fatal(err)
	}
	if err := f.lock("s", "third", wire.OperationApply); !fault.Is(err, fault.Locked) {
		t.Errorf("in exclusive mode again, with sessions open: %v", err)
	}
	b.Add("null_resource.b[1]")
	b.SetSerial(3)
	if w, err := f.write("s", "second", b.Bytes()); err != nil || !w.Merged {
		t.Errorf("a shared session after the change: %+v, %v", w, err)
	}
	l, err := f.s.LockState(ctx, f.ref("s"))
	if err != nil || len(l.Holders) != 2 {
		t.Errorf("holders: %+v, %v", l, err)
	}
	got, err := f.s.State(ctx, f.ref("s"))
	if err != nil || got.InstanceCount != int64(st.Len()+3) {
		t.Errorf("%d instances, want %d (%v)", got.InstanceCount, st.Len()+3, err)
	}
	for _, id := range []string{"first", "second"} {
		if err := f.unlock("s", id); err != nil {
			t.Error(err)
		}
	}
}

// Places in the queue are served in order, and end when nobody comes back.
func TestQueue(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f, _ := seeded(t, store.Options{Now: func() time.Time { return now }})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(id, op string) {
		t.Helper()
		if err := f.lock("s", id, op); !fault.Is(err, fault.Locked) {
			t.Fatalf("LOCK %s: %v", id, err)
		}
	}
	must(f.lock("s", "A", wire.OperationApply))
	refused("B", wire.OperationApply) // comes once and never again
	refused("C", wire.OperationApply)
	refused("C", wire.OperationApply)
	refused("D", wire.OperationApply)
	refused("D", wire.OperationApply)
	must(f.unlock("s", "A"))
	refused("D", wire.OperationApply) // C is in front
	refused("E", wire.OperationPlan)  // a plan does not pass an apply that waits
	must(f.lock("s", "C", wire.OperationApply))
	must(f.unlock("s", "C"))
	now = now.Add(41 * time.Second) // D has not come back
	must(f.lock("s", "F", wire.OperationPlan))
	must(f.lock("s", "G", wire.OperationPlan))
	refused("H", wire.OperationApply)
	refused("H", wire.OperationApply)
	refused("I", wire.OperationPlan) // H waits
	f.reopen()
	refused("I", wire.OperationPlan)
	must(f.unlock("s", "F"))
	must(f.unlock("s", "G"))
	must(f.lock("s", "H", wire.OperationApply))
	must(f.lock("s", "H", wire.OperationApply)) // a repeated request
	must(f.unlock("s", "H"))
	must(f.unlock("s", "H"))
	if err := f.unlock("s", "never"); !fault.Is(err, fault.LockMismatch) {
		t.Errorf("release of a lock that never was: %v", err)
	}
	must(f.unlock("s", ""))
}

// Where sessions share states, who waits for the first version of one comes in
// the moment that it is there.
func TestFirstVersionLetsWaitersIn(t *testing.T) {
	f := newFixture(t, store.Options{})
	mode := "optimistic"
	f.patch(wire.EnvironmentPatch{LockMode: &mode})
	if err := f.lock("s", "A", wire.OperationApply); err != nil {
		t.Fatal(err)
	}
	req := store.LockRequest{Ref: f.ref("s"), Actor: f.actor, Info: wire.LockInfo{ID: "B", Operation: wire.OperationApply}, Hold: time.Hour}
	granted := f.waiting(context.Background(), req)
	st := kltest.NewState(3, 1)
	st.SetSerial(1)
	if _, err := f.write("s", "A", st.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Errorf("not let in: %v", err)
	}
}

// What ends by itself wakes nobody: a held request looks once more before it is
// refused.
func TestHeldLockLooksOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := seeded(t, store.Options{})
		ttl := wire.Duration(time.Minute)
		f.patch(wire.EnvironmentPatch{LockIdleTTL: &ttl})
		if err := f.lock("s", "A", wire.OperationApply); err != nil {
			t.Fatal(err)
		}
		req := store.LockRequest{Ref: f.ref("s"), Actor: f.actor, Info: wire.LockInfo{ID: "B", Operation: wire.OperationApply}, Hold: 2 * time.Minute}
		if err := f.s.Lock(context.Background(), req); !fault.Is(err, fault.Locked) {
			t.Fatalf("beside a lock that lives: %v", err)
		}
		start := time.Now()
		if err := f.s.Lock(context.Background(), req); err != nil {
			t.Errorf("a lock that became idle meanwhile: %v", err)
		}
		if took := time.Since(start); took < time.Minute {
			t.Errorf("granted after %v", took)
		}
	})
}

// waiting asks twice for a lock that is taken: the first request is answered at
// once, the second one held. It returns when that has its place, with what will
// be its answer.
func (f *fixture) waiting(ctx context.Context, req store.LockRequest) <-chan error {
	f.tb.Helper()
	if err := f.s.Lock(ctx, req); !fault.Is(err, fault.Locked) {
		f.tb.Fatalf("the first request is not refused at once: %v", err)
	}
	granted := make(chan error, 1)
	go func() { granted <- f.s.Lock(ctx, req) }()
	for {
		l, err := f.s.LockState(context.Background(), req.Ref)
		if err != nil {
			f.tb.Fatal(err)
		}
		if len(l.Queue) == 1 {
			return granted
		}
	}
}

// A held request gets the lock the moment it is free.
func TestHeldLockIsHandedOver(t *testing.T) {
	f, _ := seeded(t, store.Options{})
	if err := f.lock("s", "A", wire.OperationApply); err != nil {
		t.Fatal(err)
	}
	req := store.LockRequest{Ref: f.ref("s"), Actor: f.actor, Info: wire.LockInfo{ID: "B", Operation: wire.OperationApply}, Hold: time.Minute}
	granted := f.waiting(context.Background(), req)
	if err := f.unlock("s", "A"); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Fatalf("not handed over: %v", err)
	}

	// a client that goes away gives its place up
	req.Info.ID = "C"
	ctx, cancel := context.WithCancel(context.Background())
	granted = f.waiting(ctx, req)
	cancel()
	if err := <-granted; !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled wait: %v", err)
	}
	if l, err := f.s.LockState(context.Background(), f.ref("s")); err != nil || len(l.Queue) != 0 {
		t.Errorf("the place is still there: %+v, %v", l, err)
	}
}
