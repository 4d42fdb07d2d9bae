package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/wire"
)

// envURL is the control API's address of the bootstrap environment.
func envURL(s *kltest.Server, rest string) string {
	return s.URL + wire.EnvironmentPath(s.Bootstrap.EnvPublicID) + rest
}

// share makes the bootstrap environment optimistic.
func share(t *testing.T, s *kltest.Server) {
	t.Helper()
	want(t, "lock mode", s.Do(s.Operator(), "PATCH", envURL(s, ""), []byte(`{"lock_mode":"optimistic"}`)), 200)
}

// token issues an automation token of the bootstrap environment.
func token(t *testing.T, s *kltest.Server, body string) (wire.Token, kltest.Credentials) {
	t.Helper()
	a := s.Do(s.Operator(), "POST", envURL(s, "/tokens"), []byte(body))
	want(t, "token "+body, a, http.StatusCreated)
	var tok wire.Token
	a.Into(t, &tok)
	return tok, kltest.Basic(s.Bootstrap.WorkspaceID, tok.Secret)
}

func lockIt(t *testing.T, s *kltest.Server, as kltest.Credentials, name, id string) {
	t.Helper()
	want(t, "LOCK "+id, s.Do(as, "LOCK", s.StateURL(name), kltest.LockBody(id, apply)), 200)
}

func post(s *kltest.Server, as kltest.Credentials, name, id string, st *kltest.State) *kltest.Answer {
	return s.Do(as, "POST", s.StateURL(name)+"?ID="+id, st.Bytes())
}

// managed returns an address of the state that is no data source's.
func managed(t *testing.T, st *kltest.State, n int) string {
	t.Helper()
	for _, a := range st.Addresses() {
		if strings.HasPrefix(a, "data.") || strings.Contains(a, ".data.") || strings.Contains(a, "deposed") {
			continue
		}
		if n--; n < 0 {
			return a
		}
	}
	t.Fatal("the state has too few managed instances")
	return ""
}

// next is the state with a change, as the next write sends it.
func next(st *kltest.State, f func(*kltest.State)) *kltest.State {
	n := st.Clone()
	f(n)
	n.SetSerial(st.Serial() + 1)
	return n
}

func addresses(t *testing.T, s *kltest.Server, name string) string {
	t.Helper()
	a := s.Do(s.Automation(), "GET", s.StateURL(name), nil)
	want(t, "GET", a, 200)
	return string(a.Body)
}

func refusedOf(t *testing.T, s *kltest.Server, name string) []wire.Refused {
	t.Helper()
	var l wire.List[wire.Refused]
	s.Do(s.Operator(), "GET", s.APIURL(name, "/refused"), nil).Into(t, &l)
	return l.Items
}

func TestPatchState(t *testing.T) {
	s, st := seeded(t)
	lockIt(t, s, s.Automation(), "app", "first")
	var got wire.State
	for _, c := range []struct{ body, mode string }{{`{"lock_mode":"optimistic"}`, "optimistic"}, {`{}`, "optimistic"}, {`{"lock_mode":""}`, "exclusive"}, {`{"lock_mode":"optimistic"}`, "optimistic"}} {
		a := s.Do(s.Automation(), "PATCH", s.APIURL("app", ""), []byte(c.body))
		want(t, c.body, a, 200)
		if a.Into(t, &got); got.LockMode != c.mode || got.Sessions != 1 {
			t.Errorf("%s: got mode %s and %d sessions, want %s and 1", c.body, got.LockMode, got.Sessions, c.mode)
		}
	}
	// the session from before goes on, beside a new one
	lockIt(t, s, s.Automation(), "app", "second")
	want(t, "write", post(s, s.Automation(), "app", "first", next(st, func(n *kltest.State) { n.Add("aws_instance.one") })), 200)
	a := post(s, s.Automation(), "app", "second", next(st, func(n *kltest.State) { n.Add("aws_instance.two") }))
	want(t, "write", a, 200)
	if a.Header.Get(wire.HeaderMerged) != "true" {
		t.Errorf("the second write was not merged: %v", a.Header)
	}
	refused(t, "bad mode", s.Do(s.Automation(), "PATCH", s.APIURL("app", ""), []byte(`{"lock_mode":"shared"}`)), 400, fault.ParameterInvalid)
	refused(t, "no such state", s.Do(s.Automation(), "PATCH", s.APIURL("none", ""), []byte(`{"lock_mode":"optimistic"}`)), 404, fault.NotFound)
	_, reader := token(t, s, `{"name":"reader","role":"plan"}`)
	refused(t, "role", s.Do(reader, "PATCH", s.APIURL("app", ""), []byte(`{"lock_mode":""}`)), 403, fault.RoleTooLow)
}

