package query_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"kl/fault"
	"kl/kltest"
	"kl/query"
)

// TestRefusedSQL: what is no single reading statement is refused with a code,
// a sentence that names the thing, and the place when there is one.
func TestRefusedSQL(t *testing.T) {
	f := newFixture(t, query.Limits{})
	f.write("app", kltest.NewState(5, 1).Bytes())
	for sql, want := range map[string]struct {
		code fault.Code
		says string
	}{
		"":                                      {fault.QueryInvalid, "no SQL"},
		"  -- nothing but this":                 {fault.QueryInvalid, "no SQL"},
		"SELEC 1":                               {fault.QueryInvalid, "line 1, column 1: "},
		"SELECT *\nFROM states\nWHERE stat = 1": {fault.QueryInvalid, "line 3, column 7: no such column: stat"},
		"SELECT 'é', nope FROM states":          {fault.QueryInvalid, "line 1, column 13: no such column: nope"},
		"SELECT * FROM nope":                    {fault.QueryInvalid, "line 1, column 15: no such table: nope"},
		"SELECT 'nope' FROM nope":               {fault.QueryInvalid, "no such table: nope"},
		"SELECT nope(1)":                        {fault.QueryInvalid, "no such function: nope"},
		"SELECT (":                              {fault.QueryInvalid, "incomplete input"},
		"SELECT ?":                              {fault.QueryInvalid, ""},
		"SELECT json('{')":                      {fault.QueryInvalid, "malformed JSON"},
		"SELECT \"nope\" FROM states":           {fault.QueryInvalid, `no such column: "nope"`},
		"SELECT 1\x00":                          {fault.QueryInvalid, "NUL"},
		"SELECT '\xff'":                         {fault.QueryInvalid, "UTF-8"},
		"SELECT '" + strings.Repeat("x", 70_000) + "'":                {fault.QueryInvalid, "65536"},
		"SELECT 1; SELECT 2":                                          {fault.QueryNotAllowed, "more than one statement"},
		"SELECT 1; -- fine\n DELETE FROM states":                      {fault.QueryNotAllowed, "more than one statement"},
		"DELETE FROM states":                                          {fault.QueryInvalid, "may not be modified"},
		"UPDATE states SET state = 1":                                 {fault.QueryInvalid, "may not be modified"},
		"INSERT INTO states(state) VALUES ('x')":                      {fault.QueryNotAllowed, "may not insert"},
		"CREATE TABLE t(a)":                                           {fault.QueryNotAllowed, "may not"},
		"CREATE TEMP TABLE t AS SELECT 1":                             {fault.QueryNotAllowed, "may not"},
		"CREATE VIEW v AS SELECT 1":                                   {fault.QueryNotAllowed, "may not"},
		"CREATE VIRTUAL TABLE t USING states":                         {fault.QueryNotAllowed, "may not"},
		"CREATE TRIGGER g AFTER INSERT ON states BEGIN SELECT 1; END": {fault.QueryInvalid, ""},
		"DROP TABLE states":                                           {fault.QueryNotAllowed, "may not"},
		"ALTER TABLE states RENAME TO x":                              {fault.QueryInvalid, ""},
		"ATTACH '/etc/passwd' AS p":                                   {fault.QueryNotAllowed, "attach"},
		"DETACH main":                                                 {fault.QueryNotAllowed, "detach"},
		"PRAGMA hard_heap_limit = 0":                                  {fault.QueryNotAllowed, "PRAGMA"},
		"PRAGMA temp_store_directory = '/tmp'":                        {fault.QueryNotAllowed, "PRAGMA"},
		"SELECT * FROM pragma_database_list":                          {fault.QueryNotAllowed, "pragma_database_list"},
		"SELECT * FROM pragma_table_info('states')":                   {fault.QueryNotAllowed, "pragma_table_info"},
		"SELECT count(*) FROM sqlite_master":                          {fault.QueryNotAllowed, "sqlite_master"},
		"SELECT * FROM sqlite_schema":                                 {fault.QueryNotAllowed, "sqlite_"},
		"SELECT * FROM sqlite_temp_master":                            {fault.QueryNotAllowed, "sqlite_"},
		"SELECT * FROM dbstat":                                        {fault.QueryInvalid, ""},
		"VACUUM":                                                      {fault.QueryNotAllowed, "more than read"},
		"VACUUM INTO '/tmp/x'":                                        {fault.QueryNotAllowed, "more than read"},
		"BEGIN":                                                       {fault.QueryNotAllowed, "transactions"},
		"SAVEPOINT a":                                                 {fault.QueryNotAllowed, "transactions"},
		"REINDEX":                                                     {fault.QueryNotAllowed, ""},
		"ANALYZE":                                                     {fault.QueryNotAllowed, ""},
		"SELECT load_extension('/tmp/x.so')":                          {fault.QueryInvalid, "load_extension"},
		"SELECT randomblob(1000000000)":                               {fault.QueryNotAllowed, "randomblob"},
		"SELECT zeroblob(1000000000)":                                 {fault.QueryNotAllowed, "zeroblob"},
		"SELECT json_patch('{}', '{}')":                               {fault.QueryNotAllowed, "json_patch"},
		"SELECT unhex('61', ' ')":                                     {fault.QueryNotAllowed, "unhex"},
		"SELECT 'a' LIKE 'b' ESCAPE 'cd'":                             {fault.QueryInvalid, "single character"},
		"SELECT readfile('/etc/passwd')":                              {fault.QueryInvalid, "readfile"},
		"SELECT writefile('/tmp/x', 'x')":                             {fault.QueryInvalid, "writefile"},
		"SELECT fts3_tokenizer('x')":                                  {fault.QueryInvalid, ""},
		"SELECT sqlite_version()":                                     {fault.QueryNotAllowed, "sqlite_version"},
		"SELECT last_insert_rowid()":                                  {fault.QueryNotAllowed, "last_insert_rowid"},
		"SELECT 'a' REGEXP 'b'":                                       {fault.QueryNotAllowed, "regexp"},
		"SELECT * FROM states MATCH 'x'":                              {fault.QueryInvalid, ""},
	} {
		_, err := f.try(f.as(f.robot), query.Request{SQL: sql})
		e := fault.Of(err)
		if e == nil || e.Code != want.code || !strings.Contains(e.Detail, want.says) || e.Next == "" {
			t.Errorf("%.80q: %v (%+v), want %s with %q", sql, err, e, want.code, want.says)
		}
	}
	for _, sql := range []string{
		"SELECT 1;", " ; SELECT 1 ", "SELECT 1 -- done", "SELECT 1 /* done */ ; /* really */", "VALUES (1), (2)", "WITH a AS (SELECT 1) SELECT count(*) FROM a",
		"EXPLAIN QUERY PLAN SELECT * FROM states", "SELECT (SELECT count(*) FROM instances)", "SELECT * FROM json_each('[1,2]')", "SELECT DISTINCT type FROM resources ORDER BY 1 DESC",
		"SELECT state, row_number() OVER (ORDER BY state) FROM states", "SELECT * FROM main.states", "SELECT upper('é'), typeof(1), 2 % 3, 'a' LIKE 'A', 'a' GLOB 'a*'",
	} {
		if _, err := f.try(f.as(f.robot), query.Request{SQL: sql}); err != nil {
			t.Errorf("%q: %v", sql, err)
		}
	}
}

