package query_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"kl/auth"
	"kl/fault"
	"kl/kltest"
	"kl/query"
	"kl/store"
	"kl/wire"
)

// place is an environment of the team of TestIsolation.
type place struct{ workspace, environment string }

// team is two workspaces with two environments each, something in every table
// for all of them, and one principal of each kind and role.
type team struct {
	*fixture
	places map[string]place
	who    map[string]auth.Principal
}

func newTeam(t *testing.T) *team {
	t.Helper()
	ctx := context.Background()
	x := &team{newFixture(t, query.Limits{}), map[string]place{}, map[string]auth.Principal{}}
	op := store.Actor{Principal: x.operator()}
	x.who["operator"] = op.Principal
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, ws := range []string{"red", "blue"} {
		w, err := x.store.CreateWorkspace(ctx, op, wire.WorkspaceRequest{Name: ws})
		must(err)
		for _, slug := range []string{"prod", "dev"} {
			e, err := x.store.CreateEnvironment(ctx, op, w.WorkspaceID, wire.EnvironmentPatch{Slug: &slug})
			must(err)
			p := place{w.WorkspaceID, e.EnvPublicID}
			x.places[ws+"/"+slug] = p
			for _, role := range []auth.Role{auth.Write, auth.Plan, auth.Read, auth.Outputs} {
				if (ws == "red") != (slug == "prod") && role != auth.Write {
					continue // a robot for each place, and two of each role
				}
				for _, sensitive := range []bool{false, true} {
					if sensitive && role != auth.Outputs {
						continue
					}
					tok, err := x.store.CreateToken(ctx, op, p.environment, wire.TokenRequest{Name: "robot", Role: string(role), Sensitive: sensitive})
					must(err)
					x.who[fmt.Sprintf("robot %s %s %v", role, ws+"/"+slug, sensitive)] = x.principal(tok.Secret)
				}
			}
			x.fill(ws+slug, p)
		}
	}
	user := func(name string) store.Actor {
		u, err := x.store.CreateUser(ctx, op, wire.UserRequest{Name: name})
		must(err)
		x.who["user "+name] = x.principal(u.ControlToken)
		pat, err := x.store.CreatePAT(ctx, store.Actor{Principal: x.who["user "+name]}, wire.PATRequest{Name: "pat"})
		must(err)
		x.who["pat "+name] = x.principal(pat.Secret)
		return store.Actor{Principal: x.who["user "+name]}
	}
	member := func(name, ws, role string, grants map[string]auth.Role) {
		user(name)
		_, err := x.store.SetMember(ctx, op, x.places[ws+"/prod"].workspace, wire.MemberRequest{User: name, Role: role})
		must(err)
		for slug, r := range grants {
			_, err := x.store.SetGrant(ctx, op, x.places[ws+"/"+slug].environment, name, r)
			must(err)
		}
	}
	member("owner", "red", "owner", nil)
	member("admin", "red", "admin", map[string]auth.Role{"prod": auth.Outputs})
	member("bare", "red", "member", nil)
	member("reader", "red", "member", map[string]auth.Role{"prod": auth.Read})
	member("mixed", "red", "member", map[string]auth.Role{"prod": auth.Outputs, "dev": auth.Write})
	member("out", "blue", "member", map[string]auth.Role{"prod": auth.Outputs})
	user("stranger")
	return x
}

// fill puts something into each table of an environment, all of it named after
// the place.
func (x *team) fill(mark string, p place) {
	ctx := context.Background()
	robot := store.Actor{Principal: x.who[fmt.Sprintf("robot %s %s false", auth.Write, strings.Replace(strings.Replace(mark, "red", "red/", 1), "blue", "blue/", 1))]}
	w := newWorld(uint64(len(x.places)))
	w.lineage = mark
	w.outputs = object{{"plain-" + mark, object{{"value", mark}, {"type", "string"}}}, {"secret-" + mark, object{{"value", "hunter2-" + mark}, {"type", "string"}, {"sensitive", true}}}}
	ref := store.Ref{Environment: p.environment, Name: "app-" + mark}
	put := func(doc []byte) error {
		b, err := x.store.ReadBody(ctx, bytes.NewReader(doc), int64(len(doc)), 1<<20)
		if err != nil {
			x.tb.Fatal(err)
		}
		defer b.Release()
		_, err = x.store.Write(ctx, store.WriteRequest{Ref: ref, Actor: robot, Body: b})
		return err
	}
	if err := put(w.document(x.tb)); err != nil {
		x.tb.Fatal(err)
	}
	if err := put(bytes.Replace(w.document(x.tb), []byte(mark), []byte("foreign"), 1)); err == nil {
		x.tb.Fatal("a foreign lineage is accepted")
	}
	if _, err := x.store.StartRun(ctx, robot, ref, wire.RunRequest{Actor: mark}); err != nil {
		x.tb.Fatal(err)
	}
	other := store.Ref{Environment: p.environment, Name: "held-" + mark}
	if err := x.store.Lock(ctx, store.LockRequest{Ref: other, Actor: robot, Info: wire.LockInfo{ID: "lock-" + mark, Operation: wire.OperationApply}}); err != nil {
		x.tb.Fatal(err)
	}
}

