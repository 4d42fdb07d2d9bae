package server_test

import (
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

// team is an organization with one environment on a real server.
type team struct {
	t       *testing.T
	s       *kltest.Server
	ws, env string
	users   map[string]wire.User
	pats    map[string]wire.Token
}

func newTeam(t *testing.T, opts ...kltest.Option) *team {
	t.Helper()
	x := &team{t: t, s: kltest.Start(t, opts...), users: map[string]wire.User{}, pats: map[string]wire.Token{}}
	x.user("ana")
	var w wire.Workspace
	x.ok(x.as("ana"), "POST", "/v1/workspaces", `{"name":"team"}`, http.StatusCreated).Into(t, &w)
	var e wire.Environment
	x.ok(x.as("ana"), "POST", "/v1/workspaces/"+w.WorkspaceID+"/environments", `{"slug":"prod"}`, http.StatusCreated).Into(t, &e)
	x.ws, x.env = w.WorkspaceID, e.EnvPublicID
	return x
}

func (x *team) ok(as kltest.Credentials, method, path, body string, status int) *kltest.Answer {
	x.t.Helper()
	a := x.s.Do(as, method, x.s.URL+path, []byte(body))
	want(x.t, method+" "+path, a, status)
	return a
}

func (x *team) user(name string) {
	x.t.Helper()
	var u wire.User
	x.ok(x.s.Operator(), "POST", "/v1/users", fmt.Sprintf(`{"name":%q}`, name), http.StatusCreated).Into(x.t, &u)
	x.users[name] = u
}

// as are the control credentials of a user.
func (x *team) as(name string) kltest.Credentials { return kltest.Bearer(x.users[name].ControlToken) }

// tf are the data plane credentials of a user's newest PAT.
func (x *team) tf(name string) kltest.Credentials { return kltest.Basic(x.ws, x.pats[name].Secret) }

// join makes a user who is a member with a PAT, and with a grant unless role is
// "".
func (x *team) join(name, role string) {
	x.t.Helper()
	x.user(name)
	x.ok(x.as("ana"), "POST", x.wsPath("/members"), fmt.Sprintf(`{"user":%q}`, name), 200)
	x.pat(name)
	if role != "" {
		x.ok(x.as("ana"), "PUT", x.envPath("/grants/"+name), fmt.Sprintf(`{"role":%q}`, role), 200)
	}
}

func (x *team) pat(name string) {
	x.t.Helper()
	var tok wire.Token
	x.ok(x.as(name), "POST", "/v1/pats", `{"name":"laptop"}`, http.StatusCreated).Into(x.t, &tok)
	x.pats[name] = tok
}

func (x *team) wsPath(rest string) string    { return wire.WorkspacePath(x.ws) + rest }
func (x *team) envPath(rest string) string   { return wire.EnvironmentPath(x.env) + rest }
func (x *team) state(name string) string     { return x.s.URL + wire.StatePath(x.ws, x.env, name) }
func (x *team) api(name, rest string) string { return wire.ControlStatePath(x.env, name) + rest }
func (x *team) get(as kltest.Credentials) *kltest.Answer {
	return x.s.Do(as, "GET", x.state("app"), nil)
}

func TestPATOverHTTP(t *testing.T) {
	x := newTeam(t)
	x.join("bob", "write")
	body := kltest.NewState(3, 1).Bytes()
	want(t, "write with a grant", x.s.Do(x.tf("bob"), "POST", x.state("app"), body), 200)
	want(t, "read with a grant", x.get(x.tf("bob")), 200)
	want(t, "bearer", x.get(kltest.Bearer(x.pats["bob"].Secret)), 200)

	x.join("eve", "")
	refused(t, "no grant", x.get(x.tf("eve")), 403, fault.NoGrant)
	x.user("mal")
	x.pat("mal")
	refused(t, "no member", x.get(x.tf("mal")), 403, fault.NotMember)
	refused(t, "user name of another workspace", x.s.Do(kltest.Basic(x.s.Bootstrap.WorkspaceID, x.pats["bob"].Secret), "GET", x.state("app"), nil), 422, fault.WorkspaceMismatch)
	refused(t, "another's environment", x.s.Do(x.tf("bob"), "GET", x.s.URL+wire.StatePath(x.ws, x.s.Bootstrap.EnvPublicID, "app"), nil), 422, fault.UnknownEnvironment)
	refused(t, "slug in the path", x.s.Do(x.tf("bob"), "GET", x.s.URL+wire.StatePath(x.ws, "prod", "app"), nil), 422, fault.SlugNotID)
	refused(t, "control token on a state", x.get(x.as("ana")), 401, fault.CredentialsInvalid)
	refused(t, "LOCK without a grant", x.s.Do(x.tf("eve"), "LOCK", x.state("app"), kltest.LockBody("l", apply)), 403, fault.NoGrant)

	var list wire.List[wire.Access]
	x.ok(x.as("ana"), "GET", x.envPath("/access"), "", 200).Into(t, &list)
	if len(list.Items) != 3 || list.Items[0].PATStatus != wire.PATNone || list.Items[1].GrantStatus != wire.GrantActive || list.Items[2].GrantStatus != wire.GrantNone {
		t.Errorf("access: %+v", list.Items)
	}

	x.ok(x.as("bob"), "DELETE", "/v1/pats/"+x.pats["bob"].ID, "", 204)
	refused(t, "revoked", x.get(x.tf("bob")), 401, fault.CredentialsRevoked)
	x.pat("bob")
	refused(t, "a new token is no new grant", x.get(x.tf("bob")), 403, fault.NoGrant)
	x.ok(x.as("ana"), "PUT", x.envPath("/grants/bob"), `{"role":"read"}`, 200)
	refused(t, "beyond the new grant", x.s.Do(x.tf("bob"), "POST", x.state("app"), body), 403, fault.RoleTooLow)
	x.ok(x.as("bob"), "POST", x.wsPath("/leave"), "", 204)
	refused(t, "left", x.get(x.tf("bob")), 403, fault.NotMember)
	x.ok(x.s.Operator(), "DELETE", "/v1/users/bob", "", 204)
	refused(t, "deleted", x.get(x.tf("bob")), 401, fault.CredentialsRevoked)
	for _, tok := range []string{x.users["bob"].ControlToken, x.pats["bob"].Secret, x.pats["eve"].Secret} {
		if strings.Contains(x.s.Log.String(), tok) {
			t.Error("a secret is in the log")
		}
	}
}

// TestWriteAfterTheGrantEnded: what an apply has built is not lost because its
// user lost the right to store it meanwhile.
func TestWriteAfterTheGrantEnded(t *testing.T) {
	x := newTeam(t)
	x.join("bob", "write")
	x.join("eve", "plan")
	want(t, "lock", x.s.Do(x.tf("bob"), "LOCK", x.state("app"), kltest.LockBody("l1", apply)), 200)
	x.ok(x.as("ana"), "DELETE", x.envPath("/grants/bob"), "", 204)
	body := kltest.NewState(3, 1).Bytes()
	p := refused(t, "write", x.s.Do(x.tf("bob"), "POST", x.state("app")+"?ID=l1", body), 403, fault.NoGrant)
	id, _ := p.Extra["refused_write"].(string)
	if a := x.ok(x.as("ana"), "GET", x.api("app", "/refused/"+id), "", 200); string(a.Body) != string(body) {
		t.Errorf("what was kept has %d bytes, want %d", len(a.Body), len(body))
	}
	p = refused(t, "with a lock that is not held", x.s.Do(x.tf("bob"), "POST", x.state("app")+"?ID=l2", body), 403, fault.NoGrant)
	if p.Extra["refused_write"] != nil {
		t.Error("bytes of somebody without a lock were kept")
	}
	want(t, "plan", x.s.Do(x.tf("eve"), "LOCK", x.state("other"), kltest.LockBody("p1", plan)), 200)
	p = refused(t, "write under the lock of a plan", x.s.Do(x.tf("eve"), "POST", x.state("other")+"?ID=p1", body), 403, fault.RoleTooLow)
	if p.Extra["refused_write"] != nil {
		t.Error("bytes of a role that never could write were kept")
	}
}

func TestSuspendedWorkspace(t *testing.T) {
	x := newTeam(t)
	x.join("bob", "write")
	st := kltest.NewState(3, 1)
	want(t, "write", x.s.Do(x.tf("bob"), "POST", x.state("app"), st.Bytes()), 200)
	want(t, "lock", x.s.Do(x.tf("bob"), "LOCK", x.state("app"), kltest.LockBody("l1", apply)), 200)
	for _, body := range []string{`{}`, `{"reason":""}`} {
		refused(t, "suspend with "+body, x.s.Do(x.s.Operator(), "POST", x.s.URL+x.wsPath("/suspend"), []byte(body)), 400, fault.ParameterInvalid)
	}
	refused(t, "suspend by its owner", x.s.Do(x.as("ana"), "POST", x.s.URL+x.wsPath("/suspend"), []byte(`{"reason":"x"}`)), 403, fault.RoleTooLow)
	var w wire.Workspace
	x.ok(x.s.Operator(), "POST", x.wsPath("/suspend"), `{"reason":"unpaid"}`, 200).Into(t, &w)
	if w.Status != "suspended" || w.SuspendedReason != "unpaid" || w.SuspendedBy != "operator" || w.SuspendedAt.IsZero() {
		t.Errorf("suspended: %+v", w)
	}
	st.Mutate(1)
	p := refused(t, "checkpoint", x.s.Do(x.tf("bob"), "POST", x.state("app")+"?ID=l1", st.Bytes()), 403, fault.WorkspaceSuspended)
	if p.Extra["hold"] != "workspace_suspended" || p.Extra["by"] != "operator" || p.Extra["since"] == nil || !strings.Contains(p.Detail, "unpaid") {
		t.Errorf("the refusal does not say why: %+v", p)
	}
	id, _ := p.Extra["refused_write"].(string)
	if a := x.ok(x.as("ana"), "GET", x.api("app", "/refused/"+id), "", 200); string(a.Body) != string(st.Bytes()) {
		t.Error("the bytes of the running apply are not kept")
	}
	want(t, "unlock", x.s.Do(x.tf("bob"), "UNLOCK", x.state("app"), kltest.LockBody("l1", apply)), 200)
	for name, op := range map[string]string{"app": apply, "fresh": plan} {
		a := x.s.Do(x.tf("bob"), "LOCK", x.state(name), kltest.LockBody("l2", op))
		if info, err := a.LockInfo(); a.Status != 423 || err != nil || !strings.Contains(info.ID, "unpaid") {
			t.Errorf("LOCK of %s: %d %+v", name, a.Status, info)
		}
	}
	want(t, "read", x.get(x.tf("bob")), 200)
	refused(t, "delete", x.s.Do(x.tf("bob"), "DELETE", x.state("app"), nil), 403, fault.WorkspaceSuspended)
	refused(t, "archive", x.s.Do(x.as("ana"), "POST", x.s.URL+x.api("app", "/archive"), nil), 403, fault.WorkspaceSuspended)
	refused(t, "purge", x.s.Do(x.as("ana"), "POST", x.s.URL+x.api("app", "/purge"), nil), 403, fault.WorkspaceSuspended)
	refused(t, "delete the environment", x.s.Do(x.as("ana"), "DELETE", x.s.URL+x.envPath(""), nil), 403, fault.WorkspaceSuspended)
	refused(t, "suspend again", x.s.Do(x.s.Operator(), "POST", x.s.URL+x.wsPath("/suspend"), []byte(`{"reason":"y"}`)), 400, fault.ParameterInvalid)
	for range 2 {
		x.ok(x.s.Operator(), "POST", x.wsPath("/resume"), "", 200)
	}
	want(t, "lock after resume", x.s.Do(x.tf("bob"), "LOCK", x.state("fresh"), kltest.LockBody("l3", apply)), 200)
}

func TestArchivedState(t *testing.T) {
	x := newTeam(t)
	x.join("bob", "write")
	st := kltest.NewState(3, 1)
	refused(t, "archive of nothing", x.s.Do(x.tf("bob"), "POST", x.s.URL+x.api("app", "/archive"), nil), 404, fault.NotFound)
	want(t, "write", x.s.Do(x.tf("bob"), "POST", x.state("app"), st.Bytes()), 200)
	want(t, "lock", x.s.Do(x.tf("bob"), "LOCK", x.state("app"), kltest.LockBody("l1", apply)), 200)
	var w wire.State
	x.ok(x.tf("bob"), "POST", x.api("app", "/archive"), "", 200).Into(t, &w)
	if w.Lifecycle != "archived" {
		t.Errorf("archived: %+v", w)
	}
	st.Mutate(1)
	p := refused(t, "checkpoint", x.s.Do(x.tf("bob"), "POST", x.state("app")+"?ID=l1", st.Bytes()), 403, fault.StateArchived)
	if p.Extra["hold"] != "state_archived" || p.Extra["refused_write"] == nil || p.Extra["by"] != "bob" {
		t.Errorf("the refusal: %+v", p)
	}
	want(t, "unlock", x.s.Do(x.tf("bob"), "UNLOCK", x.state("app"), kltest.LockBody("l1", apply)), 200)
	want(t, "read", x.get(x.tf("bob")), 200)
	if a := x.s.Do(x.tf("bob"), "LOCK", x.state("app"), kltest.LockBody("l2", apply)); a.Status != 423 {
		t.Errorf("LOCK: %d", a.Status)
	}
	refused(t, "archive twice", x.s.Do(x.tf("bob"), "POST", x.s.URL+x.api("app", "/archive"), nil), 403, fault.StateArchived)
	x.ok(x.tf("bob"), "POST", x.api("app", "/restore"), "", 200)
	want(t, "lock after restore", x.s.Do(x.tf("bob"), "LOCK", x.state("app"), kltest.LockBody("l3", plan)), 200)
}

func TestOutputsRole(t *testing.T) {
	s := kltest.Start(t)
	const doc = `{"version":4,"terraform_version":"1.11.4","serial":7,"lineage":"3f1c","outputs":{"big":{"value":12345678901234567890.10,"type":"number"},` +
		`"key":{"value":"s3cret","type":"string","sensitive":true},"odd":{"type":"string","Sensitive":true,"value":"s3cret"},"no":{"value":[],"type":["list","string"],"sensitive":false}},` +
		`"resources":[{"mode":"managed","type":"t","name":"a","provider":"p","instances":[{"schema_version":0,"attributes":{"id":"hidden"}}]}],"check_results":null}`
	want(t, "seed", s.Do(s.Automation(), "POST", s.StateURL("app"), []byte(doc)), 200)
	whole := s.Do(s.Automation(), "GET", s.StateURL("app"), nil)
	_, outputs := token(t, s, `{"name":"dash","role":"outputs"}`)
	_, sensitive := token(t, s, `{"name":"dash2","role":"outputs","sensitive":true}`)
	refused(t, "sensitive beside another role", s.Do(s.Operator(), "POST", envURL(s, "/tokens"), []byte(`{"name":"x","role":"read","sensitive":true}`)), 400, fault.ParameterInvalid)

	read := func(as kltest.Credentials) (map[string]json.RawMessage, *kltest.Answer) {
		a := s.Do(as, "GET", s.StateURL("app"), nil)
		want(t, "read", a, 200)
		var d struct {
			Version          int
			Serial           uint64
			Lineage          string
			TerraformVersion string `json:"terraform_version"`
			Outputs          map[string]json.RawMessage
			Resources        []any
			CheckResults     any `json:"check_results"`
		}
		a.Into(t, &d)
		if d.Version != 4 || d.Serial != 7 || d.Lineage != "3f1c" || d.TerraformVersion != "1.11.4" || d.Resources == nil || len(d.Resources) != 0 {
			t.Errorf("the document: %s", a.Body)
		}
		if a.Header.Get(wire.HeaderSerial) != "7" || a.Header.Get(wire.HeaderVersion) != "1" || a.Header.Get("ETag") != `"`+sha(a.Body)+`"` {
			t.Errorf("headers: %v", a.Header)
		}
		if a.Header.Get("ETag") == whole.Header.Get("ETag") || strings.Contains(string(a.Body), "hidden") {
			t.Errorf("more than the outputs: %s", a.Body)
		}
		return d.Outputs, a
	}
	got, a := read(outputs)
	if len(got) != 2 || string(got["big"]) != `{"value":12345678901234567890.10,"type":"number"}` || strings.Contains(string(a.Body), "s3cret") {
		t.Errorf("outputs: %s", a.Body)
	}
	want(t, "not modified", s.Do(outputs, "GET", s.StateURL("app"), nil, "If-None-Match", a.Header.Get("ETag")), http.StatusNotModified)
	if h := s.Do(outputs, "HEAD", s.StateURL("app"), nil); h.Header.Get("ETag") != a.Header.Get("ETag") || h.Status != 200 {
		t.Errorf("HEAD: %d %v", h.Status, h.Header)
	}
	if got, a := read(sensitive); len(got) != 4 {
		t.Errorf("outputs with sensitive ones: %s", a.Body)
	}
	refused(t, "nothing there", s.Do(outputs, "GET", s.StateURL("none"), nil), 404, fault.NotFound)
	for _, r := range [][2]string{
		{"POST", s.StateURL("app")},
		{"LOCK", s.StateURL("app")},
		{"UNLOCK", s.StateURL("app")},
		{"DELETE", s.StateURL("app")},
		{"GET", envURL(s, "")},
		{"GET", s.APIURL("app", "")},
		{"GET", s.APIURL("app", "/versions")},
		{"GET", s.APIURL("app", "/versions/1")},
		{"GET", s.APIURL("app", "/lock")},
	} {
		refused(t, r[0]+" "+r[1], s.Do(outputs, r[0], r[1], nil), 403, fault.RoleTooLow)
	}
	want(t, "encrypted", s.Do(s.Automation(), "POST", s.StateURL("enc"), []byte(`{"serial":1,"lineage":"x","meta":{},"encrypted_data":"AA==","encryption_version":"v0"}`)), 200)
	refused(t, "outputs of an encrypted state", s.Do(outputs, "GET", s.StateURL("enc"), nil), 403, fault.RoleTooLow)
}

func TestLastRequest(t *testing.T) {
	x := newTeam(t)
	x.join("bob", "read")
	x.join("eve", "read")
	last := x.s.URL + wire.LastRequestPath
	for range 2 { // the question itself is not what was refused last
		refused(t, "nothing refused yet", x.s.Do(x.as("bob"), "GET", last, nil), 404, fault.NotFound)
	}
	body := kltest.NewState(1, 1).Bytes()
	p := refused(t, "bob writes", x.s.Do(x.tf("bob"), "POST", x.state("app"), body), 403, fault.RoleTooLow)
	refused(t, "bob reads what was never written", x.s.Do(x.tf("bob"), "GET", x.state("app"), nil), 404, fault.NotFound)
	refused(t, "eve writes", x.s.Do(x.tf("eve"), "POST", x.state("other"), body), 403, fault.RoleTooLow)
	for what, as := range map[string]kltest.Credentials{"by the control token": x.as("bob"), "by the PAT": x.tf("bob")} {
		var r wire.Request
		a := x.s.Do(as, "GET", last, nil)
		want(t, what, a, 200)
		if a.Into(t, &r); r.RequestID != p.RequestID || len(r.Story) == 0 || r.Principal != "bob" {
			t.Errorf("%s: %+v", what, r)
		}
	}
	id := x.s.URL + "/v1/requests/" + p.RequestID
	want(t, "one's own by id", x.s.Do(x.as("bob"), "GET", id, nil), 200)
	want(t, "an admin", x.s.Do(x.as("ana"), "GET", id, nil), 200)
	x.user("mal")
	foreign := refused(t, "a stranger", x.s.Do(x.as("mal"), "GET", id, nil), 404, fault.NotFound)
	missing := refused(t, "none", x.s.Do(x.as("mal"), "GET", x.s.URL+"/v1/requests/req_0000000000000000", nil), 404, fault.NotFound)
	if strings.ReplaceAll(foreign.Detail, p.RequestID, "req_0000000000000000") != missing.Detail || foreign.NextStep != missing.NextStep {
		t.Errorf("foreign: %s; missing: %s", foreign.Detail, missing.Detail)
	}
}

// A run begins with reading what may not be there, as every client does.
func TestLastRequestBeforeARun(t *testing.T) {
	s := kltest.Start(t)
	us := s.Automation()
	p := refused(t, "no state", s.Do(us, "POST", s.StateURL("app"), []byte("{}")), 400, fault.BodyInvalid)
	refused(t, "the run's view", s.Do(us, "GET", s.URL+runOf(t, s, us, `{}`).StatePath, nil), 404, fault.NotFound)
	var r wire.Request
	if s.Do(us, "GET", s.URL+wire.LastRequestPath, nil).Into(t, &r); r.RequestID != p.RequestID {
		t.Errorf("the last refusal is %+v", r)
	}
}

// Those who share a token tell their runs' refusals apart.
func TestLastRequestInARun(t *testing.T) {
	s, _ := seeded(t)
	us := s.Automation()
	mine, other := runOf(t, s, us, `{}`), runOf(t, s, us, `{}`)
	last := func(r wire.Run) *kltest.Answer {
		return s.Do(us, "GET", s.URL+wire.LastRequestPath+"?run="+r.ID, nil)
	}
	want(t, "reserve", reserve(s, us, mine, write("aws_a.one")), 200)
	p := refused(t, "a write within the run", s.Do(us, "POST", s.URL+mine.StatePath, []byte("{}")), 400, fault.BodyInvalid)
	blocked(t, "the other reserves", reserve(s, us, other, write("aws_a.one")))
	refused(t, "nothing was refused on the other's address", last(other), 404, fault.NotFound)
	var r wire.Request
	if last(mine).Into(t, &r); r.RequestID != p.RequestID || r.RunID != mine.ID {
		t.Errorf("the last refusal in the run is %+v", r)
	}
}

func TestEventsOfOnesOwnWorkspaces(t *testing.T) {
	x := newTeam(t)
	x.join("bob", "write")
	read := func(as kltest.Credentials, query string) []wire.Event {
		var l wire.List[wire.Event]
		x.ok(as, "GET", "/v1/events"+query, "", 200).Into(t, &l)
		return l.Items
	}
	all, mine := read(x.s.Operator(), ""), read(x.as("ana"), "")
	if len(mine) == 0 || len(mine) >= len(all) {
		t.Errorf("%d events of %d", len(mine), len(all))
	}
	for _, e := range mine {
		if e.Workspace != x.ws {
			t.Errorf("an event of elsewhere: %+v", e)
		}
	}
	want(t, "write", x.s.Do(x.tf("bob"), "POST", x.state("app"), kltest.NewState(1, 1).Bytes()), 200)
	x.ok(x.tf("bob"), "GET", x.api("app", "/versions/1"), "", 200)
	raw := slices.IndexFunc(read(x.as("ana"), ""), func(e wire.Event) bool {
		return e.Kind == "raw_read" && e.Principal == "bob" && e.State == "app" && e.Version == 1
	})
	if raw < 0 {
		t.Error("the trail does not tell that a whole version was read")
	}
	if got := read(x.as("bob"), ""); len(got) != 0 {
		t.Errorf("a member reads the trail: %+v", got)
	}
	if got := read(x.as("ana"), "?workspace="+x.s.Bootstrap.WorkspaceID); len(got) != 0 {
		t.Errorf("the trail of another workspace: %+v", got)
	}
}
