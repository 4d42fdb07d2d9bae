package cli_test

import (
	"strings"
	"testing"

	"kl/kltest"
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