// bombs are statements that take for ever, or memory without end, if nothing
// stops them.
var bombs = []string{
	"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
	"WITH RECURSIVE c(n) AS (SELECT 1 UNION SELECT n + 1 FROM c) SELECT max(n) FROM c",
	"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n, sum(n) OVER (ORDER BY -n) FROM c",
	"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT group_concat(n) FROM c",
	"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT json_group_array(n) FROM c",
	"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT DISTINCT printf('%0200d', n) AS x FROM c ORDER BY x",
	"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n, (SELECT count(*) FROM c) FROM c",
	"WITH RECURSIVE s(x) AS (SELECT 'aaaaaaaaaa' UNION ALL SELECT x || x FROM s) SELECT max(length(x)) FROM s",
	"SELECT count(*) FROM instances a, instances b, instances c, instances d, instances e, instances f",
	"SELECT count(*) FROM attributes a JOIN attributes b ON a.value > b.value JOIN attributes c ON c.value > b.value JOIN attributes d",
	"SELECT count(*) FROM json_each('[1,2,3,4,5,6,7,8,9,0]') a, json_each('[1,2,3,4,5,6,7,8,9,0]') b, json_each('[1,2,3,4,5,6,7,8,9,0]') c, json_each('[1,2,3,4,5,6,7,8,9,0]') d, json_each('[1,2,3,4,5,6,7,8,9,0]') e, json_each('[1,2,3,4,5,6,7,8,9,0]') f, json_each('[1,2,3,4,5,6,7,8,9,0]') g, json_each('[1,2,3,4,5,6,7,8,9,0]') h",
	"SELECT a.attributes, b.attributes FROM instances a, instances b, instances c ORDER BY b.attributes || a.attributes || c.attributes",
	"SELECT printf('%2000000000d', 1)",
	"SELECT printf('%.*c', 2000000000, 'x')",
	"SELECT instr(" + long + ", substr(" + long + ", 1, 2000000) || 'b')",
	"SELECT length(replace(" + long + ", 'a', 'aaaaaaaaaaaaaaaaaaaaaaaa'))",
	"SELECT length(replace(" + long + ", substr(" + long + ", 1, 2000000) || 'b', 'x'))",
	"SELECT length(trim(" + long + ", " + long + " || 'b'))",
	"SELECT " + long + " LIKE '%a%a%a%a%a%a%a%a%a%a%a%a%b'",
	"SELECT " + long + " GLOB '*a*a*a*a*a*a*a*a*a*a*a*a*b'",
	"SELECT " + long + " LIKE " + long,
	"SELECT " + long + " LIKE '%" + strings.Repeat("a", 900) + "b%'",
	"SELECT " + long + " GLOB '*" + strings.Repeat("a", 900) + "b*'",
	"SELECT " + long + " GLOB '*" + strings.Repeat("[a-c]", 190) + "b*'",
	"SELECT json(replace(" + long + ", 'a', '['))",
	"SELECT json_extract('{\"a\":' || replace(substr(" + long + ", 1, 100000), 'a', '[') || replace(substr(" + long + ", 1, 100000), 'a', ']') || '}', '$.a')",
	"SELECT json_set('[]', '$[2000000000]', 1)",
	"SELECT count(*) FROM json_tree('[' || replace(substr(" + long + ", 1, 1000000), 'a', '1,') || '1]') x, json_tree('[' || replace(substr(" + long + ", 1, 1000000), 'a', '1,') || '1]') y",
	"WITH a AS (SELECT 1 x), b AS (SELECT a.x FROM a, a a2), c AS (SELECT b.x FROM b, b b2), d AS (SELECT c.x FROM c, c c2), e AS (SELECT d.x FROM d, d d2), f AS (SELECT e.x FROM e, e e2), g AS (SELECT f.x FROM f, f f2), h AS (SELECT g.x FROM g, g g2), i AS (SELECT h.x FROM h, h h2) SELECT count(*) FROM i, i j",
	"SELECT 1 FROM states" + strings.Repeat(", states", 70),
	"SELECT " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000),
	"SELECT 1" + strings.Repeat(" + 1", 5000),
	"SELECT 1" + strings.Repeat(" UNION ALL SELECT 1", 3000),
	"SELECT 1 IN (1" + strings.Repeat(",1", 30_000) + ")",
	"SELECT strftime('" + strings.Repeat("%J", 20_000) + "', 0)",
	"SELECT hex(hex(hex(hex(" + long + "))))",
	"SELECT quote(quote(quote(" + long + ")))",
}

