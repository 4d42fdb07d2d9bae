package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"kl/fault"
	"kl/kltest"
	"kl/query"
	"kl/server"
	"kl/wire"
)

// asks posts a question.
func asks(s *kltest.Server, as kltest.Credentials, q wire.QueryRequest) *kltest.Answer {
	b, _ := json.Marshal(q) // strings and numbers
	return s.Do(as, http.MethodPost, s.URL+wire.QueryPath, b, "Content-Type", "application/json")
}

func TestQuery(t *testing.T) {
	s := kltest.Start(t)
	s.Do(s.Automation(), http.MethodPost, s.StateURL("app"), kltest.NewState(20, 1).Bytes())
	for name, as := range map[string]kltest.Credentials{"operator": s.Operator(), "basic": s.Automation(), "bearer": kltest.Bearer(s.Bootstrap.AutomationToken)} {
		a := asks(s, as, wire.QueryRequest{SQL: "SELECT 1 AS one, 1.5, NULL, 'é\"\u0001', x'00ff', 9007199254740993, 1e999 FROM states", Environment: s.Bootstrap.EnvPublicID})
		want := `{"columns":["one","1.5","NULL","'é\"` + "\u0001" + `'","x'00ff'","9007199254740993","1e999"],"rows":[` + "\n" +
			`[1,1.5,null,"é\"\u0001","AP8=",9007199254740993,"+Inf"]],` + "\n" + `"row_count":1,"truncated":false}` + "\n"
		want = strings.ReplaceAll(want, "\u0001", `\u0001`)
		if got := string(a.Body); a.Status != 200 || got != want || !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s: %d %s\nwant %s", name, a.Status, got, want)
		}
	}
	for what, c := range map[string]struct {
		as   kltest.Credentials
		body string
		code fault.Code
	}{
		"nobody":             {kltest.Nobody, `{"sql":"SELECT 1"}`, fault.CredentialsMissing},
		"another user name":  {kltest.Basic("ws_aaaaaaaaaaaa", s.Bootstrap.AutomationToken), `{"sql":"SELECT 1"}`, fault.WorkspaceMismatch},
		"no such place":      {s.Operator(), `{"sql":"SELECT 1","environment":"env_aaaaaaaaaaaa"}`, fault.UnknownEnvironment},
		"a slug":             {s.Operator(), `{"sql":"SELECT 1","environment":"default"}`, fault.SlugNotID},
		"unknown member":     {s.Operator(), `{"sql":"SELECT 1","params":[]}`, fault.ParameterInvalid},
		"bad SQL":            {s.Operator(), `{"sql":"SELECT"}`, fault.QueryInvalid},
		"no SQL":             {s.Operator(), `{}`, fault.QueryInvalid},
		"bad at the end":     {s.Operator(), `{"sql":"SELECT abs(-9223372036854775808) FROM states"}`, fault.QueryInvalid},
		"negative limit":     {s.Operator(), `{"sql":"SELECT 1","limit":-1}`, fault.ParameterInvalid},
		"events for a robot": {s.Automation(), `{"sql":"SELECT * FROM events"}`, fault.RoleTooLow},
	} {
		a := s.Do(c.as, http.MethodPost, s.URL+wire.QueryPath, []byte(c.body))
		if p := a.Problem(); p.Code != string(c.code) || p.NextStep == "" {
			t.Errorf("%s: %d %s, want %s", what, a.Status, a.Body, c.code)
		}
	}
	if p := asks(s, s.Operator(), wire.QueryRequest{SQL: "SELECT 1,\n  nope"}).Problem(); p.Extra["line"] != 2.0 || p.Extra["column"] != 3.0 || p.Extra["offset"] != 12.0 {
		t.Errorf("the place is told as %v", p.Extra)
	}
}

