package query_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kl/kltest"
	"kl/query"
	"kl/store"
)

// TestTablesEqualScan: on random states, cut into chunks of any size and
// written in several versions, each table of contents holds what a plain
// reading of the document tells, for the newest version and for older ones, and
// with each filter that is handed down exactly the rows that it lets pass.
func TestTablesEqualScan(t *testing.T) {
	seed := uint64(1)
	if s := os.Getenv("KL_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		w := newWorld(seed*1000 + uint64(round))
		t.Run(fmt.Sprintf("seed %d round %d", seed, round), func(t *testing.T) {
			f := newFixture(t, query.Limits{})
			if round%3 > 0 {
				f = newFixtureWith(t, query.Limits{}, func(o *store.Options) { o.ChunkTarget, o.CacheLargest = 300*(round%3), 1 })
			}
			var docs [][]byte
			for range 5 {
				doc := w.document(t)
				docs = append(docs, doc)
				f.write("s", doc)
				w.change()
				f.compare(t, doc, "s", "", false)
			}
			for i, doc := range docs {
				f.compare(t, doc, "s", fmt.Sprintf("version = %d", i+1), false)
			}
			f.compare(t, docs[len(docs)-1], "s", "", true)
			f.filters(t)
		})
	}
}

// compare compares the tables of contents with what a document says.
func (f *fixture) compare(t *testing.T, doc []byte, state, where string, reveal bool) {
	t.Helper()
	want := expect(t, doc, reveal)
	for table, sql := range contentQueries {
		sql += " WHERE state = '" + state + "'"
		if where != "" {
			sql += " AND " + where
		}
		a, err := f.try(f.as(f.robot), query.Request{SQL: sql, Limit: 100_000, Reveal: reveal})
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		got := a.lines()
		slices.Sort(got)
		if !slices.Equal(got, want[table]) {
			t.Fatalf("%s\ngot  %q\nwant %q", sql, got, want[table])
		}
	}
}

// filters asks for each value of each column that rows are found by.
func (f *fixture) filters(t *testing.T) {
	t.Helper()
	for _, table := range query.Tables() {
		sql, ok := contentQueries[table.Name]
		if !ok {
			continue
		}
		for _, c := range table.Columns {
			if !c.Find || c.Name == "version" {
				continue
			}
			all := map[string]int{}
			for _, row := range f.ask("SELECT " + c.Name + " FROM " + table.Name).rows {
				all[row[0].(string)]++
			}
			all["nothing such"] = 0
			tried := 0
			for v, n := range all { // in another order each time
				if tried++; tried > 10 {
					break
				}
				got := len(f.ask(sql + " WHERE " + c.Name + " IN ('nothing', " + quote(v) + ")").rows)
				if got != n {
					t.Errorf("%s has %d rows with %s in %q, and %d are found", table.Name, n, c.Name, v, got)
				}
			}
		}
	}
}

// quote writes a text into SQL, where NUL cannot stand.
func quote(s string) string {
	parts := strings.Split(s, "\x00")
	for i, p := range parts {
		parts[i] = "'" + strings.ReplaceAll(p, "'", "''") + "'"
	}
	return strings.Join(parts, " || char(0) || ")
}

// TestChangesEqualDiff compares the table changes with the differences of what
// its neighbours hold.
func TestChangesEqualDiff(t *testing.T) {
	for seed := range uint64(4) {
		w := newWorld(900 + seed)
		f := newFixture(t, query.Limits{})
		before := map[string]string{}
		for version := 1; version <= 5; version++ {
			doc := w.document(t)
			f.write("s", doc)
			w.change()
			now := map[string]string{}
			for _, row := range f.ask("SELECT address, attributes || coalesce(status, '') || dependencies || sensitive || schema_version || provider FROM instances").rows {
				now["instance|"+row[0].(string)] = fmt.Sprint(row[1])
			}
			a, err := f.try(f.as(f.robot), query.Request{SQL: "SELECT name, json || type || sensitive FROM outputs", Reveal: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range a.rows {
				now["output|"+row[0].(string)] = fmt.Sprint(row[1])
			}
			var want []string
			for k, v := range now {
				switch was, ok := before[k]; {
				case !ok:
					want = append(want, k+"|added")
				case was != v:
					want = append(want, k+"|changed")
				}
			}
			for k := range before {
				if _, ok := now[k]; !ok {
					want = append(want, k+"|removed")
				}
			}
			got := f.ask(fmt.Sprintf("SELECT kind, address, change FROM changes WHERE version = %d", version)).lines()
			slices.Sort(got)
			slices.Sort(want)
			// a secret may have changed without showing: then it is in got alone
			for _, line := range want {
				if !slices.Contains(got, line) {
					t.Errorf("seed %d version %d: %q is missing in %q", seed, version, line, got)
				}
			}
			for _, line := range got {
				if !slices.Contains(want, line) && !strings.HasSuffix(line, "|changed") {
					t.Errorf("seed %d version %d: %q is not true; true are %q", seed, version, line, want)
				}
			}
			before = now
		}
	}
}

// TestBigState walks over a state of thousands of chunks, in memory and not.
func TestBigState(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 300
	}
	for name, largest := range map[string]int64{"in memory": 0, "from the file": 1} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureWith(t, query.Limits{}, func(o *store.Options) { o.CacheLargest = largest })
			s := kltest.NewState(n, 5)
			f.write("big", s.Bytes())
			for range 3 {
				if got := f.ask("SELECT count(*) FROM instances").rows[0][0]; got != int64(s.Len()) {
					t.Fatalf("%d instances, want %d", got, s.Len())
				}
				for _, a := range s.Mutate(20) {
					if got := len(f.ask("SELECT * FROM instances WHERE address = " + quote(a)).rows); got > 1 {
						t.Fatalf("%d instances have the address %s", got, a)
					}
				}
				f.write("big", s.Bytes())
				for _, a := range s.Addresses()[:50] {
					if got := len(f.ask("SELECT * FROM instances WHERE address = " + quote(a)).rows); got != 1 {
						t.Fatalf("%d instances have the address %s", got, a)
					}
				}
			}
		})
	}
}