// TestSessionsShareAState: two principals change one state at a time, and both
// are shown while they do.
func TestSessionsShareAState(t *testing.T) {
	s, st := seeded(t)
	share(t, s)
	_, ben := token(t, s, `{"name":"ben"}`)
	lockIt(t, s, s.Automation(), "app", "ana")
	lockIt(t, s, ben, "app", "ben")
	mine := next(st, func(n *kltest.State) { n.Add("aws_instance.ana[0]") })
	theirs := next(st, func(n *kltest.State) { n.Add("aws_instance.ben[0]") })
	want(t, "ana", post(s, s.Automation(), "app", "ana", mine), 200)
	a := post(s, ben, "app", "ben", theirs)
	want(t, "ben", a, 200)
	if a.Header.Get(wire.HeaderMerged) != "true" || a.Header.Get(wire.HeaderSerial) != "3" || a.Header.Get(wire.HeaderVersion) != "3" {
		t.Errorf("the merge answered %v", a.Header)
	}
	mine = next(mine, func(n *kltest.State) { n.Add("aws_instance.ana[1]") })
	want(t, "ana again", post(s, s.Automation(), "app", "ana", mine), 200)
	head := addresses(t, s, "app")
	for _, name := range []string{`"ana"`, `"ben"`} {
		if !strings.Contains(head, name) {
			t.Errorf("the head lacks %s", name)
		}
	}
	var l wire.Lock
	s.Do(s.Operator(), "GET", s.APIURL("app", "/lock"), nil).Into(t, &l)
	if l.Mode != "optimistic" || len(l.Holders) != 2 {
		t.Fatalf("lock: %+v", l)
	}
	for i, h := range []wire.Holder{{LockInfo: wire.LockInfo{ID: "ana"}, Checkpoints: 2, BaseVersion: 4, Principal: "default"}, {LockInfo: wire.LockInfo{ID: "ben"}, Checkpoints: 1, BaseVersion: 3, Principal: "ben"}} {
		if g := l.Holders[i]; g.ID != h.ID || g.Checkpoints != h.Checkpoints || g.BaseVersion != h.BaseVersion || g.Principal != h.Principal || g.Since.IsZero() {
			t.Errorf("session %s is shown as %+v, want %+v", h.ID, g, h)
		}
	}
	refused(t, "which of the two", s.Do(s.Automation(), "UNLOCK", s.StateURL("app"), nil), 409, fault.LockAmbiguous)
	want(t, "UNLOCK", s.Do(ben, "UNLOCK", s.StateURL("app"), kltest.LockBody("ben", apply)), 200)
	want(t, "UNLOCK", s.Do(s.Automation(), "UNLOCK", s.StateURL("app"), kltest.LockBody("ana", apply)), 200)
}

