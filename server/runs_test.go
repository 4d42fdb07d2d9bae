package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"kl/fault"
	"kl/kltest"
	"kl/server"
	"kl/store"
	"kl/wire"
)

// runOf begins a run on the state app.
func runOf(t *testing.T, s *kltest.Server, as kltest.Credentials, body string) wire.Run {
	t.Helper()
	a := s.Do(as, "POST", s.APIURL("app", "/runs"), []byte(body))
	want(t, "start a run", a, http.StatusCreated)
	var r wire.Run
	a.Into(t, &r)
	return r
}

func reserve(s *kltest.Server, as kltest.Credentials, r wire.Run, q wire.ReserveRequest) *kltest.Answer {
	b, err := json.Marshal(q)
	if err != nil {
		panic(err)
	}
	return s.Do(as, "POST", s.APIURL("app", "/runs/"+r.ID+"/reserve"), b)
}

func write(a ...string) wire.ReserveRequest { return wire.ReserveRequest{WriteSet: a} }

func runDo(s *kltest.Server, as kltest.Credentials, r wire.Run, verb string) *kltest.Answer {
	return s.Do(as, "POST", s.APIURL("app", "/runs/"+r.ID+"/"+verb), nil)
}

func showRun(t *testing.T, s *kltest.Server, r wire.Run) (got wire.Run) {
	t.Helper()
	s.Do(s.Operator(), "GET", s.APIURL("app", "/runs/"+r.ID), nil).Into(t, &got)
	return got
}

// blocked checks a refusal because of a run and returns the run that is named.
func blocked(t *testing.T, what string, a *kltest.Answer) (wire.Problem, string) {
	t.Helper()
	p := refused(t, what, a, http.StatusConflict, fault.ReservedConflict)
	if p.Extra["kind"] != "reservation" {
		t.Errorf("%s: kind %v", what, p.Extra["kind"])
	}
	list, _ := p.Extra["blocking_runs"].([]any)
	if len(list) == 0 {
		return p, ""
	}
	b, _ := list[0].(map[string]any)
	for _, m := range []string{"run_id", "actor", "addresses", "age", "lease_expires_at"} {
		if b[m] == nil {
			t.Errorf("%s: the blocking run has no %s: %v", what, m, b)
		}
	}
	id, _ := b["run_id"].(string)
	return p, id
}