// TestQueryBreaksOff: what fails behind the first rows is told within the
// answer, and in the log, and can be asked about.
func TestQueryBreaksOff(t *testing.T) {
	s := kltest.Start(t, kltest.WithServer(func(o *server.Options) { o.Query = query.Limits{Time: 2 * time.Second} }))
	s.Do(s.Automation(), http.MethodPost, s.StateURL("app"), kltest.NewState(20, 1).Bytes())
	sql := "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n, printf('%0100d', n) FROM c WHERE n < 2000 OR n < 0"
	a := asks(s, s.Operator(), wire.QueryRequest{SQL: sql})
	var got wire.QueryAnswer
	a.Into(t, &got)
	// how many come before the time is over is the machine's affair
	if rows := len(got.Rows); a.Status != 200 || rows == 0 || rows > 1999 || got.RowCount != rows || got.Error == nil || got.Error.Code != string(fault.QueryTimeout) || got.Error.RequestID == "" {
		t.Fatalf("%d, %d rows, error %+v", a.Status, len(got.Rows), got.Error)
	}
	if line := s.Log.Line(got.Error.RequestID); line["code"] != string(fault.QueryTimeout) || line["status"] != 200.0 {
		t.Errorf("the log has %v", line)
	}
	var why wire.Request
	s.Do(s.Operator(), http.MethodGet, s.URL+"/v1/requests/"+got.Error.RequestID, nil).Into(t, &why)
	if why.Code != string(fault.QueryTimeout) {
		t.Errorf("kl why would tell %+v", why)
	}
}

// TestServerAnswersDuringBombs: while as many hostile questions run as may, and
// more wait, states are read and written as always.
func TestServerAnswersDuringBombs(t *testing.T) {
	s := kltest.Start(t, kltest.WithServer(func(o *server.Options) {
		o.Query = query.Limits{Time: 600 * time.Millisecond, Memory: 48 << 20, Wait: 100 * time.Millisecond}
	}))
	doc := kltest.NewState(100, 1)
	s.Do(s.Automation(), http.MethodPost, s.StateURL("app"), doc.Bytes())
	bombs := []string{
		"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
		"SELECT count(*) FROM attributes a, attributes b, attributes c, attributes d",
		"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT DISTINCT printf('%0500d', n) AS x FROM c ORDER BY x",
	}
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			b, _ := json.Marshal(wire.QueryRequest{SQL: bombs[i%len(bombs)]})
			a, err := s.Try(t.Context(), s.Automation(), http.MethodPost, s.URL+wire.QueryPath, b)
			if err != nil || a.Status != 413 && a.Status != 503 {
				t.Errorf("%v %+v", err, a)
			}
		})
	}
	slowest := time.Duration(0)
	for range 20 {
		doc.Mutate(3)
		if a := s.Do(s.Automation(), http.MethodPost, s.StateURL("app"), doc.Bytes()); a.Status != 200 {
			t.Fatalf("write: %d %s", a.Status, a.Body)
		} else if a.Took > slowest {
			slowest = a.Took
		}
		if a := s.Do(s.Automation(), http.MethodGet, s.StateURL("app"), nil); a.Status != 200 {
			t.Fatalf("read: %d", a.Status)
		} else if a.Took > slowest {
			slowest = a.Took
		}
	}
	wg.Wait()
	if slowest > 10*time.Second {
		t.Errorf("a request took %s meanwhile", slowest)
	}
}

// TestQueryHoldsNoTransaction: while a client takes rows slowly, versions are
// written and the file's freed pages are used again; what the client gets is
// from the moment at which it asked.
func TestQueryHoldsNoTransaction(t *testing.T) {
	s := kltest.Start(t)
	doc := kltest.NewState(300, 1)
	s.Do(s.Automation(), http.MethodPost, s.StateURL("app"), doc.Bytes())
	b, _ := json.Marshal(wire.QueryRequest{SQL: "SELECT version, address, attributes FROM json_each('[" + strings.Repeat("1,", 49) + "1]'), instances", Limit: 50 * 300})
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.URL+wire.QueryPath, strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	s.Automation()(r)
	res, err := s.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	first := make([]byte, 100)
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		doc.Mutate(5)
		if a := s.Do(s.Automation(), http.MethodPost, s.StateURL("app"), doc.Bytes()); a.Status != 200 {
			t.Fatalf("write: %d %s", a.Status, a.Body)
		}
	}
	rest, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var got wire.QueryAnswer
	if err := json.Unmarshal(append(first, rest...), &got); err != nil {
		t.Fatal(err)
	}
	if got.Error != nil || len(got.Rows) != 50*300 {
		t.Fatalf("%d rows, %+v", len(got.Rows), got.Error)
	}
	for _, row := range got.Rows {
		if row[0] != 1.0 {
			t.Fatalf("a row of version %v", row[0])
		}
	}
}

