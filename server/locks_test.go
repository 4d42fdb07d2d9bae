package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"kl/fault"
	"kl/kltest"
	"kl/server"
	"kl/wire"
)

// aliases are the ways to lock and to unlock.
func aliases(s *kltest.Server, name string) (lock, unlock map[string][2]string) {
	st, al := s.StateURL(name), s.LockURL(name)
	lock = map[string][2]string{
		"LOCK": {"LOCK", st}, "LOCK alias": {"LOCK", al}, "POST alias": {"POST", al}, "PUT alias": {"PUT", al},
	}
	unlock = map[string][2]string{
		"UNLOCK": {"UNLOCK", st}, "UNLOCK alias": {"UNLOCK", al}, "DELETE alias": {"DELETE", al},
	}
	return lock, unlock
}

// TestLockBodies: each way to lock with each kind of body.
func TestLockBodies(t *testing.T) {
	s, _ := seeded(t)
	locks, _ := aliases(s, "app")
	for way, w := range locks {
		for name, body := range map[string]string{
			"empty": "", "blank": " ", "no members": "{}", "no ID": `{"Who":"ana"}`, "empty ID": `{"ID":""}`, "null": "null", "list": "[]",
			"rubbish": "\x00\xff", "text": "lock it", "cut": `{"ID":"a`, "number ID": `{"ID":1}`, "long ID": `{"ID":"` + strings.Repeat("x", 201) + `"}`,
		} {
			refused(t, way+", "+name, s.Do(s.Automation(), w[0], w[1], []byte(body)), 400, fault.LockInfoInvalid)
		}
		refused(t, way+", large", s.Do(s.Automation(), w[0], w[1], []byte(`{"ID":"a","Info":"`+strings.Repeat("x", 64<<10)+`"}`)), 413, fault.BodyTooLarge)
		refused(t, way+", wrong MD5", s.Do(s.Automation(), w[0], w[1], kltest.LockBody("l1", apply), "Content-MD5", contentMD5(nil)), 400, fault.BodyDigest)
		if got := holders(t, s, "app"); len(got) != 0 {
			t.Fatalf("%s: a bad body took the lock: %v", way, got)
		}
		for name, body := range map[string]string{
			"ID only": `{"ID":"l1"}`, "lower case": `{"id":"l1","operation":"OperationTypeApply"}`, "unknown members": `{"ID":"l1","Reason":{"a":[1]}}`,
		} {
			want(t, way+", "+name, s.Do(s.Automation(), w[0], w[1], []byte(body)), 200)
			want(t, "UNLOCK", s.Do(s.Automation(), "UNLOCK", s.StateURL("app"), []byte(`{"ID":"l1"}`)), 200)
		}
	}
}

