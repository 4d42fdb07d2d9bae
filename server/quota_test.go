package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kl/fault"
	"kl/kltest"
	"kl/wire"
)

// limits sets limits of the environment as its operator.
func limits(t *testing.T, s *kltest.Server, patch string) {
	t.Helper()
	if a := s.Do(s.Operator(), "PATCH", s.URL+"/v1/environments/"+s.Bootstrap.EnvPublicID, []byte(patch)); a.Status != 200 {
		t.Fatalf("PATCH %s: %d %s", patch, a.Status, a.Body)
	}
}

func TestQuotaOnTheWire(t *testing.T) {
	s := kltest.Start(t)
	as, st := s.Automation(), kltest.NewState(10, 3)
	n := int64(st.Managed())
	limits(t, s, fmt.Sprintf(`{"state_soft_limit":%d,"state_hard_limit":%d}`, n-1, n))
	a := s.Do(as, "POST", s.StateURL("app"), st.Bytes())
	if w := a.Header.Get(wire.HeaderQuotaWarning); a.Status != 200 || !strings.Contains(w, "above the soft limit of") {
		t.Fatalf("a write above the soft limit: %d %s, header %q", a.Status, a.Body, w)
	}
	st.Add("null_resource.more")
	st.SetSerial(st.Serial() + 1)
	a = s.Do(as, "POST", s.StateURL("app"), st.Bytes())
	p := a.Problem()
	if a.Status != 403 || p.Code != string(fault.StateQuota) || p.Class != "quota" || a.Header.Get(wire.HeaderQuotaWarning) != "" {
		t.Fatalf("a write above the hard limit: %d %s", a.Status, a.Body)
	}
	for member, want := range map[string]any{"dimension": "state", "current_count": n, "resulting_count": n + 1, "soft_limit": n - 1, "hard_limit": n} {
		if fmt.Sprint(p.Extra[member]) != fmt.Sprint(want) {
			t.Errorf("member %s: got %v, want %v", member, p.Extra[member], want)
		}
	}
	if id, _ := p.Extra["refused_write"].(string); !strings.HasPrefix(id, "rw_") || p.NextStep == "" {
		t.Errorf("the refusal: %s", a.Body)
	}
	var why wire.Request
	s.Do(as, "GET", s.URL+"/v1/requests/"+p.RequestID, nil).Into(t, &why)
	story := strings.Join(why.Story, "\n")
	if first, then, ok := strings.Cut(story, "First: ask who manages the environment for: kl quota set"); !ok || !strings.Contains(first, "above the hard limit of") || !strings.Contains(then, "kl recover merge") {
		t.Errorf("the story:\n%s", story)
	}
	want(t, "discard", s.Do(as, "DELETE", s.APIURL("app", "/refused/"+fmt.Sprint(p.Extra["refused_write"])), nil), 204)
	s.Do(as, "GET", s.URL+"/v1/requests/"+p.RequestID, nil).Into(t, &why)
	if story := strings.Join(why.Story, "\n"); !strings.Contains(story, "which is discarded by now") || strings.Contains(story, "kl quota set") {
		t.Errorf("the story of what is settled:\n%s", story)
	}

	var q wire.Quota
	s.Do(as, "GET", s.APIURL("app", "/quota"), nil).Into(t, &q)
	if q.State.Current != n || *q.State.RemainingHard != 0 || *q.State.RemainingSoft != -1 || q.Environment.Current != n || q.Environment.RemainingHard != nil {
		t.Errorf("quota: %+v", q)
	}
	for body, want := range map[string]string{
		`{"delta":0}`:            "soft",
		`{"delta":-1}`:           "ok",
		`{"delta":1}`:            "hard",
		`{"delta":-1,"peak":1}`:  "ok",
		`{"plan":` + aPlan + `}`: "hard",
	} {
		var c wire.QuotaCheck
		s.Do(as, "POST", s.APIURL("app", "/quota/check"), []byte(body)).Into(t, &c)
		if c.Status != want || c.Projected != n+c.Delta || (c.Refusal != "") != (want == "hard") {
			t.Errorf("%s: got %+v, want %s", body, c, want)
		}
	}
	for _, body := range []string{``, `[]`, `{}`, `{"delta":"x"}`, `{"delta":1,"plan":{}}`, `{"plan":{}}`, `{"plan":[]}`, `{"delta":1e30}`, `{"delta":1099511627777}`, `{"peak":1}`, `{"more":1}`} {
		if a := s.Do(as, "POST", s.APIURL("app", "/quota/check"), []byte(body)); a.Status != 400 || a.Problem().Code != string(fault.ParameterInvalid) {
			t.Errorf("%s: got %d %s", body, a.Status, a.Body)
		}
	}
}