// overlapping has ana's write accepted and ben's refused: both changed the same
// instance, and ben made aws_instance.ben besides.
func overlapping(t *testing.T) (s *kltest.Server, ben kltest.Credentials, address string, p wire.Problem) {
	t.Helper()
	s, st := seeded(t)
	share(t, s)
	_, ben = token(t, s, `{"name":"ben"}`)
	lockIt(t, s, s.Automation(), "app", "ana")
	lockIt(t, s, ben, "app", "ben")
	address = managed(t, st, 0)
	want(t, "ana", post(s, s.Automation(), "app", "ana", next(st, func(n *kltest.State) { n.Update(address) })), 200)
	p = refused(t, "ben", post(s, ben, "app", "ben", next(st, func(n *kltest.State) {
		n.Update(address)
		n.Update(address) // once would be the same change
		n.Add("aws_instance.ben")
	})), 409, fault.OverlapConflict)
	want(t, "UNLOCK", s.Do(ben, "UNLOCK", s.StateURL("app"), kltest.LockBody("ben", apply)), 200)
	return s, ben, address, p
}

// TestOverlapTellsAll: a 409 has all that contract promises, and so have the
// log and what is remembered of the request.
func TestOverlapTellsAll(t *testing.T) {
	s, ben, address, p := overlapping(t)
	if got := fmt.Sprint(p.Extra["conflicting_addresses"]); got != "["+address+"]" {
		t.Errorf("conflicting_addresses: %s, want %s", got, address)
	}
	for member, value := range map[string]string{"kind": "overlap", "conflicting_count": "1", "latest_serial": "2", "latest_version": "2", "base_serial": "1"} {
		if got := fmt.Sprint(p.Extra[member]); got != value {
			t.Errorf("%s: %s, want %s", member, got, value)
		}
	}
	by, _ := p.Extra["changed_by"].(map[string]any)
	who, _ := by[address].(map[string]any)
	if who["who"] != "ana@laptop" || who["principal"] != "default" || fmt.Sprint(who["version"]) != "2" || who["when"] == nil {
		t.Errorf("changed_by: %v", p.Extra["changed_by"])
	}
	id, _ := p.Extra["refused_write"].(string)
	kept := refusedOf(t, s, "app")
	if len(kept) != 1 || kept[0].ID != id || !kept[0].Holds || kept[0].Principal != "ben" || !slices.Equal(kept[0].ConflictingAddresses, []string{address}) {
		t.Errorf("kept: %+v", kept)
	}
	line := s.Log.Line(p.RequestID)
	if fmt.Sprint(line["latest_serial"]) != "2" || fmt.Sprint(line["conflicting_addresses"]) != "["+address+"]" || fmt.Sprint(line["conflicting_count"]) != "1" {
		t.Errorf("log: %v", line)
	}
	var r wire.Request
	s.Do(ben, "GET", s.URL+"/v1/requests/"+p.RequestID, nil).Into(t, &r)
	if r.Members["refused_write"] != id || r.Members["changed_by"] == nil || r.State != "app" || r.LockID != "ben" {
		t.Errorf("remembered: %+v", r)
	}
	// the next apply of the same credentials is held back, others' are not
	refused(t, "LOCK", s.Do(ben, "LOCK", s.StateURL("app"), kltest.LockBody("ben-2", apply)), 423, fault.RecoveryHold)
	want(t, "LOCK", s.Do(s.Automation(), "LOCK", s.StateURL("app"), kltest.LockBody("ana-2", apply)), 200)
}

// TestLogCapsAddresses: a line of the log stays readable.
func TestLogCapsAddresses(t *testing.T) {
	s := kltest.Start(t)
	share(t, s)
	st := kltest.NewState(30, 1)
	want(t, "seed", s.Do(s.Automation(), "POST", s.StateURL("app"), st.Bytes()), 200)
	lockIt(t, s, s.Automation(), "app", "ana")
	lockIt(t, s, s.Automation(), "app", "ben")
	change := func(extra int) *kltest.State {
		return next(st, func(n *kltest.State) {
			for i := range 12 {
				for range extra {
					n.Update(managed(t, st, i))
				}
			}
		})
	}
	want(t, "ana", post(s, s.Automation(), "app", "ana", change(1)), 200)
	p := refused(t, "ben", post(s, s.Automation(), "app", "ben", change(2)), 409, fault.OverlapConflict)
	line := s.Log.Line(p.RequestID)
	if a, _ := line["conflicting_addresses"].([]any); len(a) != 10 || fmt.Sprint(line["conflicting_count"]) != "12" {
		t.Errorf("log: %v of %v addresses, want 10 of 12", len(a), line["conflicting_count"])
	}
	if a, _ := p.Extra["conflicting_addresses"].([]any); len(a) != 12 {
		t.Errorf("the answer has %d addresses, want 12", len(a))
	}
}

