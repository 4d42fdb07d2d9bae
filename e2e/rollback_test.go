package e2e

import (
	"bytes"
	"strings"
	"testing"
)

// TestRollback goes back to an earlier version under the real client: its
// content is that version's but for the serial, plans and applies go on with no
// flags, a plan saved before is stale, and another rollback undoes it.
func TestRollback(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one := httpBackend + item("a", `"1"`) + item("b", "terraform_data.a.id") + item("old", `"x"`)
	two := httpBackend + item("a", `"2"`) + item("b", "terraform_data.a.id") + item("new", `"y"`)
	w := initWorkdir(t, one, s.env("prod"))
	w.must("apply")
	then := s.pull("prod")
	w.write("main.tf", two)
	w.must("apply")
	later := s.pull("prod")
	w.must("plan", "-out=before.tfplan")

	wantText(t, s.mustKL("rollback", "prod", "--to", "@1", "--dry-run"), "+ terraform_data.old (comes back)", "~ terraform_data.a (becomes what it was)", "- terraform_data.new (goes")
	if got := s.pull("prod"); !bytes.Equal(got, later) {
		t.Error("a dry run changed the state")
	}
	s.mustKL("rollback", "prod", "--to", "@1")
	raise := func(b []byte, from, to string) []byte {
		return bytes.Replace(b, []byte(`"serial": `+from+`,`), []byte(`"serial": `+to+`,`), 1)
	}
	if got := s.pull("prod"); !bytes.Equal(got, raise(then, "1", "3")) {
		t.Errorf("after the rollback:\n%s\nwant, but for the serial,\n%s", got, then)
	}
	w.fails([]string{"apply", "before.tfplan"}, "Saved plan is stale")
	w.write("main.tf", one)
	w.must("plan", "-detailed-exitcode")
	wantText(t, w.must("apply"), "No changes.")
	if h := s.head("prod"); h.Serial != 3 || h.Source != "rollback" || h.RollbackTo != 1 {
		t.Errorf("the newest version is %+v", h)
	}

	t.Log("undone")
	s.mustKL("rollback", "prod", "--to", "2")
	if got := s.pull("prod"); !bytes.Equal(got, raise(later, "2", "4")) {
		t.Errorf("undone:\n%s\nwant, but for the serial,\n%s", got, later)
	}
	w.write("main.tf", two)
	w.must("plan", "-detailed-exitcode")

	t.Log("one address")
	s.mustKL("rollback", "prod", "--to", "1", "--address", "terraform_data.a")
	wantNames(t, s.pull("prod"), "a", "b", "new")
	if got := input(t, s.pull("prod"), "a"); got != "1" {
		t.Errorf("a has the input %q, want that of version 1", got)
	}
	wantText(t, w.must("apply"), "0 added, 1 changed, 0 destroyed")
	if got := s.head("prod"); got.Serial != 6 || got.Source != "write" {
		t.Errorf("the newest version is %+v", got)
	}
	wantText(t, s.mustKL("diff", "2", "head", "--state", "prod"), "no instance differs")
}

// TestRollbackBesideAnApply: while an apply is running, a state in exclusive
// mode is not rolled back. In optimistic mode it is, and what the apply writes
// afterwards is merged with it.
func TestRollbackBesideAnApply(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	first := httpBackend + item("kept", `"1"`)
	w := initWorkdir(t, first, s.env("prod"))
	w.must("apply")
	w.write("main.tf", strings.Replace(first, `"1"`, `"2"`, 1))
	w.must("apply")
	w.write("main.tf", strings.Replace(first, `"1"`, `"2"`, 1)+chain("ana"))

	s.mustKL("state", "set", "prod", "--lock-mode", "exclusive")
	apply := w.start("apply")
	w.awaitGate("ana_gate", apply)
	if r := s.kl("rollback", "prod", "--to", "1"); r.code != 2 || !strings.Contains(r.out, "is locked by") {
		t.Errorf("rollback while the lock is held: exit %d\n%s", r.code, r.out)
	}
	w.openGate("ana_gate")
	wantDone(t, apply.result(clientPatience))

	s.mustKL("state", "set", "prod", "--lock-mode", "optimistic")
	ben := initWorkdir(t, strings.Replace(first, `"1"`, `"2"`, 1)+chain("ana")+chain("ben"), s.env("prod"))
	apply = ben.start("apply")
	ben.awaitGate("ben_gate", apply)
	s.mustKL("rollback", "prod", "--to", "1", "--address", "terraform_data.kept")
	ben.openGate("ben_gate")
	wantDone(t, apply.result(clientPatience))
	wantNames(t, s.pull("prod"), append([]string{"kept"}, chained...)...)
	if got := input(t, s.pull("prod"), "kept"); got != "1" {
		t.Errorf("the apply has undone the rollback: the input is %q", got)
	}
}
