package query

import (
	"io"

	"kl/store"
)

// Table is one table that can be asked.
type Table struct {
	Name    string
	About   string
	Columns []Column

	needs  need
	parts  store.Parts
	newest bool // tells of the newest version, unless another is asked for
	open   func(s *statement, f filter) (rows, error)
}

// Column is a column of a table.
type Column struct {
	Name  string
	Type  string // TEXT, INTEGER, JSON (as text), or ANY
	About string
	Find  bool // rows with one value of it are found without reading the others
}

// need is what a table's reader must be allowed to.
type need uint8

const (
	needsStates  need = iota // to read states somewhere
	needsOutputs             // to read outputs somewhere
	needsEvents              // to read an audit trail
)

// Tables are all tables, as kl query --schema and docs/queries.md list them.
func Tables() []*Table { return tables }

// col is a column and where its value comes from.
type col[R any] struct {
	Column
	get func(r *R) any
}

func text[R any](name, about string, get func(r *R) string) col[R] {
	return col[R]{Column{Name: name, Type: "TEXT", About: about}, func(r *R) any { return get(r) }}
}

// orNull is text in which an empty one is NULL.
func orNull[R any](name, about string, get func(r *R) string) col[R] {
	return col[R]{Column{Name: name, Type: "TEXT", About: about}, func(r *R) any {
		if t := get(r); t != "" {
			return t
		}
		return nil
	}}
}

func value[R any](name, kind, about string, get func(r *R) any) col[R] {
	return col[R]{Column{Name: name, Type: kind, About: about}, get}
}

// find marks a column by which rows are found.
func find[R any](c col[R]) col[R] {
	c.Find = true
	return c
}

// pull yields one row after the other into the same place.
type pull[R any] interface {
	pull(into *R) error // io.EOF behind the last
	close()
}

// table makes a table out of columns and a source of rows.
func table[R any](t Table, cols []col[R], open func(s *statement, f filter) (pull[R], error)) *Table {
	for _, c := range cols {
		t.Columns = append(t.Columns, c.Column)
	}
	t.open = func(s *statement, f filter) (rows, error) {
		p, err := open(s, f)
		if err != nil {
			return nil, err
		}
		return &typed[R]{cols: cols, from: p}, nil
	}
	return &t
}

// typed are rows of one type.
type typed[R any] struct {
	cols []col[R]
	from pull[R]
	row  R
}

func (t *typed[R]) next() error          { return t.from.pull(&t.row) }
func (t *typed[R]) value(column int) any { return t.cols[column].get(&t.row) }
func (t *typed[R]) close()               { t.from.close() }

// listed are rows that are in memory already.
type listed[R any] struct {
	items []R
	keep  func(r *R) bool
}

func (l *listed[R]) pull(into *R) error {
	for len(l.items) > 0 {
		*into, l.items = l.items[0], l.items[1:]
		if l.keep(into) {
			return nil
		}
	}
	return io.EOF
}

func (l *listed[R]) close() {}