func TestMergeRefused(t *testing.T) {
	for name, c := range map[string]struct {
		take string // JSON, "" for none
		side string
	}{
		"disjoint":   {`"disjoint"`, "theirs"},
		"mine":       {`"mine"`, "mine"},
		"theirs":     {`"theirs"`, "theirs"},
		"by address": {"", "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			s, ben, address, p := overlapping(t)
			id, _ := p.Extra["refused_write"].(string)
			url := s.APIURL("app", "/refused/"+id+"/merge")
			before := addresses(t, s, "app")
			if c.take == "" {
				b, _ := json.Marshal(map[string]string{address: "mine"})
				c.take = string(b)
			}

			var dry wire.MergeResult
			a := s.Do(ben, "POST", url, []byte(`{"dry_run":true}`))
			want(t, "dry run", a, 200)
			a.Into(t, &dry)
			if !dry.DryRun || dry.Status != "open" || dry.Version != 0 || !slices.Contains(dry.Added, "aws_instance.ben") ||
				len(dry.Overlapping) != 1 || dry.Overlapping[0].Address != address || dry.Overlapping[0].Side != "" || dry.Overlapping[0].Who != "ana@laptop" {
				t.Errorf("dry run: %+v", dry)
			}
			for _, body := range []string{"", "{}"} {
				f := refused(t, "no side", s.Do(ben, "POST", url, []byte(body)), 409, fault.OverlapConflict)
				if fmt.Sprint(f.Extra["conflicting_addresses"]) != "["+address+"]" || f.Extra["changed_by"] == nil {
					t.Errorf("no side: %v", f.Extra)
				}
			}
			if addresses(t, s, "app") != before {
				t.Fatal("what merged nothing changed the state")
			}

			var done wire.MergeResult
			a = s.Do(ben, "POST", url, []byte(`{"take":`+c.take+`}`))
			want(t, "merge", a, 200)
			a.Into(t, &done)
			if done.DryRun || done.Status != "merged" || done.Version != 3 || done.Serial != 3 || !slices.Contains(done.Added, "aws_instance.ben") || done.Overlapping[0].Side != c.side {
				t.Errorf("merge: %+v", done)
			}
			if got := slices.Contains(done.Changed, address); got != (c.side == "mine") {
				t.Errorf("merge: changed %v with side %s of %s", done.Changed, c.side, address)
			}
			if !strings.Contains(addresses(t, s, "app"), `"ben"`) {
				t.Error("what was lost is not back in the head")
			}
			var v wire.List[wire.Version]
			s.Do(ben, "GET", s.APIURL("app", "/versions"), nil).Into(t, &v)
			if v.Items[0].Source != "recover" || v.Items[0].Principal != "ben" {
				t.Errorf("the version is %+v", v.Items[0])
			}
			refused(t, "again", s.Do(ben, "POST", url, nil), 400, fault.ParameterInvalid)
			want(t, "the hold is over", s.Do(ben, "LOCK", s.StateURL("app"), kltest.LockBody("ben-2", apply)), 200)
		})
	}
}

