package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kl/client"
	"kl/wire"
)

// crew is team in exclusive mode: colleagues who apply in runs.
func crew(t *testing.T, main string, args ...string) (s *server, ana, ben *workdir) {
	t.Helper()
	s = startServer(t, args...)
	initWorkdir(t, httpBackend+main, s.env("prod")).must("apply")
	ana = initWorkdir(t, httpBackend+main, s.envFor("ana", "prod"))
	ben = initWorkdir(t, httpBackend+main, s.envFor("ben", "prod"))
	return s, ana, ben
}

// inRun is the command line of an apply in a run.
func inRun(args ...string) []string {
	return append([]string{"apply", "--orchestrated", "-no-color"}, args...)
}

func (s *server) runs(live bool) []wire.Run { return s.runsOf("prod", live) }

func (s *server) runsOf(state string, live bool) []wire.Run {
	s.tb.Helper()
	list, err := client.Collect(s.client().Runs(s.ctx(), s.boot.EnvPublicID, state, live), 0)
	if err != nil {
		s.tb.Fatal(err)
	}
	return list
}

// theRun is the only run that goes on.
func (s *server) theRun() wire.Run {
	s.tb.Helper()
	list := s.runs(true)
	if len(list) != 1 {
		s.tb.Fatalf("runs that go on: got %+v, want one", list)
	}
	return list[0]
}

// give writes the same files into several directories.
func give(files map[string]string, to ...*workdir) {
	for _, w := range to {
		for name, text := range files {
			w.write(name, text)
		}
	}
}

// Two colleagues apply a file each of one state at the same time, in a state
// whose lock is exclusive; both land, and nothing is left to do.
func TestScopedAppliesOverlap(t *testing.T) {
	t.Parallel()
	s, ana, ben := crew(t, item("base", `"b"`))
	files := map[string]string{
		"ana.tf": gate("ana", "terraform_data.base.output") + item("ana_behind", "terraform_data.ana.id"),
		"ben.tf": gate("ben", "terraform_data.base.output") + item("ben_behind", "terraform_data.ben.id"),
	}
	give(files, ana, ben)
	p, q := ana.startKL(inRun("-f", "ana.tf")...), ben.startKL(inRun("-f", "ben.tf")...)
	ana.awaitGate("ana", p)
	ben.awaitGate("ben", q)
	runs := s.runs(true)
	if len(runs) != 2 || runs[0].Status != wire.RunApplying || runs[1].Status != wire.RunApplying {
		t.Fatalf("runs: got %+v, want two that apply", runs)
	}
	out := s.mustKL("runs", "prod", "--live")
	wantText(t, out, runs[0].ID, runs[1].ID, "terraform_data.ana, terraform_data.ana_behind")
	ben.openGate("ben")
	b := q.result(clientPatience)
	ana.openGate("ana")
	a := p.result(clientPatience)
	wantDone(t, a, b)
	wantText(t, a.out, "done; its last write is version 3 of prod")
	wantNames(t, s.pull("prod"), "base", "ana", "ana_behind", "ben", "ben_behind")
	ana.wantNoChanges()
	for _, r := range s.runs(false) {
		if r.Status != wire.RunFinished {
			t.Errorf("run %s is %s (%s), want finished", r.ID, r.Status, r.EndReason)
		}
	}
}

// Who wants what another has reserved is told by whom, and how to go on. Who
// waits plans again when it is free, and sees what the other has made of it.
func TestScopedApplyWaitsItsTurn(t *testing.T) {
	t.Parallel()
	s, ana, ben := crew(t, item("shared", `"one"`))
	shared := map[string]string{
		"main.tf":   httpBackend,
		"shared.tf": item("shared", `"two"`) + gate("slow", "terraform_data.shared.output"),
		"ben.tf":    item("reader", "terraform_data.shared.output"),
	}
	give(shared, ana, ben)
	p := ana.startKL(inRun("-f", "shared.tf", "--yes")...)
	ana.awaitGate("slow", p)
	run := s.theRun()
	r := ben.wantKL(2, inRun("-f", "ben.tf", "--yes"), "terraform_data.shared in the state prod is reserved by the run "+run.ID, run.Actor, "kl apply abort --apply-id "+run.ID)
	if !strings.Contains(r.out, "nothing was applied") {
		t.Errorf("it does not say that nothing was applied:\n%s", r.out)
	}
	q := ben.startKL(inRun("-f", "ben.tf", "--yes", "--wait", "2m")...)
	q.awaitOutput("waiting: run " + run.ID)
	await(t, "a place in the queue", func() bool {
		return slices.ContainsFunc(s.runs(true), func(r wire.Run) bool { return r.Waiting && r.QueuePosition == 1 })
	}, q.out.String)
	s.restart(true) // runs, reservations and the queue are in the file
	ana.openGate("slow")
	wantDone(t, p.result(clientPatience))
	b := q.result(clientPatience)
	wantDone(t, b)
	wantText(t, b.out, "planning again", "Apply complete! Resources: 1 added, 0 changed, 0 destroyed.")
	if got := input(t, s.pull("prod"), "reader"); got != "two" {
		t.Errorf("the waiter read %q, want the winner's value", got)
	}
	ben.wantNoChanges()
}

