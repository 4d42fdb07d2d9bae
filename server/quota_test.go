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
	if story := strings.Join(why.Story, "\n"); !strings.Contains(story, "above the hard limit of") || !strings.Contains(story, "kl recover merge") {
		t.Errorf("the story:\n%s", story)
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
