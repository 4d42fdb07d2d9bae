package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"kl/wire"
)

// place is an environment of an organization, with a token of its own.
type place struct {
	*server
	ws, environment, token string
}

// newPlace makes a workspace with one environment, as an operator does.
func (s *server) newPlace(name string) *place {
	s.tb.Helper()
	var w wire.Workspace
	s.mustJSON(&w, "workspace", "create", name)
	p := &place{server: s, ws: w.WorkspaceID}
	p.environment, p.token = p.newEnvironment("prod")
	return p
}

// in is the place for a test of its own, whose failures are that test's.
func (p *place) in(tb testing.TB) *place {
	s, q := *p.server, *p
	s.tb = tb
	q.server = &s
	return &q
}

func (p *place) newEnvironment(slug string) (id, token string) {
	p.tb.Helper()
	var e wire.Environment
	p.mustJSON(&e, "env", "create", slug, "--workspace", p.ws)
	var t wire.Token
	p.mustJSON(&t, "token", "create", "pipeline", "--env", e.EnvPublicID)
	return e.EnvPublicID, t.Secret
}

// mustJSON runs a verb as the operator and reads its answer.
func (s *server) mustJSON(into any, args ...string) {
	s.tb.Helper()
	out := s.mustKL(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		s.tb.Fatalf("kl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// as points a client at a state of the place, with that password.
func (p *place) as(password, state string) []string {
	u := p.base + wire.StatePath(p.ws, p.environment, state)
	return []string{
		"TF_HTTP_ADDRESS=" + u, "TF_HTTP_LOCK_ADDRESS=" + u, "TF_HTTP_UNLOCK_ADDRESS=" + u,
		"TF_HTTP_USERNAME=" + p.ws, "TF_HTTP_PASSWORD=" + password,
	}
}

// operator runs a verb on the place's environment.
func (p *place) operator(args ...string) string {
	p.tb.Helper()
	r := runKL(p.tb, []string{"KL_ADDRESS=" + p.base, "KL_TOKEN=" + p.boot.ControlToken, "KL_ENV=" + p.environment}, args...)
	if r.code != 0 {
		p.tb.Fatalf("kl %s: exit %d\n%s", strings.Join(args, " "), r.code, r.out)
	}
	return r.stdout
}

// person is a user with a control token.
type person struct {
	*place
	id, name, control string
}

func (p *place) newPerson(name string) *person {
	p.tb.Helper()
	var u wire.User
	p.mustJSON(&u, "user", "create", name)
	return &person{place: p, id: u.UserID, name: name, control: u.ControlToken}
}

// run runs a verb as the person.
func (a *person) run(args ...string) result {
	a.tb.Helper()
	return runKL(a.tb, []string{"KL_ADDRESS=" + a.base, "KL_TOKEN=" + a.control, "KL_ENV=" + a.environment}, args...)
}

func (a *person) must(args ...string) string {
	a.tb.Helper()
	r := a.run(args...)
	if r.code != 0 {
		a.tb.Fatalf("kl %s as %s: exit %d\n%s", strings.Join(args, " "), a.name, r.code, r.out)
	}
	return r.stdout
}

// newPAT makes a personal access token.
func (a *person) newPAT(name string) wire.Token {
	a.tb.Helper()
	var t wire.Token
	out := a.must("pat", "create", name, "--json")
	if err := json.Unmarshal([]byte(out), &t); err != nil {
		a.tb.Fatalf("kl pat create: %v\n%s", err, out)
	}
	return t
}

const (
	requiresAuth = "HTTP remote state endpoint requires auth" // 401
	invalidAuth  = "HTTP remote state endpoint invalid auth"  // 403
	notOfPath    = "Unexpected HTTP response code 422"
)

// TestPersonalToken walks through the life of one person's access, with the real
// client at each step.
func TestPersonalToken(t *testing.T) {
	t.Parallel()
	long(t)
	p := startServer(t).newPlace("platform")
	config := httpBackend + item("a", `"1"`)
	ana := p.newPerson("ana")
	pat := ana.newPAT("laptop")
	asAna := p.as(pat.Secret, "net")
	refused := func(env []string, want, code string) {
		t.Helper()
		newWorkdir(t, config, env).fails([]string{"init"}, want)
		r := runKL(t, append(env, "KL_CONFIG="), "why", "--last", "--json")
		if !strings.Contains(r.stdout, `"code": "`+code+`"`) && want != requiresAuth {
			t.Errorf("kl why --last: exit %d, want the code %s\n%s", r.code, code, r.out)
		}
	}

	t.Log("a token alone opens nothing")
	refused(asAna, invalidAuth, "not_member")
	p.operator("member", "add", "ana", "--workspace", p.ws)
	if out := p.operator("grant", "list"); !strings.Contains(out, "ana") || !strings.Contains(out, "none") {
		t.Errorf("kl grant list:\n%s", out)
	}
	refused(asAna, invalidAuth, "no_grant")

	t.Log("a grant opens one environment")
	p.operator("grant", "add", "ana")
	w := initWorkdir(t, config, asAna)
	w.must("apply")
	doctor := startProcess(t, w.dir, append(cleanEnv(), asAna...), klBinary(t), "doctor").result(patience)
	if doctor.code != 0 {
		t.Errorf("kl doctor: exit %d, want 0\n%s", doctor.code, doctor.out)
	}
	wantText(t, doctor.out, "personal access token ana", "locks are taken and given back", "role write", "at serial 1")
	if got := p.operator("history", "net"); !strings.Contains(got, "ana") {
		t.Errorf("the history does not name ana:\n%s", got)
	}
	other := *p
	other.environment, _ = p.newEnvironment("dev")
	refused(other.as(pat.Secret, "net"), invalidAuth, "no_grant")
	other.environment = "prod"
	refused(other.as(pat.Secret, "net"), notOfPath, "slug_not_id")
	other.environment = "env_000000000000"
	refused(other.as(pat.Secret, "net"), notOfPath, "unknown_environment")
	foreign := p.newPlace("others")
	refused(foreign.as(pat.Secret, "net"), invalidAuth, "not_member")
	foreign.ws, foreign.environment = "ws_000000000000", "env_000000000000"
	refused(foreign.as(pat.Secret, "net"), invalidAuth, "not_member")

	t.Log("the grant goes, and comes back only by hand")
	p.operator("grant", "remove", "ana")
	w.fails([]string{"plan"}, invalidAuth)
	p.operator("grant", "add", "ana", "--role", "plan")
	w.must("plan", "-detailed-exitcode")
	w.write("main.tf", httpBackend+item("a", `"2"`))
	w.fails([]string{"apply"}, "Error acquiring the state lock")
	p.operator("grant", "add", "ana", "--role", "write")
	w.must("apply")

	t.Log("with the last token the grant ends too")
	ana.must("pat", "revoke", pat.ID)
	w.fails([]string{"plan"}, requiresAuth)
	again := ana.newPAT("laptop")
	refused(p.as(again.Secret, "net"), invalidAuth, "no_grant")
	p.operator("grant", "add", "ana")
	w = initWorkdir(t, config, p.as(again.Secret, "net"))

	t.Log("and so it does when she leaves")
	ana.must("member", "leave", "--workspace", p.ws)
	w.fails([]string{"plan"}, invalidAuth)
	p.operator("member", "add", "ana", "--workspace", p.ws)
	w.fails([]string{"plan"}, invalidAuth)
	p.operator("grant", "add", "ana")
	w.must("plan")

	t.Log("nothing is left of a deleted user")
	p.operator("user", "delete", "ana")
	w.fails([]string{"plan"}, requiresAuth)
	if r := ana.run("whoami"); r.code != 5 {
		t.Errorf("kl whoami of a deleted user: exit %d, want 5\n%s", r.code, r.out)
	}
	if out := p.operator("grant", "list"); strings.Contains(out, "ana") {
		t.Errorf("kl grant list still has ana:\n%s", out)
	}
	trail := p.operator("events", "--json")
	for _, secret := range []string{pat.Secret, again.Secret, ana.control, p.token} {
		if strings.Contains(trail, secret) || strings.Contains(p.proc.out.String(), secret) {
			t.Error("a secret is in the audit trail or the log")
		}
	}
}

// TestRightsEndDuringApply takes the rights of an apply away while it runs: what
// it has built is refused, kept, and brought in by somebody who may.
func TestRightsEndDuringApply(t *testing.T) {
	t.Parallel()
	long(t)
	p := startServer(t).newPlace("platform")
	for name, c := range map[string]struct {
		end    func(ana *person, pat wire.Token)
		status string
		code   string
	}{
		"token revoked":   {func(ana *person, pat wire.Token) { ana.must("pat", "revoke", pat.ID) }, "401", "credentials_revoked"},
		"grant removed":   {func(ana *person, _ wire.Token) { ana.operator("grant", "remove", ana.name) }, "403", "no_grant"},
		"grant lowered":   {func(ana *person, _ wire.Token) { ana.operator("grant", "add", ana.name, "--role", "plan") }, "403", "role_too_low"},
		"member leaves":   {func(ana *person, _ wire.Token) { ana.must("member", "leave", "--workspace", p.ws) }, "403", "not_member"},
		"user is deleted": {func(ana *person, _ wire.Token) { ana.operator("user", "delete", ana.name) }, "401", "credentials_revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := p.in(t)
			state := strings.ReplaceAll(name, " ", "-")
			ana := p.newPerson(state)
			p.operator("member", "add", ana.name, "--workspace", p.ws)
			pat := ana.newPAT("laptop")
			p.operator("grant", "add", ana.name)
			// the first write of a state is preceded by a read, which would be refused
			initWorkdir(t, httpBackend+item("x_before", `"x"`), p.as(p.token, state)).must("apply")
			w := initWorkdir(t, gated("x"), p.as(pat.Secret, state))
			apply := w.start("apply")
			w.awaitGate("x_gate", apply)
			c.end(ana, pat)
			w.openGate("x_gate")
			r := apply.result(clientPatience)
			if r.code != 1 {
				t.Fatalf("apply: exit %d, want 1\n%s", r.code, r.out)
			}
			wantText(t, r.out, "Failed to save state", "HTTP error: "+c.status)

			var kept wire.List[wire.Refused]
			out := p.operator("recover", "list", "--state", state, "--json")
			if err := json.Unmarshal([]byte(out), &kept); err != nil || len(kept.Items) != 1 || kept.Items[0].Code != c.code || kept.Items[0].Principal != ana.name {
				t.Fatalf("refused writes: got %+v (%v), want one of %s with the code %s", kept.Items, err, ana.name, c.code)
			}
			var l wire.Lock
			if err := json.Unmarshal([]byte(p.operator("lock", "show", state, "--json")), &l); err != nil {
				t.Fatal(err)
			}
			for _, h := range l.Holders {
				p.operator("lock", "release", state, "--id", h.ID)
			}
			p.operator("recover", "merge", kept.Items[0].ID, "--state", state)
			w.setenv(p.as(p.token, state)...)
			w.must("plan", "-detailed-exitcode")
		})
	}
}

// TestSuspended holds a workspace while an apply runs in it.
func TestSuspended(t *testing.T) {
	t.Parallel()
	long(t)
	p := startServer(t).newPlace("platform")
	held(t, p, func() { p.operator("workspace", "suspend", p.ws, "--reason", "audit until Friday") },
		func() { p.operator("workspace", "resume", p.ws) }, "suspended", "audit until Friday")
}

// TestArchived archives a state while an apply runs on it.
func TestArchived(t *testing.T) {
	t.Parallel()
	long(t)
	p := startServer(t).newPlace("platform")
	held(t, p, func() { p.operator("state", "archive", "net") }, func() { p.operator("state", "restore", "net") }, "archived")
}

// held begins a hold in the middle of an apply. Its write is refused and kept,
// reads go on, new locks are refused with a sentence, and after the hold what
// was built comes in.
func held(t *testing.T, p *place, begin, end func(), sentence ...string) {
	t.Helper()
	initWorkdir(t, httpBackend+item("x_before", `"x"`), p.as(p.token, "net")).must("apply")
	w := initWorkdir(t, gated("x"), p.as(p.token, "net"))
	apply := w.start("apply")
	w.awaitGate("x_gate", apply)
	begin()
	w.openGate("x_gate")
	r := apply.result(clientPatience)
	if r.code != 1 {
		t.Fatalf("apply: exit %d, want 1\n%s", r.code, r.out)
	}
	wantText(t, r.out, "Failed to save state", "HTTP error: 403")
	if strings.Contains(flatten(r.out), "Error releasing the state lock") {
		t.Errorf("the lock could not be given back:\n%s", r.out)
	}
	if !exists(w.path("errored.tfstate")) {
		t.Error("there is no errored.tfstate")
	}

	w.fails([]string{"plan"}, append([]string{"Error acquiring the state lock", "already locked: ID="}, sentence...)...)
	if r := w.run("plan", "-lock=false"); r.code != 0 {
		t.Errorf("plan -lock=false: exit %d, want 0\n%s", r.code, r.out)
	}
	wantNames(t, []byte(w.must("state", "pull")), "x_before")
	initWorkdir(t, httpBackend+item("x_before", `"x"`), p.as(p.token, "net"))
	doctor := runKL(t, p.as(p.token, "net"), "doctor")
	if doctor.code != 6 {
		t.Errorf("kl doctor: exit %d, want 6\n%s", doctor.code, doctor.out)
	}
	wantText(t, doctor.out, sentence...)

	var kept wire.List[wire.Refused]
	if err := json.Unmarshal([]byte(p.operator("recover", "list", "--state", "net", "--json")), &kept); err != nil || len(kept.Items) != 1 {
		t.Fatalf("refused writes: got %+v (%v), want one", kept.Items, err)
	}
	end()
	p.operator("recover", "merge", kept.Items[0].ID, "--state", "net")
	w.must("plan", "-detailed-exitcode")
}

// TestOutputsRole lets another team read outputs, and nothing more.
func TestOutputsRole(t *testing.T) {
	t.Parallel()
	long(t)
	p := startServer(t).newPlace("platform")
	initWorkdir(t, httpBackend+item("a", `"1"`)+`
output "url" { value = "https://app.example" }
output "size" { value = 12345678901234567890 }
output "password" {
  value     = "hunter2"
  sensitive = true
}
`, p.as(p.token, "net")).must("apply")

	reader := func(password string) *workdir {
		return newWorkdir(t, `
data "terraform_remote_state" "net" {
  backend = "http"
  config = {
    address  = "`+p.base+wire.StatePath(p.ws, p.environment, "net")+`"
    username = "`+p.ws+`"
    password = "`+password+`"
  }
}
output "seen" {
  value     = jsonencode(data.terraform_remote_state.net.outputs)
  sensitive = true
}
`, nil)
	}
	var plain, full wire.Token
	p.mustJSON(&plain, "token", "create", "others", "--env", p.environment, "--role", "outputs")
	p.mustJSON(&full, "token", "create", "trusted", "--env", p.environment, "--role", "outputs", "--sensitive")
	for name, c := range map[string]struct {
		secret, want string
	}{
		"without sensitive ones": {plain.Secret, `{"size":12345678901234567890,"url":"https://app.example"}`},
		"with sensitive ones":    {full.Secret, `{"password":"hunter2","size":12345678901234567890,"url":"https://app.example"}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := reader(c.secret)
			w.must("init")
			w.must("apply")
			if got := strings.TrimSpace(w.must("output", "-raw", "seen")); got != c.want {
				t.Errorf("outputs: got %s, want %s", got, c.want)
			}
		})
	}
	w := newWorkdir(t, httpBackend+item("a", `"1"`), p.as(plain.Secret, "net"))
	w.must("init")
	if got := w.must("state", "pull"); strings.Contains(got, "terraform_data") || strings.Contains(got, "hunter2") {
		t.Errorf("state pull shows more than outputs:\n%s", got)
	}
	w.fails([]string{"plan"}, "Error acquiring the state lock", invalidAuth)
}