// TestRunsBesideEachOther follows two runs of one state: each sees only its own
// changes, with serials that nobody else moves, and both land.
func TestRunsBesideEachOther(t *testing.T) {
	s, st := seeded(t)
	us := s.Automation()
	one, two := runOf(t, s, us, `{"actor":"ana@a","reason":"network"}`), runOf(t, s, us, `{"actor":"ben@b"}`)
	if one.Status != wire.RunPlanning || one.BaseVersion != 1 || one.Serial != 1 || one.StatePath != "/runs/"+one.ID+"/state" || !one.LeaseExpiresAt.After(one.CreatedAt) {
		t.Errorf("a fresh run is %+v", one)
	}
	want(t, "reserve", reserve(s, us, one, write("aws_a.one")), 200)
	a := reserve(s, us, two, write("aws_b.two", "aws_b.three"))
	want(t, "reserve", a, 200)
	if a.Into(t, &two); two.Status != wire.RunReserved || two.BaseMoved || !slices.Equal(two.WriteSet, []string{"aws_b.three", "aws_b.two"}) {
		t.Errorf("a reserved run is %+v", two)
	}

	// each as terraform would: LOCK, GET, POST, UNLOCK
	step := func(r wire.Run, base *kltest.State, id string, f func(*kltest.State)) (*kltest.State, *kltest.Answer) {
		url := s.URL + r.StatePath
		want(t, "LOCK", s.Do(us, "LOCK", url, kltest.LockBody(id, apply)), 200)
		g := s.Do(us, "GET", url, nil)
		want(t, "GET", g, 200)
		if !bytes.Equal(g.Body, base.Bytes()) {
			t.Fatalf("the run %s does not see its own view", r.ID)
		}
		n := next(base, f)
		p := s.Do(us, "POST", url+"?ID="+id, n.Bytes())
		want(t, "POST", p, 200)
		want(t, "UNLOCK", s.Do(us, "UNLOCK", url, kltest.LockBody(id, apply)), 200)
		return n, p
	}
	v1, p := step(one, st, "l1", func(n *kltest.State) { n.Add("aws_a.one") })
	if p.Header.Get(wire.HeaderVersion) != "2" || p.Header.Get(wire.HeaderMerged) != "" {
		t.Errorf("the first write: %v", p.Header)
	}
	v2, p := step(two, st, "l2", func(n *kltest.State) { n.Add("aws_b.two") })
	if p.Header.Get(wire.HeaderVersion) != "3" || p.Header.Get(wire.HeaderMerged) != "true" {
		t.Errorf("the second write: %v", p.Header)
	}
	v1, _ = step(one, v1, "l3", func(n *kltest.State) { n.Update("aws_a.one") })
	v2, _ = step(two, v2, "l4", func(n *kltest.State) { n.Add("aws_b.three") })
	s.Restart()
	v2, _ = step(two, v2, "l5", func(n *kltest.State) { n.Remove("aws_b.three") })
	_, _ = step(one, v1, "l6", func(n *kltest.State) { n.Update("aws_a.one") })

	if got := showRun(t, s, two); got.Status != wire.RunApplying || got.Checkpoints != 3 || got.Serial != v2.Serial() || got.HeadVersion != 7 || got.BaseMoved {
		t.Errorf("after its writes the run is %+v", got)
	}
	var versions wire.List[wire.Version]
	s.Do(s.Operator(), "GET", s.APIURL("app", "/versions"), nil).Into(t, &versions)
	if v := versions.Items[0]; v.RunID != one.ID || v.Who != "ana@a" || v.Source != "merge" {
		t.Errorf("the newest version is %+v", v)
	}
	head := s.Do(us, "GET", s.StateURL("app"), nil).Body
	for address, there := range map[string]bool{`"one"`: true, `"two"`: true, `"three"`: false} {
		if bytes.Contains(head, []byte(address)) != there {
			t.Errorf("%s in the head: %v", address, !there)
		}
	}
	want(t, "finish", s.Do(us, "POST", s.APIURL("app", "/runs/"+one.ID+"/finish"), nil), 200)
	want(t, "finish again", s.Do(us, "POST", s.APIURL("app", "/runs/"+one.ID+"/finish"), nil), 200)
	want(t, "fail", s.Do(us, "POST", s.APIURL("app", "/runs/"+two.ID+"/finish"), []byte(`{"status":"failed","reason":"a test"}`)), 200)
	if got := showRun(t, s, two); got.Status != wire.RunFailed || got.EndReason != "a test" || !slices.Equal(got.WriteSet, two.WriteSet) {
		t.Errorf("after its end the run is %+v", got)
	}
	blocked(t, "renew after the end", runDo(s, us, two, "renew"))
	blocked(t, "GET after the end", s.Do(us, "GET", s.URL+two.StatePath, nil))
	for _, path := range []string{s.APIURL("app", "/runs"), envURL(s, "/runs")} {
		var all, live wire.List[wire.Run]
		s.Do(us, "GET", path, nil).Into(t, &all)
		s.Do(us, "GET", path+"?live=true", nil).Into(t, &live)
		if len(all.Items) != 2 || len(live.Items) != 0 {
			t.Errorf("%s lists %d runs, %d live", path, len(all.Items), len(live.Items))
		}
	}
	var events wire.List[wire.Event]
	s.Do(s.Operator(), "GET", s.URL+"/v1/events?state=app", nil).Into(t, &events)
	seen := map[string]int{}
	for _, e := range events.Items {
		seen[e.Kind]++
	}
	for kind, n := range map[string]int{"run_started": 2, "run_reserved": 2, "run_finished": 1, "run_failed": 1} {
		if seen[kind] != n {
			t.Errorf("%d events %s, want %d", seen[kind], kind, n)
		}
	}
}

