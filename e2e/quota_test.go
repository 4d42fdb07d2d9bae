package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"kl/tfstate"
	"kl/wire"
)

// kl runs a verb of kl where the client runs, with that client and its
// environment alone.
func (w *workdir) kl(args ...string) result {
	w.tb.Helper()
	return w.startKL(args...).result(clientPatience)
}

func (w *workdir) startKL(args ...string) *process {
	w.tb.Helper()
	return startProcess(w.tb, w.dir, append(w.env, "KL_TERRAFORM="+w.bin), klBinary(w.tb), args...)
}

// wantKL demands an exit code and texts on the screen.
func (w *workdir) wantKL(code int, args []string, want ...string) result {
	w.tb.Helper()
	r := w.kl(args...)
	if r.code != code {
		w.tb.Fatalf("kl %s: exit %d, want %d\n%s", strings.Join(args, " "), r.code, code, r.out)
	}
	wantText(w.tb, r.out, want...)
	return r
}

// counted has as many instances as the variables say.
const counted = httpBackend + `
variable "n" { default = 0 }
variable "keys" {
  type    = set(string)
  default = []
}
resource "terraform_data" "c" {
  count = var.n
}
resource "terraform_data" "f" {
  for_each = var.keys
}
data "terraform_remote_state" "none" {
  backend = "local"
  config  = { path = "${path.module}/other.tfstate" }
}
`

const otherState = `{"version":4,"terraform_version":"1.11.4","serial":1,"lineage":"x","outputs":{},"resources":[]}`

func n(count int) string { return fmt.Sprintf("-var=n=%d", count) }

// limitIs sets limits of the environment, or of a state.
func (s *server) limitIs(args ...string) {
	s.tb.Helper()
	s.mustKL(append([]string{"quota", "set"}, args...)...)
}

func TestQuotaBoundary(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := newWorkdir(t, counted, s.env("app"))
	w.write("other.tfstate", otherState)
	w.must("init")
	s.limitIs("--state-soft-limit", "2", "--state-hard-limit", "3")

	// exactly the limit, which is above the soft one
	r := w.wantKL(0, []string{"plan", "-no-color", n(3)}, "Plan: 3 to add", "quota of the state app: 0 resource instances now, 3 afterwards (+3); soft limit 2, hard limit 3",
		"warning: afterwards the state app has 3 resource instances, above the soft limit of 2")
	if strings.Contains(r.out, "Saved the plan to") || strings.Contains(r.out, "To perform exactly these actions") {
		t.Errorf("the plan's file is told of, and it is gone:\n%s", r.out)
	}
	w.must("apply", n(3))
	wantText(t, s.mustKL("state", "show", "app"), "quota: 3 of 3, above the soft limit of 2")

	// one above: known before anything is built, and refused to those who do not ask
	w.wantKL(4, []string{"plan", "-no-color", n(4)}, "Plan: 1 to add", "kl: the state app would have 4 resource instances, 1 above the hard limit of 3; now it has 3")
	var v struct {
		Quota *wire.QuotaCheck `json:"quota"`
	}
	if err := json.Unmarshal([]byte(w.wantKL(4, []string{"apply", "--yes", "--json", n(4)}).stdout), &v); err != nil || v.Quota == nil || v.Quota.Status != "hard" {
		t.Errorf("kl apply --json of what is too much: %+v, %v", v.Quota, err)
	}
	w.fails([]string{"apply", n(4)}, "Error saving state: HTTP error: 403", "errored.tfstate")
	if kept := s.refused("app"); len(kept) != 1 || kept[0].Code != "state_quota" || sum(s.refusedBody("app", kept[0].ID)) != kept[0].SHA256 {
		t.Errorf("refused writes: %+v", kept)
	}
	wantText(t, w.kl("why", "--last").out, "403 state_quota", "1 above the hard limit of 3", "kl recover merge")
	s.mustKL("recover", "discard", s.refused("app")[0].ID, "--state", "app")

	// below a limit that was lowered all that does not grow goes on
	s.limitIs("--state-hard-limit", "1")
	w.wantKL(0, []string{"plan", "-no-color", "-input=false", n(3)}, "No changes.")
	w.wantKL(0, []string{"apply", "-no-color", "--yes", "-replace=terraform_data.c[0]", n(3)}, "1 added, 0 changed, 1 destroyed")
	w.wantKL(0, []string{"apply", "-no-color", "--yes", n(2)}, "3 resource instances now, 2 afterwards (-1)", "1 destroyed")
	w.wantKL(4, []string{"apply", "-no-color", "--yes", n(3)}, "kl: nothing was applied", "2 above the hard limit of 1")
	if got := s.head("app").ResourceCount; got != 2 {
		t.Errorf("the state has %d instances, want 2", got)
	}

	// down to nothing, and up to the limit again by for_each
	w.wantKL(0, []string{"plan", "-no-color", "-destroy", n(2)}, "2 to destroy", "2 resource instances now, 0 afterwards (-2)")
	w.wantKL(0, []string{"apply", "-no-color", "--yes", n(0)}, "2 destroyed")
	w.wantKL(0, []string{"apply", "-no-color", "--yes", `-var=keys=["a"]`}, "1 added")
	w.wantKL(4, []string{"plan", "-no-color", `-var=keys=["a","b"]`})
	w.wantKL(0, []string{"apply", "-no-color", "--yes", "-destroy"}, "1 destroyed")
	if got := s.head("app").ResourceCount; got != 0 {
		t.Errorf("the state has %d instances, want 0", got)
	}
}

