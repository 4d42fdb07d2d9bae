package server_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"kl/auth"
	"kl/fault"
	"kl/kltest"
	"kl/server"
	"kl/wire"
)

// TestBadInput sends every kind of bad input to the data plane. Each is refused
// with its status and code, in a whole problem document, and nothing changes.
func TestBadInput(t *testing.T) {
	s, st := seeded(t, kltest.WithServer(limit1MB))
	b := s.Bootstrap
	as, app := s.Automation(), s.StateURL("app")
	good := st.Clone()
	good.Mutate(1)
	next := good.Bytes()
	path := func(rest string) string { return s.URL + rest }
	in := func(name string) string { return path("/states/" + b.WorkspaceID + "/" + b.EnvPublicID + "/" + name) }
	ws := func(id string) string { return path("/states/" + id + "/" + b.EnvPublicID + "/app") }
	env := func(id string) string { return path("/states/" + b.WorkspaceID + "/" + id + "/app") }
	token := b.AutomationToken

	type bad struct {
		as      kltest.Credentials
		method  string
		url     string
		body    string
		headers []string
		status  int
		code    fault.Code
	}
	cases := map[string]bad{
		"no credentials":            {as: kltest.Nobody, status: 401, code: fault.CredentialsMissing},
		"other scheme":              {as: header("Authorization", "Digest x"), status: 401, code: fault.CredentialsMissing},
		"bad base64":                {as: header("Authorization", "Basic !!"), status: 401, code: fault.CredentialsMissing},
		"empty password":            {as: kltest.Basic(b.WorkspaceID, ""), status: 401, code: fault.CredentialsMissing},
		"empty bearer":              {as: header("Authorization", "Bearer "), status: 401, code: fault.CredentialsMissing},
		"some password":             {as: kltest.Basic(b.WorkspaceID, "hunter2"), status: 401, code: fault.CredentialsInvalid},
		"cut token":                 {as: kltest.Basic(b.WorkspaceID, token[:len(token)-1]), status: 401, code: fault.CredentialsInvalid},
		"unknown token":             {as: kltest.Basic(b.WorkspaceID, auth.NewSecret(auth.Automation)), status: 401, code: fault.CredentialsInvalid},
		"unknown bearer":            {as: kltest.Bearer(auth.NewSecret(auth.Automation)), status: 401, code: fault.CredentialsInvalid},
		"unknown PAT":               {as: kltest.Basic(b.WorkspaceID, auth.NewSecret(auth.PAT)), status: 401, code: fault.CredentialsInvalid},
		"control token as bearer":   {as: s.Operator(), status: 401, code: fault.CredentialsInvalid},
		"control token as password": {as: kltest.Basic(b.WorkspaceID, b.ControlToken), status: 401, code: fault.CredentialsInvalid},

		"user is another workspace": {as: kltest.Basic("ws_aaaaaaaaaaaa", token), status: 422, code: fault.WorkspaceMismatch},
		"user is empty":             {as: header("Authorization", "Basic "+base64Of(":"+token)), status: 422, code: fault.WorkspaceMismatch},
		"user is the token":         {as: kltest.Basic(token, token), status: 422, code: fault.WorkspaceMismatch},
		"path of another workspace": {as: kltest.Bearer(token), url: ws("ws_aaaaaaaaaaaa"), status: 422, code: fault.WorkspaceMismatch},
		"user and path of another":  {as: kltest.Basic("ws_aaaaaaaaaaaa", token), url: ws("ws_aaaaaaaaaaaa"), status: 422, code: fault.WorkspaceMismatch},
		"unknown environment":       {url: env("env_aaaaaaaaaaaa"), status: 422, code: fault.UnknownEnvironment},
		"environment's slug":        {url: env("default"), status: 422, code: fault.SlugNotID},
		"workspace's name":          {as: kltest.Bearer(token), url: ws("personal"), status: 422, code: fault.SlugNotID},

		"name begins with a dash": {url: in("-app"), status: 400, code: fault.StateNameInvalid},
		"name begins with a dot":  {url: in(".app"), status: 400, code: fault.StateNameInvalid},
		"name with a blank":       {url: in("a%20b"), status: 400, code: fault.StateNameInvalid},
		"name with a slash":       {url: in("a%2Fb"), status: 400, code: fault.StateNameInvalid},
		"name with a zero":        {url: in("a%00"), status: 400, code: fault.StateNameInvalid},
		"name with an escape":     {url: in("a%2520b"), status: 400, code: fault.StateNameInvalid},
		"name not ASCII":          {url: in("%C3%A4"), status: 400, code: fault.StateNameInvalid},
		"name not UTF-8":          {url: in("%FF"), status: 400, code: fault.StateNameInvalid},
		"name too long":           {url: in(strings.Repeat("a", 129)), status: 400, code: fault.StateNameInvalid},
		"name is the way up":      {url: in("%2e%2e"), status: 400, code: fault.StateNameInvalid},
		"bad name on POST":        {method: "POST", url: in("a%20b"), body: string(next), status: 400, code: fault.StateNameInvalid},

		"trailing slash":    {url: app + "/", status: 422, code: fault.MalformedPath},
		"extra segment":     {url: app + "/lock", status: 422, code: fault.MalformedPath},
		"two segments":      {url: path("/states/" + b.WorkspaceID + "/" + b.EnvPublicID), status: 422, code: fault.MalformedPath},
		"one segment":       {url: path("/states/" + b.WorkspaceID), status: 422, code: fault.MalformedPath},
		"no segment":        {url: path("/states"), status: 422, code: fault.MalformedPath},
		"no segment, slash": {url: path("/states/"), status: 422, code: fault.MalformedPath},
		"double slash":      {url: path("//states/" + b.WorkspaceID + "/" + b.EnvPublicID + "/app"), status: 422, code: fault.MalformedPath},
		"empty workspace":   {url: path("/states//" + b.EnvPublicID + "/app"), status: 422, code: fault.MalformedPath},
		"empty environment": {url: path("/states/" + b.WorkspaceID + "//app"), status: 422, code: fault.MalformedPath},
		"empty name":        {url: in(""), status: 422, code: fault.MalformedPath},
		"POST astray":       {method: "POST", url: app + "/", body: string(next), status: 422, code: fault.MalformedPath},
		"DELETE astray":     {method: "DELETE", url: path("/states/" + b.WorkspaceID), status: 422, code: fault.MalformedPath},
		"UNLOCK astray":     {method: "UNLOCK", url: path("/locks/" + b.WorkspaceID), status: 422, code: fault.MalformedPath},
		"upper case":        {url: path("/STATES/" + b.WorkspaceID + "/" + b.EnvPublicID + "/app"), status: 422, code: fault.MalformedPath},
		"proxy's prefix":    {url: path("/kl/states/" + b.WorkspaceID + "/" + b.EnvPublicID + "/app"), status: 422, code: fault.MalformedPath},
		"mistyped noun":     {url: path("/state/" + b.WorkspaceID + "/" + b.EnvPublicID + "/app"), status: 422, code: fault.MalformedPath},
		"no noun":           {url: path("/" + b.EnvPublicID + "/app"), status: 422, code: fault.MalformedPath},
		"LOCK of no noun":   {method: "LOCK", url: path("/" + b.EnvPublicID + "/app"), body: `{"ID":"x"}`, status: 423, code: fault.MalformedPath},
		"nowhere":           {url: path("/nowhere"), status: 404, code: fault.NotFound},
		"nowhere of v1":     {url: path("/v1/" + b.EnvPublicID + "/states"), status: 404, code: fault.NotFound},
		"unread query":      {method: "POST", url: app + "?ID=%zz", body: string(next), status: 400, code: fault.ParameterInvalid},

		"method unknown to states": {method: "PATCH", status: 405, code: fault.MethodNotAllowed},
		"method nobody knows":      {method: "BREW", status: 405, code: fault.MethodNotAllowed},
		"GET of the alias":         {url: s.LockURL("app"), status: 405, code: fault.MethodNotAllowed},

		"ID with a line end": {method: "POST", url: app + "?ID=a%0Ab", body: string(next), status: 400, code: fault.LockInfoInvalid},
		"ID too long":        {method: "POST", url: app + "?ID=" + strings.Repeat("a", 201), body: string(next), status: 400, code: fault.LockInfoInvalid},
		"two IDs":            {method: "POST", url: app + "?ID=a&ID=b", body: string(next), status: 400, code: fault.ParameterInvalid},
		"ID of no lock":      {method: "POST", url: app + "?ID=gone", body: string(next), status: 409, code: fault.LockNotHeld},
		"DELETE, ID of none": {method: "DELETE", url: app + "?ID=gone", status: 409, code: fault.LockNotHeld},

		"wrong MD5":           {method: "POST", body: string(next), headers: []string{"Content-MD5", contentMD5([]byte("x"))}, status: 400, code: fault.BodyDigest},
		"MD5 not base64":      {method: "POST", body: string(next), headers: []string{"Content-MD5", "no digest"}, status: 400, code: fault.BodyDigest},
		"MD5 in hex":          {method: "POST", body: string(next), headers: []string{"Content-MD5", "d41d8cd98f00b204e9800998ecf8427e"}, status: 400, code: fault.BodyDigest},
		"compressed":          {method: "POST", body: string(next), headers: []string{"Content-Encoding", "gzip"}, status: 400, code: fault.BodyInvalid},
		"larger than allowed": {method: "POST", body: strings.Repeat(" ", 1<<20+1), status: 413, code: fault.BodyTooLarge},
	}
	for name, body := range map[string]string{
		"empty": "", "blank": " \n", "null": "null", "list": "[]", "object": "{}", "text": "hello", "html": "<html></html>",
		"number": "4", "string": `"x"`, "error page": `{"error":"no"}`, "cut": string(next[:len(next)/2]), "cut at the end": string(bytes.TrimRight(next, "}\n")),
		"trailing garbage": string(next) + "x", "two documents": string(next) + string(next), "not UTF-8": "\xff\xfe{}",
		"LockInfo": string(kltest.LockBody("l1", apply)), "lineage empty": `{"version":4,"serial":2,"lineage":"","resources":[]}`,
		"serial negative": `{"version":4,"serial":-1,"lineage":"` + st.Lineage() + `","resources":[]}`,
		"serial text":     `{"version":4,"serial":"2","lineage":"` + st.Lineage() + `","resources":[]}`,
		"resources text":  `{"version":4,"serial":2,"lineage":"` + st.Lineage() + `","resources":"none"}`,
	} {
		cases["body "+name] = bad{method: "POST", body: body, status: 400, code: fault.BodyInvalid}
	}

	before := picture(t, s, "app")
	for name, c := range cases {
		if c.as == nil {
			c.as = as
		}
		if c.method == "" {
			c.method = "GET"
		}
		if c.url == "" {
			c.url = app
		}
		a := s.Do(c.as, c.method, c.url, []byte(c.body), c.headers...)
		refused(t, name, a, c.status, c.code)
		if after := picture(t, s, "app"); after != before {
			t.Fatalf("%s: changed from %s to %s", name, before, after)
		}
	}
	for _, p := range []string{"/errors/malformed_path", "/v1/openapi.json"} {
		want(t, p, s.Do(kltest.Nobody, "GET", s.URL+p, nil), 200)
	}
	if strings.Contains(s.Log.String(), token) || strings.Contains(s.Log.String(), b.ControlToken) {
		t.Error("a token is in the log")
	}
}