// TestReservationConflicts: what overlaps is refused with who has it, and read
// sets may be shared.
func TestReservationConflicts(t *testing.T) {
	s, _ := seeded(t)
	us := s.Automation()
	first := runOf(t, s, us, `{"actor":"ana"}`)
	want(t, "reserve", reserve(s, us, first, wire.ReserveRequest{WriteSet: []string{"module.net", "aws_a.x[0]"}, ReadSet: []string{"aws_r.x"}}), 200)
	for name, q := range map[string]wire.ReserveRequest{
		"within a module":   write(`module.net["k"].aws_v.y`),
		"the whole of a":    write("aws_a.x"),
		"read of a write":   {WriteSet: []string{"aws_z.z"}, ReadSet: []string{"aws_a.x[0]"}},
		"write of a read":   write("aws_r.x[3]"),
		"one of many":       write("aws_z.z", "aws_z.y", "module.net.module.b"),
		"everything or not": {WriteSet: []string{"aws_z.z", "aws_a.x[0]"}},
	} {
		r := runOf(t, s, us, `{}`)
		p, id := blocked(t, name, reserve(s, us, r, q))
		if id != first.ID || p.Extra["conflicting_count"] == 0.0 {
			t.Errorf("%s: blocked by %s, %v", name, id, p.Extra)
		}
		if got := showRun(t, s, r); got.Status != wire.RunPlanning || len(got.WriteSet) != 0 {
			t.Errorf("%s: after the refusal the run has %+v", name, got)
		}
	}
	for name, q := range map[string]wire.ReserveRequest{
		"another key":     write("aws_a.x[1]"),
		"key of a text":   write(`aws_a.x["0"]`),
		"read of a read":  {WriteSet: []string{"aws_q.q"}, ReadSet: []string{"aws_r.x"}},
		"a longer name":   write("module.network.aws_v.y", "aws_a.xx"),
		"only read":       {ReadSet: []string{"aws_r.x"}},
		"a data source":   write("data.aws_a.x"),
		"extending later": write("aws_n.n"),
	} {
		want(t, name, reserve(s, us, runOf(t, s, us, `{}`), q), 200)
	}
	// extending: what cannot be had at once is refused, and what was there stays
	blocked(t, "extend", reserve(s, us, first, wire.ReserveRequest{WriteSet: []string{"module.net", "aws_n.n"}, Wait: wire.Duration(time.Minute)}))
	if got := showRun(t, s, first); len(got.WriteSet) != 2 || got.Waiting {
		t.Errorf("after a refused extension the run has %v, waits %v", got.WriteSet, got.Waiting)
	}
	want(t, "replace", reserve(s, us, first, write("module.net")), 200)
	want(t, "what is free again", reserve(s, us, runOf(t, s, us, `{}`), write("aws_a.x[0]")), 200)
	for name, q := range map[string]wire.ReserveRequest{
		"nothing":        {},
		"no address":     write("aws_a"),
		"a wrong key":    write("aws_a.x[a]"),
		"too many":       write(slices.Repeat([]string{"a.b"}, 10001)...),
		"a bad read set": {WriteSet: []string{"aws_p.p"}, ReadSet: []string{"?"}},
	} {
		refused(t, name, reserve(s, us, first, q), 400, fault.ParameterInvalid)
	}
	_, other := token(t, s, `{"name":"other"}`)
	for _, verb := range []string{"renew", "rebase", "finish"} {
		refused(t, verb, runDo(s, other, first, verb), 409, fault.LockForeign)
	}
	refused(t, "reserve", reserve(s, other, first, write("aws_p.p")), 409, fault.LockForeign)
	refused(t, "GET", s.Do(other, "GET", s.URL+first.StatePath, nil), 409, fault.LockForeign)
	_, planner := token(t, s, `{"name":"planner","role":"plan"}`)
	refused(t, "abort by who may not write", runDo(s, planner, first, "abort"), 409, fault.LockForeign)
	want(t, "abort by another who may", runDo(s, other, first, "abort"), 200)
	if got := showRun(t, s, first); got.Status != wire.RunAborted || got.EndedBy != "other" {
		t.Errorf("after its abort the run is %+v", got)
	}
}

