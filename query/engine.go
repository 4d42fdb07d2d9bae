// Package query answers questions in SQL about what a store holds.
//
// Each statement runs on a connection of its own to an empty SQLite database in
// memory, whose tables (Tables) are views of one store.Moment: nothing is
// copied into it, and a filter on a state, an address or a type is handed down
// so that only that part of a state is read. A statement can only read, and
// only these tables; time, memory and the answer are bounded (Limits).
package query

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"

	"kl/auth"
	"kl/fault"
	"kl/store"
)

// Limits bound what one statement may take. Zero members mean the default.
type Limits struct {
	Rows       int           // that an answer may have at most; default 100,000
	Bytes      int64         // of the values in an answer; default 64 MiB
	Time       time.Duration // spent on the statement, without waiting for the reader of the answer; default 10 s
	Wall       time.Duration // from the first to the last row; default 2 min
	Memory     int64         // of the database engine, for sorting, grouping and JSON; default 128 MiB
	Concurrent int           // statements at the same time, others wait; default: one for each processor, at least 2
	Wait       time.Duration // of those others; default 10 s
}

// DefaultRows is how many rows an answer has when the request does not say.
const DefaultRows = 10_000

// maxSQL bounds the text of a statement, in bytes.
const maxSQL = 64 << 10

func (l Limits) orDefault() Limits {
	set := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	set(&l.Rows, 100_000)
	set(&l.Concurrent, max(2, runtime.GOMAXPROCS(0)))
	for p, d := range map[*int64]int64{&l.Bytes: 64 << 20, &l.Memory: 128 << 20} {
		if *p == 0 {
			*p = d
		}
	}
	for p, d := range map[*time.Duration]time.Duration{&l.Time: 10 * time.Second, &l.Wall: 2 * time.Minute, &l.Wait: 10 * time.Second} {
		if *p == 0 {
			*p = d
		}
	}
	return l
}

// Engine runs statements over one store. It is safe for concurrent use.
type Engine struct {
	store  *store.Store
	limits Limits
	slots  chan struct{}
}

// New makes an engine. The store stays the caller's to close.
func New(s *store.Store, l Limits) *Engine {
	l = l.orDefault()
	return &Engine{store: s, limits: l, slots: make(chan struct{}, l.Concurrent)}
}

// Request is one question.
type Request struct {
	SQL string
	// Limit is how many rows are wanted; 0 means DefaultRows. More than
	// Limits.Rows are never given.
	Limit int
	// Reveal shows sensitive values to readers who may read states as they are.
	// It is in the audit trail then.
	Reveal bool
}

// Sink takes an answer as it comes. An error of its methods ends the statement
// and is what Run returns.
type Sink interface {
	// Columns comes first, also when there are no rows.
	Columns(names []string) error
	// Row takes the values of one row: nil, int64, float64, string or []byte.
	// The slice is used again for the next one.
	Row(values []any) error
}

// Done says how an answer ended.
type Done struct {
	Rows      int
	Truncated bool // there are more rows than were asked for, or than one answer has
}

// Run answers a question with what the reader may read, now. Codes:
// query_invalid, query_not_allowed, query_timeout, query_memory,
// query_answer_too_large, busy, parameter_invalid for a negative limit,
// role_too_low when the reader may read nothing of a table, and those of
// store.Moment.
func (e *Engine) Run(ctx context.Context, r store.Reader, q Request, to Sink) (Done, error) {
	switch {
	case q.Limit < 0:
		return Done{}, fault.New(fault.ParameterInvalid, "limit must not be negative").WithNext("leave limit out for %d rows", DefaultRows)
	case q.Limit == 0:
		q.Limit = DefaultRows
	}
	q.Limit = min(q.Limit, e.limits.Rows)
	if err := check(q.SQL); err != nil {
		return Done{}, err
	}
	leave, err := e.enter(ctx)
	if err != nil {
		return Done{}, err
	}
	defer leave()
	b := newBudget(ctx, e.limits)
	s := &statement{engine: e, reader: r, request: q, budget: b}
	done, err := s.run(ctx, to)
	if err != nil {
		err = s.explain(err)
	}
	return done, err
}