func TestGraph(t *testing.T) {
	s := kltest.Start(t)
	const doc = `{"version":4,"serial":1,"lineage":"l","terraform_version":"1.11.4","outputs":{},"resources":[
{"mode":"managed","type":"net","name":"a","provider":"p","instances":[{"schema_version":0,"attributes":{"id":"1"}}]},
{"module":"module.m[\"x]\"]","mode":"managed","type":"vm","name":"b","provider":"p","instances":[
 {"index_key":0,"schema_version":0,"attributes":{},"dependencies":["net.a"]},{"index_key":1,"schema_version":0,"attributes":{},"dependencies":["net.a"]}]},
{"mode":"data","type":"look","name":"c","provider":"p","instances":[{"index_key":"]\"[","schema_version":0,"attributes":{},"dependencies":["module.m.vm.b"]}]},
{"mode":"managed","type":"net","name":"alone","provider":"p","instances":[{"schema_version":0,"attributes":{}}]}]}`
	s.Do(s.Automation(), http.MethodPost, s.StateURL("app"), []byte(doc))
	for query, want := range map[string]string{
		"":                               "data.look.c module.m.vm.b net.a net.alone; data.look.c>module.m.vm.b module.m.vm.b>net.a",
		"?address=net.a":                 "data.look.c module.m.vm.b net.a; data.look.c>module.m.vm.b module.m.vm.b>net.a",
		"?address=net.a&depth=1":         "module.m.vm.b net.a; module.m.vm.b>net.a",
		"?address=net.alone":             "net.alone; ",
		"?address=module.m.vm.b&depth=1": "data.look.c module.m.vm.b net.a; data.look.c>module.m.vm.b module.m.vm.b>net.a",
		"?address=module.m%5B%22x%5D%22%5D.vm.b%5B1%5D&depth=1": "data.look.c module.m.vm.b net.a; data.look.c>module.m.vm.b module.m.vm.b>net.a",
		"?address=data.look.c%5B%22%5D%5C%22%5B%22%5D&depth=1":  "data.look.c module.m.vm.b; data.look.c>module.m.vm.b",
	} {
		a := s.Do(s.Automation(), http.MethodGet, s.APIURL("app", "/graph"+query), nil)
		var g wire.Graph
		a.Into(t, &g)
		var nodes, edges []string
		for _, n := range g.Nodes {
			nodes = append(nodes, n.Address)
		}
		for _, e := range g.Edges {
			edges = append(edges, e.From+">"+e.To)
		}
		if got := strings.Join(nodes, " ") + "; " + strings.Join(edges, " "); got != want {
			t.Errorf("%s: %s, want %s (%s)", query, got, want, a.Body)
		}
	}
	for query, code := range map[string]fault.Code{
		"?address=nope": fault.NotFound, "?depth=x": fault.ParameterInvalid, "?version=9": fault.NotFound, "?version=%21": fault.ParameterInvalid,
	} {
		if p := s.Do(s.Automation(), http.MethodGet, s.APIURL("app", "/graph"+query), nil).Problem(); p.Code != string(code) {
			t.Errorf("%s: %+v, want %s", query, p, code)
		}
	}
	if p := s.Do(s.Automation(), http.MethodGet, s.APIURL("none", "/graph"), nil).Problem(); p.Code != string(fault.NotFound) {
		t.Errorf("a state that was never written: %+v", p)
	}
}
