package e2e

import (
	"bytes"
	"strings"
	"testing"

	"kl/fault"
	"kl/wire"
)

// put writes a state as another client would, under a lock of its own.
func (s *server) put(state, lockID string, body []byte) {
	s.tb.Helper()
	info := wire.LockInfo{ID: lockID, Operation: wire.OperationApply, Who: "somebody@else", Version: "1.11.4"}
	if err := s.client().Lock(s.ctx(), s.ref(state), info); err != nil {
		s.tb.Fatalf("lock %s: %v", state, err)
	}
	if _, err := s.client().Push(s.ctx(), s.ref(state), lockID, body); err != nil {
		s.tb.Fatalf("write %s: %v", state, err)
	}
	if err := s.client().Unlock(s.ctx(), s.ref(state), info); err != nil {
		s.tb.Fatalf("unlock %s: %v", state, err)
	}
}

// TestForeignWrite lets somebody force the lock open and write in the middle of
// an apply. The apply's own write is refused, kept byte for byte, and holds back
// the next apply until it is settled.
func TestForeignWrite(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	seed := initWorkdir(t, httpBackend+item("seed", `"1"`), s.env("prod"))
	seed.must("apply")

	config := httpBackend + item("seed", `"1"`) + gate("slow", "terraform_data.seed.id")
	w := initWorkdir(t, config, s.env("prod"))
	apply := w.start("apply")
	w.awaitGate("slow", apply)
	s.mustKL("lock", "release", "prod", "--id", s.holder("prod").ID)
	s.put("prod", "foreign-lock", withSerial(t, s.pull("prod"), 2))
	head := s.head("prod")

	w.openGate("slow")
	r := apply.result(clientPatience)
	if r.code != 1 {
		t.Fatalf("apply: exit %d, want 1\n%s", r.code, r.out)
	}
	wantText(t, r.out, "Failed to save state", "HTTP error: 409")
	if got := s.head("prod"); got.Version != head.Version || got.SHA256 != head.SHA256 {
		t.Errorf("the head moved: got %+v, want %+v", got, head)
	}
	kept := s.refused("prod")
	if len(kept) != 1 || kept[0].Class != string(fault.Lock) || kept[0].Status != "open" || !kept[0].Holds {
		t.Fatalf("refused writes: got %+v, want one of class lock that holds", kept)
	}
	body := s.refusedBody("prod", kept[0].ID)
	if sum(body) != kept[0].SHA256 {
		t.Error("the kept bytes do not have the digest of their record")
	}
	if errored := readFile(t, w.path("errored.tfstate")); !bytes.Equal(bytes.TrimSpace(errored), bytes.TrimSpace(body)) {
		t.Errorf("what is kept differs from errored.tfstate:\n%s\n%s", body, errored)
	}

	t.Log("the next apply is held back with a sentence; a plan is not")
	w.must("plan")
	w.fails([]string{"apply"}, "Error acquiring the state lock", kept[0].ID, "kl recover show")
	if out := s.mustKL("recover", "list", "--state", "prod"); !strings.Contains(out, kept[0].ID) {
		t.Errorf("kl recover list does not name %s:\n%s", kept[0].ID, out)
	}
	s.mustKL("recover", "discard", kept[0].ID, "--state", "prod")
	w.must("apply")
	wantNames(t, s.pull("prod"), "seed", "slow")
}

// TestErroredPush settles the hold with terraform's own means: the bytes that
// the client kept are pushed.
func TestErroredPush(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w, apply := holding(t, s, "prod")
	s.mustKL("lock", "release", "prod", "--id", s.holder("prod").ID)
	w.openGate("held_gate")
	if code := apply.wait(clientPatience); code != 1 {
		t.Fatalf("apply: exit %d, want 1", code)
	}
	w.fails([]string{"apply"}, "kl recover show")
	w.must("state", "push", "errored.tfstate")
	wantNames(t, s.pull("prod"), "held_before", "held_behind", "held_gate")
	w.must("plan", "-detailed-exitcode")
	wantText(t, w.must("apply"), "No changes.")
}