// enter waits for the statement's turn.
func (e *Engine) enter(ctx context.Context) (leave func(), err error) {
	wait := time.NewTimer(e.limits.Wait)
	defer wait.Stop()
	select {
	case e.slots <- struct{}{}:
		return func() { <-e.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-wait.C:
		return nil, fault.New(fault.Busy, "%d other queries are running, as many as this server runs at a time", e.limits.Concurrent).WithNext("ask again in a moment")
	}
}

// check refuses texts before they are compiled.
func check(sql string) error {
	switch {
	case strings.TrimSpace(sql) == "":
		return fault.New(fault.QueryInvalid, "there is no SQL to run").WithNext(`kl query "SELECT type, count(*) FROM instances GROUP BY type"; the tables: kl query --schema`)
	case len(sql) > maxSQL:
		return fault.New(fault.QueryInvalid, "the statement has %d bytes, more than %d", len(sql), maxSQL).WithNext("ask a shorter question")
	case strings.ContainsRune(sql, 0):
		return fault.New(fault.QueryInvalid, "the statement holds a NUL character").WithNext("take it out; char(0) stands for it")
	case !utf8.ValidString(sql):
		return fault.New(fault.QueryInvalid, "the statement is not UTF-8 text").WithNext("send it as UTF-8")
	}
	return nil
}

// budget interrupts a statement that takes too long. It is the context that
// SQLite asks every thousand steps, and what the tables ask as they read.
type budget struct {
	context.Context
	limits Limits
	start  time.Time
	paused time.Duration // spent on handing rows over
	over   string        // which limit was met
}

func newBudget(ctx context.Context, l Limits) *budget {
	return &budget{Context: ctx, limits: l, start: time.Now()}
}

// Err is what ends the statement, nil when nothing does.
func (b *budget) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	took := time.Since(b.start)
	if took-b.paused > b.limits.Time {
		b.over = "time"
	} else if took > b.limits.Wall {
		b.over = "wall"
	}
	if b.over != "" {
		return context.DeadlineExceeded
	}
	return nil
}

// statement is one run.
type statement struct {
	engine  *Engine
	reader  store.Reader
	request Request
	budget  *budget

	db        *sqlite3.Conn
	declaring bool            // SQLite is told what a table looks like
	used      map[string]bool // tables that the statement reads
	denied    string          // what the authorizer did not allow
	moment    *store.Moment
	broken    bool  // the engine has met the end of its stack
	err       error // of a table, which SQLite knows only by a number
}

func (s *statement) run(ctx context.Context, to Sink) (done Done, err error) {
	defer func() {
		if p := recover(); p != nil {
			// how the engine tells that its memory is used up; its own state is
			// whole then, for all that is called from it turns panics into codes
			if !outOfMemory(p) {
				panic(p)
			}
			err = sqlite3.NOMEM
		}
	}()
	if err := s.open(ctx); err != nil {
		return done, err
	}
	defer s.close()
	stmt, tail, err := s.prepare()
	if err != nil {
		return done, err
	}
	if stmt == nil {
		return done, check("")
	}
	if strings.ContainsFunc(uncommented(tail), func(r rune) bool { return r != ';' && !unicode.IsSpace(r) }) {
		return done, fault.New(fault.QueryNotAllowed, "there is more than one statement").WithNext("ask one question at a time: a single SELECT")
	}
	if !stmt.ReadOnly() || s.denied != "" || stmt.ColumnCount() == 0 {
		return done, fault.New(fault.QueryNotAllowed, "the statement does more than read").WithNext("ask with a single SELECT")
	}
	if stmt.BindCount() > 0 {
		return done, fault.New(fault.QueryInvalid, "the statement has parameters, and there are no values for them").WithNext("write the values into the statement")
	}
	if err := s.begin(ctx); err != nil {
		return done, err
	}
	defer s.moment.Close()
	return s.step(stmt, to)
}

// outOfMemory reports whether a panic is the engine's way of saying so.
func outOfMemory(p any) bool {
	e, ok := p.(error)
	return ok && strings.Contains(e.Error(), "out of memory")
}