// What a body has of another type is told by the member's name on the wire.
func TestLimitsOfAnotherType(t *testing.T) {
	s := kltest.Start(t)
	for body, want := range map[string]string{
		`{"state_hard_limit":"5"}`:  "the member state_hard_limit takes a whole number, not a string",
		`{"state_hard_limit":1.5}`:  "the member state_hard_limit takes a whole number, not 1.5",
		`{"state_soft_limit":[]}`:   "the member state_soft_limit takes a whole number, not a list",
		`{"recovery_hold":{"a":1}}`: "the member recovery_hold takes true or false, not an object",
		`{"slug":true}`:             "the member slug takes a string, not true or false",
	} {
		a := s.Do(s.Operator(), "PATCH", s.URL+"/v1/environments/"+s.Bootstrap.EnvPublicID, []byte(body))
		if p := a.Problem(); a.Status != 400 || p.Detail != want {
			t.Errorf("%s: got %d %s", body, a.Status, a.Body)
		}
	}
}

// Versions are not all that makes an environment grow: what comes back does, and
// what is rolled back is a version like any other.
func TestSoftLimitOfWhatComesBack(t *testing.T) {
	s, st := seeded(t)
	as, n := s.Automation(), int64(st.Managed())
	for _, f := range []func(string){st.Add, st.Remove} {
		f("null_resource.more")
		st.SetSerial(st.Serial() + 1)
		want(t, "write", s.Do(as, "POST", s.StateURL("app"), st.Bytes()), 200)
	}
	limits(t, s, fmt.Sprintf(`{"environment_soft_limit":%d}`, n))
	soft := func(what string, a *kltest.Answer) {
		t.Helper()
		if want(t, what, a, 200); !strings.Contains(a.Header.Get(wire.HeaderQuotaWarning), fmt.Sprintf("has %d resource instances, above the soft limit of %d", n+1, n)) {
			t.Errorf("%s: header %q", what, a.Header.Get(wire.HeaderQuotaWarning))
		}
	}
	soft("roll back", s.Do(as, "POST", s.APIURL("app", "/rollback"), []byte(`{"to":"2"}`)))
	want(t, "archive", s.Do(as, "POST", s.APIURL("app", "/archive"), nil), 200)
	soft("restore", s.Do(as, "POST", s.APIURL("app", "/restore"), nil))
	var events wire.List[wire.Event]
	s.Do(s.Operator(), "GET", s.URL+"/v1/events?state=app&class=quota", nil).Into(t, &events)
	if len(events.Items) != 2 || events.Items[1].Kind != "quota_soft_exceeded" || events.Items[1].Detail["dimension"] != "environment" {
		t.Errorf("events: %+v", events.Items)
	}
}

// A request that the role does not allow is remembered with the state that was
// meant: kl plan tells by it why the client has failed.
func TestRefusedRoleNamesTheState(t *testing.T) {
	s, _ := seeded(t)
	_, reader := token(t, s, `{"name":"reader","role":"read"}`)
	refused(t, "lock", s.Do(reader, "LOCK", s.StateURL("app"), kltest.LockBody("l", "OperationTypePlan")), 403, fault.RoleTooLow)
	var why wire.Request
	s.Do(reader, "GET", s.URL+"/v1/requests/last", nil).Into(t, &why)
	if why.State != "app" || why.Environment != s.Bootstrap.EnvPublicID || !strings.Contains(strings.Join(why.Story, " "), "reader tried to lock the state app") {
		t.Errorf("remembered as %+v", why)
	}
}

// A check answers for the write that would follow: in a suspended workspace
// there is none. And what a state does not have it cannot give back.
func TestCheckOfWhatCannotBe(t *testing.T) {
	s, st := seeded(t)
	as, n := s.Automation(), int64(st.Managed())
	want(t, "another", s.Do(as, "POST", s.StateURL("other"), kltest.NewState(2, 2).Bytes()), 200)
	var before, check wire.QuotaCheck
	s.Do(as, "POST", s.APIURL("other", "/quota/check"), []byte(`{"delta":0}`)).Into(t, &before)
	s.Do(as, "POST", s.APIURL("other", "/quota/check"), []byte(`{"delta":-1000}`)).Into(t, &check)
	if check.Projected != 0 || *check.Environment.Projected != n || check.Delta != -1000 || *check.State.Delta != -before.Projected || *check.Environment.Delta != -before.Projected {
		t.Errorf("without the other state the environment has %d, want %d", *check.Environment.Projected, n)
	}
	if *before.Environment.Projected != n+before.Projected {
		t.Errorf("before: %+v", before)
	}
	want(t, "suspend", s.Do(s.Operator(), "POST", s.URL+"/v1/workspaces/"+s.Bootstrap.WorkspaceID+"/suspend", []byte(`{"reason":"bills"}`)), 200)
	refused(t, "check", s.Do(as, "POST", s.APIURL("other", "/quota/check"), []byte(`{"delta":1}`)), 403, fault.WorkspaceSuspended)
	want(t, "what there is", s.Do(as, "GET", s.APIURL("other", "/quota"), nil), 200)
}