func header(name, value string) kltest.Credentials {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// TestScopeSaysWhatIsExpected: the refusals of class scope name what would fit,
// and never repeat a user name, which may be a token.
func TestScopeSaysWhatIsExpected(t *testing.T) {
	s, _ := seeded(t)
	token := s.Bootstrap.AutomationToken
	a := s.Do(kltest.Basic(token, token), "GET", s.StateURL("app"), nil)
	if p := refused(t, "token as user", a, 422, fault.WorkspaceMismatch); p.Extra["expected"] != s.Bootstrap.WorkspaceID ||
		p.Extra["reason"] != "workspace_mismatch" || bytes.Contains(a.Body, []byte(token)) {
		t.Errorf("token as user: %s", a.Body)
	}
	p := refused(t, "path", s.Do(s.Automation(), "GET", s.URL+"/locks/x", nil), 422, fault.MalformedPath)
	if p.Extra["expected"] != "/locks/{workspace_id}/{env_public_id}/{state_name}" {
		t.Errorf("path: %v", p.Extra)
	}
}

// TestRoutesByMethod asks every path of the table with every method and no
// credentials: what is not in the table is 405, what is in it and not open to
// all is 401, nothing is 3xx or 5xx, and each answer has an id.
func TestRoutesByMethod(t *testing.T) {
	s := kltest.Start(t)
	known := map[string]server.Route{}
	paths := map[string]bool{}
	for _, rt := range server.Routes() {
		known[rt.Method+" "+rt.Path] = rt
		paths[rt.Path] = true
	}
	fill := strings.NewReplacer("{ws}", s.Bootstrap.WorkspaceID, "{env}", s.Bootstrap.EnvPublicID, "{state}", "app",
		"{version}", "1", "{id}", "x", "{code}", "locked")
	for path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "LOCK", "UNLOCK", "TRACE", "PROPFIND"} {
			a := s.Do(kltest.Nobody, method, s.URL+fill.Replace(path), nil)
			rt, ok := known[method+" "+path]
			status := 405
			switch {
			case ok && rt.Access == server.Public:
				status = 200
			case ok:
				status = 401
			}
			if a.Status != status {
				t.Errorf("%s %s: %d, want %d", method, path, a.Status, status)
			}
			if a.Header.Get(wire.HeaderRequestID) == "" {
				t.Errorf("%s %s: no request id", method, path)
			}
			if a.Status == 405 && a.Header.Get("Allow") == "" {
				t.Errorf("%s %s: 405 without Allow", method, path)
			}
		}
		a := s.Do(kltest.Nobody, "OPTIONS", s.URL+fill.Replace(path), nil)
		if a.Header.Get(wire.HeaderRequestID) == "" || a.Status >= 300 {
			t.Errorf("OPTIONS %s: %d, headers %v", path, a.Status, a.Header)
		}
	}
}