// long is an expression with four million letters.
const long = "printf('%.*c', 4000000, 'a')"

// TestBombs: whatever is asked, the answer comes in little more than the limit
// of time, memory stays within the limit, and the next question is answered.
func TestBombs(t *testing.T) {
	limits := query.Limits{Time: 300 * time.Millisecond, Memory: 48 << 20, Bytes: 4 << 20}
	f := newFixture(t, limits)
	f.write("app", kltest.NewState(200, 3).Bytes())
	before := resident()
	for _, sql := range bombs {
		start := time.Now()
		_, err := f.try(f.as(f.robot), query.Request{SQL: sql})
		took := time.Since(start)
		if err != nil && fault.Of(err) == nil {
			t.Errorf("%.100s: %v", sql, err)
		}
		if took > 20*limits.Time {
			t.Errorf("%.100s: took %s", sql, took)
		}
		if testing.Verbose() {
			t.Logf("%6s %v: %.90s", took.Round(time.Millisecond), err, sql)
		}
	}
	if grown := resident() - before; grown > 300<<20 {
		t.Errorf("the process has grown by %d MiB", grown>>20)
	}
	if got := f.ask("SELECT count(*) FROM states").lines(); got[0] != "1" {
		t.Errorf("after all that there are %s states", got)
	}
}

