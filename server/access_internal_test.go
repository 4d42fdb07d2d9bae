package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"kl/auth"
	"kl/store"
	"kl/wire"
)

// company is a workspace with one credential of each kind and role. Names are
// those of the table below.
type company struct {
	store   *store.Store
	ws, env string
	secrets map[string]string
}

func (c *company) actor(t *testing.T, name string) store.Actor {
	t.Helper()
	p, err := c.store.Authenticate(t.Context(), c.secrets[name])
	if err != nil {
		t.Fatal(err)
	}
	return store.Actor{Principal: p}
}

func newCompany(t *testing.T) *company {
	t.Helper()
	ctx := context.Background()
	st, err := store.Open(store.Options{Path: filepath.Join(t.TempDir(), "kl.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	boot, err := st.Bootstrap(ctx)
	check(err)
	c := &company{store: st, secrets: map[string]string{"nobody": "", "operator": boot.ControlToken, "robot-elsewhere": boot.AutomationToken}}
	as := func(name string) store.Actor { return c.actor(t, name) }
	w, err := st.CreateWorkspace(ctx, as("operator"), wire.WorkspaceRequest{Name: "team"})
	check(err)
	slug := "prod"
	e, err := st.CreateEnvironment(ctx, as("operator"), w.WorkspaceID, wire.EnvironmentPatch{Slug: &slug})
	check(err)
	c.ws, c.env = w.WorkspaceID, e.EnvPublicID
	user := func(name, member string, grant auth.Role) {
		u, err := st.CreateUser(ctx, as("operator"), wire.UserRequest{Name: name})
		check(err)
		c.secrets[name] = u.ControlToken
		if member != "" {
			_, err = st.SetMember(ctx, as("operator"), c.ws, wire.MemberRequest{User: name, Role: member})
			check(err)
		}
		tok, err := st.CreatePAT(ctx, as(name), wire.PATRequest{Name: "pat"})
		check(err)
		c.secrets["pat-"+name] = tok.Secret
		if grant != "" {
			_, err = st.SetGrant(ctx, as("operator"), c.env, name, grant)
			check(err)
		}
	}
	user("owner", "owner", "")
	user("admin", "admin", "")
	user("member", "member", "")
	user("outsider", "", "")
	for _, r := range []auth.Role{auth.Write, auth.Plan, auth.Read, auth.Outputs} {
		user(string(r), "member", r)
		tok, err := st.CreateToken(ctx, as("operator"), c.env, wire.TokenRequest{Name: string(r), Role: string(r)})
		check(err)
		c.secrets["robot-"+string(r)] = tok.Secret
	}
	user("gone", "member", auth.Write)
	check(st.DeleteUser(ctx, as("operator"), "gone"))
	return c
}

// Who may, beside the operator where that says nothing else. The names are
// those of newCompany: pat-… and robot-… are data plane credentials, the others
// control tokens.
const (
	anybody  = "nobody gone pat-gone " + everyone
	everyone = accounts + " robot-elsewhere " + robots + " pat-owner pat-admin pat-member pat-outsider " + pats
	robots   = "robot-write robot-plan robot-read robot-outputs"
	pats     = "pat-write pat-plan pat-read pat-outputs"
	accounts = members + " outsider"
	members  = admins + " member write plan read outputs"
	admins   = "operator owner admin"

	dataOutputs = robots + " " + pats
	dataRead    = dataPlan + " robot-read pat-read"
	dataPlan    = "robot-write robot-plan pat-write pat-plan"
	dataWrite   = "robot-write pat-write"
	envRead     = admins + " write plan read robot-write robot-plan robot-read pat-write pat-plan pat-read"
	envPlan     = admins + " write plan robot-write robot-plan pat-write pat-plan"
	envWrite    = admins + " write robot-write pat-write"
)

// mayUse says for each route who passes its gate. What handlers decide beyond
// that (a LOCK that is not for a plan, whose token it is) is tested with them.
var mayUse = map[string]string{
	"POST /v1/query":       everyone,
	"GET /v1/query/tables": everyone,
	"GET /v1/environments/{env}/states/{state}/graph": envRead,

	"GET /states/{ws}/{env}/{state}":    dataOutputs,
	"HEAD /states/{ws}/{env}/{state}":   dataOutputs,
	"POST /states/{ws}/{env}/{state}":   dataWrite,
	"PUT /states/{ws}/{env}/{state}":    dataWrite,
	"DELETE /states/{ws}/{env}/{state}": dataWrite,
	"LOCK /states/{ws}/{env}/{state}":   dataPlan,
	"UNLOCK /states/{ws}/{env}/{state}": dataPlan,
	"LOCK /locks/{ws}/{env}/{state}":    dataPlan,
	"POST /locks/{ws}/{env}/{state}":    dataPlan,
	"PUT /locks/{ws}/{env}/{state}":     dataPlan,
	"UNLOCK /locks/{ws}/{env}/{state}":  dataPlan,
	"DELETE /locks/{ws}/{env}/{state}":  dataPlan,

	"GET /healthz":         anybody,
	"HEAD /healthz":        anybody,
	"HEAD /readyz":         anybody,
	"GET /readyz":          anybody,
	"GET /version":         anybody,
	"GET /metrics":         anybody,
	"GET /errors/{code}":   anybody,
	"GET /v1/openapi.json": anybody,

	"GET /v1/whoami":        everyone,
	"GET /v1/requests/last": everyone,
	"GET /v1/requests/{id}": everyone,
	"GET /v1/events":        accounts,

	"GET /v1/users":               "operator",
	"POST /v1/users":              "operator",
	"DELETE /v1/users/{user}":     "operator",
	"POST /v1/users/{user}/token": "operator",
	"GET /v1/backup":              "operator",
	"GET /v1/pats":                accounts,
	"POST /v1/pats":               accounts,
	"DELETE /v1/pats/{id}":        accounts,

	"GET /v1/workspaces":                        accounts,
	"POST /v1/workspaces":                       accounts,
	"GET /v1/workspaces/{ws}":                   members,
	"DELETE /v1/workspaces/{ws}":                "operator owner",
	"POST /v1/workspaces/{ws}/suspend":          "operator",
	"POST /v1/workspaces/{ws}/resume":           "operator",
	"GET /v1/workspaces/{ws}/members":           members,
	"POST /v1/workspaces/{ws}/members":          admins,
	"DELETE /v1/workspaces/{ws}/members/{user}": members,
	"POST /v1/workspaces/{ws}/leave":            members,
	"GET /v1/workspaces/{ws}/environments":      members,
	"POST /v1/workspaces/{ws}/environments":     admins,

	"GET /v1/environments/{env}":                  envRead,
	"PATCH /v1/environments/{env}":                admins,
	"DELETE /v1/environments/{env}":               admins,
	"POST /v1/environments/{env}/prune":           admins,
	"GET /v1/environments/{env}/tokens":           admins,
	"POST /v1/environments/{env}/tokens":          admins,
	"DELETE /v1/environments/{env}/tokens/{id}":   admins,
	"GET /v1/environments/{env}/access":           admins,
	"PUT /v1/environments/{env}/grants/{user}":    admins,
	"DELETE /v1/environments/{env}/grants/{user}": admins,

	"GET /v1/environments/{env}/states":                             envRead,
	"GET /v1/environments/{env}/states/{state}":                     envRead,
	"PATCH /v1/environments/{env}/states/{state}":                   envWrite,
	"DELETE /v1/environments/{env}/states/{state}":                  envWrite,
	"POST /v1/environments/{env}/states/{state}/archive":            envWrite,
	"POST /v1/environments/{env}/states/{state}/restore":            envWrite,
	"POST /v1/environments/{env}/states/{state}/purge":              envWrite,
	"POST /v1/environments/{env}/states/{state}/allow":              envWrite,
	"GET /v1/environments/{env}/states/{state}/versions":            envRead,
	"GET /v1/environments/{env}/states/{state}/versions/{version}":  envRead,
	"POST /v1/environments/{env}/states/{state}/rollback":           envWrite,
	"GET /v1/environments/{env}/states/{state}/resources":           envRead,
	"GET /v1/environments/{env}/states/{state}/resources/history":   envRead,
	"GET /v1/environments/{env}/states/{state}/diff":                envRead,
	"GET /v1/environments/{env}/states/{state}/quota":               envRead,
	"POST /v1/environments/{env}/states/{state}/quota/check":        envRead,
	"GET /v1/environments/{env}/states/{state}/tags":                envRead,
	"PUT /v1/environments/{env}/states/{state}/tags/{tag}":          envWrite,
	"DELETE /v1/environments/{env}/states/{state}/tags/{tag}":       envWrite,
	"GET /v1/environments/{env}/states/{state}/lock":                envRead,
	"DELETE /v1/environments/{env}/states/{state}/lock":             envWrite,
	"GET /v1/environments/{env}/states/{state}/refused":             envRead,
	"POST /v1/environments/{env}/states/{state}/refused":            envWrite,
	"GET /v1/environments/{env}/states/{state}/refused/{id}":        envRead,
	"POST /v1/environments/{env}/states/{state}/refused/{id}/merge": envWrite,
	"DELETE /v1/environments/{env}/states/{state}/refused/{id}":     envWrite,

	"GET /v1/environments/{env}/runs":                               envRead,
	"GET /v1/environments/{env}/states/{state}/runs":                envRead,
	"POST /v1/environments/{env}/states/{state}/runs":               envPlan,
	"GET /v1/environments/{env}/states/{state}/runs/{run}":          envRead,
	"POST /v1/environments/{env}/states/{state}/runs/{run}/reserve": envWrite,
	"POST /v1/environments/{env}/states/{state}/runs/{run}/renew":   envPlan,
	"POST /v1/environments/{env}/states/{state}/runs/{run}/rebase":  envPlan,
	"POST /v1/environments/{env}/states/{state}/runs/{run}/finish":  envPlan,
	"POST /v1/environments/{env}/states/{state}/runs/{run}/abort":   envPlan,
	"GET /runs/{run}/state":                                         dataRead,
	"HEAD /runs/{run}/state":                                        dataRead,
	"POST /runs/{run}/state":                                        dataWrite,
	"PUT /runs/{run}/state":                                         dataWrite,
	"LOCK /runs/{run}/state":                                        dataPlan,
	"UNLOCK /runs/{run}/state":                                      dataPlan,
}

// TestEveryRouteAndPrincipal asks each route as everybody there is, with
// handlers that do nothing, and compares who is let in with the table.
func TestEveryRouteAndPrincipal(t *testing.T) {
	c := newCompany(t)
	s := New(Options{Store: c.store})
	s.echo = echo.New()
	s.echo.Use(s.frame)
	table := Routes()
	for _, rt := range table {
		rt.handle = func(_ *Server, c echo.Context) error { return c.NoContent(http.StatusNoContent) }
		s.echo.Add(rt.Method, echoPath(rt.Path), s.admitted(rt))
	}
	run, err := c.store.StartRun(t.Context(), c.actor(t, "robot-write"), store.Ref{Environment: c.env, Name: "app"}, wire.RunRequest{})
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("{run}", run.ID, "{ws}", c.ws, "{env}", c.env, "{state}", "app", "{user}", "owner", "{id}", "x", "{version}", "1", "{tag}", "v1", "{code}", "locked")
	for _, rt := range table {
		name := rt.Method + " " + rt.Path
		row, ok := mayUse[name]
		if !ok {
			t.Errorf("%s is not in the table of this test", name)
			continue
		}
		may := strings.Fields(row)
		for who, secret := range c.secrets {
			for _, basic := range []bool{false, true} {
				if basic && (rt.Access != StatePath && rt.Access != RunPath || secret == "") {
					continue
				}
				r := httptest.NewRequest(rt.Method, fill.Replace(rt.Path), nil)
				switch {
				case basic:
					r.SetBasicAuth(c.ws, secret)
				case secret != "":
					r.Header.Set("Authorization", "Bearer "+secret)
				}
				w := httptest.NewRecorder()
				s.echo.ServeHTTP(w, r)
				var p wire.Problem
				if w.Code != http.StatusNoContent {
					if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
						t.Fatalf("%s as %s: %d %s", name, who, w.Code, w.Body)
					}
				}
				let, want := w.Code == http.StatusNoContent, slices.Contains(may, who)
				if let != want {
					t.Errorf("%s as %s (basic %v): %d %s, want in: %v", name, who, basic, w.Code, p.Code, want)
				}
				if hidden := p.Class == "auth" || p.Class == "scope" || p.Code == "not_found" || rt.locks && w.Code == http.StatusLocked; !let && !hidden {
					t.Errorf("%s as %s: refused with %d %s", name, who, w.Code, p.Code)
				}
			}
		}
	}
	for name := range mayUse {
		if !slices.ContainsFunc(table, func(rt Route) bool { return rt.Method+" "+rt.Path == name }) {
			t.Errorf("the table of this test has %s, which is no route", name)
		}
	}
}

// TestForeignIsLikeMissing compares the whole answers about what belongs to
// others with those about what does not exist.
func TestForeignIsLikeMissing(t *testing.T) {
	c := newCompany(t)
	s := New(Options{Store: c.store})
	ask := func(method, path, secret string) string {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		s.echo.ServeHTTP(w, r)
		var p map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		delete(p, "request_id")
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const noWS, noEnv = "ws_aaaaaaaaaaaa", "env_aaaaaaaaaaaa"
	run, err := c.store.StartRun(t.Context(), c.actor(t, "robot-write"), store.Ref{Environment: c.env, Name: "app"}, wire.RunRequest{})
	if err != nil {
		t.Fatal(err)
	}
	const noRun = "run_1_aaaaaaaaaaaa"
	ids := strings.NewReplacer(noRun, "RUN", run.ID, "RUN", noWS, "WS", noEnv, "ENV", c.ws, "WS", c.env, "ENV")
	paths := strings.NewReplacer("{run}", run.ID, "{ws}", c.ws, "{env}", c.env, "{state}", "app", "{user}", "nobody", "{id}", "x", "{version}", "1", "{tag}", "v1")
	missing := strings.NewReplacer("{run}", noRun, "{ws}", noWS, "{env}", noEnv, "{state}", "app", "{user}", "nobody", "{id}", "x", "{version}", "1", "{tag}", "v1")
	for _, rt := range Routes() {
		if !strings.Contains(rt.Path, "{ws}") && !strings.Contains(rt.Path, "{env}") && !strings.Contains(rt.Path, "{run}") {
			continue
		}
		for _, who := range []string{"outsider", "pat-outsider", "robot-elsewhere"} {
			got := ids.Replace(ask(rt.Method, paths.Replace(rt.Path), c.secrets[who]))
			want := ids.Replace(ask(rt.Method, missing.Replace(rt.Path), c.secrets[who]))
			if got != want {
				t.Errorf("%s %s as %s:\nforeign %s\nmissing %s", rt.Method, rt.Path, who, got, want)
			}
		}
	}
}