// Of a state without a version one run makes the first, and the others wait.
func TestFirstScopedApplies(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ana, ben := initWorkdir(t, httpBackend, s.envFor("ana", "prod")), initWorkdir(t, httpBackend, s.envFor("ben", "prod"))
	give(map[string]string{"ana.tf": gate("ana", "1"), "ben.tf": item("ben", "2")}, ana, ben)
	a := ana.startKL(inRun("-f", "ana.tf")...)
	ana.awaitGate("ana", a)
	ben.wantKL(2, inRun("-f", "ben.tf"), "has no version yet, and the run "+s.theRun().ID)
	b := ben.startKL(inRun("-f", "ben.tf", "--wait", "1m")...)
	b.awaitOutput("waiting: the state prod has no version yet")
	ana.openGate("ana")
	wantDone(t, a.result(clientPatience), b.result(clientPatience))
	wantNames(t, s.pull("prod"), "ana", "ben")
	ana.wantNoChanges()
}

// A run that holds something does not wait for more: when its new plan needs
// what others hold it gives back all it has, and gets in line for all of it.
func TestScopedApplyBeginsAgain(t *testing.T) {
	t.Parallel()
	s, ana, ben := crew(t, item("shared", `"one"`))
	eve := initWorkdir(t, httpBackend, s.envFor("eve", "prod"))
	ana.write("main.tf", httpBackend+item("shared", `"two"`)+gate("slow", "terraform_data.shared.output"))
	eve.write("main.tf", httpBackend+"resource \"terraform_data\" \"extra\" {\n  count = 1\n"+strings.SplitN(gate("extra", "null"), "\n", 3)[2])
	// what ben's file has depends on what ana makes of the shared resource
	ben.write("main.tf", httpBackend+"resource \"terraform_data\" \"shared\" {\n  input = \"one\"\n  lifecycle {\n    ignore_changes = [input]\n  }\n}\n")
	ben.write("ben.tf", item("ben", "terraform_data.shared.output")+"resource \"terraform_data\" \"extra\" {\n  count = terraform_data.shared.output == \"two\" ? 1 : 0\n}\n")

	a := ana.startKL(inRun("-f", "main.tf")...)
	ana.awaitGate("slow", a)
	e := eve.startKL(inRun("-f", "main.tf")...)
	eve.awaitGate("extra", e)
	b := ben.startKL(inRun("-f", "ben.tf", "--wait", "2m")...)
	b.awaitOutput("waiting: run ")
	await(t, "ben's place in the queue", func() bool {
		return slices.ContainsFunc(s.runs(true), func(r wire.Run) bool { return r.Waiting })
	}, b.out.String)
	ana.openGate("slow")
	wantDone(t, a.result(clientPatience))
	b.awaitOutput("all that was reserved is given back")
	if got := len(s.runs(true)); got > 2 {
		t.Errorf("%d runs go on, want eve's and ben's second", got)
	}
	eve.openGate("extra")
	wantDone(t, e.result(clientPatience), b.result(clientPatience))
	if got := input(t, s.pull("prod"), "ben"); got != "two" {
		t.Errorf("ben read %q, want ana's value", got)
	}
	wantNames(t, s.pull("prod"), "shared", "slow", "ben", "extra")
}