// TestIsolation: in every table each principal sees exactly what it may read by
// the rule for single requests, and nothing of the rest.
func TestIsolation(t *testing.T) {
	x := newTeam(t)
	for name, p := range x.who {
		t.Run(name, func(t *testing.T) {
			read, outputs := map[string]bool{}, map[string]bool{}
			for mark, at := range x.places {
				if _, err := x.store.Authorize(t.Context(), p, "", at.environment, auth.ReadState); err == nil {
					read[at.environment] = true
				}
				if _, err := x.store.Authorize(t.Context(), p, "", at.environment, auth.ReadOutputs); err == nil {
					outputs[at.environment] = true
					x.only(t, p, at, mark)
				} else {
					_, err := x.try(store.Reader{Actor: store.Actor{Principal: p}, Environment: at.environment}, query.Request{SQL: "SELECT 1"})
					if err == nil {
						t.Errorf("asks within %s", mark)
					}
				}
			}
			x.sees(t, store.Reader{Actor: store.Actor{Principal: p}}, read, outputs)
		})
	}
}

// only narrows a principal down to one environment, and to one workspace.
func (x *team) only(t *testing.T, p auth.Principal, at place, mark string) {
	t.Helper()
	r := store.Reader{Actor: store.Actor{Principal: p}, Environment: at.environment}
	a, err := x.try(r, query.Request{SQL: "SELECT DISTINCT environment FROM outputs"})
	if err != nil || len(a.lines()) > 1 || len(a.lines()) == 1 && a.lines()[0] != at.environment {
		t.Errorf("within %s: %v %v", mark, a.lines(), err)
	}
	if p.Kind == auth.Control {
		return
	}
	a, err = x.try(store.Reader{Actor: store.Actor{Principal: p}, Workspace: at.workspace}, query.Request{SQL: "SELECT DISTINCT environment FROM outputs"})
	for _, e := range a.lines() {
		if !slices.ContainsFunc(slices.Collect(maps.Values(x.places)), func(o place) bool { return o.environment == e && o.workspace == at.workspace }) {
			t.Errorf("within the workspace of %s: %s %v", mark, e, err)
		}
	}
}

// sees compares each table with the environments that may be read.
func (x *team) sees(t *testing.T, r store.Reader, read, outputs map[string]bool) {
	t.Helper()
	got := map[string]map[string]bool{} // table → environments of its rows
	var parts []string
	for _, table := range query.Tables() {
		got[table.Name] = map[string]bool{}
		switch {
		case table.Name == "events" || table.Name == "workspaces":
			a, err := x.try(r, query.Request{SQL: "SELECT * FROM " + table.Name})
			if err != nil && !fault.Is(err, fault.RoleTooLow) {
				t.Errorf("%s: %v", table.Name, err)
			}
			x.events(t, r, table.Name, a)
		case table.Name == "outputs" || len(read) > 0:
			var columns []string
			for _, c := range table.Columns {
				columns = append(columns, c.Name)
			}
			parts = append(parts, fmt.Sprintf("SELECT '%s', environment, json_array(%s) FROM %s", table.Name, strings.Join(columns, ", "), table.Name))
		default:
			a, err := x.try(r, query.Request{SQL: "SELECT * FROM " + table.Name})
			if !fault.Is(err, fault.RoleTooLow) {
				t.Errorf("%s has rows %q, %v", table.Name, a.lines(), err)
			}
		}
	}
	a, err := x.try(r, query.Request{SQL: strings.Join(parts, " UNION ALL ")}) // one question is quicker than one for each
	if err != nil && (len(outputs) > 0 || !fault.Is(err, fault.RoleTooLow)) {
		t.Error(err)
	}
	for _, row := range a.rows {
		table, environment, line := row[0].(string), row[1].(string), row[2].(string)
		want := read
		if table == "outputs" {
			want = outputs
		}
		if environment != x.boot.EnvPublicID {
			got[table][environment] = true
		}
		for mark, p := range x.places {
			if word := strings.Replace(mark, "/", "", 1); !want[p.environment] && strings.Contains(line, word) {
				t.Errorf("%s tells of %s: %s", table, mark, line)
			}
		}
		if strings.Contains(line, "hunter2") {
			t.Errorf("%s tells a secret: %s", table, line)
		}
	}
	for table, environments := range got {
		switch {
		case table == "events" || table == "workspaces" || table == "reservations": // nothing is reserved
		case table == "outputs" && !maps.Equal(environments, outputs), table != "outputs" && !maps.Equal(environments, read):
			t.Errorf("%s has rows of %v, not of %v", table, environments, read)
		}
	}
	x.secrets(t, r, read, outputs)
}