// TestRunWriteSet: a run that writes outside of its write set, or after its
// end, is refused; what it sent is kept and can be merged.
func TestRunWriteSet(t *testing.T) {
	s, st := seeded(t)
	us := s.Automation()
	r := runOf(t, s, us, `{}`)
	url := s.URL + r.StatePath
	n := next(st, func(n *kltest.State) { n.Add("aws_a.one") })
	p := refused(t, "write without a reservation", s.Do(us, "POST", url, n.Bytes()), 409, fault.ReservedConflict)
	if a, _ := p.Extra["conflicting_addresses"].([]any); len(a) != 1 || a[0] != "aws_a.one" || p.Extra["refused_write"] == nil {
		t.Errorf("the refusal has %v", p.Extra)
	}
	refused(t, "reserve what is kept", reserve(s, us, r, write("aws_a")), 400, fault.ParameterInvalid)
	refused(t, "reserve what is kept", reserve(s, us, r, write("aws_a.one")), 423, fault.RecoveryHold)
	want(t, "reserve something else", reserve(s, us, r, write("aws_b.one")), 200)
	id, _ := p.Extra["refused_write"].(string)
	want(t, "merge", s.Do(us, "POST", s.APIURL("app", "/refused/"+id+"/merge"), []byte(`{}`)), 200)

	var moved wire.Run
	a := reserve(s, us, r, wire.ReserveRequest{WriteSet: []string{"aws_b.one"}, ReadSet: []string{"aws_a.one"}})
	want(t, "reserve", a, 200)
	if a.Into(t, &moved); !moved.BaseMoved || !slices.Equal(moved.Moved, []string{"aws_a.one"}) {
		t.Errorf("the base has moved: %v %v", moved.BaseMoved, moved.Moved)
	}
	a = runDo(s, us, r, "rebase")
	want(t, "rebase", a, 200)
	if a.Into(t, &moved); moved.BaseMoved || moved.BaseVersion != 2 || moved.Serial != 2 {
		t.Errorf("after rebase: %+v", moved)
	}
	n = next(n, func(n *kltest.State) { n.Add("aws_b.one") })
	want(t, "POST", s.Do(us, "POST", url, n.Bytes()), 200)
	want(t, "the same again", s.Do(us, "POST", url, n.Bytes()), 200)
	refused(t, "a serial again", s.Do(us, "POST", url, n.Compact()), 409, fault.SerialConflict)

	want(t, "abort", s.Do(s.Operator(), "POST", s.APIURL("app", "/runs/"+r.ID+"/abort"), []byte(`{"reason":"too slow"}`)), 200)
	want(t, "abort again", runDo(s, us, r, "abort"), 200)
	late := next(n, func(n *kltest.State) { n.Update("aws_b.one") })
	p = refused(t, "a late write", s.Do(us, "POST", url, late.Bytes()), 409, fault.ReservedConflict)
	id, _ = p.Extra["refused_write"].(string)
	want(t, "merge", s.Do(us, "POST", s.APIURL("app", "/refused/"+id+"/merge"), []byte(`{}`)), 200)
	if head := s.Do(us, "GET", s.StateURL("app"), nil).Body; sha(head) == sha(n.Bytes()) {
		t.Error("the late write did not come in")
	}
	want(t, "UNLOCK of a run that has ended", s.Do(us, "UNLOCK", url, nil), 200)
	refused(t, "no such run", s.Do(us, "GET", s.URL+"/runs/run_1_zzzzzzzzzzzz/state", nil), 422, fault.UnknownRun)
}

