package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kl/fault"
	"kl/wire"
)

// envFor is env with a token of its own, as each colleague has one.
func (s *server) envFor(who, state string) []string {
	s.tb.Helper()
	var tok wire.Token
	if err := json.Unmarshal([]byte(s.mustKL("token", "create", who, "--json")), &tok); err != nil {
		s.tb.Fatal(err)
	}
	return append(s.env(state), "TF_HTTP_PASSWORD="+tok.Secret)
}

// team is a state that two colleagues share: it has one version, made of the
// files of main, which both have checked out in directories of their own.
func team(t *testing.T, main string) (s *server, ana, ben *workdir) {
	t.Helper()
	s = startServer(t)
	s.mustKL("env", "set", "--lock-mode", "optimistic")
	initWorkdir(t, httpBackend+main, s.env("prod")).must("apply")
	ana = initWorkdir(t, httpBackend+main, s.envFor("ana", "prod"))
	ben = initWorkdir(t, httpBackend+main, s.envFor("ben", "prod"))
	return s, ana, ben
}

// mergeFrom brings what a colleague has committed into one's own directory.
func (w *workdir) mergeFrom(other *workdir, files ...string) {
	w.tb.Helper()
	for _, f := range files {
		w.write(f, string(readFile(w.tb, other.path(f))))
	}
}

// wantNoChanges demands that a plain plan changes nothing.
func (w *workdir) wantNoChanges() {
	w.tb.Helper()
	if r := w.run("plan", "-detailed-exitcode"); r.code != 0 {
		w.tb.Errorf("plan: exit %d, want no changes\n%s", r.code, r.out)
	}
}

// both lets two applies stand at their gates at the same time, and ends them in
// the order of the arguments.
func both(t *testing.T, s *server, first, second *workdir, firstGate, secondGate string, args ...[]string) (a, b result) {
	t.Helper()
	verb := func(i int) []string {
		if i < len(args) {
			return append([]string{"apply"}, args[i]...)
		}
		return []string{"apply"}
	}
	p, q := first.start(verb(0)...), second.start(verb(1)...)
	first.awaitGate(firstGate, p)
	second.awaitGate(secondGate, q)
	if l := s.lock("prod"); len(l.Holders) != 2 || l.Mode != "optimistic" {
		t.Fatalf("lock: got %+v, want two sessions", l)
	}
	out := s.mustKL("state", "show", "prod")
	for _, h := range s.lock("prod").Holders {
		wantText(t, out, h.ID, h.Who)
	}
	first.openGate(firstGate)
	a = p.result(clientPatience)
	second.openGate(secondGate)
	return a, q.result(clientPatience)
}

func wantDone(t *testing.T, rs ...result) {
	t.Helper()
	for _, r := range rs {
		if r.code != 0 {
			t.Fatalf("apply: exit %d\n%s", r.code, r.out)
		}
	}
}

// input is what a terraform_data of the state was given.
func input(t *testing.T, state []byte, name string) string {
	t.Helper()
	for _, r := range parseState(t, state).Resources {
		if r.Name != name || len(r.Instances) == 0 {
			continue
		}
		var in struct {
			Attributes struct{ Input struct{ Value any } }
		}
		if err := json.Unmarshal(r.Instances[0], &in); err != nil {
			t.Fatal(err)
		}
		v, _ := in.Attributes.Input.Value.(string)
		return v
	}
	t.Errorf("the state has no %s", name)
	return ""
}

// chain is a colleague's file: a resource, a gate behind it, and one more.
func chain(name string) string {
	return item(name+"_before", `"x"`) + gate(name+"_gate", "terraform_data."+name+"_before.id") + item(name+"_behind", "terraform_data."+name+"_gate.id")
}

var chained = []string{"ana_before", "ana_behind", "ana_gate", "ben_before", "ben_behind", "ben_gate"}