// TestControlAPIKeepsAutomationOut: an automation token works below its own
// environment and nowhere else.
func TestControlAPIKeepsAutomationOut(t *testing.T) {
	s, _ := seeded(t)
	fill := strings.NewReplacer("{ws}", s.Bootstrap.WorkspaceID, "{env}", s.Bootstrap.EnvPublicID, "{state}", "app",
		"{version}", "1", "{id}", "x")
	for _, rt := range server.Routes() {
		url := s.URL + fill.Replace(rt.Path)
		switch rt.Access {
		case server.Operator:
			refused(t, rt.Method+" "+rt.Path, s.Do(s.Automation(), rt.Method, url, nil), 401, fault.CredentialsInvalid)
		case server.Environment:
			other := strings.Replace(url, s.Bootstrap.EnvPublicID, "env_aaaaaaaaaaaa", 1)
			refused(t, rt.Method+" "+rt.Path, s.Do(s.Automation(), rt.Method, other, nil), 422, fault.UnknownEnvironment)
			refused(t, rt.Method+" "+rt.Path, s.Do(kltest.Basic("ws_aaaaaaaaaaaa", s.Bootstrap.AutomationToken), rt.Method, url, nil), 422, fault.WorkspaceMismatch)
		default:
		}
	}
}

// TestRefusedRequestsAreRemembered: kl why finds them, for those concerned.
func TestRefusedRequestsAreRemembered(t *testing.T) {
	s, st := seeded(t)
	st.SetSerial(1)
	st.SetLineage("11111111-2222-3333-4444-555555555555")
	p := refused(t, "foreign lineage", s.Do(s.Automation(), "POST", s.StateURL("app"), st.Bytes()), 409, fault.LineageConflict)
	if p.Extra["kind"] != "lineage" || p.Extra["latest_serial"] != float64(1) {
		t.Errorf("members of the conflict: %v", p.Extra)
	}
	for name, as := range map[string]kltest.Credentials{"its own": s.Automation(), "operator": s.Operator()} {
		a := remembered(t, s, as, p.RequestID)
		var r wire.Request
		a.Into(t, &r)
		if r.RequestID != p.RequestID || r.Code != p.Code || r.Status != 409 || r.Detail != p.Detail || r.NextStep != p.NextStep ||
			r.Method != "POST" || r.Route != "/states/{ws}/{env}/{state}" || r.State != "app" || r.Members["kind"] != "lineage" {
			t.Errorf("%s: %+v", name, r)
		}
		if bytes.Contains(a.Body, []byte(s.Bootstrap.AutomationToken)) {
			t.Errorf("%s: the token is in it", name)
		}
	}
	refused(t, "unknown id", s.Do(s.Operator(), "GET", s.URL+"/v1/requests/req_0000000000000000", nil), 404, fault.NotFound)

	// one that names no environment of ours is only the operator's
	other := refused(t, "astray", s.Do(kltest.Nobody, "GET", s.URL+"/states/x", nil), 422, fault.MalformedPath)
	remembered(t, s, s.Operator(), other.RequestID)
	refused(t, "somebody else's", s.Do(s.Automation(), "GET", s.URL+"/v1/requests/"+other.RequestID, nil), 404, fault.NotFound)
}