// TestPlainClientsMeetRuns: in both lock modes nobody changes what a run has
// reserved.
func TestPlainClientsMeetRuns(t *testing.T) {
	s, st := seeded(t, kltest.WithServer(func(o *server.Options) { o.Hold = -1 }))
	us := s.Automation()
	r := runOf(t, s, us, `{"actor":"ana@a"}`)

	// exclusive: a lock keeps runs waiting, but for one of a plan
	lockIt(t, s, us, "app", "plain")
	p, _ := blocked(t, "reserve beside a lock", reserve(s, us, r, write("aws_a.one")))
	if h, _ := p.Extra["ID"].(string); h != "plain" {
		t.Errorf("the holder is not named: %v", p.Extra)
	}
	want(t, "UNLOCK", s.Do(us, "UNLOCK", s.StateURL("app"), kltest.LockBody("plain", apply)), 200)
	want(t, "LOCK for a plan", s.Do(us, "LOCK", s.StateURL("app"), kltest.LockBody("plan", plan)), 200)
	want(t, "reserve", reserve(s, us, r, write("aws_a.one")), 200)
	a := s.Do(us, "LOCK", s.StateURL("app"), kltest.LockBody("plain-2", apply))
	refused(t, "LOCK beside a run", a, 423, fault.Locked)
	if info, err := a.LockInfo(); err != nil || info.ID != r.ID || info.Who != "ana@a" || info.Info == "" || info.Created == "" {
		t.Errorf("the run is not the holder: %+v (%v)", info, err)
	}
	want(t, "LOCK for another plan", s.Do(us, "LOCK", s.StateURL("app"), kltest.LockBody("plan-2", plan)), 200)
	for _, id := range []string{"plan", "plan-2"} {
		want(t, "UNLOCK", s.Do(us, "UNLOCK", s.StateURL("app"), kltest.LockBody(id, plan)), 200)
	}
	refused(t, "force-unlock", s.Do(us, "UNLOCK", s.StateURL("app"), nil), 409, fault.LockRequired)
	refused(t, "release of the run", s.Do(us, "DELETE", s.APIURL("app", "/lock?id="+r.ID), nil), 409, fault.LockMismatch)
	var lock wire.Lock
	s.Do(us, "GET", s.APIURL("app", "/lock"), nil).Into(t, &lock)
	if len(lock.Runs) != 1 || lock.Runs[0].RunID != r.ID || !slices.Equal(lock.Runs[0].Addresses, []string{"aws_a.one"}) {
		t.Errorf("the lock shows %+v", lock)
	}
	refused(t, "delete", s.Do(us, "DELETE", s.APIURL("app", ""), nil), 409, fault.LockRequired)
	refused(t, "archive", s.Do(us, "POST", s.APIURL("app", "/archive"), nil), 409, fault.LockRequired)

	// a write without a lock, and those of sessions in optimistic mode
	taken := next(st, func(n *kltest.State) { n.Add("aws_a.one") })
	p, id := blocked(t, "write without a lock", s.Do(us, "POST", s.StateURL("app"), taken.Bytes()))
	if id != r.ID || p.Extra["refused_write"] == nil {
		t.Errorf("the refusal has %v", p.Extra)
	}
	want(t, "discard", s.Do(us, "DELETE", s.APIURL("app", "/refused/"+p.Extra["refused_write"].(string)), nil), 204)
	share(t, s)
	lockIt(t, s, us, "app", "shared")
	free := next(st, func(n *kltest.State) { n.Add("aws_b.one") })
	want(t, "what nobody has reserved", post(s, us, "app", "shared", free), 200)
	free = next(free, func(n *kltest.State) { n.Add("aws_a.one") })
	if p, id = blocked(t, "what is reserved", post(s, us, "app", "shared", free)); id != r.ID || p.Extra["refused_write"] == nil {
		t.Errorf("the refusal has %v", p.Extra)
	}
	kept, _ := p.Extra["refused_write"].(string)
	blocked(t, "merge of what is reserved", s.Do(us, "POST", s.APIURL("app", "/refused/"+kept+"/merge"), []byte(`{}`)))
	mine := next(st, func(n *kltest.State) { n.Add("aws_a.one") })
	want(t, "the run's own", s.Do(us, "POST", s.URL+r.StatePath, mine.Bytes()), 200)
	want(t, "finish", runDo(s, us, r, "finish"), 200)
	want(t, "delete", s.Do(us, "DELETE", s.APIURL("app", "")+"?ID=shared", nil), 204)
}