// TestDisjointApplies has two colleagues apply at the same time: each a branch
// of one repository with a file of their own, and, in the second case, the same
// files with a target of their own. When both branches are merged, a plain plan
// shows no changes to either.
func TestDisjointApplies(t *testing.T) {
	t.Parallel()
	for name, targets := range map[string][][]string{
		"branches": nil,
		"targets":  {{"-target=terraform_data.ana_behind"}, {"-target=terraform_data.ben_behind"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ana, ben := team(t, item("seed", `"1"`))
			ana.write("ana.tf", chain("ana"))
			ben.write("ben.tf", chain("ben"))
			if targets != nil {
				ana.mergeFrom(ben, "ben.tf")
				ben.mergeFrom(ana, "ana.tf")
			}
			a, b := both(t, s, ana, ben, "ana_gate", "ben_gate", targets...)
			wantDone(t, a, b)
			wantNames(t, s.pull("prod"), append([]string{"seed"}, chained...)...)
			if head := s.head("prod"); head.Source != "merge" || head.ResourceCount != 7 {
				t.Errorf("head: got %+v, want a merge with 7 resources", head)
			}
			if targets == nil {
				ana.mergeFrom(ben, "ben.tf")
				ben.mergeFrom(ana, "ana.tf")
			}
			ana.wantNoChanges()
			ben.wantNoChanges()
			for _, w := range []*workdir{ana, ben} {
				noFile(t, w.path("errored.tfstate"))
			}
			if got := s.refused("prod"); len(got) != 0 {
				t.Errorf("writes were refused: %+v", got)
			}
			s.wantUnlocked("prod")
			wantChain(t, s, "prod")
		})
	}
}

// TestSharedOutputAndData has two applies that write, besides their own
// resources, the same root output and read the same data source, whose content
// changes in between: neither is ever a conflict.
func TestSharedOutputAndData(t *testing.T) {
	t.Parallel()
	producer := initWorkdir(t, "output \"region\" {\n  value = \"north\"\n}\noutput \"build\" {\n  value = 1\n}\n", nil)
	producer.must("apply")
	shared := `
data "terraform_remote_state" "shared" {
  backend = "local"
  config  = { path = "` + producer.path("terraform.tfstate") + `" }
}
output "ids" {
  value = sort([terraform_data.a.id, terraform_data.b.id])
}
`
	region := "data.terraform_remote_state.shared.outputs.region"
	files := func(a, b string) string {
		return shared + item("a", `"`+a+`-${`+region+`}"`) + item("b", `"`+b+`-${`+region+`}"`)
	}
	s, ana, ben := team(t, files("a1", "b1"))
	ana.write("main.tf", httpBackend+files("a2", "b1")+gate("ana_gate", "terraform_data.a.output"))
	ben.write("main.tf", httpBackend+files("a1", "b2")+gate("ben_gate", "terraform_data.b.output"))

	p := ana.start("apply")
	ana.awaitGate("ana_gate", p)
	producer.write("main.tf", "output \"region\" {\n  value = \"north\"\n}\noutput \"build\" {\n  value = 2\n}\n")
	producer.must("apply")
	q := ben.start("apply")
	ben.awaitGate("ben_gate", q)
	ben.openGate("ben_gate")
	b := q.result(clientPatience)
	ana.openGate("ana_gate")
	wantDone(t, p.result(clientPatience), b)

	head := s.pull("prod")
	if a, b := input(t, head, "a"), input(t, head, "b"); a != "a2-north" || b != "b2-north" {
		t.Errorf("the head has a=%s and b=%s, want both changes", a, b)
	}
	merged := httpBackend + files("a2", "b2") + gate("ana_gate", "terraform_data.a.output") + gate("ben_gate", "terraform_data.b.output")
	for _, w := range []*workdir{ana, ben} {
		w.write("main.tf", merged)
		w.wantNoChanges()
	}
	if got := s.refused("prod"); len(got) != 0 {
		t.Errorf("writes were refused: %+v", got)
	}
}