// TestDeepPaths: a path so deep that the engine's stack does not hold it is
// refused as too much, again and again, and its memory is given back.
func TestDeepPaths(t *testing.T) {
	f := newFixture(t, query.Limits{})
	f.write("app", kltest.NewState(5, 1).Bytes())
	deep := "'" + strings.Repeat(`{"a":`, 990) + "1" + strings.Repeat("}", 990) + "', '$" + strings.Repeat(".a", 989) + "'"
	before := reserved(t)
	for range 4 {
		for _, sql := range []string{
			"SELECT json_extract(" + deep + ")", "SELECT json_remove(" + deep + ")", "SELECT count(*) FROM json_each(" + deep + ")",
			"SELECT json_set(" + deep + ", 1)", "SELECT json_insert('{}', '$" + strings.Repeat(".a", 10_000) + "', 1) FROM instances",
		} {
			if _, err := f.try(f.as(f.robot), query.Request{SQL: sql}); !fault.Is(err, fault.QueryMemory) || !strings.Contains(err.Error(), "steps") {
				t.Errorf("%.60s: %v, want %s", sql, err, fault.QueryMemory)
			}
		}
	}
	// each connection has 128 MiB of addresses for itself
	if grown := reserved(t) - before; grown > 1<<30 {
		t.Errorf("the process has %d MiB more of addresses", grown>>20)
	}
	if got := f.ask("SELECT count(*) FROM states").lines(); got[0] != "1" {
		t.Errorf("after all that there are %s states", got)
	}
}