// TestRunLease: a run that is not heard of ends, and its reservations with it;
// any request of it keeps it.
func TestRunLease(t *testing.T) {
	clock := kltest.NewClock()
	s, st := seeded(t, kltest.WithStore(func(o *store.Options) { o.Now, o.RunLease = clock.Now, time.Minute }))
	us := s.Automation()
	r := runOf(t, s, us, `{}`)
	want(t, "reserve", reserve(s, us, r, write("aws_a.one")), 200)
	n := st
	for _, f := range []func() *kltest.Answer{
		func() *kltest.Answer { return runDo(s, us, r, "renew") },
		func() *kltest.Answer { return s.Do(us, "GET", s.URL+r.StatePath, nil) },
		func() *kltest.Answer { return s.Do(us, "LOCK", s.URL+r.StatePath, kltest.LockBody("l", apply)) },
		func() *kltest.Answer {
			n = next(n, func(n *kltest.State) { n.Add("aws_a.one") })
			return s.Do(us, "POST", s.URL+r.StatePath+"?ID=l", n.Bytes())
		},
		func() *kltest.Answer { return reserve(s, us, r, write("aws_a.one", "aws_a.two")) },
		func() *kltest.Answer { return s.Do(us, "UNLOCK", s.URL+r.StatePath, kltest.LockBody("l", apply)) },
	} {
		clock.Advance(40 * time.Second)
		want(t, "a request of the run", f(), 200)
		s.Do(s.Operator(), "GET", s.URL+"/v1/events?limit=1", nil) // what was noted is written by then
	}
	other := runOf(t, s, us, `{}`)
	blocked(t, "reserve", reserve(s, us, other, write("aws_a.two")))
	clock.Advance(61 * time.Second)
	if got := showRun(t, s, r); got.Status != wire.RunExpired {
		t.Errorf("after its lease the run is %s", got.Status)
	}
	other = runOf(t, s, us, `{}`)
	want(t, "reserve", reserve(s, us, other, write("aws_a.two")), 200)
	late := next(n, func(n *kltest.State) { n.Update("aws_a.one") })
	refused(t, "a late write", s.Do(us, "POST", s.URL+r.StatePath, late.Bytes()), 409, fault.ReservedConflict)
	if got := showRun(t, s, r); got.Status != wire.RunExpired || got.Checkpoints != 1 {
		t.Errorf("after its lease the run is %+v", got)
	}
	if head := s.Do(us, "GET", s.StateURL("app"), nil).Body; !bytes.Equal(head, n.Bytes()) {
		t.Error("what the run had written is not in the state")
	}
}

// TestRunSaysThatItApplies: an apply that has not written for a while is told
// from a reservation whose owner has yet to begin.
func TestRunSaysThatItApplies(t *testing.T) {
	s, _ := seeded(t)
	us := s.Automation()
	r := runOf(t, s, us, `{}`)
	renew := func(body string) *kltest.Answer {
		return s.Do(us, "POST", s.APIURL("app", "/runs/"+r.ID+"/renew"), []byte(body))
	}
	is := func(what, status string, a *kltest.Answer) {
		t.Helper()
		want(t, what, a, http.StatusOK)
		var got wire.Run
		if a.Into(t, &got); got.Status != status {
			t.Errorf("%s: the run is %s, want %s", what, got.Status, status)
		}
	}
	is("nothing is reserved", wire.RunPlanning, renew(`{"status":"applying"}`))
	is("reserve", wire.RunReserved, reserve(s, us, r, write("aws_a.one")))
	is("renew without a body", wire.RunReserved, renew(""))
	is("renew", wire.RunReserved, renew(`{}`))
	refused(t, "finish by a renewal", renew(`{"status":"finished"}`), http.StatusBadRequest, fault.ParameterInvalid)
	refused(t, "an unknown member", renew(`{"state":"applying"}`), http.StatusBadRequest, fault.ParameterInvalid)
	is("the apply begins", wire.RunApplying, renew(`{"status":"applying"}`))
	is("renew", wire.RunApplying, renew(""))
	blocked(t, "reserve", reserve(s, us, runOf(t, s, us, `{}`), write("aws_a.one")))
}

