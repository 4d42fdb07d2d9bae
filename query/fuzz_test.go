package query_test

import (
	"testing"
	"time"

	"kl/fault"
	"kl/kltest"
	"kl/query"
)

// FuzzSQL: whatever is asked is answered or refused with a code, in time, and
// leaves the engine whole.
func FuzzSQL(f *testing.F) {
	for _, sql := range bombs {
		if len(sql) < 1000 {
			f.Add(sql)
		}
	}
	for _, table := range query.Tables() {
		f.Add("SELECT * FROM " + table.Name + " a LEFT JOIN states b USING (state) WHERE a." + table.Columns[0].Name + " IN ('x', 1, NULL) ORDER BY 1 LIMIT 3")
	}
	f.Add("SELECT i.address, e.value FROM instances i, json_each(i.attributes) e WHERE i.version = 1 GROUP BY 1 HAVING count(*) > 0")
	x := newFixture(f, query.Limits{Time: 30 * time.Millisecond, Memory: 16 << 20, Bytes: 1 << 20})
	x.write("app", kltest.NewState(20, 1).Bytes())
	f.Fuzz(func(t *testing.T, sql string) {
		start := time.Now()
		_, err := x.try(x.as(x.robot), query.Request{SQL: sql})
		switch {
		case err != nil && fault.Of(err) == nil:
			t.Fatalf("%q: %v", sql, err)
		case err != nil && fault.Of(err).Code == fault.Internal:
			t.Fatalf("%q: %v", sql, err)
		case time.Since(start) > 5*time.Second:
			t.Fatalf("%q took %s", sql, time.Since(start))
		}
	})
}