// remembered asks for a refused request until it is there: remembering it does
// not hold the refusal up.
func remembered(t *testing.T, s *kltest.Server, as kltest.Credentials, id string) *kltest.Answer {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		a := s.Do(as, "GET", s.URL+"/v1/requests/"+id, nil)
		if a.Status == 200 {
			return a
		}
		if time.Now().After(deadline) {
			t.Fatalf("request %s is not remembered: %d %s", id, a.Status, a.Body)
		}
	}
}

// TestRefusedWritesAreKept: what a refused POST carried can be had back.
func TestRefusedWritesAreKept(t *testing.T) {
	s, st := seeded(t)
	lost := st.Clone()
	lost.SetLineage("11111111-2222-3333-4444-555555555555")
	lost.Mutate(2)
	refused(t, "POST", s.Do(s.Automation(), "POST", s.StateURL("app"), lost.Bytes()), 409, fault.LineageConflict)
	var list wire.List[wire.Refused]
	s.Do(s.Automation(), "GET", s.APIURL("app", "/refused"), nil).Into(t, &list)
	if len(list.Items) != 1 || list.Items[0].Status != "open" || list.Items[0].Code != string(fault.LineageConflict) {
		t.Fatalf("refused writes: %+v", list.Items)
	}
	url := s.APIURL("app", "/refused/"+list.Items[0].ID)
	a := s.Do(s.Automation(), "GET", url, nil)
	if a.Status != 200 || !bytes.Equal(a.Body, lost.Bytes()) || a.Header.Get("ETag") != `"`+sha(lost.Bytes())+`"` {
		t.Errorf("the refused bytes: %d %v %s", a.Status, a.Header, cut(a.Body))
	}
	refused(t, "another's", s.Do(s.Automation(), "GET", s.APIURL("app", "/refused/rw_0"), nil), 404, fault.NotFound)
	want(t, "discard", s.Do(s.Automation(), "DELETE", url, nil), 204)
	s.Do(s.Automation(), "GET", s.APIURL("app", "/refused"), nil).Into(t, &list)
	for _, r := range list.Items {
		if r.Status == "open" {
			t.Errorf("still open after the discard: %+v", r)
		}
	}
}