// TestRunsWait: who waits gets its turn in the order of arrival, also past
// those who come later for the same, and is told as soon as it is free.
func TestRunsWait(t *testing.T) {
	s, _ := seeded(t)
	us := s.Automation()
	wait := wire.ReserveRequest{WriteSet: []string{"aws_a.one"}, Wait: wire.Duration(time.Minute)}
	first, second, third := runOf(t, s, us, `{"actor":"1"}`), runOf(t, s, us, `{"actor":"2"}`), runOf(t, s, us, `{"actor":"3"}`)
	want(t, "reserve", reserve(s, us, first, write("aws_a.one", "aws_a.two")), 200)
	answers := make(chan string, 2)
	ask := func(name string, r wire.Run, place int) {
		b, err := json.Marshal(wait)
		if err != nil {
			t.Error(err)
		}
		go func() {
			a, err := s.Try(context.Background(), us, "POST", s.APIURL("app", "/runs/"+r.ID+"/reserve"), b)
			if err != nil || a.Status != 200 {
				name += " was refused"
			}
			answers <- name
		}()
		await(t, func() bool { return showRun(t, s, r).QueuePosition == place })
	}
	ask("second", second, 1)
	ask("third", third, 2)
	// the queue is fair to those who want less
	late := runOf(t, s, us, `{"actor":"4"}`)
	_, by := blocked(t, "past those who wait", reserve(s, us, late, write("aws_a.one[0]")))
	if by != first.ID {
		t.Errorf("blocked by %s", by)
	}
	want(t, "beside those who wait", reserve(s, us, late, write("aws_b.one")), 200)
	want(t, "finish", runDo(s, us, first, "finish"), 200)
	if got := <-answers; got != "second" {
		t.Errorf("the first to be let in is %s", got)
	}
	refused(t, "LOCK", s.Do(us, "LOCK", s.StateURL("app"), kltest.LockBody("plain", apply)), 423, fault.Locked)
	want(t, "finish", runDo(s, us, late, "finish"), 200)
	want(t, "abort", runDo(s, us, second, "abort"), 200)
	if got := <-answers; got != "third" {
		t.Errorf("the second to be let in is %s", got)
	}
}

// TestWaitIsNotIdle: a run that is held open for longer than its lease is not
// taken for gone, and gets its turn when another's lease ends.
func TestWaitIsNotIdle(t *testing.T) {
	s, _ := seeded(t, kltest.WithStore(func(o *store.Options) { o.RunLease = 2 * time.Second }))
	us := s.Automation()
	first := runOf(t, s, us, `{}`)
	want(t, "reserve", reserve(s, us, first, write("aws_a.one")), 200)
	second := runOf(t, s, us, `{}`)
	q := write("aws_a.one")
	q.Wait = wire.Duration(10 * time.Second)
	want(t, "wait for the lease", reserve(s, us, second, q), 200)
	if got := showRun(t, s, first); got.Status != wire.RunExpired {
		t.Errorf("the run before is %s", got.Status)
	}
}

// await asks until it is so.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !is(); {
		if time.Now().After(until) {
			t.Fatal("it did not come to be")
		}
	}
}

// TestRunOfNewState: the first version of a state may come from a run, and from
// one only.
func TestRunOfNewState(t *testing.T) {
	s := kltest.Start(t)
	us := s.Automation()
	r := runOf(t, s, us, `{}`)
	_, by := blocked(t, "another run", s.Do(us, "POST", s.APIURL("app", "/runs"), nil))
	if by != r.ID {
		t.Errorf("blocked by %q", by)
	}
	want(t, "GET", s.Do(us, "GET", s.URL+r.StatePath, nil), 404)
	st := kltest.NewState(0, 1)
	st.Add("aws_a.one")
	refused(t, "outside of the write set", s.Do(us, "POST", s.URL+r.StatePath, st.Bytes()), 409, fault.ReservedConflict)
	want(t, "discard", s.Do(us, "DELETE", s.APIURL("app", "/refused/"+refusedOf(t, s, "app")[0].ID), nil), 204)
	want(t, "reserve", reserve(s, us, r, write("aws_a.one")), 200)
	blocked(t, "a plain write", s.Do(us, "POST", s.StateURL("app"), kltest.NewState(2, 2).Bytes()))
	want(t, "POST", s.Do(us, "POST", s.URL+r.StatePath, st.Bytes()), 200)
	n := next(st, func(n *kltest.State) { n.Update("aws_a.one") })
	want(t, "POST", s.Do(us, "POST", s.URL+r.StatePath, n.Bytes()), 200)
	want(t, "another run", s.Do(us, "POST", s.APIURL("app", "/runs"), nil), 201)
	opaque := []byte(`{"serial":9,"lineage":"` + st.Lineage() + `","meta":{"key_provider.pbkdf2.k":"e30="},"encrypted_data":"AAAA","encryption_version":"v0"}`)
	refused(t, "what cannot be looked into", s.Do(us, "POST", s.URL+r.StatePath, opaque), 409, fault.ReservedConflict)
	want(t, "POST", s.Do(us, "POST", s.StateURL("encrypted"), opaque), 200)
	refused(t, "run of what cannot be looked into", s.Do(us, "POST", s.APIURL("encrypted", "/runs"), nil), 400, fault.StateOpaque)
}

