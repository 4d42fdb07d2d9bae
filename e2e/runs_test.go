package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kl/client"
	"kl/fault"
	"kl/kltest"
	"kl/store"
	"kl/wire"
)

// runner is the client of the automation token, as terraform has it: runs
// belong to whoever begins them.
func (s *server) runner() *client.Client {
	return s.clientFor(client.Options{Username: s.boot.WorkspaceID, Password: s.boot.AutomationToken})
}

// startRun begins a run on the state prod that has reserved addresses.
func (s *server) startRun(actor string, write ...string) wire.Run {
	s.tb.Helper()
	c, env := s.runner(), s.boot.EnvPublicID
	r, err := c.StartRun(s.ctx(), env, "prod", wire.RunRequest{Actor: actor})
	if err != nil {
		s.tb.Fatal(err)
	}
	if len(write) == 0 {
		return r
	}
	if r, err = c.Reserve(s.ctx(), env, "prod", r.ID, wire.ReserveRequest{WriteSet: write}); err != nil {
		s.tb.Fatal(err)
	}
	return r
}

// inRun is a directory whose client talks to the state within a run.
func (s *server) inRun(r wire.Run, config string) *workdir {
	s.tb.Helper()
	w := newWorkdir(s.tb, httpBackend+config, s.env("prod"))
	u := s.base + r.StatePath
	w.setenv("TF_HTTP_ADDRESS="+u, "TF_HTTP_LOCK_ADDRESS="+u, "TF_HTTP_UNLOCK_ADDRESS="+u)
	w.must("init")
	return w
}

// TestRunsOfTerraform has the real client work in two runs of one state at the
// same time: a plan that one has saved stays good while the other writes, both
// land, and a plain apply waits for them, in exclusive mode.
func TestRunsOfTerraform(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	seed := item("seed", `"1"`)
	plain := initWorkdir(t, httpBackend+seed, s.env("prod"))
	plain.must("apply")
	config := seed + chain("ana") + chain("ben")
	scope := func(who string) []string {
		return []string{"terraform_data." + who + "_before", "terraform_data." + who + "_gate", "terraform_data." + who + "_behind"}
	}
	first, second := s.startRun("ana@a", scope("ana")...), s.startRun("ben@b", scope("ben")...)
	ana, ben := s.inRun(first, config), s.inRun(second, config)
	ana.must("plan", "-target=terraform_data.ana_behind", "-out=saved.tfplan")
	p := ben.start("apply", "-target=terraform_data.ben_behind")
	ben.awaitGate("ben_gate", p)
	q := ana.start("apply", "saved.tfplan") // ben's checkpoints have moved the state since
	ana.awaitGate("ana_gate", q)

	out := plain.fails([]string{"apply"}, "already locked: ID=run_")
	wantText(t, out, "HTTP remote state already locked")
	wantText(t, s.mustKL("lock", "show", "prod"), "prod is not locked", first.ID, second.ID, "ben@b", "terraform_data.ana_before")
	if r := s.kl("doctor", "--state", "prod"); r.code != 2 {
		t.Errorf("kl doctor: exit %d\n%s", r.code, r.out)
	} else {
		wantText(t, r.out, "has reserved parts of the state", "kl runs --state prod")
	}
	waiting := plain.start("apply", "-lock-timeout=60s", "-target=terraform_data.seed")
	await(t, "the plain apply in the queue", func() bool { return len(s.lock("prod").Queue) == 1 })

	ben.openGate("ben_gate")
	ana.openGate("ana_gate")
	wantDone(t, p.result(clientPatience), q.result(clientPatience))
	for _, r := range []wire.Run{first, second} {
		if r, err := s.runner().FinishRun(s.ctx(), s.boot.EnvPublicID, "prod", r.ID, wire.RunEnd{}); err != nil || r.Checkpoints == 0 {
			t.Errorf("finish: %v, %+v", err, r)
		}
	}
	wantDone(t, waiting.result(clientPatience))
	wantNames(t, s.pull("prod"), append([]string{"seed"}, chained...)...)
	plain.write("main.tf", httpBackend+config)
	plain.wantNoChanges()
	if got := s.refused("prod"); len(got) != 0 {
		t.Errorf("writes were refused: %+v", got)
	}
	wantChain(t, s, "prod")
}

// TestAbortedRun: an abort during the apply refuses what comes later and keeps
// it; what was written before stays.
func TestAbortedRun(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	initWorkdir(t, httpBackend+item("seed", `"1"`), s.env("prod")).must("apply")
	r := s.startRun("ana@a", "terraform_data.ana_before", "terraform_data.ana_gate", "terraform_data.ana_behind")
	ana := s.inRun(r, item("seed", `"1"`)+chain("ana"))
	p := ana.start("apply")
	ana.awaitGate("ana_gate", p)
	s.restart(true) // the runner neither notices nor loses anything
	if _, err := s.client().AbortRun(s.ctx(), s.boot.EnvPublicID, "prod", r.ID, "a test"); err != nil {
		t.Fatal(err)
	}
	ana.openGate("ana_gate")
	if got := p.result(clientPatience); got.code != 1 || !strings.Contains(got.out, "HTTP error: 409") {
		t.Errorf("the aborted apply: exit %d\n%s", got.code, got.out)
	}
	kept := s.refused("prod")
	if len(kept) == 0 || kept[0].RunID != r.ID || kept[0].Code != string(fault.ReservedConflict) {
		t.Fatalf("the late write is not kept: %+v", kept)
	}
	s.mustKL("recover", "merge", kept[0].ID, "--state", "prod")
	wantNames(t, s.pull("prod"), "seed", "ana_before", "ana_gate", "ana_behind")
}