func TestQuotaOfEnvironment(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one, two := initWorkdir(t, counted, s.env("one")), initWorkdir(t, counted, s.env("two"))
	one.write("other.tfstate", otherState)
	two.write("other.tfstate", otherState)
	s.limitIs("--environment-hard-limit", "5")
	one.must("apply", n(3))
	two.must("apply", n(2)) // meets it
	two.wantKL(4, []string{"plan", "-no-color", n(3)}, "the environment default would have 6 resource instances, 1 above the hard limit of 5; now it has 5")
	two.fails([]string{"apply", n(3)}, "HTTP error: 403")
	s.mustKL("recover", "discard", s.refused("two")[0].ID, "--state", "two")

	// an archived state counts nothing, and comes back only to where there is room
	s.mustKL("state", "archive", "one")
	two.must("apply", n(4))
	if r := s.kl("state", "restore", "one"); r.code != 4 {
		t.Errorf("restore without room: exit %d, want 4\n%s", r.code, r.out)
	} else {
		wantText(t, r.out, "would have 7 resource instances", "archive or delete another state first")
	}
	two.must("apply", n(1))
	s.mustKL("state", "restore", "one")
	two.wantKL(0, []string{"quota", "remaining"}, "state two 1 none none any number", "its environment 4 none 5 1")
	s.mustKL("state", "delete", "one")
	two.wantKL(0, []string{"plan", "-no-color", n(5)}, "its environment: 1 resource instance now, 5 afterwards (+4)")
}

// Two applies that share a state are each within its limit, and together above
// it: the second is refused, and what it sent can be merged when there is room.
func TestQuotaOfMergedApplies(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.mustKL("env", "set", "--lock-mode", "optimistic", "--state-hard-limit", "6")
	base := httpBackend + item("base", `"x"`)
	first := initWorkdir(t, base, s.env("app"))
	first.must("apply")
	first.write("main.tf", base+gate("a", `"x"`)+item("a1", "terraform_data.a.id")+item("a2", `"x"`))
	second := initWorkdir(t, base+gate("b", `"x"`)+item("b1", "terraform_data.b.id")+item("b2", `"x"`), s.env("app"))
	applies := []*process{first.start("apply", "-target=terraform_data.a1", "-target=terraform_data.a2")}
	first.awaitGate("a", applies[0])
	b := second.startKL("apply", "-no-color", "-input=false", "--yes", "-target=terraform_data.b1", "-target=terraform_data.b2")
	second.awaitGate("b", b)
	first.openGate("a")
	if r := applies[0].result(clientPatience); r.code != 0 {
		t.Fatalf("the first apply: exit %d\n%s", r.code, r.out)
	}
	second.openGate("b")
	r := b.result(clientPatience)
	if r.code != 4 {
		t.Fatalf("the second apply: exit %d, want 4\n%s", r.code, r.out)
	}
	wantText(t, r.out, "quota of the state app: 1 resource instance now, 4 afterwards (+3); hard limit 6: ok", "HTTP error: 403",
		"kl: the state app would have 7 resource instances, 1 above the hard limit of 6; now it has 4", "next: ask who manages the environment for: kl quota set --state-hard-limit 7; then bring in what was sent, which is kept: kl recover list --state app")
	wantNames(t, s.pull("app"), "base", "a", "a1", "a2")
	id := s.refused("app")[0].ID
	if r := s.kl("recover", "merge", id, "--state", "app"); r.code != 4 {
		t.Errorf("merge without room: exit %d, want 4\n%s", r.code, r.out)
	}
	s.limitIs("--state-hard-limit", "7")
	s.mustKL("recover", "merge", id, "--state", "app")
	wantNames(t, s.pull("app"), "base", "a", "a1", "a2", "b", "b1", "b2")
}

