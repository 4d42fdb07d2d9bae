package query_test

import (
	"testing"

	"kl/kltest"
	"kl/query"
)

func TestTry(t *testing.T) {
	f := newFixture(t, query.Limits{})
	f.write("app", kltest.NewState(20, 1).Bytes())
	for _, tab := range query.Tables() {
		if tab.Name == "events" {
			continue
		}
		a := f.ask("SELECT * FROM " + tab.Name + " LIMIT 2")
		t.Log(tab.Name, a.columns)
		for _, l := range a.lines() {
			t.Log("   ", l)
		}
	}
	for _, q := range []string{
		"SELECT type, count(*) FROM instances GROUP BY type",
		"SELECT count(*) FROM instances i JOIN versions v ON v.state=i.state AND v.version=i.version",
		"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 5) SELECT count(*) FROM c",
		"SELECT a.address FROM instances a, json_each(a.attributes) e WHERE e.key='id' LIMIT 2",
	} {
		t.Log(q, f.ask(q).lines())
	}
	for _, q := range []string{"SELEC 1", "SELECT x FROM instances", "SELECT 1; SELECT 2", "PRAGMA user_version", "SELECT * FROM sqlite_master", "ATTACH 'x' AS y", "CREATE TEMP TABLE t(a)",
		"SELECT randomblob(10)", "SELECT * FROM pragma_function_list", "SELECT ?", "DELETE FROM instances", "SELECT load_extension('x')", "EXPLAIN SELECT 1", "BEGIN", "VACUUM INTO 'x'", "SELECT json('{')", "SELECT abs(-9223372036854775808)", "", "-- nothing", "SELECT 1 -- x"} {
		a, err := f.try(f.as(f.robot), query.Request{SQL: q})
		t.Log(q, "=>", err, a.rows)
	}
}
