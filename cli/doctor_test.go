package cli_test

import (
	"strings"
	"testing"

	"kl/kltest"
	"kl/server"
	"kl/wire"
)

// TestDoctorTellsOfTheClock runs the doctor with a clock that is far from the
// server's.
func TestDoctorTellsOfTheClock(t *testing.T) {
	s := kltest.Start(t)
	got := run(t, nil, "doctor", "--address", s.StateURL("demo"), "--username", s.Bootstrap.WorkspaceID, "--password", s.Bootstrap.AutomationToken)
	if got.exit != 0 || !strings.Contains(got.stdout, "warn  clock") || !strings.Contains(got.stderr, "clock: set the clock of the machine that is wrong") {
		t.Errorf("kl doctor: %+v, want exit 0 and a warning about the clock", got)
	}
}

// TestDoctorNamesWhoComesFirst: a lock that nobody holds may still be somebody
// else's.
func TestDoctorNamesWhoComesFirst(t *testing.T) {
	s := kltest.Start(t, kltest.WithServer(func(o *server.Options) { o.Hold = -1 }))
	for _, c := range []struct{ verb, id string }{{"LOCK", "one"}, {"LOCK", "two"}, {"LOCK", "two"}, {"UNLOCK", "one"}} {
		s.Do(s.Automation(), c.verb, s.StateURL("demo"), kltest.LockBody(c.id, wire.OperationApply))
	}
	got := run(t, nil, "doctor", "--address", s.StateURL("demo"), "--username", s.Bootstrap.WorkspaceID, "--password", s.Bootstrap.AutomationToken)
	if got.exit != 0 || !strings.Contains(got.stdout, "nobody holds it, but ") || !strings.Contains(got.stdout, " comes first") ||
		!strings.Contains(got.stderr, "lock: wait with -lock-timeout=5m, or look with: kl lock show demo") {
		t.Errorf("kl doctor: %+v, want exit 0 and a warning about the one who waits", got)
	}
}