// Imports, moves, forgotten resources and replacements in the plan of the real
// client count as they do in the state that comes of it.
func TestQuotaOfPlans(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := initWorkdir(t, counted, s.env("app"))
	w.write("other.tfstate", otherState)
	w.must("apply", n(3))
	for _, c := range []struct {
		name, config string
		args         []string
		want         tfstate.PlanCounts
	}{
		{
			name: "import", args: []string{n(3)},
			config: "import {\n  to = terraform_data.i\n  id = \"x\"\n}\nresource \"terraform_data\" \"i\" {}\n",
			want:   tfstate.PlanCounts{Import: 1, Delta: 1, Peak: 1},
		},
		{
			name: "moved", args: []string{n(3)},
			config: "moved {\n  from = terraform_data.i\n  to   = terraform_data.j\n}\nresource \"terraform_data\" \"j\" {}\n",
			want:   tfstate.PlanCounts{Move: 1},
		},
		{
			name: "forgotten", args: []string{n(3)},
			config: "removed {\n  from = terraform_data.j\n  lifecycle {\n    destroy = false\n  }\n}\n",
			want:   tfstate.PlanCounts{Forget: 1, Delta: -1},
		},
		{
			name: "replaced by another", args: []string{n(0)},
			config: "resource \"terraform_data\" \"k\" {\n  count = 2\n}\n",
			want:   tfstate.PlanCounts{Create: 2, Delete: 3, Delta: -1, Peak: 2},
		},
		{
			name: "created before destroyed", args: []string{"-replace=terraform_data.k[0]"},
			config: "resource \"terraform_data\" \"k\" {\n  count = 2\n  lifecycle {\n    create_before_destroy = true\n  }\n}\n",
			want:   tfstate.PlanCounts{Replace: 1},
		},
		{name: "destroy", args: []string{"-destroy"}, config: "", want: tfstate.PlanCounts{Delete: 2, Delta: -2}},
	} {
		w.write("more.tf", c.config)
		before := s.head("app").ResourceCount
		w.must(append([]string{"plan", "-out=tf.tfplan"}, c.args...)...)
		var got struct {
			wire.QuotaCheck
			Plan tfstate.PlanCounts `json:"plan"`
		}
		if err := json.Unmarshal([]byte(w.wantKL(0, []string{"quota", "check", "--tf-plan", "tf.tfplan", "--json"}).stdout), &got); err != nil {
			t.Fatal(err)
		}
		if got.Plan != c.want || got.Delta != c.want.Delta {
			t.Errorf("%s: got %+v, want %+v", c.name, got.Plan, c.want)
		}
		w.wantKL(0, []string{"apply", "-no-color", "tf.tfplan"}, "Apply complete!")
		if after := s.head("app").ResourceCount; after != got.Projected || after != before+c.want.Delta {
			t.Errorf("%s: the state went from %d to %d instances, foretold were %d", c.name, before, after, got.Projected)
		}
	}
}

// What a run holds for a moment is judged as what it leaves behind: a checkpoint
// that comes when the new instances are there and not all old ones are gone is
// refused, kl plan has said so, and the refusal says why.
func TestQuotaOfReplacement(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	config := func(one, two string) string {
		return httpBackend + `
resource "terraform_data" "r" {
  for_each = toset(["keep", "` + one + `", "` + two + `"])
  input    = each.key
  provisioner "local-exec" {
    when    = destroy
    command = "[ ${self.input} != old2 ] || { touch $GATE/old2.begun; while [ -d $GATE ] && [ ! -e $GATE/old2.open ]; do sleep 0.05; done; }"
  }
}
`
	}
	w := initWorkdir(t, config("old1", "old2"), s.env("app"))
	w.must("apply")
	s.limitIs("--state-hard-limit", "3")
	w.write("main.tf", config("new1", "new2"))
	w.wantKL(0, []string{"plan", "-no-color"}, "2 to add, 0 to change, 2 to destroy", "3 resource instances now, 3 afterwards (+0); hard limit 3: ok",
		"warning: while the run creates before it destroys the state app may have 5 resource instances for a time")
	p := w.startKL("apply", "-no-color", "--yes")
	w.awaitGate("old2", p)
	for _, done := range []string{`["old1"]: Destruction complete`, `["new1"]: Creation complete`, `["new2"]: Creation complete`} {
		p.awaitOutput(done)
	}
	interrupt(p) // makes the client send a checkpoint at once
	r := p.result(clientPatience)
	if r.code != 4 {
		t.Fatalf("exit %d, want 4\n%s", r.code, r.out)
	}
	wantText(t, r.out, "HTTP error: 403", "kl: the state app would have 4 resource instances, 1 above the hard limit of 3",
		"this run both creates and deletes instances of terraform_data.r, and for a time there are both", "destroy first what goes")
	wantNames(t, s.pull("app"), "r")

	// with room for the moment, what was built comes back and the rest goes
	s.limitIs("app", "--hard-limit", "4")
	s.mustKL("recover", "merge", s.refused("app")[0].ID, "--state", "app")
	w.openGate("old2")
	w.wantKL(0, []string{"apply", "-no-color", "--yes"}, "4 resource instances now, 3 afterwards (-1)", "0 added, 0 changed, 1 destroyed")
}