// TestOutputOfNewResources: an output that gathers what both have made has the
// value of the one who wrote last. No server can know better, for it cannot
// evaluate a configuration. The next plan says so, changes no resource for it,
// and the next apply puts it right.
func TestOutputOfNewResources(t *testing.T) {
	t.Parallel()
	s, ana, ben := team(t, item("seed", `"1"`))
	output := func(names ...string) string {
		var ids []string
		for _, n := range names {
			ids = append(ids, "terraform_data."+n+".id")
		}
		return "output \"ids\" {\n  value = [" + strings.Join(ids, ", ") + "]\n}\n"
	}
	ana.write("ana.tf", chain("ana"))
	ana.write("out.tf", output("seed", "ana_gate"))
	ben.write("ben.tf", chain("ben"))
	ben.write("out.tf", output("seed", "ben_gate"))
	a, b := both(t, s, ana, ben, "ana_gate", "ben_gate")
	wantDone(t, a, b)
	wantNames(t, s.pull("prod"), append([]string{"seed"}, chained...)...)

	ana.mergeFrom(ben, "ben.tf")
	ana.write("out.tf", output("seed", "ana_gate", "ben_gate"))
	ben.mergeFrom(ana, "ana.tf", "out.tf")
	r := ana.run("plan", "-detailed-exitcode")
	if r.code != 2 || !strings.Contains(r.out, "Changes to Outputs") || strings.Contains(r.out, "Plan: ") {
		t.Errorf("plan: exit %d, want changes to outputs alone\n%s", r.code, r.out)
	}
	wantText(t, ana.must("apply"), "Resources: 0 added, 0 changed, 0 destroyed")
	ana.wantNoChanges()
	ben.wantNoChanges()
}

// TestOverlappingApplies has two applies change one address. The second is
// refused; docs/coexistence.md says how to recover, and this does it: what it
// has made comes back, and what the winner has made stays.
func TestOverlappingApplies(t *testing.T) {
	t.Parallel()
	s, ana, ben := team(t, item("shared", `"1"`))
	ana.write("main.tf", httpBackend+item("shared", `"of ana"`)+gate("ana_gate", "terraform_data.shared.output"))
	ben.write("main.tf", httpBackend+item("shared", `"of ben"`)+gate("ben_gate", "terraform_data.shared.output")+item("lost", "terraform_data.ben_gate.id"))
	a, b := both(t, s, ana, ben, "ana_gate", "ben_gate")
	wantDone(t, a)
	if b.code != 1 {
		t.Fatalf("the second apply: exit %d, want 1\n%s", b.code, b.out)
	}
	wantText(t, b.out, "Failed to save state", "HTTP error: 409")
	won := s.head("prod")
	wantNames(t, s.pull("prod"), "ana_gate", "shared")
	wantNames(t, readFile(t, ben.path("errored.tfstate")), "ben_gate", "lost", "shared")
	kept := s.refused("prod")
	if len(kept) != 1 || kept[0].Code != string(fault.OverlapConflict) || kept[0].Principal != "ben" || !slices.Equal(kept[0].ConflictingAddresses, []string{"terraform_data.shared"}) {
		t.Fatalf("refused writes: got %+v, want ben's", kept)
	}

	t.Log("ben is told everything, and held back; ana is not")
	wantText(t, s.mustKL("why", kept[0].RequestID), "ben tried to write the state prod", "terraform_data.shared, changed by", "(credentials ana)", "kl recover merge "+kept[0].ID)
	ben.fails([]string{"apply"}, "Error acquiring the state lock", kept[0].ID)
	ana.must("plan")
	wantText(t, ana.must("apply"), "Resources: 0 added, 0 changed, 0 destroyed")

	t.Log("the documented recovery")
	file := ben.path("errored.tfstate")
	r := s.kl("recover", "--file", file, "--state", "prod", "--yes")
	if r.code != 2 || s.head("prod").Version != won.Version {
		t.Fatalf("kl recover without a side: exit %d, want 2, and no version\n%s", r.code, r.out)
	}
	wantText(t, r.out, "kept as "+kept[0].ID, "+ terraform_data.lost", "! terraform_data.shared", "= terraform_data.ana_gate")
	wantText(t, s.mustKL("recover", "--file", file, "--state", "prod", "--take", "disjoint", "--yes"), "left as the state has it", "merged into prod: version "+itoa(won.Version+1))
	head := s.pull("prod")
	wantNames(t, head, "ana_gate", "ben_gate", "lost", "shared")
	if got := input(t, head, "shared"); got != "of ana" {
		t.Errorf("the winner's change became %q", got)
	}

	t.Log("ben takes over ana's change and goes on")
	ben.write("main.tf", httpBackend+item("shared", `"of ana"`)+gate("ana_gate", "terraform_data.shared.output"))
	ben.write("ben.tf", gate("ben_gate", `"of ben"`)+item("lost", "terraform_data.ben_gate.id"))
	ben.must("plan")
	ana.mergeFrom(ben, "main.tf", "ben.tf")
	ana.wantNoChanges()
	ben.wantNoChanges()
	wantText(t, ben.must("apply"), "Resources: 0 added, 0 changed, 0 destroyed")
	wantChain(t, s, "prod")
}

