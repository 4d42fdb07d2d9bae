package query_test

import (
	"slices"
	"strings"
	"testing"

	"kl/kltest"
	"kl/query"
	"kl/store"
)

// TestVersionJoins: which version a table tells of does not depend on the
// order in which SQLite reads the tables.
func TestVersionJoins(t *testing.T) {
	f := newFixture(t, query.Limits{})
	s := kltest.NewState(10, 1)
	sum := 0
	for range 3 {
		f.write("app", s.Bytes())
		sum += s.Len()
		s.Mutate(4)
	}
	f.write("app", s.Bytes())
	head := s.Len()
	sum += head
	f.write("other", kltest.NewState(3, 2).Bytes())
	for sql, want := range map[string]int{
		"SELECT 1 FROM instances i WHERE state = 'app'":                                                                                                     head,
		"SELECT 1 FROM versions v JOIN instances i ON i.state = v.state AND i.version = v.version WHERE v.state = 'app'":                                    sum,
		"SELECT 1 FROM instances i JOIN versions v ON i.state = v.state AND i.version = v.version WHERE v.state = 'app'":                                    sum,
		"SELECT 1 FROM versions v LEFT JOIN instances i ON i.state = v.state AND i.version = v.version WHERE v.state = 'app'":                               sum,
		"SELECT 1 FROM instances i LEFT JOIN versions v ON i.state = v.state AND i.version = v.version WHERE i.state = 'app'":                               head,
		"SELECT 1 FROM instances i, versions v WHERE v.version = 2 AND i.version = v.version AND i.state = v.state":                                         10,
		"SELECT 1 FROM instances a JOIN instances b ON a.state = b.state AND a.version = b.version AND a.address = b.address WHERE a.state = 'app'":         head,
		"SELECT 1 FROM instances a JOIN instances b USING (state, version, address) WHERE a.state = 'app' AND a.version = 1":                                10,
		"SELECT 1 FROM instances a LEFT JOIN instances b USING (state, version, address) WHERE a.state = 'app' AND a.version = 1 AND b.address IS NOT NULL": 10,
		"SELECT 1 FROM instances WHERE version = '1' AND state = 'app'":                                                                                     10,
		"SELECT 1 FROM instances WHERE version = 1.5":                                                                                                       0,
		"SELECT 1 FROM instances WHERE version = 99":                                                                                                        0,
		"SELECT 1 FROM instances WHERE version = -1":                                                                                                        0,
		"SELECT 1 FROM instances WHERE version = NULL":                                                                                                      0,
		"SELECT 1 FROM instances WHERE version IN (1, 99) AND state = 'app'":                                                                                10,
		"SELECT 1 FROM versions WHERE version = 1":                                                                                                          2,
		"SELECT 1 FROM states WHERE state = 'APP' COLLATE NOCASE":                                                                                           1,
		"SELECT 1 FROM instances WHERE state = 'APP' COLLATE NOCASE":                                                                                        head,
		"SELECT 1 FROM instances WHERE mode = 'managed' AND mode = 'data'":                                                                                  0,
	} {
		if got := len(f.ask(sql).rows); got != want {
			t.Errorf("%s\nhas %d rows, want %d", sql, got, want)
		}
	}
}

// TestInjection: text out of a state is only ever text. Whatever it says, it
// comes back as it is, is found by itself, and changes nothing.
func TestInjection(t *testing.T) {
	f := newFixture(t, query.Limits{})
	w := &world{r: newWorld(1).r, lineage: "l"}
	for i, text := range hostile {
		w.outputs = append(w.outputs, [2]any{"o" + text, object{{"value", text}, {"type", "string"}}})
		res := &resource{provider: text}
		res.Mode, res.Type, res.Name = "managed", "t"+text, "n"
		res.instances = []*instance{{key: text, members: object{{"attributes", object{{"a" + text, text}}}, {"dependencies", []string{text}}}}}
		if i%2 == 0 {
			res.Module = "module.m"
		}
		w.resources = append(w.resources, res)
	}
	f.write("s", w.document(t))
	before := f.ask("SELECT sha256 FROM versions").lines()
	for _, text := range hostile {
		for sql, want := range map[string]string{
			"SELECT value FROM outputs WHERE name = " + quote("o"+text):                                  text,
			"SELECT type FROM resources WHERE type = " + quote("t"+text):                                 "t" + text,
			"SELECT key FROM instances WHERE type = " + quote("t"+text):                                  text,
			"SELECT value FROM attributes WHERE attribute = " + quote("a"+text):                          text,
			"SELECT depends_on FROM dependencies WHERE depends_on = " + quote(text):                      text,
			"SELECT e.key FROM instances i, json_each(i.attributes) e WHERE i.type = " + quote("t"+text): "a" + text,
		} {
			if got := f.ask(sql).rows; len(got) != 1 || got[0][0] != want {
				t.Errorf("%s\nfinds %q, want %q", sql, got, want)
			}
		}
	}
	if after := f.ask("SELECT sha256 FROM versions").lines(); !slices.Equal(before, after) {
		t.Errorf("the versions were %s and are %s", before, after)
	}
	for _, table := range query.Tables() {
		if _, err := f.try(f.as(f.operator()), query.Request{SQL: "SELECT * FROM " + table.Name}); err != nil {
			t.Errorf("%s: %v", table.Name, err)
		}
	}
}

// TestOpaque: what cannot be looked into is there with what is known of it.
func TestOpaque(t *testing.T) {
	f := newFixture(t, query.Limits{})
	f.write("sealed", []byte(`{"serial":1,"lineage":"l","meta":{},"encrypted_data":"AAAA","encryption_version":"v0"}`))
	for sql, want := range map[string]string{
		"SELECT state, opaque, version FROM states":  "sealed|1|1",
		"SELECT state, opaque, serial FROM versions": "sealed|1|1",
		"SELECT count(*) FROM instances":             "0",
		"SELECT count(*) FROM outputs":               "0",
		"SELECT count(*) FROM changes":               "0",
	} {
		if got := strings.Join(f.ask(sql).lines(), " "); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	r := f.as(f.robot)
	r.Environment = f.boot.EnvPublicID
	if _, err := f.engine.Graph(t.Context(), r, query.GraphRequest{State: "sealed"}); err == nil || !strings.Contains(err.Error(), "cannot be looked into") {
		t.Errorf("a graph of it: %v", err)
	}
}

// TestPurgedMeanwhile: a state that goes while it is read is no damage.
func TestPurgedMeanwhile(t *testing.T) {
	f := newFixtureWith(t, query.Limits{}, func(o *store.Options) { o.CacheLargest, o.CacheBytes, o.ChunkTarget = 1, 1, 500 })
	f.write("app", kltest.NewState(2000, 1).Bytes())
	ref, by := store.Ref{Environment: f.boot.EnvPublicID, Name: "app"}, store.Actor{Principal: f.robot}
	s := &slow{}
	s.inside = func() error {
		s.inside = func() error { return nil }
		if err := f.store.Delete(t.Context(), by, ref, ""); err != nil {
			return err
		}
		return f.store.Purge(t.Context(), by, ref)
	}
	_, err := f.engine.Run(t.Context(), f.as(f.robot), query.Request{SQL: "SELECT address FROM instances"}, s)
	if err == nil || !strings.Contains(err.Error(), "purged while it was read") {
		t.Errorf("%d rows, %v", len(s.rows), err)
	}
}
