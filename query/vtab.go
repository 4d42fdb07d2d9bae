package query

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// register makes a table known to SQLite, as one that exists without being
// created.
func (s *statement) register(t *Table) error {
	//nolint:staticcheck // the method that replaces it takes Go 1.27
	return sqlite3.CreateModule(s.db, t.Name, nil, func(db *sqlite3.Conn, _, _, _ string, _ ...string) (*vtab, error) {
		s.declaring = true
		err := db.DeclareVTab(t.declaration())
		s.declaring = false
		return &vtab{s, t}, err
	})
}

func (t *Table) declaration() string {
	cols := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		cols[i] = `"` + c.Name + `" ` + affinity[c.Type]
	}
	return "CREATE TABLE x(" + strings.Join(cols, ", ") + ")"
}

// affinity is what SQLite is told of a column's type. JSON is text to it, and
// of ANY it must convert nothing.
var affinity = map[string]string{"TEXT": "TEXT", "INTEGER": "INTEGER", "JSON": "TEXT", "ANY": ""}

// vtab is a table within one statement.
type vtab struct {
	s *statement
	t *Table
}

// selectivity is how much of a table is left, about, when a column has one
// value; the planner orders joins by it.
var selectivity = map[string]float64{
	"environment": 0.3, "state": 0.05, "version": 1, "address": 1e-6, "resource": 1e-5, "config_address": 1e-5, "depends_on": 1e-4, "module": 0.05, "type": 0.02, "mode": 0.5,
}

// BestIndex tells SQLite which filters are handed down: equality with a column
// that things are found by. The bits of IdxNum name those columns.
func (v *vtab) BestIndex(x *sqlite3.IndexInfo) error {
	rows, factor := 1e6, 1.0
	taken := map[int]int{} // column → constraint
	for i, c := range x.Constraint {
		if c.Op != sqlite3.INDEX_CONSTRAINT_EQ || c.Column < 0 || !v.t.Columns[c.Column].Find || x.Collation(i) != "BINARY" {
			continue
		}
		if !c.Usable {
			if v.t.Columns[c.Column].Name == "version" && v.t.newest {
				factor = 1e9 // the other table comes first, if it can
			}
			continue
		}
		if _, ok := taken[c.Column]; !ok {
			taken[c.Column] = i
		}
	}
	n := 0
	for col, c := range v.t.Columns {
		i, ok := taken[col]
		if !ok {
			continue
		}
		n++
		x.ConstraintUsage[i].ArgvIndex = n
		x.IdxNum |= 1 << col
		rows *= selectivity[c.Name]
	}
	rows = max(rows, 1)
	x.EstimatedRows, x.EstimatedCost = int64(rows), (100+rows)*factor
	return nil
}

// Open makes a cursor.
func (v *vtab) Open() (sqlite3.VTabCursor, error) { return &cursor{vtab: v}, nil }

// filter is what is asked for.
type filter struct {
	text    map[string]string
	version uint64 // 0: not asked for
}

func (f filter) matches(column, value string) bool {
	want, ok := f.text[column]
	return !ok || want == value
}

// cursor walks over the rows of a table. No panic and no message leaves its
// methods: SQLite gets a code, and the statement keeps the error.
type cursor struct {
	*vtab
	rows rows
	row  int64
	eof  bool
}

// rows are those of a table, one after the other.
type rows interface {
	next() error // io.EOF behind the last
	value(column int) any
	close()
}

// Filter begins anew.
func (c *cursor) Filter(used int, _ string, arg ...sqlite3.Value) error {
	return c.guarded(func() error {
		c.shut()
		c.row, c.eof = 0, false
		f := filter{text: map[string]string{}}
		n := 0
		for col, column := range c.t.Columns {
			if used&(1<<col) == 0 {
				continue
			}
			a := arg[n]
			n++
			switch {
			case a.Type() == sqlite3.NULL:
				c.eof = true // nothing equals NULL
			case column.Name == "version":
				v, ok := whole(a)
				if !ok || v < 1 {
					c.eof = true
				}
				f.version = uint64(v)
			case a.Type() == sqlite3.TEXT:
				f.text[column.Name] = a.Text()
			default: // SQLite compares as it sees fit
			}
		}
		if c.eof {
			return nil
		}
		var err error
		if c.rows, err = c.t.open(c.s, f); err != nil {
			return err
		}
		return c.advance()
	})
}

// whole is a value as a whole number, by the rules for columns of that type.
func whole(a sqlite3.Value) (int64, bool) {
	switch a.Type() {
	case sqlite3.INTEGER:
		return a.Int64(), true
	case sqlite3.FLOAT:
		f := a.Float()
		return int64(f), f == float64(int64(f))
	case sqlite3.TEXT:
		n, err := strconv.ParseInt(strings.TrimSpace(a.Text()), 10, 64)
		return n, err == nil
	default:
		return 0, false
	}
}

// Next goes on.
func (c *cursor) Next() error { return c.guarded(c.advance) }

func (c *cursor) advance() error {
	c.row++
	if c.row%64 == 0 {
		if err := c.s.budget.Err(); err != nil {
			return err
		}
	}
	err := c.rows.next()
	if errors.Is(err, io.EOF) {
		c.eof = true
		return nil
	}
	return err
}

// EOF reports whether the rows are used up.
func (c *cursor) EOF() bool { return c.eof }

// Column hands over a value.
func (c *cursor) Column(ctx sqlite3.Context, n int) error {
	return c.guarded(func() error { return result(ctx, c.rows.value(n)) })
}

// RowID numbers the rows.
func (c *cursor) RowID() (int64, error) { return c.row, nil }

// Close lets go of what is open.
func (c *cursor) Close() error {
	c.shut()
	return nil
}

func (c *cursor) shut() {
	if c.rows != nil {
		c.rows.close()
		c.rows = nil
	}
}

// guarded runs a callback. A panic must not unwind the engine's frames, whose
// state would be left half changed; one of ours is a bug and becomes an
// internal error.
func (c *cursor) guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if outOfMemory(p) {
				err = sqlite3.NOMEM
				return
			}
			c.s.err = fmt.Errorf("table %s: panic: %v", c.t.Name, p)
			err = sqlite3.ABORT
		}
	}()
	err = f()
	var code sqlite3.ErrorCode
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code):
		return code
	case c.s.budget.over != "" || c.s.budget.Context.Err() != nil:
		return sqlite3.INTERRUPT
	}
	if c.s.err == nil {
		c.s.err = err
	}
	return sqlite3.ABORT
}

// result hands a value to SQLite.
func result(ctx sqlite3.Context, v any) (err error) {
	defer func() {
		// values that do not fit any more
		if p := recover(); p != nil {
			if !outOfMemory(p) {
				panic(p)
			}
			err = sqlite3.NOMEM
		}
	}()
	switch v := v.(type) {
	case nil:
		ctx.ResultNull()
	case string:
		if len(v) > maxValue {
			return sqlite3.TOOBIG
		}
		ctx.ResultText(v)
	case int64:
		ctx.ResultInt64(v)
	case uint64:
		ctx.ResultInt64(int64(v))
	case int:
		ctx.ResultInt64(int64(v))
	case float64:
		ctx.ResultFloat(v)
	case bool:
		ctx.ResultBool(v)
	case time.Time:
		if v.IsZero() {
			ctx.ResultNull()
			return nil
		}
		ctx.ResultText(v.UTC().Format("2006-01-02 15:04:05"))
	case error:
		return v
	default:
		return fmt.Errorf("a column of type %T", v)
	}
	return nil
}