// A runner that is killed leaves what it has built in the state, as its client
// goes on; its reservation ends by its lease.
func TestKilledRunner(t *testing.T) {
	t.Parallel()
	s, ana, ben := crew(t, item("base", `"b"`), "--run-lease", "5s")
	give(map[string]string{"ana.tf": chain("ana"), "ben.tf": item("ben", "terraform_data.ana_before.id")}, ana, ben)
	scratch := t.TempDir()
	ana.setenv("TMPDIR=" + scratch)
	p := ana.startKL(inRun("-f", "ana.tf")...)
	ana.awaitGate("ana_gate", p)
	p.kill()
	run := s.theRun()
	// what the client works with stays as long as it lives, and goes then
	ana.wantKL(0, []string{"plan", "-f", "main.tf", "--target", "terraform_data.base", "-no-color"})
	if left, _ := filepath.Glob(filepath.Join(scratch, "kl-run-*")); len(left) != 1 {
		t.Errorf("the living client's directory: %v", left)
	}
	ana.openGate("ana_gate")
	await(t, "the client's last write", func() bool { return slices.Contains(parseState(t, s.pull("prod")).names(), "ana_behind") })
	b := ben.kl(inRun("-f", "ben.tf", "--wait", "1m")...)
	wantDone(t, b)
	ended, err := s.client().Run(s.ctx(), s.boot.EnvPublicID, "prod", run.ID)
	if err != nil || ended.Status != wire.RunExpired || ended.Checkpoints == 0 {
		t.Errorf("the killed run: %+v, %v; want it expired, with a write", ended, err)
	}
	ana.wantNoChanges()
	ana.wantKL(0, []string{"plan", "-f", "ana.tf", "-no-color"})
	if left, _ := filepath.Glob(filepath.Join(scratch, "kl-*")); len(left) != 0 {
		t.Errorf("still there after the next run: %v", left)
	}
}

// A run that is aborted writes nothing more, and what it sends is kept.
func TestAbortedOrchestratedApply(t *testing.T) {
	t.Parallel()
	s, ana, ben := crew(t, item("base", `"b"`))
	give(map[string]string{"ana.tf": chain("ana")}, ana, ben)
	p := ana.startKL(inRun("-f", "ana.tf")...)
	ana.awaitGate("ana_gate", p)
	run := s.theRun()
	if run.Status != wire.RunApplying || run.Checkpoints != 0 {
		t.Errorf("while terraform applies the run is %s with %d writes, want applying before the first", run.Status, run.Checkpoints)
	}
	out := s.mustKL("apply", "abort", "--state", "prod", "--latest", "--reason", "wrong branch")
	wantText(t, out, run.ID)
	before := s.head("prod").Version
	ana.openGate("ana_gate")
	a := p.result(clientPatience)
	if a.code != 2 {
		t.Errorf("exit %d, want 2\n%s", a.code, a.out)
	}
	wantText(t, a.out, "is aborted", "wrong branch", "kl recover")
	if v := s.head("prod").Version; v != before {
		t.Errorf("the head is version %d, want %d as before the abort", v, before)
	}
	kept := s.refused("prod")
	if len(kept) == 0 || kept[0].Code != "reservation_conflict" {
		t.Fatalf("refused writes: got %+v, want the run's", kept)
	}
	wantNames(t, s.refusedBody("prod", kept[0].ID), "base", "ana_before", "ana_gate", "ana_behind")
	if !exists(ana.path("errored.tfstate")) {
		t.Error("no errored.tfstate beside the configuration")
	}
	wantText(t, s.mustKL("runs", "show", run.ID), "aborted", "wrong branch", "writes to:  terraform_data.ana_before")
	if r := s.kl("apply", "abort", "--state", "prod", "--latest"); r.code != 3 {
		t.Errorf("nothing left to abort: exit %d\n%s", r.code, r.out)
	}
	s.mustKL("recover", "merge", kept[0].ID, "--state", "prod")
	for _, k := range kept[1:] {
		s.mustKL("recover", "discard", k.ID, "--state", "prod")
	}
	ana.wantNoChanges()
}

// In exclusive mode plain applies wait for runs, and runs wait for plain applies.
func TestRunsAndPlainAppliesExclude(t *testing.T) {
	t.Parallel()
	s, ana, ben := crew(t, item("base", `"b"`))
	give(map[string]string{"ana.tf": gate("ana", `"a"`)}, ana)
	give(map[string]string{"ana.tf": gate("ana", `"a"`), "ben.tf": gate("ben", `"b"`)}, ben)
	p := ana.startKL(inRun("-f", "ana.tf")...)
	ana.awaitGate("ana", p)
	run := s.theRun()
	wantText(t, ben.run("apply").out, "already locked", run.ID)
	ben.openGate("ana")
	q := ben.start("apply", "-lock-timeout=60s")
	await(t, "the plain apply in the queue", func() bool { return len(s.lock("prod").Queue) == 1 }, q.out.String)
	ana.openGate("ana")
	wantDone(t, p.result(clientPatience))
	ben.awaitGate("ben", q)
	give(map[string]string{"more.tf": item("more", `"m"`)}, ana, ben)
	r := ana.kl(inRun("-f", "more.tf")...)
	if r.code != 2 {
		t.Errorf("a run beside a plain apply: exit %d, want 2", r.code)
	}
	wantText(t, r.out, "nothing of the state prod can be reserved in exclusive mode", "kl lock show prod")
	m := ana.startKL(inRun("-f", "more.tf", "--wait", "1m")...)
	m.awaitOutput("waiting: nothing of the state prod")
	await(t, "the run in the queue", func() bool { return len(s.lock("prod").Queue) == 1 }, m.out.String)
	ben.openGate("ben")
	wantDone(t, q.result(clientPatience), m.result(clientPatience))
	wantNames(t, s.pull("prod"), "base", "ana", "ben", "more")
}

