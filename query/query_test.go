package query_test

import (
	"testing"

	"kl/kltest"
	"kl/query"
)

// TestTablesAnswer reads all of each table, under the names of its columns.
func TestTablesAnswer(t *testing.T) {
	f := newFixture(t, query.Limits{})
	f.write("app", kltest.NewState(20, 1).Bytes())
	for _, table := range query.Tables() {
		a, err := f.try(f.as(f.operator()), query.Request{SQL: "SELECT * FROM " + table.Name})
		if err != nil {
			t.Errorf("%s: %v", table.Name, err)
			continue
		}
		for i, c := range table.Columns {
			if a.columns[i] != c.Name {
				t.Errorf("%s has the column %s where %s is documented", table.Name, a.columns[i], c.Name)
			}
		}
	}
}