// TestUnlockBodies: each way to unlock with each kind of body is 200 or a clear
// 4xx, and never 405.
func TestUnlockBodies(t *testing.T) {
	s, _ := seeded(t)
	locks, unlocks := aliases(s, "app")
	for way, w := range unlocks {
		for name, c := range map[string]struct {
			body   string
			status int
			code   fault.Code
		}{
			"whole":        {string(kltest.LockBody("l1", apply)), 200, ""},
			"ID only":      {`{"ID":"l1"}`, 200, ""},
			"lower case":   {`{"id":"l1"}`, 200, ""},
			"other info":   {`{"ID":"l1","Who":"somebody","Operation":"x"}`, 200, ""},
			"empty":        {"", 200, ""}, // terraform force-unlock
			"blank":        {"\n", 200, ""},
			"no members":   {"{}", 200, ""},
			"empty ID":     {`{"ID":""}`, 200, ""},
			"other ID":     {`{"ID":"l2"}`, 409, fault.LockMismatch},
			"null":         {"null", 400, fault.LockInfoInvalid},
			"list":         {`["l1"]`, 400, fault.LockInfoInvalid},
			"rubbish":      {"\x00\xff", 400, fault.LockInfoInvalid},
			"text":         {"l1", 400, fault.LockInfoInvalid},
			"number ID":    {`{"ID":1}`, 400, fault.LockInfoInvalid},
			"cut":          {`{"ID":"l1"`, 400, fault.LockInfoInvalid},
			"long ID":      {`{"ID":"` + strings.Repeat("x", 201) + `"}`, 400, fault.LockInfoInvalid},
			"more than 64": {strings.Repeat(" ", 64<<10) + `{"ID":"l1"}`, 413, fault.BodyTooLarge},
		} {
			for lockWay, l := range locks {
				want(t, lockWay, s.Do(s.Automation(), l[0], l[1], kltest.LockBody("l1", apply)), 200)
				break // any of them
			}
			a := s.Do(s.Automation(), w[0], w[1], []byte(c.body))
			held := 0
			if c.status == 200 {
				want(t, way+", "+name, a, 200)
			} else {
				held = 1
				refused(t, way+", "+name, a, c.status, c.code)
			}
			if got := holders(t, s, "app"); len(got) != held {
				t.Errorf("%s, %s: %d holders, want %d", way, name, len(got), held)
			}
			want(t, "UNLOCK", s.Do(s.Automation(), "UNLOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
		}
	}
}

// TestRefusedLockTellsWhy reads refusals of LOCK as Terraform does: all but
// auth and bad bodies are 423 with text in ID.
func TestRefusedLockTellsWhy(t *testing.T) {
	s, _ := seeded(t, kltest.WithServer(func(o *server.Options) { o.Hold = -1 }))
	held := kltest.LockBody("l1", apply)
	want(t, "LOCK", s.Do(s.Automation(), "LOCK", s.StateURL("app"), held), 200)
	var sent wire.LockInfo
	if err := json.Unmarshal(held, &sent); err != nil {
		t.Fatal(err)
	}
	token := s.Bootstrap.AutomationToken
	locks, _ := aliases(s, "app")
	for way, w := range locks {
		a := s.Do(s.Automation(), w[0], w[1], kltest.LockBody("l2", apply))
		p := refused(t, way, a, 423, fault.Locked)
		got, err := a.LockInfo()
		if err != nil || got.ID != sent.ID || got.Who != sent.Who || got.Operation != sent.Operation || got.Created != sent.Created || got.Version != sent.Version {
			t.Errorf("%s: %v, the holder is %+v, want %+v", way, err, got, sent)
		}
		if got.Info == "" || p.Extra["queue_position"] == nil {
			t.Errorf("%s: neither age nor place in the queue: %s", way, a.Body)
		}
		for name, c := range map[string]struct {
			as   kltest.Credentials
			url  string
			code fault.Code
		}{
			"unknown environment": {s.Automation(), strings.Replace(w[1], s.Bootstrap.EnvPublicID, "env_aaaaaaaaaaaa", 1), fault.UnknownEnvironment},
			"slug":                {s.Automation(), strings.Replace(w[1], s.Bootstrap.EnvPublicID, "default", 1), fault.SlugNotID},
			"other workspace":     {kltest.Basic("ws_aaaaaaaaaaaa", token), w[1], fault.WorkspaceMismatch},
			"extra segment":       {s.Automation(), w[1] + "/lock", fault.MalformedPath},
			"bad name":            {s.Automation(), w[1] + "%20x", fault.StateNameInvalid},
		} {
			a := s.Do(c.as, w[0], c.url, kltest.LockBody("l2", apply))
			p := a.Problem()
			info, err := a.LockInfo()
			if a.Status != 423 || p.Status != 423 || p.Code != string(c.code) || p.Class != string(c.code.Info().Class) || err != nil ||
				info.ID != p.Detail+"; next: "+p.NextStep || info.Created != "" {
				t.Errorf("%s, %s: %d %s", way, name, a.Status, a.Body)
			}
		}
		refused(t, way+", nobody", s.Do(kltest.Nobody, w[0], w[1], kltest.LockBody("l2", apply)), 401, fault.CredentialsMissing)
	}
	if a := s.Do(s.Automation(), "LOCK", s.URL+"/states/x", nil); a.Status != 423 || a.Problem().Code != string(fault.MalformedPath) {
		t.Errorf("LOCK astray: %d %s", a.Status, a.Body)
	}
	refused(t, "LOCK of a page", s.Do(s.Automation(), "LOCK", s.URL+"/healthz", nil), 405, fault.MethodNotAllowed)
}

// TestRefusedBehindWaiters: who is refused because others only wait is not told
// of a lock that could be released, for there is none.
func TestRefusedBehindWaiters(t *testing.T) {
	s, _ := seeded(t, kltest.WithServer(func(o *server.Options) { o.Hold = -1 }))
	lock := func(id, operation string) *kltest.Answer {
		return s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody(id, operation))
	}
	behind := func(what string, a *kltest.Answer) {
		t.Helper()
		p := refused(t, what, a, 423, fault.Locked)
		info, err := a.LockInfo()
		if err != nil || info.ID != p.Detail+"; next: "+p.NextStep || info.Who != "" {
			t.Errorf("%s: %v, the LockInfo is %+v, want a sentence in its ID and no holder", what, err, info)
		}
		if !strings.HasPrefix(p.Detail, "others wait for the lock of the state app in front of this request") ||
			strings.Contains(p.NextStep, "release") || !strings.Contains(p.NextStep, "-lock-timeout") {
			t.Errorf("%s: %q, next %q; want to be told to wait", what, p.Detail, p.NextStep)
		}
	}
	want(t, "plan's LOCK", lock("p1", wire.OperationPlan), 200)
	for range 2 { // who comes again has a place in the queue
		refused(t, "waiter", lock("l2", apply), 423, fault.Locked)
	}
	behind("a plan behind an apply that waits", lock("p3", wire.OperationPlan))
	want(t, "UNLOCK", s.Do(s.Automation(), "UNLOCK", s.StateURL("app"), kltest.LockBody("p1", wire.OperationPlan)), 200)
	behind("an apply while nobody holds the lock", lock("l4", apply))
	want(t, "the waiter's LOCK", lock("l2", apply), 200)
}

func TestPlansShareAndForceUnlockIsAmbiguous(t *testing.T) {
	s, _ := seeded(t)
	url, as := s.StateURL("app"), s.Automation()
	want(t, "first plan", s.Do(as, "LOCK", url, kltest.LockBody("p1", plan)), 200)
	want(t, "second plan", s.Do(as, "LOCK", url, kltest.LockBody("p2", plan)), 200)
	if a := s.Do(as, "LOCK", url, kltest.LockBody("a1", apply)); a.Status != 423 {
		t.Errorf("an apply among plans: %d %s", a.Status, a.Body)
	}
	p := refused(t, "force-unlock", s.Do(as, "UNLOCK", url, nil), 409, fault.LockAmbiguous)
	if !strings.Contains(p.NextStep, "kl lock release") {
		t.Errorf("force-unlock: next step %q", p.NextStep)
	}
	want(t, "release by ID", s.Do(s.Operator(), "DELETE", s.APIURL("app", "/lock?id=p1"), nil), 204)
	want(t, "force-unlock of the only one", s.Do(as, "UNLOCK", url, nil), 200)
	if got := holders(t, s, "app"); len(got) != 0 {
		t.Errorf("holders %v, want none", got)
	}
	var ev wire.List[wire.Event]
	s.Do(s.Operator(), "GET", s.URL+"/v1/events?state=app&limit=1000", nil).Into(t, &ev)
	forced := 0
	for _, e := range ev.Items {
		if strings.Contains(e.Kind, "force") {
			forced++
		}
	}
	if forced != 2 {
		t.Errorf("%d forced releases in the audit trail, want 2: %+v", forced, ev.Items)
	}
}

// TestRacersForOneLock: one gets it, the others see that one.
func TestRacersForOneLock(t *testing.T) {
	s, _ := seeded(t)
	const racers = 50
	answers := make([]*kltest.Answer, racers)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range racers {
		wg.Go(func() {
			<-start
			a, err := s.Try(context.Background(), s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody(fmt.Sprintf("l%d", i), apply))
			if err != nil {
				t.Error(err)
				return
			}
			answers[i] = a
		})
	}
	close(start)
	wg.Wait()
	if t.Failed() {
		return
	}
	winner := holders(t, s, "app")
	if len(winner) != 1 {
		t.Fatalf("holders %v, want one", winner)
	}
	for i, a := range answers {
		info, err := a.LockInfo()
		switch {
		case a.Status == 200 && winner[0] == fmt.Sprintf("l%d", i):
		case a.Status == 423 && err == nil && info.ID == winner[0]:
		default:
			t.Errorf("racer %d: %d %s; the winner is %s", i, a.Status, a.Body, winner[0])
		}
	}
}

// waiting sends a LOCK until it is held open: the first answer is 423, the
// repetition's answer comes through the channel.
func waiting(t *testing.T, s *kltest.Server, id string) <-chan *kltest.Answer {
	t.Helper()
	body := kltest.LockBody(id, apply)
	if a := s.Do(s.Automation(), "LOCK", s.StateURL("app"), body); a.Status != 423 {
		t.Fatalf("LOCK of %s: %d, want 423", id, a.Status)
	}
	out := make(chan *kltest.Answer, 1)
	go func() {
		a, err := s.Try(context.Background(), s.Automation(), "LOCK", s.StateURL("app"), body)
		if err != nil {
			t.Errorf("repeated LOCK: %v", err)
		}
		out <- a
	}()
	return out
}

// inFlight waits until the server has n LOCKs open that it has not answered.
func inFlight(t *testing.T, s *kltest.Server, n int) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		var l wire.Lock
		s.Do(s.Operator(), "GET", s.APIURL("app", "/lock"), nil).Into(t, &l)
		seen := 0
		for _, w := range l.Queue {
			if w.LastSeen.After(w.Since) {
				seen++
			}
		}
		if seen >= n {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the queue is %+v, want %d that came again", l.Queue, n)
		default:
		}
	}
}