func TestKLApply(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := initWorkdir(t, s.block("app")+`
resource "terraform_data" "c" {
  count = 2
}
`, s.env("app")[3:])

	// the question is terraform's; a pipe may answer it
	w.wantKL(3, []string{"apply", "-no-color"}, "nothing was applied: input is turned off")
	w.setenv("TF_INPUT=1")
	w.wantKL(3, []string{"apply", "-no-color"}, "Do you want to perform these actions in the state app?", "the answer was not yes")
	if all := s.versions("app"); len(all) != 0 {
		t.Fatalf("something was applied: %+v", all)
	}
	answered := runShell(w, `echo yes | "$KL" apply -no-color`)
	if answered.code != 0 {
		t.Fatalf("with the answer yes: exit %d\n%s", answered.code, answered.out)
	}
	wantText(t, answered.out, "Plan: 2 to add", "0 resource instances now, 2 afterwards (+2); no limit: ok", "Apply complete! Resources: 2 added")
	w.wantKL(0, []string{"apply", "-no-color"}, "No changes.") // asks nothing

	// the answer for programs, and nothing else on standard output
	var v struct {
		State   string             `json:"state"`
		Changes bool               `json:"changes"`
		Plan    tfstate.PlanCounts `json:"plan"`
		Quota   *wire.QuotaCheck   `json:"quota"`
	}
	if err := json.Unmarshal([]byte(w.wantKL(0, []string{"plan", "-destroy", "--json"}).stdout), &v); err != nil {
		t.Fatal(err)
	}
	if v.State != "app" || !v.Changes || v.Plan.Delete != 2 || v.Quota == nil || v.Quota.Projected != 0 {
		t.Errorf("kl plan --json: %+v", v)
	}
	for line := range strings.Lines(w.wantKL(0, []string{"plan", "-json"}, "quota of the state app").stdout) {
		if !json.Valid([]byte(line)) {
			t.Errorf("kl plan -json prints on standard output: %s", line)
		}
	}
	w.wantKL(2, []string{"plan", "-destroy", "-detailed-exitcode"})
	w.wantKL(0, []string{"plan", "-detailed-exitcode"})
	w.wantKL(0, []string{"plan", "-destroy", "-out=kept.tfplan"})
	if !exists(w.path("kept.tfplan")) {
		t.Error("the plan that was to be kept is not there")
	}
	w.wantKL(3, []string{"apply", "nowhere.tfplan"}, "is not the file of a saved plan")
	w.wantKL(3, []string{"apply", "kept.tfplan", "other.tfplan"}, `kl apply takes one PLAN, and "other.tfplan" is a second one`)
	w.wantKL(3, []string{"apply", "--orchestrated", "one.json", "other.json"}, `kl apply takes one PLAN, and "other.json" is a second one`)
	w.wantKL(1, []string{"plan", "-no-such-option"}, "flag provided but not defined")
	w.wantKL(3, []string{"plan", "--terraform-bin", "no-such-program"}, "cannot be run")

	// from elsewhere, as terraform
	if r := runShell(w, `mkdir sub && cd sub && "$KL" plan -chdir=.. -no-color`); r.code != 0 {
		t.Errorf("from a directory below: exit %d\n%s", r.code, r.out)
	} else {
		wantText(t, r.out, "quota of the state app: 2 resource instances now")
	}

	// somebody else has the lock: who, and the exit code of a lock
	if err := s.client().Lock(s.ctx(), s.ref("app"), wire.LockInfo{ID: "of-ana", Operation: wire.OperationApply, Who: "ana@laptop"}); err != nil {
		t.Fatal(err)
	}
	w.wantKL(2, []string{"plan", "-no-color"}, "already locked", "kl: the state app is locked by ana@laptop (of-ana)", "next: wait with -lock-timeout")
	s.mustKL("lock", "release", "app", "--id", "of-ana")

	// a plan that is kept is applied without a question
	w.wantKL(0, []string{"apply", "-no-color", "kept.tfplan"}, "2 resource instances now, 0 afterwards (-2)", "Apply complete!")

	// credentials that may not even lock for a plan: the server's reason
	var reader wire.Token
	if err := json.Unmarshal([]byte(s.mustKL("token", "create", "reader", "--role", "read", "--json")), &reader); err != nil {
		t.Fatal(err)
	}
	w.setenv("TF_HTTP_PASSWORD=" + reader.Secret)
	w.wantKL(5, []string{"plan", "-no-color"}, "kl: the token reader has the role read, which does not allow to lock the state for a plan")
	w.setenv("TF_HTTP_PASSWORD=" + s.boot.AutomationToken)

	s.stop()
	w.wantKL(7, []string{"plan", "-no-color"}, "kl: no answer from "+s.base)
	s.start()
}