// In optimistic mode a plain write to what a run has reserved is refused, and
// kl apply says why; one to something else is merged.
func TestPlainWriteToReserved(t *testing.T) {
	t.Parallel()
	s, ana, ben := crew(t, item("base", `"b"`))
	s.mustKL("env", "set", "--lock-mode", "optimistic")
	files := map[string]string{"ana.tf": gate("ana", `"a"`)}
	give(files, ana)
	p := ana.startKL(inRun("-f", "ana.tf")...)
	ana.awaitGate("ana", p)
	run := s.theRun()
	give(map[string]string{"ben.tf": item("ben", `"b"`)}, ben)
	ben.must("apply")
	ben.write("ana.tf", item("ana", `"other"`))
	r := ben.wantKL(2, []string{"apply", "--yes", "-no-color"}, "HTTP error: 409", "terraform_data.ana in the state prod is reserved by the run "+run.ID, "kl apply abort --apply-id "+run.ID)
	if !strings.Contains(r.out, "kl recover list") {
		t.Errorf("it does not say where the write is:\n%s", r.out)
	}
	ana.openGate("ana")
	wantDone(t, p.result(clientPatience))
	wantNames(t, s.pull("prod"), "base", "ana", "ben")
	for _, k := range s.refused("prod") {
		if k.Code != "reservation_conflict" {
			t.Errorf("refused write: %+v", k)
		}
		s.mustKL("recover", "discard", k.ID, "--state", "prod")
	}
}

// What is told of an apply that fails is its own failure, not what somebody with
// the same token was refused meanwhile.
func TestFailureBesideAnothersRefusal(t *testing.T) {
	t.Parallel()
	s, ana, _ := crew(t, item("base", `"b"`))
	same := initWorkdir(t, httpBackend+item("base", `"b"`), ana.env)
	give(map[string]string{"ana.tf": strings.Replace(gate("ana", `"a"`), "; done", "; done; false", 1)}, ana, same)
	p := ana.startKL(inRun("-f", "ana.tf")...)
	ana.awaitGate("ana", p)
	same.wantKL(2, inRun("-f", "ana.tf"), "is reserved by the run "+s.theRun().ID)
	ana.openGate("ana")
	a := p.result(clientPatience)
	if a.code != 1 || strings.Contains(a.out, "is reserved by the run") {
		t.Errorf("exit %d, want 1 and nothing of the other's refusal\n%s", a.code, a.out)
	}
	wantText(t, a.out, "Error running command", "apply failed")
}

// Ctrl-C comes to the client once, which ends in order; what it has built stays.
// A second one aborts the run.
func TestInterruptedRun(t *testing.T) {
	t.Parallel()
	s, ana, ben := crew(t, item("base", `"b"`))
	give(map[string]string{"ana.tf": chain("ana"), "ben.tf": chain("ben")}, ana, ben)
	p := ana.startKL(inRun("-f", "ana.tf")...)
	ana.awaitGate("ana_gate", p)
	run := s.theRun()
	// that somebody with the same token is refused is not why this one ends
	same := initWorkdir(t, httpBackend+item("base", `"b"`), s.envFor("ana", "prod"))
	give(map[string]string{"ana.tf": chain("ana")}, same)
	same.wantKL(2, inRun("-f", "ana.tf"), "is reserved by the run "+run.ID)
	interrupt(p)
	a := p.result(clientPatience)
	if a.code != 1 {
		t.Errorf("exit %d, want 1\n%s", a.code, a.out)
	}
	wantText(t, a.out, "Gracefully shutting down", "once more aborts the run")
	if strings.Contains(a.out, "Two interrupts received") {
		t.Errorf("the client was interrupted twice:\n%s", a.out)
	}
	if names := parseState(t, s.pull("prod")).names(); !slices.Contains(names, "ana_before") {
		t.Errorf("the state has %v, want what was built", names)
	}
	if r, err := s.client().Run(s.ctx(), s.boot.EnvPublicID, "prod", run.ID); err != nil || r.Status != wire.RunFailed || r.EndReason != "interrupted" {
		t.Errorf("the run: %+v, %v; want it failed, interrupted", r, err)
	}

	q := ben.startKL(inRun("-f", "ben.tf")...)
	ben.awaitGate("ben_gate", q)
	run = s.theRun()
	s.proc.signal(syscall.SIGSTOP) // the client waits for an answer to what it has built
	interrupt(q)
	q.awaitOutput("Gracefully shutting down")
	interrupt(q)
	q.awaitOutput("Two interrupts received")
	s.proc.signal(syscall.SIGCONT)
	b := q.result(clientPatience)
	if b.code != 1 && b.code != 2 {
		t.Errorf("exit %d, want 1 or 2\n%s", b.code, b.out)
	}
	if r, err := s.client().Run(s.ctx(), s.boot.EnvPublicID, "prod", run.ID); err != nil || r.Status != wire.RunAborted {
		t.Errorf("the run: %+v, %v; want it aborted", r, err)
	}
	for _, k := range s.refused("prod") {
		s.mustKL("recover", "discard", k.ID, "--state", "prod")
	}
}