// What depends on a resource that others have deleted exists nevertheless: a
// refused write that tells of it can be looked at, and merged with a side chosen.
func TestMergeRefusedThatDependsOnWhatIsGone(t *testing.T) {
	for take, c := range map[string]struct{ side, lost string }{
		`"mine"`:                         {"mine", ""},
		`"theirs"`:                       {"theirs", "aws_instance.ben"},
		`"disjoint"`:                     {"mine", ""}, // nobody else has changed it
		`{"aws_instance.ben":"mine"}`:    {"mine", ""},
		`{"aws_instance.ben":"theirs"}`:  {"theirs", "aws_instance.ben"},
		`{"aws_instance.other":"mine"}`:  {"", ""},
		`{"aws_instance.apart":"mine"}`:  {"", ""},
		`{"aws_instance.ben[0]":"mine"}`: {"", ""},
	} {
		t.Run(take, func(t *testing.T) {
			s := kltest.Start(t)
			share(t, s)
			_, ana := token(t, s, `{"name":"ana"}`)
			_, ben := token(t, s, `{"name":"ben"}`)
			base := kltest.NewState(5, 1)
			base.Add("aws_vpc.net")
			base.SetSerial(1)
			want(t, "first", s.Do(ana, "POST", s.StateURL("app"), base.Bytes()), 200)
			lockIt(t, s, ana, "app", "ana-1")
			lockIt(t, s, ben, "app", "ben-1")
			want(t, "ana", post(s, ana, "app", "ana-1", next(base, func(st *kltest.State) { st.Remove("aws_vpc.net") })), 200)
			f := refused(t, "ben", post(s, ben, "app", "ben-1", next(base, func(st *kltest.State) {
				st.Add("aws_instance.apart")
				st.Add("aws_instance.ben")
				st.Depend("aws_instance.ben", "aws_vpc.net")
			})), 409, fault.DependencyConflict)
			id, _ := f.Extra["refused_write"].(string)
			var why wire.Request
			s.Do(ben, "GET", s.URL+"/v1/requests/"+f.RequestID, nil).Into(t, &why)
			if story := strings.Join(why.Story, "\n"); !strings.Contains(story, "kl recover merge "+id+" --state app --take disjoint") {
				t.Errorf("the story is %s", story)
			}
			url := s.APIURL("app", "/refused/"+id+"/merge")

			var dry wire.MergeResult
			a := s.Do(ben, "POST", url, []byte(`{"dry_run":true}`))
			want(t, "dry run", a, 200)
			a.Into(t, &dry)
			if !slices.Equal(dry.Added, []string{"aws_instance.apart"}) || len(dry.Overlapping) != 1 {
				t.Fatalf("dry run: %+v", dry)
			}
			if o := dry.Overlapping[0]; o.Address != "aws_instance.ben" || o.Side != "" || o.DependsOn != "aws_vpc.net" || o.Who == "" || o.Version != 2 {
				t.Errorf("dry run: %+v", o)
			}
			refused(t, "no side", s.Do(ben, "POST", url, nil), 409, fault.DependencyConflict)

			a = s.Do(ben, "POST", url, []byte(`{"take":`+take+`}`))
			if c.side == "" {
				refused(t, "no side for it", a, 409, fault.DependencyConflict)
				return
			}
			var done wire.MergeResult
			want(t, "merge", a, 200)
			a.Into(t, &done)
			if done.Status != "merged" || done.Version != 3 || len(done.Overlapping) != 1 || done.Overlapping[0].Side != c.side {
				t.Errorf("merge: %+v", done)
			}
			head := addresses(t, s, "app")
			if !strings.Contains(head, `"apart"`) || strings.Contains(head, `"ben"`) != (c.lost == "") || strings.Contains(head, `"name": "net"`) {
				t.Errorf("after taking %s the head is %s", take, head)
			}
		})
	}
}