const aPlan = `{"format_version":"1.2","resource_changes":[{"mode":"managed","change":{"actions":["create"]}},{"mode":"data","change":{"actions":["read"]}}]}`

// A state's own limits are set by those who manage its environment: a writer
// must not lift its own.
func TestOwnLimitsTakeAnAdmin(t *testing.T) {
	x := newTeam(t)
	want(t, "seed", x.s.Do(x.robot("seed"), "POST", x.state("app"), kltest.NewState(5, 1).Bytes()), 200)
	x.join("writer", "write")
	robot := x.robot("robot")
	patch := []byte(`{"quota":{"hard_limit":7,"soft_limit":-1}}`)
	url := x.s.URL + x.envPath("/states/app")
	for name, c := range map[string]struct {
		as   kltest.Credentials
		code string
	}{"an automation token": {robot, "role_too_low"}, "a PAT": {kltest.Basic(x.ws, x.pats["writer"].Secret), "role_too_low"}, "a member": {x.as("writer"), "role_too_low"}} {
		if a := x.s.Do(c.as, "PATCH", url, patch); a.Status != 403 || a.Problem().Code != c.code {
			t.Errorf("%s: got %d %s", name, a.Status, a.Body)
		}
	}
	if a := x.s.Do(x.as("ana"), "PATCH", url, []byte(`{"quota":{"hardlimit":7}}`)); a.Status != 400 ||
		!strings.Contains(a.Problem().Detail, "not known here: quota.hardlimit") || !strings.Contains(a.Problem().NextStep, "quota.hard_limit") {
		t.Errorf("a mistyped limit: %d %s", a.Status, a.Body)
	}
	want(t, "lock mode by a writer", x.s.Do(robot, "PATCH", url, []byte(`{"lock_mode":"optimistic"}`)), 200)
	a := x.s.Do(x.as("ana"), "PATCH", url, patch)
	var st struct {
		Quota map[string]json.Number `json:"quota"`
	}
	a.Into(t, &st)
	if a.Status != 200 || len(st.Quota) != 1 || st.Quota["hard_limit"] != "7" {
		t.Errorf("by an owner: %d %s", a.Status, a.Body)
	}
}

// A run's writes are judged as all others are, by the merged result.
func TestQuotaOfRuns(t *testing.T) {
	s, st := seeded(t)
	us := s.Automation()
	n := int64(st.Managed())
	limits(t, s, fmt.Sprintf(`{"state_soft_limit":%d,"state_hard_limit":%d}`, n+1, n+2))
	one, two := runOf(t, s, us, `{}`), runOf(t, s, us, `{}`)
	want(t, "reserve", reserve(s, us, one, write("aws_a.one", "aws_a.more")), 200)
	want(t, "reserve", reserve(s, us, two, write("aws_b.two")), 200)
	post := func(r wire.Run, doc *kltest.State) *kltest.Answer {
		return s.Do(us, "POST", s.URL+r.StatePath, doc.Bytes())
	}
	a := post(one, next(st, func(n *kltest.State) { n.Add("aws_a.one"); n.Add("aws_a.more") }))
	if want(t, "two more", a, 200); !strings.Contains(a.Header.Get(wire.HeaderQuotaWarning), "above the soft limit") {
		t.Errorf("header %q", a.Header.Get(wire.HeaderQuotaWarning))
	}
	p := refused(t, "one more of another run", post(two, next(st, func(n *kltest.State) { n.Add("aws_b.two") })), 403, fault.StateQuota)
	if fmt.Sprint(p.Extra["current_count"], p.Extra["resulting_count"]) != fmt.Sprint(n+2, n+3) || p.Extra["refused_write"] == nil {
		t.Errorf("the refusal: %+v", p)
	}
}