// TestLockIsHandedOver: a client that waits gets the lock the moment it is free.
func TestLockIsHandedOver(t *testing.T) {
	s, _ := seeded(t, kltest.WithServer(func(o *server.Options) { o.Hold = time.Minute }))
	want(t, "LOCK", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
	got := waiting(t, s, "l2")
	inFlight(t, s, 1)
	want(t, "UNLOCK", s.Do(s.Automation(), "UNLOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
	a := <-got
	if a == nil || a.Status != 200 {
		t.Fatalf("the waiting client got %+v", a)
	}
	if h := holders(t, s, "app"); len(h) != 1 || h[0] != "l2" {
		t.Errorf("holders %v, want l2", h)
	}
}

func TestHeldLockEndsWithTheOrdinaryRefusal(t *testing.T) {
	// held for longer than a client may be silent in the middle of a body
	const hold = 1500 * time.Millisecond
	s, _ := seeded(t, kltest.WithServer(func(o *server.Options) { o.Hold, o.Stall = hold, time.Second }))
	want(t, "LOCK", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
	a := <-waiting(t, s, "l2")
	refused(t, "waiting", a, 423, fault.Locked)
	if a.Took < hold {
		t.Errorf("the repetition was answered after %v", a.Took)
	}
	if info, err := a.LockInfo(); err != nil || info.ID != "l1" {
		t.Errorf("holder %+v, %v", info, err)
	}
}

// TestStopLetsGoOfHeldLocks: a stop does not wait for those who wait, and they
// get the ordinary answer.
func TestStopLetsGoOfHeldLocks(t *testing.T) {
	s, _ := seeded(t, kltest.WithServer(func(o *server.Options) { o.Hold = time.Hour }))
	want(t, "LOCK", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
	got := waiting(t, s, "l2")
	inFlight(t, s, 1)
	s.Stop()
	a := <-got
	refused(t, "waiting", a, 423, fault.Locked)
	if info, err := a.LockInfo(); err != nil || info.ID != "l1" {
		t.Errorf("holder %+v, %v", info, err)
	}
	s.Restart()
	if h := holders(t, s, "app"); len(h) != 1 || h[0] != "l1" {
		t.Errorf("holders after the restart %v, want l1", h)
	}
}

// TestLockCycles: lock, write and unlock over and over, with restarts between.
func TestLockCycles(t *testing.T) {
	s, st := seeded(t)
	cycles := 200
	if testing.Short() {
		cycles = 30
	}
	for i := range cycles {
		id := fmt.Sprintf("l%d", i)
		url := s.StateURL("app")
		st.Mutate(1)
		want(t, "LOCK", s.Do(s.Automation(), "LOCK", url, kltest.LockBody(id, apply)), http.StatusOK)
		if i%50 == 25 {
			s.Restart()
		}
		want(t, "POST", s.Do(s.Automation(), "POST", url+"?ID="+id, st.Bytes()), http.StatusOK)
		want(t, "UNLOCK", s.Do(s.Automation(), "UNLOCK", url, kltest.LockBody(id, apply)), http.StatusOK)
	}
	if a := s.Do(s.Automation(), "GET", s.StateURL("app"), nil); a.Header.Get(wire.HeaderVersion) != fmt.Sprint(cycles+1) {
		t.Errorf("version %s, want %d", a.Header.Get(wire.HeaderVersion), cycles+1)
	}
}

// TestWaitingClientGoesAway: a client that leaves gives up its place, and its
// leaving is not logged as a failure.
func TestWaitingClientGoesAway(t *testing.T) {
	s, _ := seeded(t, kltest.WithServer(func(o *server.Options) { o.Hold = time.Hour }))
	want(t, "LOCK", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
	want(t, "LOCK of another", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l2", apply)), 423)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := s.Try(ctx, s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l2", apply))
		left <- err
	}()
	inFlight(t, s, 1)
	cancel()
	if err := <-left; err == nil {
		t.Error("the LOCK was answered")
	}
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(s.Log.String(), `"status":499`); {
		if time.Now().After(deadline) {
			t.Fatal("no line says that the client has gone")
		}
	}
	if strings.Contains(s.Log.String(), `"level":"error"`) {
		t.Error("a client that left is logged as an error")
	}
	want(t, "UNLOCK", s.Do(s.Automation(), "UNLOCK", s.StateURL("app"), kltest.LockBody("l1", apply)), 200)
	want(t, "LOCK of a third", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("l3", apply)), 200)
}
