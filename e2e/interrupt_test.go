package e2e

import (
	"strings"
	"testing"
)

// TestInterruptedApply presses Ctrl-C in the middle of an apply: what was built
// is in the state, and the lock is free.
func TestInterruptedApply(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w, apply := holding(t, s, "prod")
	interrupt(apply)
	if r := apply.result(clientPatience); r.code != 1 {
		t.Errorf("interrupted apply: exit %d, want 1\n%s", r.code, r.out)
	}
	got := parseState(t, s.pull("prod")).names()
	if !strings.Contains(strings.Join(got, " "), "held_before") {
		t.Errorf("the state has %v, want what was built", got)
	}
	s.wantUnlocked("prod")
	noFile(t, w.path("errored.tfstate"))

	w.openGate("held_gate")
	w.must("apply")
	wantNames(t, s.pull("prod"), "held_before", "held_behind", "held_gate")
}

// TestKilledApply kills the client in the middle of an apply. What its last
// checkpoint told is there; the lock stays until somebody releases it.
func TestKilledApply(t *testing.T) {
	t.Parallel()
	long(t)
	s := startServer(t)
	// an event 21 s after the first one is what makes the client send a checkpoint
	config := httpBackend + item("start", `"x"`) + `
resource "terraform_data" "late" {
  input = terraform_data.start.id
  provisioner "local-exec" {
    command = "sleep 21"
  }
}
` + gate("held", "terraform_data.late.id")
	w := initWorkdir(t, config, s.env("prod"))
	apply := w.start("apply")
	w.awaitGate("held", apply)
	await(t, "a checkpoint", func() bool { return len(s.versions("prod")) > 0 }, apply.out.String)
	apply.kill()

	holder := s.holder("prod")
	if holder.Checkpoints != 1 {
		t.Errorf("holder: %d checkpoints, want 1: %+v", holder.Checkpoints, holder)
	}
	s.restart(true)
	if got := s.holder("prod").ID; got != holder.ID {
		t.Errorf("after a restart %s holds the lock, want %s", got, holder.ID)
	}
	wantNames(t, s.pull("prod"), "start", "late")
	again := initWorkdir(t, config, s.env("prod"))
	again.fails([]string{"apply"}, "already locked: ID="+holder.ID)
	if r := s.kl("lock", "release", "prod", "--id", "not-the-one"); r.code != 2 {
		t.Errorf("release of another lock: exit %d, want 2\n%s", r.code, r.out)
	}
	s.mustKL("lock", "release", "prod", "--id", holder.ID)
	s.wantUnlocked("prod")

	again.openGate("held")
	wantText(t, again.must("apply"), "Resources: 1 added, 0 changed, 0 destroyed")
	wantNames(t, s.pull("prod"), "start", "late", "held")
}