// begin takes the moment that the statement is about.
func (s *statement) begin(ctx context.Context) (err error) {
	var parts store.Parts
	for _, t := range tables {
		if s.used[t.Name] {
			parts |= t.parts
		}
	}
	if s.moment, err = s.engine.store.Moment(ctx, s.reader, parts); err != nil {
		return err
	}
	err = s.allowed()
	if err != nil {
		s.moment.Close()
	}
	return err
}

// allowed refuses what would only be empty for this reader.
func (s *statement) allowed() error {
	who := s.reader.Display()
	for _, t := range tables {
		if !s.used[t.Name] {
			continue
		}
		switch {
		case t.needs == needsStates && !s.moment.ReadsStates():
			return fault.New(fault.RoleTooLow, "%s may not read the table %s: that takes the role read", who, t.Name).
				WithNext("ask the table outputs, or use a token with the role read")
		case t.needs == needsEvents && !s.moment.ReadsEvents():
			return fault.New(fault.RoleTooLow, "%s may not read the table %s: the audit trail is for those who manage a workspace", who, t.Name).
				WithNext("ask the tables versions and changes, or use the control token of an owner or admin")
		}
	}
	if s.request.Reveal && !s.moment.ReadsStates() && !s.reader.Sensitive {
		return fault.New(fault.RoleTooLow, "%s may not see sensitive values", who).WithNext("leave out --reveal, or use a token with the role read")
	}
	return nil
}

func (s *statement) step(stmt *sqlite3.Stmt, to Sink) (done Done, err error) {
	n := stmt.ColumnCount()
	names := make([]string, n)
	for i := range names {
		names[i] = stmt.ColumnName(i)
	}
	if err := s.handOver(func() error { return to.Columns(names) }); err != nil {
		return done, err
	}
	row := make([]any, n)
	var size int64
	for s.advance(stmt) {
		if done.Rows == s.request.Limit {
			done.Truncated = true
			return done, nil
		}
		for i := range row {
			row[i] = valueOf(stmt, i)
			size += sizeOf(row[i])
		}
		if size > s.engine.limits.Bytes {
			return done, fault.New(fault.QueryAnswer, "the answer is larger than %d MiB", s.engine.limits.Bytes>>20).
				With("limit", s.engine.limits.Bytes).WithNext("ask for fewer rows or columns, or export states with: kl state pull")
		}
		if err := s.handOver(func() error { return to.Row(row) }); err != nil {
			return done, err
		}
		done.Rows++
	}
	if s.broken {
		return done, sqlite3.NOMEM
	}
	return done, stmt.Err()
}

// prepare compiles the statement.
func (s *statement) prepare() (stmt *sqlite3.Stmt, tail string, err error) {
	defer s.overflow(func() { err = sqlite3.NOMEM })
	return s.db.Prepare(s.request.SQL)
}

// advance finds the next row.
func (s *statement) advance(stmt *sqlite3.Stmt) (found bool) {
	defer s.overflow(func() { found = false })
	return stmt.Step()
}

// overflow takes up what the engine does when its stack is full, as by a JSON
// path of a thousand steps: it reaches for what is outside of its memory, and
// Go panics. The connection is of no use then, not even to be closed.
func (s *statement) overflow(then func()) {
	p := recover()
	if p == nil {
		return
	}
	if _, ok := p.(runtime.Error); !ok {
		panic(p)
	}
	s.broken = true
	then()
}

// handOver does not count the time that the answer's reader takes.
func (s *statement) handOver(f func() error) error {
	start := time.Now()
	err := f()
	s.budget.paused += time.Since(start)
	if err != nil {
		return &sinkError{err}
	}
	return nil
}

// sinkError tells an error of the sink from one of the statement.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }
func (e *sinkError) Unwrap() error { return e.err }

func valueOf(stmt *sqlite3.Stmt, i int) any {
	switch stmt.ColumnType(i) {
	case sqlite3.INTEGER:
		return stmt.ColumnInt64(i)
	case sqlite3.FLOAT:
		return stmt.ColumnFloat(i)
	case sqlite3.TEXT:
		return stmt.ColumnText(i)
	case sqlite3.BLOB:
		return stmt.ColumnBlob(i, nil)
	default:
		return nil
	}
}

func sizeOf(v any) int64 {
	switch v := v.(type) {
	case string:
		return int64(len(v)) + 2
	case []byte:
		return int64(len(v)) + 2
	default:
		return 8
	}
}