func TestMergeRefusedInput(t *testing.T) {
	s, ben, _, p := overlapping(t)
	id, _ := p.Extra["refused_write"].(string)
	url := s.APIURL("app", "/refused/"+id+"/merge")
	for _, body := range []string{`{"take":"ours"}`, `{"take":{"a":"disjoint"}}`, `{"take":5}`, `{"take":{"a":1}}`, `{"take":[]}`, `{"takes":"mine"}`, `[]`, `"mine"`, `{`, `{"dry_run":"yes"}`} {
		refused(t, body, s.Do(ben, "POST", url, []byte(body)), 400, fault.ParameterInvalid)
	}
	refused(t, "no such write", s.Do(ben, "POST", s.APIURL("app", "/refused/rw_none/merge"), nil), 404, fault.NotFound)
	refused(t, "no such state", s.Do(ben, "POST", s.APIURL("none", "/refused/"+id+"/merge"), nil), 404, fault.NotFound)
	_, planner := token(t, s, `{"name":"planner","role":"plan"}`)
	refused(t, "role", s.Do(planner, "POST", url, []byte(`{"dry_run":true}`)), 403, fault.RoleTooLow)
	refused(t, "nobody", s.Do(kltest.Nobody, "POST", url, nil), 401, fault.CredentialsMissing)
	want(t, "discard", s.Do(ben, "DELETE", s.APIURL("app", "/refused/"+id), nil), 204)
	refused(t, "discarded", s.Do(ben, "POST", url, []byte(`{"take":"mine"}`)), 400, fault.ParameterInvalid)
}

// TestAddRefused brings in a document of which the server has never heard.
func TestAddRefused(t *testing.T) {
	s, st := seeded(t, kltest.WithServer(limit1MB))
	url := s.APIURL("app", "/refused")
	lost := next(st, func(n *kltest.State) { n.Add("aws_instance.lost") })
	want(t, "another writes", s.Do(s.Automation(), "POST", s.StateURL("app"), next(st, func(n *kltest.State) { n.Add("aws_instance.found") }).Bytes()), 200)

	body := lost.Bytes()
	var r, again wire.Refused
	a := s.Do(s.Automation(), "POST", url, body, "Content-MD5", contentMD5(body))
	want(t, "bring in", a, 200)
	a.Into(t, &r)
	if r.Status != "open" || r.SHA256 != sha(body) || r.Serial != 2 || !slices.Contains(r.UnknownToHead, "aws_instance.lost") {
		t.Errorf("brought in as %+v", r)
	}
	if got := s.Do(s.Automation(), "GET", s.APIURL("app", "/refused/"+r.ID), nil); !bytes.Equal(got.Body, body) {
		t.Error("other bytes are kept than were sent")
	}
	s.Do(s.Automation(), "POST", url, body).Into(t, &again)
	if again.ID != r.ID || len(refusedOf(t, s, "app")) != 1 {
		t.Errorf("the same bytes again are %s, not %s", again.ID, r.ID)
	}
	a = s.Do(s.Automation(), "POST", s.APIURL("app", "/refused/"+r.ID+"/merge"), nil)
	want(t, "merge", a, 200)
	head := addresses(t, s, "app")
	if !strings.Contains(head, `"lost"`) || !strings.Contains(head, `"found"`) {
		t.Error("the head lacks one of the two")
	}

	before := picture(t, s, "app")
	refused(t, "MD5", s.Do(s.Automation(), "POST", url, body, "Content-MD5", contentMD5(nil)), 400, fault.BodyDigest)
	refused(t, "no state", s.Do(s.Automation(), "POST", url, []byte(`{}`)), 400, fault.BodyInvalid)
	refused(t, "empty", s.Do(s.Automation(), "POST", url, nil), 400, fault.BodyInvalid)
	refused(t, "too large", s.Do(s.Automation(), "POST", url, bytes.Repeat([]byte(" "), 1<<20+1)), 413, fault.BodyTooLarge)
	_, planner := token(t, s, `{"name":"planner","role":"plan"}`)
	refused(t, "role", s.Do(planner, "POST", url, body), 403, fault.RoleTooLow)
	if after := picture(t, s, "app"); after != before {
		t.Errorf("changed from %s to %s", before, after)
	}
	// a state that was never written
	a = s.Do(s.Automation(), "POST", s.APIURL("fresh", "/refused"), body)
	want(t, "bring in", a, 200)
	a.Into(t, &r)
	want(t, "merge", s.Do(s.Automation(), "POST", s.APIURL("fresh", "/refused/"+r.ID+"/merge"), nil), 200)
	if !strings.Contains(addresses(t, s, "fresh"), `"lost"`) {
		t.Error("the first version is not what was brought in")
	}
}

