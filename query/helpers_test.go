package query_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kl/auth"
	"kl/kltest"
	"kl/query"
	"kl/store"
	"kl/wire"
)

// fixture is a store with what the first start creates, and an engine.
type fixture struct {
	tb     testing.TB
	store  *store.Store
	engine *query.Engine
	boot   wire.Bootstrap
	robot  auth.Principal // role write
	now    *kltest.Clock
}

func newFixture(tb testing.TB, l query.Limits) *fixture {
	tb.Helper()
	return newFixtureWith(tb, l, func(*store.Options) {})
}

func newFixtureWith(tb testing.TB, l query.Limits, set func(o *store.Options)) *fixture {
	tb.Helper()
	clock := kltest.NewClock()
	st := kltest.Store(tb, kltest.WithStore(func(o *store.Options) {
		o.Now = clock.Now
		set(o)
	}))
	boot, err := st.Bootstrap(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	f := &fixture{tb: tb, store: st, engine: query.New(st, l), boot: boot, now: clock}
	f.robot = f.principal(boot.AutomationToken)
	return f
}

func (f *fixture) principal(secret string) auth.Principal {
	f.tb.Helper()
	p, err := f.store.Authenticate(context.Background(), secret)
	if err != nil {
		f.tb.Fatal(err)
	}
	return p
}

func (f *fixture) operator() auth.Principal { return f.principal(f.boot.ControlToken) }

// write stores a version of a state in the bootstrap environment.
func (f *fixture) write(name string, doc []byte) store.Written {
	f.tb.Helper()
	b, err := f.store.ReadBody(context.Background(), bytes.NewReader(doc), int64(len(doc)), 1<<30)
	if err != nil {
		f.tb.Fatal(err)
	}
	defer b.Release()
	w, err := f.store.Write(context.Background(), store.WriteRequest{
		Ref: store.Ref{Environment: f.boot.EnvPublicID, Name: name}, Actor: store.Actor{Principal: f.robot}, Body: b,
	})
	if err != nil {
		f.tb.Fatal(err)
	}
	return w
}

// answer is what came of a query.
type answer struct {
	columns []string
	rows    [][]any
	query.Done
}

// Columns takes the names.
func (a *answer) Columns(names []string) error {
	a.columns = names
	return nil
}

// Row takes one row.
func (a *answer) Row(values []any) error {
	a.rows = append(a.rows, slices.Clone(values))
	return nil
}

// lines are the rows as text, for comparing.
func (a *answer) lines() []string {
	out := make([]string, len(a.rows))
	for i, r := range a.rows {
		cells := make([]string, len(r))
		for k, v := range r {
			cells[k] = fmt.Sprint(v)
			if v == nil {
				cells[k] = "NULL"
			}
		}
		out[i] = strings.Join(cells, "|")
	}
	return out
}

func (f *fixture) try(r store.Reader, q query.Request) (*answer, error) {
	a := &answer{}
	var err error
	a.Done, err = f.engine.Run(context.Background(), r, q, a)
	return a, err
}

func (f *fixture) as(p auth.Principal) store.Reader {
	return store.Reader{Actor: store.Actor{Principal: p}}
}

// ask runs a query that must succeed.
func (f *fixture) ask(sql string) *answer {
	f.tb.Helper()
	a, err := f.try(f.as(f.robot), query.Request{SQL: sql, Limit: 100_000})
	if err != nil {
		f.tb.Fatalf("%s: %v", sql, err)
	}
	return a
}
