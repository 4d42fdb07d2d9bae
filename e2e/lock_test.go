package e2e

import (
	"strings"
	"testing"
	"time"

	"kl/client"
	"kl/fault"
	"kl/wire"
)

// holding starts an apply that stands at its gate and holds the state's lock.
func holding(t *testing.T, s *server, state string) (*workdir, *process) {
	t.Helper()
	w := initWorkdir(t, gated("held"), s.env(state))
	apply := w.start("apply")
	w.awaitGate("held_gate", apply)
	return w, apply
}

func finish(t *testing.T, w *workdir, gate string, apply *process) {
	t.Helper()
	w.openGate(gate)
	if r := apply.result(clientPatience); r.code != 0 {
		t.Fatalf("apply: exit %d\n%s", r.code, r.out)
	}
}

// TestContention has two directories on one state: the second is refused and
// told who holds the lock.
func TestContention(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w, apply := holding(t, s, "prod")
	holder := s.holder("prod")
	if holder.Operation != wire.OperationApply || holder.Who == "" || holder.Stale {
		t.Errorf("holder: got %+v", holder)
	}

	other := initWorkdir(t, httpBackend+item("other", `"1"`), s.env("prod"))
	for _, verb := range [][]string{{"plan"}, {"apply"}, {"destroy"}} {
		other.fails(verb, "Error acquiring the state lock", "already locked: ID="+holder.ID)
	}
	other.must("plan", "-lock=false")
	if out := s.mustKL("lock", "show", "prod"); !strings.Contains(out, holder.ID) || !strings.Contains(out, holder.Who) {
		t.Errorf("kl lock show names neither the lock nor its holder:\n%s", out)
	}

	finish(t, w, "held_gate", apply)
	s.wantUnlocked("prod")
	other.must("plan")
}

// TestPlansShare lets plans run beside each other and keeps applies out.
func TestPlansShare(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := initWorkdir(t, httpBackend+item("a", `"1"`), s.env("prod"))
	w.must("apply")

	info := wire.LockInfo{ID: "a-plan-of-somebody", Operation: wire.OperationPlan, Who: "ana@laptop", Version: "1.11.4"}
	if err := s.client().Lock(s.ctx(), s.ref("prod"), info); err != nil {
		t.Fatal(err)
	}
	w.must("plan", "-detailed-exitcode")
	w.fails([]string{"apply"}, "already locked: ID=a-plan-of-somebody")
	if err := s.client().Unlock(s.ctx(), s.ref("prod"), info); err != nil {
		t.Fatal(err)
	}
	w.must("apply")
}

// TestLockTimeout has two that wait: they get the lock in the order they came.
func TestLockTimeout(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w, apply := holding(t, s, "prod")

	waiting := func(name string, place int) (*workdir, *process, string) {
		dir := initWorkdir(t, httpBackend+item(name, `"1"`), s.env("prod"))
		p := dir.start("apply", "-lock-timeout=2m")
		var id string
		await(t, name+" has a place in the queue", func() bool {
			queue := s.lock("prod").Queue
			if len(queue) < place {
				return false
			}
			id = queue[place-1].ID
			return true
		}, p.out.String)
		return dir, p, id
	}
	_, first, firstID := waiting("first", 1)
	_, second, secondID := waiting("second", 2)

	finish(t, w, "held_gate", apply)
	for name, p := range map[string]*process{"first": first, "second": second} {
		if r := p.result(clientPatience); r.code != 0 {
			t.Errorf("%s: exit %d\n%s", name, r.code, r.out)
		}
	}
	var order []string
	for _, v := range s.versions("prod") {
		if v.LockID == firstID || v.LockID == secondID {
			order = append(order, v.LockID)
		}
	}
	if len(order) < 2 || order[0] != firstID || order[len(order)-1] != secondID {
		t.Errorf("versions were written by %v, want first %s and then %s", order, firstID, secondID)
	}
	s.wantUnlocked("prod")
}

