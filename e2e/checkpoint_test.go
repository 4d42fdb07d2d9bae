package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// exampleDir copies examples/big-state, so that the run leaves nothing behind.
func exampleDir(t *testing.T, env []string) *workdir {
	t.Helper()
	w := newWorkdir(t, "", env)
	if err := os.Remove(w.path("main.tf")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(w.dir, os.DirFS(filepath.FromSlash("../examples/big-state"))); err != nil {
		t.Fatal(err)
	}
	w.must("init")
	return w
}

// TestLongApply runs examples/big-state as its README says: an apply and a
// destroy of more than a minute each, with several checkpoints, none of which
// is refused, and counts that move only at checkpoints.
func TestLongApply(t *testing.T) {
	t.Parallel()
	long(t)
	s := startServer(t)
	w := exampleDir(t, s.env("big"))
	vars := []string{"-var", "size=120", "-var", "slow_seconds=9"}
	const instances = 128

	w.must(append([]string{"apply"}, vars...)...)
	applied := s.versions("big")
	if len(applied) < 3 {
		t.Errorf("the apply made %d versions, want at least 3 checkpoints", len(applied))
	}
	var last int64
	for _, v := range applied {
		if v.LockID != applied[0].LockID || v.ResourceCount < last {
			t.Errorf("version %d: lock %s, %d resources after %d; want one session whose count grows", v.Version, v.LockID, v.ResourceCount, last)
		}
		last = v.ResourceCount
	}
	if last != instances {
		t.Errorf("after the apply: %d resources, want %d", last, instances)
	}
	if got := strings.TrimSpace(w.must("output", "instances")); got != strconv.Itoa(instances) {
		t.Errorf("output instances: got %s, want %d", got, instances)
	}

	t.Log("a change in place is one small version")
	w.must(append([]string{"apply", "-var", "revision=2"}, vars...)...)
	if v := s.head("big"); v.Changed == 0 || v.Added != 0 || v.Removed != 0 {
		t.Errorf("revision 2: got %d added, %d changed, %d removed, want changes alone", v.Added, v.Changed, v.Removed)
	}

	before := len(s.versions("big"))
	w.must(append([]string{"destroy"}, vars...)...)
	all := s.versions("big")
	if n := len(all) - before; n < 3 {
		t.Errorf("the destroy made %d versions, want at least 3 checkpoints", n)
	}
	if got := s.head("big").ResourceCount; got != 0 {
		t.Errorf("after the destroy: %d resources", got)
	}
	if got := s.refused("big"); len(got) != 0 {
		t.Errorf("writes were refused: %+v", got)
	}
	s.wantUnlocked("big")
	wantChain(t, s, "big")
}
