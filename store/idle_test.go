package store_test

import (
	"context"
	"testing"
	"time"

	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// idling is a fixture whose environment releases locks after ten minutes of
// silence, with a state s of serial 1.
func idling(t *testing.T) (*fixture, *clock, *kltest.State) {
	at := &clock{}
	at.set(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	f, st := seeded(t, store.Options{Now: at.now})
	ttl := wire.Duration(10 * time.Minute)
	f.patch(wire.EnvironmentPatch{LockIdleTTL: &ttl})
	return f, at, st
}

func (c *clock) advance(d time.Duration) { c.set(c.now().Add(d)) }

func TestIdleLocksAreReleased(t *testing.T) {
	f, at, st := idling(t)
	if err := f.lock("s", "A", "OperationTypeApply"); err != nil {
		t.Fatal(err)
	}
	for range 3 { // a write is a sign of life
		at.advance(9 * time.Minute)
		if err := f.lock("s", "B", "OperationTypeApply"); !fault.Is(err, fault.Locked) {
			t.Fatalf("LOCK beside one that lives: %v", err)
		}
		st.Mutate(1)
		st.SetSerial(st.Serial() + 1)
		if _, err := f.write("s", "A", st.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	at.advance(11 * time.Minute)
	l, err := f.s.LockState(context.Background(), f.ref("s"))
	if err != nil || len(l.Holders) != 0 {
		t.Errorf("after eleven minutes: %+v, %v", l, err)
	}
	if err := f.lock("s", "B", "OperationTypeApply"); err != nil {
		t.Fatalf("LOCK after eleven minutes: %v", err)
	}
	if e := f.events("lock_expired"); len(e) != 1 || e[0].Detail["lock_id"] != "A" {
		t.Errorf("the audit trail has %+v", e)
	}
	late := stray(st, 1)
	late.SetSerial(st.Serial() + 1)
	_, err = f.write("s", "A", late.Bytes())
	if !fault.Is(err, fault.LockNotHeld) {
		t.Errorf("a write of the lock that ended: %v", err)
	}
	refusedOf(t, err)
	if err := f.unlock("s", "A"); err != nil {
		t.Errorf("UNLOCK of the lock that ended: %v", err)
	}
	if err := f.unlock("s", "B"); err != nil {
		t.Errorf("UNLOCK: %v", err)
	}
}

// Whom a silent lock does not keep out, it does not overwrite either, although
// its next serials follow the head's as if nothing had happened.
func TestIdleLocksDoNotOverwrite(t *testing.T) {
	for name, pass := range map[string]func(f *fixture, other *kltest.State) error{
		"a write without a lock": func(f *fixture, other *kltest.State) error {
			_, err := f.write("s", "", other.Bytes())
			return err
		},
		"a rollback": func(f *fixture, _ *kltest.State) error {
			_, err := f.rollback("s", wire.RollbackRequest{To: "1"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, at, st := idling(t)
			if err := f.lock("s", "A", "OperationTypeApply"); err != nil {
				t.Fatal(err)
			}
			st.Mutate(1)
			st.SetSerial(2)
			if _, err := f.write("s", "A", st.Bytes()); err != nil {
				t.Fatal(err)
			}
			other := stray(st, 1)
			other.SetSerial(3)
			if err := pass(f, other); !fault.Is(err, fault.LockRequired) {
				t.Fatalf("beside a lock that lives: %v", err)
			}
			at.advance(11 * time.Minute)
			if err := pass(f, other); err != nil {
				t.Fatalf("beside a lock that is idle: %v", err)
			}
			late := stray(st, 2)
			late.SetSerial(4) // a client adds one for each attempt
			if _, err := f.write("s", "A", late.Bytes()); err != nil {
				t.Fatalf("the silent lock writes again: %v", err)
			}
			d := f.diff("s", store.DiffQuery{From: "3", To: "4"})
			if len(d.Added) != 1 || d.Added[0].Address != "null_resource.stray[2]" || len(d.Changed)+len(d.Removed)+len(d.Moved) != 0 {
				t.Errorf("the silent lock's write has made of what was written meanwhile: %+v", d)
			}
		})
	}
}

// While nobody has come in between, a lock that was silent too long loses nothing.
func TestIdleLockThatNobodyMissed(t *testing.T) {
	f, at, st := idling(t)
	if err := f.lock("s", "A", "OperationTypeApply"); err != nil {
		t.Fatal(err)
	}
	at.advance(time.Hour)
	st.Mutate(1)
	st.SetSerial(2)
	if _, err := f.write("s", "A", st.Bytes()); err != nil {
		t.Errorf("a write after an hour: %v", err)
	}
	if err := f.lock("s", "B", "OperationTypeApply"); !fault.Is(err, fault.Locked) {
		t.Errorf("LOCK beside one that lives again: %v", err)
	}
	at.advance(time.Hour)
	if err := f.s.Delete(context.Background(), f.actor, f.ref("s"), ""); err != nil {
		t.Errorf("the trash beside a lock that is idle: %v", err)
	}
}

// A session that was alone when it began does not overwrite what others merged
// in while the mode was another.
func TestModeThereAndBack(t *testing.T) {
	f, st := seeded(t, store.Options{})
	mode := func(m string) { f.patch(wire.EnvironmentPatch{LockMode: &m}) }
	for _, id := range []string{"A", "B"} {
		if err := f.lock("s", id, "OperationTypeApply"); err != nil {
			t.Fatal(err)
		}
		mode("optimistic")
	}
	mine, theirs := stray(st, 1), stray(st, 2)
	mine.SetSerial(3) // its second attempt
	theirs.SetSerial(2)
	if _, err := f.write("s", "B", theirs.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := f.unlock("s", "B"); err != nil {
		t.Fatal(err)
	}
	mode("exclusive")
	first := stray(st, 1)
	first.SetSerial(2)
	for _, body := range [][]byte{first.Bytes(), mine.Bytes()} {
		if _, err := f.write("s", "A", body); err != nil {
			t.Fatal(err)
		}
	}
	d := f.diff("s", store.DiffQuery{From: "2", To: "head"})
	if len(d.Added) != 1 || len(d.Changed)+len(d.Removed)+len(d.Moved) != 0 {
		t.Errorf("A has made of what B wrote: %+v", d)
	}
}
