package query

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/ncruces/go-sqlite3"
)

// maxValue bounds a single value within the engine.
const maxValue = 8 << 20

// open makes a connection to an empty database in memory, which can do nothing
// but read our tables.
func (s *statement) open(ctx context.Context) (err error) {
	s.used = map[string]bool{}
	if s.db, err = sqlite3.OpenContext(sqlite3.WithMaxMemory(ctx, s.engine.limits.Memory), ":memory:"); err != nil {
		return fmt.Errorf("open a database in memory: %w", err)
	}
	if err := s.guard(); err != nil {
		s.close()
		return err
	}
	return nil
}

func (s *statement) guard() error {
	db := s.db
	if err := db.Exec("PRAGMA temp_store = memory"); err != nil {
		return fmt.Errorf("set up a query: %w", err)
	}
	for op, on := range map[sqlite3.DBConfig]bool{
		sqlite3.DBCONFIG_DEFENSIVE: true, sqlite3.DBCONFIG_TRUSTED_SCHEMA: false, sqlite3.DBCONFIG_ENABLE_LOAD_EXTENSION: false,
		sqlite3.DBCONFIG_DQS_DML: false,
	} {
		if _, err := db.Config(op, on); err != nil {
			return fmt.Errorf("set up a query: %w", err)
		}
	}
	for _, t := range tables {
		if err := s.register(t); err != nil {
			return fmt.Errorf("set up table %s: %w", t.Name, err)
		}
	}
	for _, register := range []func() error{s.functions, s.patterns} {
		if err := register(); err != nil {
			return fmt.Errorf("set up a query: %w", err)
		}
	}
	for id, n := range map[sqlite3.LimitCategory]int{
		sqlite3.LIMIT_LENGTH: maxValue, sqlite3.LIMIT_SQL_LENGTH: maxSQL, sqlite3.LIMIT_COLUMN: 200, sqlite3.LIMIT_EXPR_DEPTH: 100,
		sqlite3.LIMIT_COMPOUND_SELECT: 50, sqlite3.LIMIT_VDBE_OP: 250_000, sqlite3.LIMIT_FUNCTION_ARG: 50, sqlite3.LIMIT_ATTACHED: 0,
		sqlite3.LIMIT_LIKE_PATTERN_LENGTH: 1000, sqlite3.LIMIT_VARIABLE_NUMBER: 0, sqlite3.LIMIT_TRIGGER_DEPTH: 0, sqlite3.LIMIT_WORKER_THREADS: 0,
	} {
		db.Limit(id, n)
	}
	if err := db.SetAuthorizer(s.authorize); err != nil {
		return fmt.Errorf("set up a query: %w", err)
	}
	db.SetInterrupt(s.budget)
	return nil
}

// close gives the connection's memory back.
func (s *statement) close() {
	if s.broken {
		s.drop()
		return
	}
	for st := range s.db.Stmts() {
		_ = st.Close() // what it says was said by Step
	}
	_ = s.db.Close() // it cannot fail without open statements
}

// drop gives the memory of a connection back that cannot be closed. It lies
// outside of Go's, and Conn.Close would ask the engine first, which cannot
// answer any more: hence by the field that Conn keeps to itself.
func (s *statement) drop() {
	engine := reflect.ValueOf(s.db).Elem().FieldByName("wrp")
	if !engine.IsValid() {
		return // TestDeepPaths tells when a release of the library has moved it
	}
	if c, ok := reflect.NewAt(engine.Type(), unsafe.Pointer(engine.UnsafeAddr())).Elem().Interface().(io.Closer); ok { //nolint:gosec // no other way to it
		_ = c.Close() // nothing is left to be done about it
	}
}

// authorize is asked by SQLite, while it compiles, about all that the statement
// would do. What is not listed is denied.
func (s *statement) authorize(action sqlite3.AuthorizerActionCode, name3rd, name4th, _, _ string) sqlite3.AuthorizerReturnCode {
	deny := func(format string, args ...any) sqlite3.AuthorizerReturnCode {
		if s.denied == "" {
			s.denied = fmt.Sprintf(format, args...)
		}
		return sqlite3.AUTH_DENY
	}
	if s.declaring {
		return sqlite3.AUTH_OK
	}
	switch action {
	case sqlite3.AUTH_SELECT, sqlite3.AUTH_RECURSIVE:
		return sqlite3.AUTH_OK
	case sqlite3.AUTH_READ:
		table := strings.ToLower(name3rd)
		switch {
		case byName[table] != nil:
			s.used[table] = true
			return sqlite3.AUTH_OK
		case table == "json_each", table == "json_tree":
			return sqlite3.AUTH_OK
		case name4th == "" && !strings.HasPrefix(table, "sqlite_") && !strings.HasPrefix(table, "pragma_"):
			return sqlite3.AUTH_OK // count(*) of a name that WITH has given
		}
		return deny("the table %s may not be read", name3rd)
	case sqlite3.AUTH_FUNCTION:
		if callable[strings.ToLower(name4th)] {
			return sqlite3.AUTH_OK
		}
		return deny("the function %s may not be used", name4th)
	default:
		if what := actions[action]; what != "" {
			return deny("a query may not %s", what)
		}
		return deny("a query may only read")
	}
}