// TestRecoverForgotten recovers from an errored.tfstate of which the server no
// longer knows anything.
func TestRecoverForgotten(t *testing.T) {
	t.Parallel()
	s, ana, ben := team(t, item("seed", `"1"`))
	ben.write("ben.tf", chain("ben"))
	p := ben.start("apply")
	ben.awaitGate("ben_gate", p)
	s.mustKL("lock", "release", "prod", "--id", s.holder("prod").ID)
	ana.write("ana.tf", item("ana", `"1"`))
	ana.must("apply")
	ben.openGate("ben_gate")
	if r := p.result(clientPatience); r.code != 1 {
		t.Fatalf("apply: exit %d, want 1\n%s", r.code, r.out)
	}
	for _, r := range s.refused("prod") {
		s.mustKL("recover", "discard", r.ID, "--state", "prod")
	}
	wantText(t, s.mustKL("recover", "--file", ben.path("errored.tfstate"), "--state", "prod", "--yes"), "+ terraform_data.ben_behind", "merged into prod")
	wantNames(t, s.pull("prod"), "ana", "ben_before", "ben_behind", "ben_gate", "seed")
	ben.mergeFrom(ana, "ana.tf")
	ben.wantNoChanges()
}

// TestLongApplyBesidePeer runs an apply of three checkpoints and more; a
// colleague changes and creates something after the first of them. The later
// checkpoints, which know nothing of it, undo nothing.
func TestLongApplyBesidePeer(t *testing.T) {
	t.Parallel()
	long(t)
	s, ana, ben := team(t, item("seed", `"1"`)+item("other", `"1"`))
	// the client sends a checkpoint when something is done 20 seconds after the last one
	slow := item("step0", `"x"`)
	for i, name := range []string{"step1", "step2", "step3"} {
		slow += "\nresource \"terraform_data\" \"" + name + "\" {\n  input = terraform_data.step" + itoa(i) + ".id\n  provisioner \"local-exec\" {\n    command = \"sleep 21\"\n  }\n}\n"
	}
	ana.write("slow.tf", slow+item("step4", "terraform_data.step3.id"))
	p := ana.start("apply")
	await(t, "the first checkpoint", func() bool { return len(s.versions("prod")) >= 2 }, p.out.String)
	id := s.holder("prod").ID

	ben.write("main.tf", httpBackend+item("seed", `"of ben"`))
	ben.write("peer.tf", item("peer", `"1"`))
	// other is destroyed; without targets, so would be what ana has made so far,
	// for ben's configuration does not have it
	wantDone(t, ben.run("apply", "-target=terraform_data.seed", "-target=terraform_data.peer", "-target=terraform_data.other"))
	peers := s.head("prod")
	wantDone(t, p.result(clientPatience))

	mine := 0
	for _, v := range s.versions("prod") {
		if v.LockID == id {
			mine++
			if merged := v.Version > peers.Version; merged != (v.Source == "merge") {
				t.Errorf("version %d of the long apply: source %s", v.Version, v.Source)
			}
		}
	}
	if mine < 4 {
		t.Errorf("the long apply made %d versions, want three checkpoints and the end", mine)
	}
	head := s.pull("prod")
	wantNames(t, head, "peer", "seed", "step0", "step1", "step2", "step3", "step4")
	if got := input(t, head, "seed"); got != "of ben" {
		t.Errorf("the peer's change became %q", got)
	}
	ben.mergeFrom(ana, "slow.tf")
	ben.wantNoChanges()
	if err := os.Remove(filepath.Join(ana.dir, "main.tf")); err != nil {
		t.Fatal(err)
	}
	ana.mergeFrom(ben, "main.tf", "peer.tf")
	ana.wantNoChanges()
	wantChain(t, s, "prod")
}