// TestStory: what is remembered of a refusal tells all of it in sentences, and
// goes on to tell the truth when the refused write is settled.
func TestStory(t *testing.T) {
	s, ben, address, p := overlapping(t)
	id, _ := p.Extra["refused_write"].(string)
	tell := func(as kltest.Credentials, request string) string {
		t.Helper()
		a := s.Do(as, "GET", s.URL+"/v1/requests/"+request, nil)
		want(t, "why", a, 200)
		var r wire.Request
		a.Into(t, &r)
		return strings.Join(r.Story, "\n")
	}
	expect := func(what, got string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(got, text) {
				t.Errorf("%s does not say %q:\n%s", what, text, got)
			}
		}
	}
	expect("the story", tell(ben, p.RequestID),
		"ben tried to write the state app with the lock ben at ", "It was refused with 409 overlap_conflict: ",
		"It was made on serial 1; by then the state was at serial 2, version 2.", "Changed on both sides, and not to the same:",
		"  "+address+", changed by ana@laptop (credentials default) at 20", " in version 2\n",
		" bytes are kept as "+id+" and wait for recovery.", "the state does not know: aws_instance.ben.",
		"the next apply of these credentials is held back", "kl recover merge "+id+" --state app --take disjoint")

	held := refused(t, "LOCK", s.Do(ben, "LOCK", s.StateURL("app"), kltest.LockBody("ben-2", apply)), 423, fault.RecoveryHold)
	expect("the story of the hold", tell(ben, held.RequestID), "ben tried to lock the state app with the lock ben-2", "423 recovery_hold", "kl recover merge "+id)

	want(t, "merge", s.Do(ben, "POST", s.APIURL("app", "/refused/"+id+"/merge"), []byte(`{"take":"disjoint"}`)), 200)
	got := tell(s.Operator(), p.RequestID)
	expect("the story afterwards", got, "kept as "+id+", which is merged by now")
	if strings.Contains(got, "kl recover merge") {
		t.Errorf("the story of what is settled still says what to do about it:\n%s", got)
	}

	want(t, "exclusive", s.Do(s.Operator(), "PATCH", envURL(s, ""), []byte(`{"lock_mode":"exclusive"}`)), 200)
	locked := refused(t, "LOCK", s.Do(ben, "LOCK", s.StateURL("app"), kltest.LockBody("ben-3", apply)), 423, fault.Locked)
	expect("the story of a lock", tell(ben, locked.RequestID), "ben tried to lock the state app with the lock ben-3", "The lock was held by ana@laptop with the ID ana for OperationTypeApply: held for ")
	bad := refused(t, "POST", s.Do(ben, "POST", s.StateURL("app"), []byte("{}")), 400, fault.BodyInvalid)
	expect("the story of no state", tell(ben, bad.RequestID), "ben tried to write the state app at", "Nothing was stored, and nothing of it is kept.", "Next: ")
	want(t, "another state", s.Do(ben, "POST", s.StateURL("other"), kltest.NewState(1, 1).Bytes()), 200)
	foreign := refused(t, "POST", s.Do(ben, "POST", s.StateURL("other"), kltest.NewState(1, 2).Bytes()), 409, fault.LineageConflict)
	expect("the story of a lineage", tell(ben, foreign.RequestID), "It was refused with 409 lineage_conflict", "version 1.", "Against what is stored it would have changed:")
}