// uncommented is the text without SQL's comments.
func uncommented(sql string) string {
	var out strings.Builder
	for sql != "" {
		i := strings.Index(sql, "--")
		k := strings.Index(sql, "/*")
		switch {
		case i < 0 && k < 0:
			out.WriteString(sql)
			return out.String()
		case k < 0 || i >= 0 && i < k:
			out.WriteString(sql[:i])
			_, sql, _ = strings.Cut(sql[i:], "\n")
		default:
			out.WriteString(sql[:k])
			_, sql, _ = strings.Cut(sql[k+2:], "*/")
		}
	}
	return out.String()
}

// explain turns what SQLite says into what a reader can act upon.
func (s *statement) explain(err error) error {
	var sink *sinkError
	switch {
	case errors.As(err, &sink):
		return sink.err
	case s.err != nil && !errors.Is(s.err, context.DeadlineExceeded):
		return s.err
	case fault.Of(err) != nil:
		return err
	case s.budget.Context.Err() != nil:
		return s.budget.Context.Err()
	case s.budget.over == "wall":
		return fault.New(fault.QueryTimeout, "the answer was not taken within %s", s.engine.limits.Wall).
			With("limit", s.engine.limits.Wall.String()).WithNext("ask for fewer rows, or read the answer faster")
	case s.budget.over != "":
		return fault.New(fault.QueryTimeout, "the query took longer than %s", s.engine.limits.Time).
			With("limit", s.engine.limits.Time.String()).WithNext("name a state, an address or a type in WHERE, and join on columns that are found quickly: kl query --schema")
	case s.broken:
		return fault.New(fault.QueryMemory, "a JSON path in the query has more steps than the database engine can follow").WithNext("ask with a path of less than a hundred steps")
	case errors.Is(err, sqlite3.NOMEM):
		return fault.New(fault.QueryMemory, "the query needs more than %d MiB of memory", s.engine.limits.Memory>>20).
			With("limit", s.engine.limits.Memory).WithNext("sort, group or gather fewer or smaller values: name the columns instead of *, and filter with WHERE")
	case s.denied != "":
		return fault.New(fault.QueryNotAllowed, "%s", s.denied).WithNext("ask with a single SELECT over the tables that this lists: kl query --schema")
	case errors.Is(err, sqlite3.TOOBIG):
		return fault.New(fault.QueryMemory, "a value in the query is longer than %d MiB", maxValue>>20).
			With("limit", int64(maxValue)).WithNext("gather fewer or smaller values in one")
	}
	var se *sqlite3.Error
	if errors.As(err, &se) {
		return s.invalid(se)
	}
	if code := sqlite3.ErrorCode(0); errors.As(err, &code) {
		return fault.New(fault.QueryInvalid, "%s", strings.TrimPrefix(err.Error(), "sqlite3: ")).WithNext("the tables and their columns: kl query --schema")
	}
	return fmt.Errorf("run a query: %w", err)
}

// invalid says what is wrong with the statement, and where.
func (s *statement) invalid(se *sqlite3.Error) error {
	text := strings.TrimPrefix(se.Error(), "sqlite3: ")
	text = strings.TrimPrefix(text, "SQL logic error: ")
	rest := se.SQL()
	if name, ok := strings.CutPrefix(text, "no such table: "); ok && rest == "" && strings.Count(s.request.SQL, name) == 1 {
		rest = s.request.SQL[strings.Index(s.request.SQL, name):] // SQLite does not say where this is
	}
	if rest == "" || !strings.HasSuffix(s.request.SQL, rest) {
		return fault.New(fault.QueryInvalid, "%s", text).WithNext("the tables and their columns: kl query --schema")
	}
	offset := len(s.request.SQL) - len(rest)
	before := s.request.SQL[:offset]
	line := 1 + strings.Count(before, "\n")
	column := 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return fault.New(fault.QueryInvalid, "line %d, column %d: %s", line, column, text).
		With("line", line).With("column", column).With("offset", offset).WithNext("the tables and their columns: kl query --schema")
}

// mayRead reports whether the reader may read a state's contents, and not only
// its outputs.
func mayRead(st *store.MomentState) bool { return st.Role.Allows(auth.ReadState) }
