package query_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kl/tfstate"
)

// plain is what a document says, read by encoding/json alone.
type plain struct {
	Outputs   map[string]json.RawMessage `json:"outputs"`
	Resources []struct {
		Module    string            `json:"module"`
		Mode      string            `json:"mode"`
		Type      string            `json:"type"`
		Name      string            `json:"name"`
		Provider  string            `json:"provider"`
		Instances []json.RawMessage `json:"instances"`
	} `json:"resources"`
}

type plainInstance struct {
	Key        json.RawMessage `json:"index_key"`
	Deposed    string          `json:"deposed"`
	Status     *string         `json:"status"`
	Schema     json.Number     `json:"schema_version"`
	Attributes json.RawMessage `json:"attributes"`
	Depends    []string        `json:"dependencies"`
}

// expected are the rows of the tables of contents, as answer.lines writes
// them, behind environment, state and version.
type expected map[string][]string

// expect reads a document the plain way.
func expect(tb testing.TB, doc []byte, reveal bool) expected {
	tb.Helper()
	var p plain
	if err := json.Unmarshal(doc, &p); err != nil {
		tb.Fatal(err)
	}
	out := expected{}
	add := func(table string, cells ...any) {
		line := make([]string, len(cells))
		for i, c := range cells {
			if line[i] = fmt.Sprint(c); c == nil {
				line[i] = "NULL"
			}
		}
		out[table] = append(out[table], strings.Join(line, "|"))
	}
	for _, r := range p.Resources {
		res := tfstate.Resource{Module: r.Module, Mode: r.Mode, Type: r.Type, Name: r.Name}
		config := res
		config.Module = withoutKeys(r.Module)
		add("resources", res.Address(), config.Address(), r.Module, r.Mode, r.Type, r.Name, len(r.Instances))
		for _, raw := range r.Instances {
			var in plainInstance
			if err := json.Unmarshal(raw, &in); err != nil {
				tb.Fatal(err)
			}
			inst := tfstate.Instance{Resource: res, Key: keyOf(in.Key), Deposed: in.Deposed}
			masked, hidden, err := tfstate.MaskAttributes(raw) // tested where it is made
			if err != nil {
				tb.Fatal(err)
			}
			shown := compact(tb, masked)
			if reveal {
				shown = compact(tb, in.Attributes)
			}
			if hidden == nil {
				hidden = []string{}
			}
			var status, deposed any
			if in.Status != nil {
				status = *in.Status
			}
			if in.Deposed != "" {
				deposed = in.Deposed
			}
			sensitive, _ := json.Marshal(hidden)
			add("instances", inst.Address(), res.Address(), r.Module, r.Mode, r.Type, r.Name, config.Address(), sqlOf(in.Key), deposed, status, in.Schema, shown, string(sensitive))
			for _, d := range in.Depends {
				add("dependencies", inst.Address(), res.Address(), r.Mode, r.Type, config.Address(), d)
			}
			dec := json.NewDecoder(strings.NewReader(shown))
			if _, err := dec.Token(); err != nil {
				tb.Fatal(err)
			}
			for dec.More() {
				name, err := dec.Token()
				if err != nil {
					tb.Fatal(err)
				}
				var v json.RawMessage
				if err := dec.Decode(&v); err != nil {
					tb.Fatal(err)
				}
				secret := slices.ContainsFunc(hidden, func(p string) bool {
					return p == name || strings.HasPrefix(p, name.(string)+".") || strings.HasPrefix(p, name.(string)+"[")
				})
				add("attributes", inst.Address(), name, sqlOf(v), string(v), map[bool]int{true: 1}[secret])
			}
		}
	}
	for name, raw := range p.Outputs {
		var o struct {
			Value, Type json.RawMessage
			Sensitive   bool
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			tb.Fatal(err)
		}
		value, text := sqlOf(o.Value), any(compact(tb, o.Value))
		if o.Sensitive && !reveal {
			value, text = nil, nil
		}
		add("outputs", name, value, text, compact(tb, o.Type), map[bool]int{true: 1}[o.Sensitive])
	}
	for _, rows := range out {
		slices.Sort(rows)
	}
	return out
}

// contentQueries read the tables of contents; %s stands for conditions.
var contentQueries = map[string]string{
	"resources":    "SELECT address, config_address, module, mode, type, name, instances FROM resources",
	"instances":    "SELECT address, resource, module, mode, type, name, config_address, key, deposed, status, schema_version, attributes, sensitive FROM instances",
	"dependencies": "SELECT address, resource, mode, type, config_address, depends_on FROM dependencies",
	"attributes":   "SELECT address, attribute, value, json, sensitive FROM attributes",
	"outputs":      "SELECT name, value, json, type, sensitive FROM outputs",
}

func keyOf(raw json.RawMessage) tfstate.Key {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return tfstate.Key{}
	case raw[0] == '"':
		var s string
		_ = json.Unmarshal(raw, &s)
		return tfstate.Key{Kind: tfstate.KeyString, Text: s}
	}
	return tfstate.Key{Kind: tfstate.KeyInt, Text: string(raw)}
}

// sqlOf is a JSON value as the tables show it.
func sqlOf(raw json.RawMessage) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	_ = dec.Decode(&v)
	switch v := v.(type) {
	case nil:
		return nil
	case bool:
		return map[bool]int{true: 1}[v]
	case string:
		return v
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil && (fmt.Sprint(f) == v.String() || fmt.Sprint(f)+".0" == v.String()) {
			return f
		}
		return v.String()
	default:
		var b bytes.Buffer
		_ = json.Compact(&b, raw)
		return b.String()
	}
}

func compact(tb testing.TB, raw json.RawMessage) string {
	tb.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// withoutKeys takes the instance keys out of a module's path.
func withoutKeys(module string) string {
	var out strings.Builder
	for module != "" {
		i := strings.IndexByte(module, '[')
		if i < 0 {
			out.WriteString(module)
			break
		}
		out.WriteString(module[:i])
		module = module[i:]
		if !strings.HasPrefix(module, `["`) {
			_, module, _ = strings.Cut(module, "]")
			continue
		}
		// the closing quote is the first that no backslash escapes
		k := 2
		for module[k] != '"' {
			if module[k] == '\\' {
				k++
			}
			k++
		}
		module = module[k+2:]
	}
	return out.String()
}