func TestControlBodies(t *testing.T) {
	s, _ := seeded(t)
	env := s.URL + wire.EnvironmentPath(s.Bootstrap.EnvPublicID)
	before := s.Do(s.Operator(), "GET", env, nil).Body
	for name, c := range map[string]struct {
		method, url, body string
		says              string
	}{
		"unknown members":   {"PATCH", env, `{"recovery_hold":false,"lock_mod":"x","colour":1}`, "colour, lock_mod"},
		"other case":        {"PATCH", env, `{"Recovery_Hold":false}`, "Recovery_Hold"},
		"wrong type":        {"PATCH", env, `{"recovery_hold":"no"}`, "recovery_hold"},
		"bad duration":      {"PATCH", env, `{"lock_idle_ttl":"soon"}`, "soon"},
		"negative duration": {"PATCH", env, `{"lock_idle_ttl":"-5m"}`, "negative"},
		"list":              {"PATCH", env, `[]`, "JSON object"},
		"null":              {"PATCH", env, `null`, "JSON object"},
		"empty":             {"PATCH", env, ``, "JSON object"},
		"two documents":     {"PATCH", env, `{}{}`, "JSON object"},
		"allow nothing":     {"POST", s.APIURL("app", "/allow"), `{}`, "allows nothing"},
		"allow unknown":     {"POST", s.APIURL("app", "/allow"), `{"serial":true}`, "serial"},
		"limit 0":           {"GET", s.APIURL("app", "/versions?limit=0"), "", "limit"},
		"limit text":        {"GET", s.APIURL("app", "/versions?limit=ten"), "", "limit"},
		"limit too high":    {"GET", env + "/states?limit=1001", "", "limit"},
		"since":             {"GET", s.URL + "/v1/events?since=yesterday", "", "since"},
		"cursor of events":  {"GET", s.URL + "/v1/events?cursor=x", "", "cursor"},
		"version reference": {"GET", s.APIURL("app", "/versions/@x"), "", ""},
	} {
		p := refused(t, name, s.Do(s.Operator(), c.method, c.url, []byte(c.body)), 400, fault.ParameterInvalid)
		if !strings.Contains(p.Detail, c.says) {
			t.Errorf("%s: %q does not say %q", name, p.Detail, c.says)
		}
	}
	if after := s.Do(s.Operator(), "GET", env, nil).Body; !bytes.Equal(after, before) {
		t.Errorf("the environment changed from %s to %s", before, after)
	}
	big, err := json.Marshal(map[string]string{"slug": strings.Repeat("x", 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "large body", s.Do(s.Operator(), "PATCH", env, big), 413, fault.BodyTooLarge)
}