// A spec is applied as it was looked at: not when the configuration is another
// by then, not when the plan would do more, and not to another state.
func TestPlanSpec(t *testing.T) {
	t.Parallel()
	s, ana, ben := crew(t, item("base", `"b"`))
	files := map[string]string{"vars.tf": "variable \"v\" {}\n", "ana.tf": item("ana", "var.v"), "ben.tf": item("ben", `"b"`)}
	give(files, ana, ben)
	ana.wantKL(0, []string{"plan", "-f", "ana.tf", "-o", "spec.json", "-no-color", "-var", "v=one"}, "create terraform_data.ana", "kl apply --orchestrated spec.json")
	if fi, err := os.Stat(ana.path("spec.json")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the spec is for everybody to read: %v, %v", fi.Mode(), err)
	}
	var spec struct {
		Base    uint64   `json:"base_version"`
		Write   []string `json:"write_set"`
		Digest  string   `json:"configuration_sha256"`
		Changes []map[string]string
	}
	if err := json.Unmarshal(readFile(t, ana.path("spec.json")), &spec); err != nil || spec.Base != 1 || !slices.Equal(spec.Write, []string{"terraform_data.ana"}) || len(spec.Digest) != 64 {
		t.Errorf("spec: %+v, %v", spec, err)
	}
	// others go on meanwhile
	ben.wantKL(0, inRun("-f", "ben.tf", "-var", "v=x"))
	elsewhere := append(s.env("other"), "TF_HTTP_PASSWORD="+s.boot.AutomationToken)
	ben.env = append(ben.env, elsewhere...)
	ben.write("spec.json", string(readFile(t, ana.path("spec.json"))))
	ben.wantKL(3, inRun("spec.json"), "the spec is for the state prod")
	ana.write("ana.tf", item("ana", "var.v")+"# changed\n")
	ana.wantKL(3, inRun("spec.json"), "nothing was applied: the configuration is not what it was")
	ana.write("ana.tf", files["ana.tf"])
	ana.wantKL(3, inRun("spec.json", "-f", "ana.tf"), "name it alone")
	ana.wantKL(3, []string{"apply", "spec.json"}, "is a spec of kl plan -o", "next: kl apply --orchestrated spec.json")
	ana.wantKL(3, []string{"apply", "-f", "spec.json", "--yes"}, "is a spec of kl plan -o", "next: kl apply --orchestrated spec.json")
	ana.wantKL(0, inRun("-f", "spec.json"), "done; its last write is version 3")
	if got := input(t, s.pull("prod"), "ana"); got != "one" {
		t.Errorf("the variable of the plan is not that of the apply: %q", got)
	}
	ana.wantKL(0, inRun("spec.json"), "nothing to do")
	var done struct {
		Run     wire.Run            `json:"run"`
		Changes []map[string]string `json:"changes"`
	}
	r := ana.wantKL(0, inRun("-f", "ana.tf", "-var", "v=three", "--json"))
	if err := json.Unmarshal([]byte(r.stdout), &done); err != nil || done.Run.Status != wire.RunFinished || done.Run.LastVersion != 4 || len(done.Changes) != 1 {
		t.Errorf("--json: %+v, %v\n%s", done, err, r.stdout)
	}
	ana.wantKL(0, []string{"plan", "-f", "ana.tf", "-o", "spec.json", "-no-color", "-var", "v=two"})
	ana.must("state", "rm", "terraform_data.ana")
	ana.wantKL(2, inRun("spec.json"), "the plan would now create terraform_data.ana as well")
}