// reserved are the addresses of this process, 0 where it cannot be told.
func reserved(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var pages int64
	if _, err := fmt.Sscan(string(b), &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// resident is the memory of this process, 0 where it cannot be told.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// TestLimits meets each limit with its own code, and rows with truncation.
func TestLimits(t *testing.T) {
	f := newFixture(t, query.Limits{Rows: 50, Bytes: 1 << 20, Memory: 8 << 20})
	f.write("app", kltest.NewState(300, 3).Bytes())
	for sql, code := range map[string]fault.Code{
		"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 30000) SELECT n FROM c ORDER BY printf('%0500d', -n)": fault.QueryMemory,
		"SELECT printf('%.*c', 9000000, 'x')":                       fault.QueryMemory,
		"SELECT printf('%.*c', 500000, 'x') FROM instances LIMIT 5": fault.QueryAnswer,
	} {
		if _, err := f.try(f.as(f.robot), query.Request{SQL: sql}); !fault.Is(err, code) {
			t.Errorf("%s: %v, want %s", sql, err, code)
		}
	}
	quick := query.New(f.store, query.Limits{Time: 50 * time.Millisecond})
	endless := "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"
	if _, err := quick.Run(context.Background(), f.as(f.robot), query.Request{SQL: endless}, &answer{}); !fault.Is(err, fault.QueryTimeout) {
		t.Errorf("%s: %v", endless, err)
	}
	for limit, want := range map[int]int{0: 50, 7: 7, 49: 49, 1000: 50} {
		a, err := f.try(f.as(f.robot), query.Request{SQL: "SELECT address FROM instances", Limit: limit})
		if err != nil || len(a.rows) != want || a.Rows != want || !a.Truncated {
			t.Errorf("limit %d: %d rows, %+v, %v", limit, len(a.rows), a.Done, err)
		}
	}
	a, err := f.try(f.as(f.robot), query.Request{SQL: "SELECT address FROM instances LIMIT 50"})
	if err != nil || a.Truncated {
		t.Errorf("all rows are said to be not all: %+v %v", a.Done, err)
	}
	if _, err := f.try(f.as(f.robot), query.Request{SQL: "SELECT 1", Limit: -1}); !fault.Is(err, fault.ParameterInvalid) {
		t.Errorf("a negative limit: %v", err)
	}
}

// slow is a sink that takes its time, and asks another question meanwhile.
type slow struct {
	answer
	inside func() error
}

// Row hands the row over.
func (s *slow) Row(values []any) error { return errors.Join(s.answer.Row(values), s.inside()) }

// TestSlowReader: the time in which the answer's reader takes rows does not
// count, another question waits for its turn and is told so, and an error of
// the reader comes back as it is.
func TestSlowReader(t *testing.T) {
	f := newFixture(t, query.Limits{Concurrent: 1, Wait: time.Millisecond, Time: 5 * time.Second})
	f.write("app", kltest.NewState(5, 3).Bytes())
	s := &slow{inside: func() error {
		_, err := f.try(f.as(f.robot), query.Request{SQL: "SELECT 1"})
		if !fault.Is(err, fault.Busy) {
			t.Errorf("a second question at the same time: %v", err)
		}
		return nil
	}}
	if _, err := f.engine.Run(context.Background(), f.as(f.robot), query.Request{SQL: "SELECT state FROM states"}, s); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the reader has gone")
	s.inside = func() error { return gone }
	if _, err := f.engine.Run(context.Background(), f.as(f.robot), query.Request{SQL: "SELECT state FROM states"}, s); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.inside = func() error { cancel(); return nil }
	sql := "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c"
	if _, err := f.engine.Run(ctx, f.as(f.robot), query.Request{SQL: sql}, s); !errors.Is(err, context.Canceled) {
		t.Errorf("after the client has gone: %v", err)
	}
}

// TestPatterns compares our LIKE and GLOB with those of SQLite.
func TestPatterns(t *testing.T) {
	f := newFixture(t, query.Limits{})
	db := plainSQLite(t)
	r := rand.New(rand.NewPCG(3, 4))
	word := func(longest int, letters ...string) string {
		var b strings.Builder
		for range r.IntN(longest + 1) {
			b.WriteString(letters[r.IntN(len(letters))])
		}
		return quote(b.String())
	}
	const each = 20
	for range 500 {
		var cells []string
		for range each {
			text := word(6, "a", "A", "b", "é", "É", "]", "-", "^", "🦀")
			switch r.IntN(3) {
			case 0:
				cells = append(cells, text+" LIKE "+word(5, "a", "B", "%", "_", "é", "-", "🦀"))
			case 1:
				cells = append(cells, text+" LIKE "+word(5, "a", "B", "%", "_", "-", "\\")+" ESCAPE "+[]string{`'\'`, "'%'", "'_'", "'a'", "NULL"}[r.IntN(5)])
			default:
				cells = append(cells, text+" GLOB "+word(7, "a", "b", "*", "?", "[", "[^", "]", "-", "é", "[a-b]", "🦀"))
			}
		}
		sql := "SELECT quote(" + strings.Join(cells, ") || quote(") + ")"
		f.asSQLite(db, sql)
	}
}

// plainSQLite is a connection with none of our functions.
func plainSQLite(t *testing.T) *sqlite3.Conn {
	t.Helper()
	db, err := sqlite3.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// asSQLite demands that a statement's one value is what SQLite itself answers.
func (f *fixture) asSQLite(db *sqlite3.Conn, sql string) {
	f.tb.Helper()
	stmt, _, err := db.Prepare(sql)
	if err != nil {
		f.tb.Fatal(err)
	}
	stmt.Step()
	want := stmt.ColumnText(0)
	_ = stmt.Close()
	if got := f.ask(sql).lines()[0]; got != want {
		f.tb.Fatalf("%s\ngot  %s\nwant %s", sql, got, want)
	}
}

// TestReplacedFunctions compares our functions with those of SQLite.
func TestReplacedFunctions(t *testing.T) {
	f := newFixture(t, query.Limits{})
	db := plainSQLite(t)
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		if r.IntN(8) == 0 {
			return "NULL"
		}
		var b strings.Builder
		for range r.IntN(9) {
			b.WriteString([]string{"a", "b", "é", " ", "'", "🦀"}[r.IntN(6)])
		}
		return quote(b.String())
	}
	for range 300 {
		a, b, c := word(), word(), word()
		sql := fmt.Sprintf("SELECT quote(instr(%[1]s, %[2]s)) || quote(replace(%[1]s, %[2]s, %[3]s)) || quote(trim(%[1]s, %[2]s)) || quote(ltrim(%[1]s, %[2]s)) || quote(rtrim(%[1]s, %[2]s)) || quote(trim(%[1]s)) || quote(rtrim(%[1]s)) || quote(ltrim(%[1]s))", a, b, c)
		f.asSQLite(db, sql)
	}
}
