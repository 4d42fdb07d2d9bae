package query_test

import (
	"fmt"
	"testing"

	"kl/kltest"
	"kl/query"
)

// BenchmarkQuery measures questions about a state of 100,000 resources: cold
// is the first one after the state was written by another process, warm all
// later ones.
func BenchmarkQuery(b *testing.B) {
	f := newFixture(b, query.Limits{})
	s := kltest.NewState(100_000, 7)
	f.write("big", s.Bytes())
	addresses := s.Addresses()
	mid := addresses[len(addresses)/2]
	for name, sql := range map[string]string{
		"group by type": "SELECT type, count(*) FROM instances GROUP BY type",
		"point lookup":  "SELECT attributes FROM instances WHERE state = 'big' AND address = '" + mid + "'",
		"one type":      "SELECT count(*) FROM instances WHERE type = 'aws_s3_bucket'",
		"json of all":   "SELECT count(attributes->>'arn') FROM instances",
		"depends on":    fmt.Sprintf("SELECT count(*) FROM dependencies WHERE depends_on = (SELECT config_address FROM instances WHERE address = '%s')", mid),
		"blast radius":  fmt.Sprintf("WITH RECURSIVE hit(c) AS (SELECT config_address FROM instances WHERE address = '%s' UNION SELECT d.config_address FROM hit JOIN dependencies d ON d.depends_on = hit.c) SELECT count(*) FROM hit", mid),
		"resources":     "SELECT count(*), max(instances) FROM resources",
		"states":        "SELECT * FROM states",
	} {
		b.Run(name, func(b *testing.B) {
			f.tb = b
			f.ask(sql)
			b.ResetTimer()
			for b.Loop() {
				f.ask(sql)
			}
		})
	}
}