// actions puts what people try into words.
var actions = map[sqlite3.AuthorizerActionCode]string{
	sqlite3.AUTH_PRAGMA: "use PRAGMA", sqlite3.AUTH_ATTACH: "attach other databases", sqlite3.AUTH_DETACH: "detach databases",
	sqlite3.AUTH_INSERT: "insert", sqlite3.AUTH_UPDATE: "update", sqlite3.AUTH_DELETE: "delete", sqlite3.AUTH_TRANSACTION: "use transactions",
	sqlite3.AUTH_SAVEPOINT: "use transactions", sqlite3.AUTH_CREATE_TABLE: "create tables", sqlite3.AUTH_CREATE_TEMP_TABLE: "create tables",
	sqlite3.AUTH_CREATE_VIEW: "create views", sqlite3.AUTH_CREATE_TEMP_VIEW: "create views", sqlite3.AUTH_CREATE_INDEX: "create indexes",
	sqlite3.AUTH_CREATE_VTABLE: "create tables", sqlite3.AUTH_DROP_TABLE: "drop tables", sqlite3.AUTH_ALTER_TABLE: "alter tables",
	sqlite3.AUTH_REINDEX: "rebuild indexes", sqlite3.AUTH_ANALYZE: "analyze",
}

// callable are those functions that a statement may call: all of them take time in
// proportion to the length of their arguments. Those of SQLite's that do not
// are replaced by ours (replaced, patterns) or left out (json_patch, and unhex,
// whose second argument is searched for each character of the first).
var callable = names(`
	abs avg ceil ceiling char coalesce concat concat_ws count cume_dist current_date current_time current_timestamp
	date datetime dense_rank exp first_value floor format glob group_concat hex if ifnull iif instr
	json json_array json_array_length json_error_position json_extract json_group_array json_group_object json_insert json_object json_pretty
	json_quote json_remove json_replace json_set json_type json_valid -> ->>
	julianday lag last_value lead length like likelihood likely ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif
	octet_length percent_rank percentile percentile_cont percentile_disc pow power printf quote radians random rank replace round row_number rtrim
	sign sqrt strftime string_agg substr substring subtype sum time timediff total trim trunc typeof unicode unixepoch unlikely upper`)

func names(text string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(text) {
		m[n] = true
	}
	return m
}

// functions registers those that replace SQLite's own, which search in time
// proportional to the product of their arguments' lengths and cannot be
// interrupted: with values of megabytes that is hours.
func (s *statement) functions() error {
	for name, f := range replaced {
		for _, n := range f.args {
			err := s.db.CreateFunction(name, n, sqlite3.DETERMINISTIC|sqlite3.INNOCUOUS, func(ctx sqlite3.Context, arg ...sqlite3.Value) {
				var out any
				if !null(arg[:f.strict]...) {
					out = f.call(arg)
				}
				if err := result(ctx, out); err != nil {
					ctx.ResultError(err)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

type function struct {
	args   []int // how many it takes
	strict int   // so many of them must not be NULL; if one is, the result is
	call   func(arg []sqlite3.Value) any
}

func null(arg ...sqlite3.Value) bool {
	return slices.ContainsFunc(arg, func(a sqlite3.Value) bool { return a.Type() == sqlite3.NULL })
}

// replaced have the results of SQLite's functions for text; blobs are taken as
// text.
var replaced = map[string]function{
	"instr": {[]int{2}, 2, func(a []sqlite3.Value) any {
		text := a[0].Text()
		before, _, found := strings.Cut(text, a[1].Text())
		if !found {
			return int64(0)
		}
		return int64(1 + len([]rune(before)))
	}},
	"replace": {[]int{3}, 2, func(a []sqlite3.Value) any {
		text, old := a[0].Text(), a[1].Text()
		if old == "" {
			return text
		}
		if null(a[2]) {
			return nil
		}
		with := a[2].Text()
		if grow := len(with) - len(old); grow > 0 && len(text)+grow*strings.Count(text, old) > maxValue {
			return sqlite3.TOOBIG
		}
		return strings.ReplaceAll(text, old, with)
	}},
	"trim":  {[]int{1, 2}, 1, func(a []sqlite3.Value) any { return trim(strings.TrimFunc, a) }},
	"ltrim": {[]int{1, 2}, 1, func(a []sqlite3.Value) any { return trim(strings.TrimLeftFunc, a) }},
	"rtrim": {[]int{1, 2}, 1, func(a []sqlite3.Value) any { return trim(strings.TrimRightFunc, a) }},
}

// trim takes away characters with f: blanks unless others are given.
func trim(f func(string, func(rune) bool) string, a []sqlite3.Value) any {
	chars := " "
	if len(a) > 1 {
		if null(a[1]) {
			return nil
		}
		chars = a[1].Text()
	}
	set := map[rune]bool{}
	for _, r := range chars {
		set[r] = true
	}
	return f(a[0].Text(), func(r rune) bool { return set[r] })
}