// events compares the audit trail and the workspaces with what the API lists.
func (x *team) events(t *testing.T, r store.Reader, table string, a *answer) {
	t.Helper()
	list, err := x.store.Workspaces(t.Context(), r.Principal)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(a.columns, "workspace")
	for _, row := range a.rows {
		w := slices.IndexFunc(list, func(w wire.Workspace) bool { return w.WorkspaceID == row[at] })
		switch {
		case r.Operator:
		case table == "workspaces":
			if w < 0 && !strings.HasPrefix(string(r.Kind), string(auth.Automation)) && r.Kind != auth.PAT {
				t.Errorf("the workspace %v", row)
			}
		case w < 0 || !auth.MemberRole(list[w].MemberRole).AtLeast(auth.Admin):
			t.Errorf("the event %v", row)
		}
	}
}

// secrets asks for sensitive values.
func (x *team) secrets(t *testing.T, r store.Reader, read, outputs map[string]bool) {
	t.Helper()
	sql := "SELECT environment, value FROM outputs WHERE name LIKE 'secret-%'"
	plain, err := x.try(r, query.Request{SQL: sql})
	if err == nil {
		for _, row := range plain.rows {
			if row[1] != nil || !read[row[0].(string)] && !r.Sensitive {
				t.Errorf("unasked: %v", row)
			}
		}
	}
	shown, err := x.try(r, query.Request{SQL: sql, Reveal: true})
	may := len(read) > 0 || r.Sensitive && len(outputs) > 0
	if !may {
		if !r.Operator && (err == nil || !fault.Is(err, fault.RoleTooLow)) {
			t.Errorf("reveal: %v %v", shown.lines(), err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, row := range shown.rows {
		e := row[0].(string)
		got[e] = true
		if v, ok := row[1].(string); !ok || !strings.HasPrefix(v, "hunter2-") || !read[e] && !r.Sensitive {
			t.Errorf("revealed: %v", row)
		}
	}
	want := read
	if r.Sensitive {
		want = outputs
	}
	if !maps.Equal(got, want) {
		t.Errorf("revealed of %v, want %v", got, want)
	}
	list, err := x.store.Events(t.Context(), store.EventFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for e := range want {
		if !slices.ContainsFunc(list.Items, func(ev wire.Event) bool {
			return ev.Kind == "query_revealed" && ev.Environment == e && ev.Principal == r.Display()
		}) {
			t.Errorf("the audit trail does not tell that %s was shown secrets of %s", r.Display(), e)
		}
	}
}

// TestRoleOutputsReadsTheHead: what GET does not serve is not in a table.
func TestRoleOutputsReadsTheHead(t *testing.T) {
	f := newFixture(t, query.Limits{})
	op := store.Actor{Principal: f.operator()}
	tok, err := f.store.CreateToken(t.Context(), op, f.boot.EnvPublicID, wire.TokenRequest{Name: "o", Role: "outputs"})
	if err != nil {
		t.Fatal(err)
	}
	s := kltest.NewState(5, 1)
	f.write("app", s.Bytes())
	s.Mutate(2)
	f.write("app", s.Bytes())
	r := f.as(f.principal(tok.Secret))
	for sql, want := range map[string]string{
		"SELECT count(*) FROM outputs":                         "2",
		"SELECT count(*) FROM outputs WHERE version = 2":       "2",
		"SELECT count(*) FROM outputs WHERE version = 1":       "0",
		"SELECT count(*) FROM outputs WHERE sensitive = 1":     "0",
		"SELECT count(*) FROM outputs WHERE name = 'password'": "0",
	} {
		if a, err := f.try(r, query.Request{SQL: sql}); err != nil || a.lines()[0] != want {
			t.Errorf("%s: %v %v, want %s", sql, a.lines(), err, want)
		}
	}
	if err := f.store.Delete(t.Context(), store.Actor{Principal: f.robot}, store.Ref{Environment: f.boot.EnvPublicID, Name: "app"}, ""); err != nil {
		t.Fatal(err)
	}
	if a, err := f.try(r, query.Request{SQL: "SELECT * FROM outputs"}); err != nil || len(a.rows) > 0 {
		t.Errorf("outputs of a state in the trash: %v %v", a.lines(), err)
	}
}