// TestCrashedRuns kills a serving process under runs that write, again and
// again: each reservation and write that was acknowledged is there afterwards,
// and each run sees what it has sent.
func TestCrashedRuns(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 4
	}
	rng := seeded(t)
	s := startServer(t)
	if _, err := s.client().Push(s.ctx(), s.ref("prod"), "", kltest.NewState(40, 1).Bytes()); err != nil {
		t.Fatal(err)
	}
	runs := make([]*crashRun, 5)
	for i := range runs {
		address := fmt.Sprintf("aws_run.n%d", i)
		runs[i] = &crashRun{run: s.startRun(fmt.Sprint("runner ", i), address), address: address}
		runs[i].doc = kltest.NewState(40, 1)
	}
	writes := 0
	for range rounds {
		transport, answered := &http.Transport{MaxIdleConnsPerHost: 16}, newAnswers()
		var all sync.WaitGroup
		for _, r := range runs {
			all.Go(func() {
				for r.write(s, &http.Client{Transport: transport}) {
					answered.add()
				}
			})
		}
		answered.await(t, rng.IntN(15))
		<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond) // anywhere within the next request
		s.proc.kill()
		all.Wait()
		transport.CloseIdleConnections()
		verifyRuns(t, s, runs)
		if t.Failed() {
			return
		}
		s.start()
	}
	for _, r := range runs {
		writes += r.acked
	}
	t.Logf("%d kills, %d acknowledged writes", rounds, writes)
	if writes < rounds {
		t.Error("there was too little load for this to prove anything")
	}
}

// crashRun is a run under load. What was not answered is sent again.
type crashRun struct {
	run       wire.Run
	address   string
	doc       *kltest.State
	sent      []byte // of the write that is under way
	seen      []byte // of the last acknowledged one
	acked     int
	mayBeSent bool
}

// write sends the run's next write; false: the server does not answer.
func (r *crashRun) write(s *server, h *http.Client) bool {
	if r.sent == nil {
		if r.acked == 0 {
			r.doc.Add(r.address)
		} else {
			r.doc.Update(r.address)
		}
		r.doc.SetSerial(r.doc.Serial() + 1)
		r.sent = r.doc.Bytes()
	}
	req, err := http.NewRequestWithContext(s.ctx(), http.MethodPost, s.base+r.run.StatePath, bytes.NewReader(r.sent))
	if err != nil {
		s.tb.Error(err)
		return false
	}
	req.SetBasicAuth(s.boot.WorkspaceID, s.boot.AutomationToken)
	r.mayBeSent = true
	res, err := h.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		s.tb.Errorf("a write of %s: %d %s", r.run.ID, res.StatusCode, b)
		return false
	}
	r.seen, r.sent, r.mayBeSent = r.sent, nil, false
	r.acked++
	return true
}

func verifyRuns(t *testing.T, s *server, runs []*crashRun) {
	t.Helper()
	st, err := store.Open(store.Options{Path: s.data, ReadOnly: true})
	if err != nil {
		t.Fatalf("the file does not open: %v", err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if report, err := st.Check(s.ctx(), nil); err != nil || len(report.Problems) > 0 {
		t.Fatalf("check: %v %q", err, report.Problems)
	}
	ref := store.Ref{Environment: s.boot.EnvPublicID, Name: "prod"}
	p, err := st.Authenticate(s.ctx(), s.boot.AutomationToken)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		got, err := st.Run(s.ctx(), ref, r.run.ID)
		if err != nil || !wire.RunLive(got.Status) || !slices.Equal(got.WriteSet, []string{r.address}) {
			t.Fatalf("the run is %+v (%v)", got, err)
		}
		if n := int(got.Checkpoints); n != r.acked && (n != r.acked+1 || !r.mayBeSent) {
			t.Errorf("the run %s has %d writes, %d were acknowledged", r.run.ID, n, r.acked)
		}
		if r.seen == nil {
			continue
		}
		snap, err := st.RunState(s.ctx(), store.Actor{Principal: p}, ref, r.run.ID)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		_, err = snap.WriteTo(&b)
		snap.Close()
		if err != nil || !bytes.Equal(b.Bytes(), r.seen) && !(r.mayBeSent && bytes.Equal(b.Bytes(), r.sent)) {
			t.Errorf("the run %s sees %d bytes that are neither its last write nor the one under way (%v)", r.run.ID, b.Len(), err)
		}
	}
}