// TestUnlockedWrites applies with -lock=false while others write.
func TestUnlockedWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(s *server)
		code      fault.Code
	}{
		"others hold the lock": {func(s *server) {
			info := wire.LockInfo{ID: "held-by-others", Operation: wire.OperationApply, Who: "somebody@else"}
			if err := s.client().Lock(s.ctx(), s.ref("prod"), info); err != nil {
				s.tb.Fatal(err)
			}
		}, fault.LockRequired},
		"others have written": {func(s *server) {
			s.put("prod", "foreign-lock", withSerial(s.tb, s.pull("prod"), 2))
		}, fault.SerialConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			initWorkdir(t, httpBackend+item("seed", `"1"`), s.env("prod")).must("apply")
			w := initWorkdir(t, httpBackend+item("seed", `"1"`)+gate("slow", "terraform_data.seed.id"), s.env("prod"))
			apply := w.start("apply", "-lock=false")
			w.awaitGate("slow", apply)
			c.meanwhile(s)
			head := s.head("prod")
			w.openGate("slow")
			if code := apply.wait(clientPatience); code != 1 {
				t.Fatalf("apply: exit %d, want 1\n%s", code, apply.out.String())
			}
			kept := s.refused("prod")
			if len(kept) != 1 || kept[0].Code != string(c.code) {
				t.Fatalf("refused writes: got %+v, want one with code %s", kept, c.code)
			}
			wantNames(t, s.refusedBody("prod", kept[0].ID), "seed", "slow")
			wantNames(t, readFile(t, w.path("errored.tfstate")), "seed", "slow")
			if got := s.head("prod"); got.Version != head.Version {
				t.Errorf("the head moved to version %d", got.Version)
			}
		})
	}
}

// TestFirstCreateRace has two first applies of one state. With locks the second
// waits for the first; a client whose lock was forced open loses nothing,
// although it sends back the other's state: the real client does that when it
// finds a state where it saw none.
func TestFirstCreateRace(t *testing.T) {
	t.Parallel()
	t.Run("locked", func(t *testing.T) {
		t.Parallel()
		s := startServer(t)
		w, apply := holding(t, s, "prod")
		second := initWorkdir(t, gated("held")+item("more", `"1"`), s.env("prod"))
		p := second.start("apply", "-lock-timeout=2m")
		await(t, "the second waits", func() bool { return len(s.lock("prod").Queue) == 1 }, p.out.String)
		finish(t, w, "held_gate", apply)
		r := p.result(clientPatience)
		if r.code != 0 {
			t.Fatalf("second apply: exit %d\n%s", r.code, r.out)
		}
		wantText(t, r.out, "Resources: 1 added, 0 changed, 0 destroyed")
		wantNames(t, s.pull("prod"), "held_before", "held_behind", "held_gate", "more")
	})
	t.Run("forced open", func(t *testing.T) {
		t.Parallel()
		s := startServer(t)
		w, apply := holding(t, s, "prod")
		s.mustKL("lock", "release", "prod", "--id", s.holder("prod").ID)
		initWorkdir(t, httpBackend+item("theirs", `"1"`), s.env("prod")).must("apply")
		w.openGate("held_gate")
		r := apply.result(clientPatience)
		if r.code != 1 {
			t.Fatalf("apply: exit %d, want 1\n%s", r.code, r.out)
		}
		wantNames(t, s.pull("prod"), "theirs")
		wantNames(t, readFile(t, w.path("errored.tfstate")), "held_before", "held_behind", "held_gate")
	})
}

// TestAllow replaces a state by another one on purpose, and goes back to a lower
// serial: each needs a permission, which is good for one write.
func TestAllow(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := initWorkdir(t, httpBackend+item("a", `"1"`), s.env("prod"))
	w.must("apply")
	lineage := s.head("prod").Lineage

	foreign := initWorkdir(t, item("foreign", `"1"`), nil)
	foreign.must("apply")
	w.write("foreign.tfstate", string(withSerial(t, readFile(t, foreign.path("terraform.tfstate")), 40)))
	w.fails([]string{"state", "push", "-force", "foreign.tfstate"}, "HTTP error: 409")
	wantNames(t, s.pull("prod"), "a")
	s.mustKL("state", "allow", "prod", "--lineage")
	w.must("state", "push", "-force", "foreign.tfstate")
	wantNames(t, s.pull("prod"), "foreign")
	if got := s.head("prod"); got.Lineage == lineage || got.Serial != 41 {
		t.Errorf("after the push: lineage %s, serial %d; want another lineage and 41", got.Lineage, got.Serial)
	}

	w.write("lower.tfstate", string(withSerial(t, readFile(t, foreign.path("terraform.tfstate")), 4)))
	w.fails([]string{"state", "push", "-force", "lower.tfstate"}, "HTTP error: 409")
	s.mustKL("state", "allow", "prod", "--lower-serial")
	w.must("state", "push", "-force", "lower.tfstate")
	if got := s.head("prod").Serial; got != 5 {
		t.Errorf("after the push: serial %d, want 5", got)
	}
	w.fails([]string{"state", "push", "-force", "lower.tfstate"}, "HTTP error: 409")
}