// TestRunOfEndedToken: what a run sends whose credential has ended meanwhile is
// refused, and kept; a stranger's is not, and neither is told of the run.
func TestRunOfEndedToken(t *testing.T) {
	s, st := seeded(t)
	tok, robot := token(t, s, `{"name":"robot"}`)
	r := runOf(t, s, robot, `{}`)
	want(t, "reserve", reserve(s, robot, r, write("aws_a.one")), 200)
	n := next(st, func(n *kltest.State) { n.Add("aws_a.one") })
	want(t, "revoke", s.Do(s.Operator(), "DELETE", envURL(s, "/tokens/"+tok.ID), nil), 204)
	p := refused(t, "a write", s.Do(robot, "POST", s.URL+r.StatePath, n.Bytes()), 401, fault.CredentialsRevoked)
	kept := refusedOf(t, s, "app")
	if len(kept) != 1 || kept[0].ID != p.Extra["refused_write"] || kept[0].RunID != r.ID {
		t.Fatalf("kept are %+v, refused was %v", kept, p.Extra)
	}
	refused(t, "GET", s.Do(robot, "GET", s.URL+r.StatePath, nil), 401, fault.CredentialsRevoked)
	other, stranger := token(t, s, `{"name":"stranger"}`)
	want(t, "revoke", s.Do(s.Operator(), "DELETE", envURL(s, "/tokens/"+other.ID), nil), 204)
	p = refused(t, "a stranger's write", s.Do(stranger, "POST", s.URL+r.StatePath, n.Bytes()), 401, fault.CredentialsRevoked)
	if p.Extra["refused_write"] != nil || len(refusedOf(t, s, "app")) != 1 {
		t.Errorf("what a stranger sent is kept: %v", p.Extra)
	}
	want(t, "merge", s.Do(s.Automation(), "POST", s.APIURL("app", "/refused/"+kept[0].ID+"/merge"), []byte(`{}`)), 409)
	want(t, "abort", s.Do(s.Operator(), "POST", s.APIURL("app", "/runs/"+r.ID+"/abort"), nil), 200)
	want(t, "merge", s.Do(s.Automation(), "POST", s.APIURL("app", "/refused/"+kept[0].ID+"/merge"), []byte(`{}`)), 200)
}

// TestRunOfLostGrant is the same for a user whose grant has ended.
func TestRunOfLostGrant(t *testing.T) {
	x := newTeam(t)
	x.join("ben", "write")
	st := kltest.NewState(3, 1)
	want(t, "seed", x.s.Do(x.robot("seed"), "POST", x.state("app"), st.Bytes()), 200)
	pat := kltest.Basic(x.ws, x.pats["ben"].Secret)
	a := x.s.Do(pat, "POST", x.s.URL+x.envPath("/states/app/runs"), nil)
	want(t, "start", a, 201)
	var r wire.Run
	a.Into(t, &r)
	want(t, "reserve", x.s.Do(x.as("ben"), "POST", x.s.URL+x.envPath("/states/app/runs/"+r.ID+"/reserve"), []byte(`{"write_set":["aws_a.one"]}`)), 200)
	n := next(st, func(n *kltest.State) { n.Add("aws_a.one") })
	want(t, "POST", x.s.Do(pat, "POST", x.s.URL+r.StatePath, n.Bytes()), 200)
	want(t, "end of the grant", x.s.Do(x.as("ana"), "DELETE", x.s.URL+x.envPath("/grants/ben"), nil), 204)
	n = next(n, func(n *kltest.State) { n.Update("aws_a.one") })
	p := refused(t, "a write", x.s.Do(pat, "POST", x.s.URL+r.StatePath, n.Bytes()), 403, fault.NoGrant)
	if p.Extra["refused_write"] == nil {
		t.Errorf("it is not kept: %v", p.Extra)
	}
	refused(t, "GET", x.s.Do(pat, "GET", x.s.URL+r.StatePath, nil), 422, fault.UnknownRun)
}