// The value of an ephemeral variable is in no plan, so that it goes with the
// apply as well; other values are in the plan.
func TestKLApplyGivesEphemeralValuesAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := initWorkdir(t, counted+"variable \"secret\" {\n  ephemeral = true\n}\n", s.env("app"))
	w.write("other.tfstate", otherState)
	w.wantKL(0, []string{"apply", "-no-color", "--yes", "-var=secret=x", "-var", "n=1"}, "1 added, 0 changed, 0 destroyed")
	w.wantKL(0, []string{"apply", "--orchestrated", "-no-color", "--yes", "-var=secret=x", "-var", "n=2"}, "1 added, 0 changed, 0 destroyed")
	w.wantKL(0, []string{"plan", "-no-color", "-out=kept.tfplan", "-var=secret=x", n(3)})
	w.wantKL(1, []string{"apply", "-no-color", "kept.tfplan", "-var=secret=x", n(4)}, "Can't change variable when applying a saved plan")
	w.wantKL(0, []string{"apply", "-no-color", "kept.tfplan", "-var=secret=x"}, "1 added, 0 changed, 0 destroyed")
}

// runShell runs a line of shell with kl in $KL.
func runShell(w *workdir, line string) result {
	w.tb.Helper()
	return startProcess(w.tb, w.dir, append(w.env, "KL_TERRAFORM="+w.bin, "KL="+klBinary(w.tb)), "sh", "-c", line).result(clientPatience)
}

// Without a server that is known no check is made, and none is pretended.
func TestKLPlanWithoutServer(t *testing.T) {
	t.Parallel()
	w := initWorkdir(t, item("a", `"x"`), nil)
	r := w.wantKL(3, []string{"plan", "-no-color"}, "Plan: 1 to add", "kl: the quota was not checked: no server is named")
	if strings.Contains(r.out, "quota of") {
		t.Errorf("it looks like a check:\n%s", r.out)
	}
	var v struct {
		Quota     *wire.QuotaCheck `json:"quota"`
		Unchecked string           `json:"unchecked"`
	}
	if err := json.Unmarshal([]byte(w.wantKL(3, []string{"plan", "--json"}).stdout), &v); err != nil {
		t.Fatal(err)
	}
	if v.Quota != nil || !strings.Contains(v.Unchecked, "no server is named") {
		t.Errorf("kl plan --json: %+v", v)
	}
	w.wantKL(3, []string{"apply", "-no-color", "--yes"}, "kl: nothing was applied: the quota was not checked")
	noFile(t, w.path("terraform.tfstate"))

	// a server that is named and not there, while terraform keeps its state here
	w.setenv("KL_ADDRESS=http://127.0.0.1:1", "KL_TOKEN=kl_ctl_x", "KL_STATE=app")
	w.wantKL(7, []string{"plan", "-no-color"}, "Plan: 1 to add", "kl: the quota was not checked: no answer from http://127.0.0.1:1")
}

// Ctrl-C comes to the client once: it ends in order, what was built is in the
// state, and the lock is free.
func TestInterruptedKLApply(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := initWorkdir(t, gated("held"), s.env("app"))
	p := w.startKL("apply", "-no-color", "--yes")
	w.awaitGate("held_gate", p)
	p.signal(syscall.SIGINT)
	r := p.result(clientPatience)
	if r.code != 1 {
		t.Errorf("exit %d, want 1\n%s", r.code, r.out)
	}
	wantText(t, r.out, "Gracefully shutting down", "kl: interrupted")
	if strings.Contains(r.out, "Two interrupts received") {
		t.Errorf("the client was interrupted twice:\n%s", r.out)
	}
	if got := parseState(t, s.pull("app")).names(); !strings.Contains(strings.Join(got, " "), "held_before") {
		t.Errorf("the state has %v, want what was built", got)
	}
	s.wantUnlocked("app")
}