// TestLockTimeoutRunsOut ends a wait in vain: the holder is named, and the place
// in the queue does not keep anybody out afterwards.
func TestLockTimeoutRunsOut(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w, apply := holding(t, s, "prod")
	other := initWorkdir(t, httpBackend, s.env("prod"))
	other.fails([]string{"plan", "-lock-timeout=2s"}, "already locked: ID="+s.holder("prod").ID)
	finish(t, w, "held_gate", apply)
	other.must("plan")
}

// TestInterruptedWait presses Ctrl-C while the client waits for the lock.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w, apply := holding(t, s, "prod")
	other := initWorkdir(t, httpBackend, s.env("prod"))
	wait := other.start("apply", "-lock-timeout=10m")
	await(t, "a place in the queue", func() bool { return len(s.lock("prod").Queue) == 1 }, wait.out.String)
	interrupt(wait)
	if code := wait.wait(clientPatience); code != 1 {
		t.Errorf("interrupted wait: exit %d, want 1", code)
	}
	finish(t, w, "held_gate", apply)
	s.wantUnlocked("prod")
}

// TestForceUnlock runs terraform force-unlock, which sends no ID, on a lock
// whose holder is gone.
func TestForceUnlock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := initWorkdir(t, httpBackend+item("a", `"1"`), s.env("prod"))
	w.must("apply")
	info := wire.LockInfo{ID: "11111111-2222-3333-4444-555555555555", Operation: wire.OperationApply, Who: "ghost@ci", Version: "1.11.4"}
	if err := s.client().Lock(s.ctx(), s.ref("prod"), info); err != nil {
		t.Fatal(err)
	}
	s.restart(true)
	w.fails([]string{"apply"}, "already locked: ID="+info.ID)
	w.must("force-unlock", "-force", info.ID)
	s.wantUnlocked("prod")
	w.must("apply")

	forced := false
	for e, err := range s.client().Events(s.ctx(), client.EventFilter{State: "prod"}) {
		if err != nil {
			t.Fatal(err)
		}
		forced = forced || strings.Contains(e.Kind, "forced") || strings.Contains(e.Kind, "force")
	}
	if !forced {
		t.Error("no event tells of the forced unlock")
	}
}

// TestForcedOut opens a lock whose holder lives on: its write is refused and
// kept, and the client leaves errored.tfstate.
func TestForcedOut(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w, apply := holding(t, s, "prod")
	id := s.holder("prod").ID
	s.mustKL("lock", "release", "prod", "--id", id)
	s.wantUnlocked("prod")

	w.openGate("held_gate")
	r := apply.result(clientPatience)
	if r.code != 1 {
		t.Fatalf("apply: exit %d, want 1\n%s", r.code, r.out)
	}
	wantText(t, r.out, "Failed to save state", "HTTP error: 409")
	kept := s.refused("prod")
	if len(kept) != 1 || kept[0].Code != string(fault.LockNotHeld) || kept[0].LockID != id {
		t.Fatalf("refused writes: got %+v, want one with code %s and lock %s", kept, fault.LockNotHeld, id)
	}
	wantNames(t, s.refusedBody("prod", kept[0].ID), "held_before", "held_behind", "held_gate")
	if got := s.versions("prod"); len(got) != 0 {
		t.Errorf("the head moved: %+v", got)
	}
}

// TestServerDies kills the server in the middle of an apply. The lock and the
// session live on in the file, and the apply ends as if nothing had been.
func TestServerDies(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w, apply := holding(t, s, "prod")
	before := s.holder("prod")
	s.restart(true)
	after := s.holder("prod")
	if after.ID != before.ID || !after.Since.Equal(before.Since) {
		t.Errorf("lock after the restart: got %+v, want %+v", after, before)
	}
	finish(t, w, "held_gate", apply)
	s.wantUnlocked("prod")
	if age := time.Since(s.head("prod").CreatedAt); age < 0 || age > clientPatience {
		t.Errorf("head was written %s ago", age)
	}
	wantNames(t, s.pull("prod"), "held_before", "held_behind", "held_gate")
}
