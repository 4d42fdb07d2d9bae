package tfstate_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kl/tfstate"
)

// told writes differences one below the other.
func told(compare func(before, after []byte, f func(tfstate.Difference)), before, after string) string {
	var lines []string
	text := func(b []byte) string {
		if b == nil {
			return "-"
		}
		return string(b)
	}
	compare([]byte(before), []byte(after), func(d tfstate.Difference) {
		line := fmt.Sprintf("%s: %s > %s", d.Path, text(d.Before), text(d.After))
		if d.Sensitive {
			line += " !"
		}
		lines = append(lines, line)
	})
	return strings.Join(lines, "\n")
}

func TestDiffAttributes(t *testing.T) {
	cases := map[string]struct{ before, after, want string }{
		"the same":            {`{"attributes":{"a":1}}`, `{"attributes": { "a" : 1 } }`, ``},
		"a value":             {`{"attributes":{"a":1,"b":2}}`, `{"attributes":{"a":1,"b":3}}`, `b: 2 > 3`},
		"large numbers":       {`{"attributes":{"n":9007199254740992}}`, `{"attributes":{"n":9007199254740993}}`, `n: 9007199254740992 > 9007199254740993`},
		"a number's text":     {`{"attributes":{"n":1}}`, `{"attributes":{"n":1.0}}`, `n: 1 > 1.0`},
		"one that comes":      {`{"attributes":{}}`, `{"attributes":{"a":null}}`, `a: - > null`},
		"one that goes":       {`{"attributes":{"a":{"b":1}}}`, `{"attributes":{}}`, `a: {"b":1} > -`},
		"all come":            {`{}`, `{"attributes":{"a":1}}`, `a: - > 1`},
		"all go":              {`{"attributes":{"a":1}}`, `{"attributes":null}`, `a: 1 > -`},
		"members moved":       {`{"attributes":{"a":1,"b":{"c":1,"d":2}}}`, `{"attributes":{"b":{"d":2,"c":1},"a":1}}`, ``},
		"nested":              {`{"attributes":{"a":{"b":[{"c":1},{"c":2}]}}}`, `{"attributes":{"a":{"b":[{"c":1},{"c":3}]}}}`, `a.b[1].c: 2 > 3`},
		"odd names":           {`{"attributes":{"t":{"a/b":1,"":1,"ok-1":1}}}`, `{"attributes":{"t":{"a/b":2,"":2,"ok-1":2}}}`, "t[\"\"]: 1 > 2\nt[\"a/b\"]: 1 > 2\nt.ok-1: 1 > 2"},
		"a longer list":       {`{"attributes":{"l":[1]}}`, `{"attributes":{"l":[1,2]}}`, `l[1]: - > 2`},
		"a shorter list":      {`{"attributes":{"l":[1,2]}}`, `{"attributes":{"l":[3]}}`, "l[0]: 1 > 3\nl[1]: 2 > -"},
		"another kind":        {`{"attributes":{"a":{"b":1}}}`, `{"attributes":{"a":[1]}}`, `a: {"b":1} > [1]`},
		"flat":                {`{"attributes_flat":{"a.%":"1"}}`, `{"attributes_flat":{"a.%":"2"}}`, `["a.%"]: "1" > "2"`},
		"flat and not":        {`{"attributes_flat":{"a":"1"}}`, `{"attributes":{"a":1}}`, `a: "1" > 1`},
		"sensitive before":    {`{"attributes":{"p":"a"},"sensitive_attributes":["p"]}`, `{"attributes":{"p":"b"}}`, `p: "a" > "b" !`},
		"sensitive after":     {`{"attributes":{"p":"a"}}`, `{"attributes":{"p":"b"},"sensitive_attributes":[[{"type":"get_attr","value":"p"}]]}`, `p: "a" > "b" !`},
		"key called a name":   {`{"attributes":{"t":{"k":1,"o":1}},"sensitive_attributes":[["t",{"type":"index","value":{"value":"k","type":"string"}}]]}`, `{"attributes":{"t":{"k":2,"o":2}}}`, "t.k: 1 > 2 !\nt.o: 1 > 2"},
		"below what is":       {`{"attributes":{"o":{"a":1}},"sensitive_attributes":["o"]}`, `{"attributes":{"o":{"a":2}}}`, `o: {"a":1} > {"a":2} !`},
		"around what is":      {`{"attributes":{"o":{"a":1}},"sensitive_attributes":[["o","a"]]}`, `{"attributes":{"o":null}}`, `o: {"a":1} > null !`},
		"a path to nowhere":   {`{"attributes":{"o":{"a":1},"p":1},"sensitive_attributes":[["o","z"]]}`, `{"attributes":{"o":{"a":2},"p":2}}`, "o: {\"a\":1} > {\"a\":2} !\np: 1 > 2"},
		"nothing understood":  {`{"attributes":{"o":{"a":1},"p":1},"sensitive_attributes":[7]}`, `{"attributes":{"o":{"a":2},"p":2}}`, "o: {\"a\":1} > {\"a\":2} !\np: 1 > 2 !"},
		"elements of a set":   {`{"attributes":{"s":["x","y"]},"sensitive_attributes":[["s",{"type":"index","value":{"value":{"a":1},"type":["object",{"a":"number"}]}}]]}`, `{"attributes":{"s":["x","z"]}}`, `s: ["x","y"] > ["x","z"] !`},
		"paths on both sides": {`{"attributes":{"a":{"b":1,"c":1},"l":[1,2]},"sensitive_attributes":[["a","b"],["l",{"type":"index","value":0}]]}`, `{"attributes":{"a":{"b":2,"c":2},"l":[2,3]},"sensitive_attributes":[["a","c"],["l",{"type":"index","value":1}]]}`, "a.b: 1 > 2 !\na.c: 1 > 2 !\nl[0]: 1 > 2 !\nl[1]: 2 > 3 !"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := told(tfstate.DiffAttributes, c.before, c.after); got != c.want {
				t.Errorf("%s\n%s\ngot\n%s\nwant\n%s", c.before, c.after, got, c.want)
			}
			if strings.Contains(c.want, ">") { // the other way round the same paths differ
				flip := told(tfstate.DiffAttributes, c.after, c.before)
				if a, b := paths(c.want), paths(flip); !slices.Equal(a, b) {
					t.Errorf("backwards %q, forwards %q", b, a)
				}
			}
		})
	}
}

func paths(told string) (out []string) {
	for line := range strings.Lines(told) {
		path, _, _ := strings.Cut(line, ": ")
		mark := ""
		if strings.HasSuffix(strings.TrimSpace(line), "!") {
			mark = "!"
		}
		out = append(out, path+mark)
	}
	return out
}

func TestDiffMembers(t *testing.T) {
	const base = `{"index_key":0,"schema_version":1,"attributes":{"a":1},"sensitive_attributes":[["a"],["b"]],"private":"x","dependencies":["a.b","c.d"]}`
	with := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(base) }
	cases := map[string]struct{ after, want string }{
		"the same":           {base, ``},
		"attributes":         {with(`"a":1`, `"a":2`), ``},
		"key":                {with(`"index_key":0`, `"index_key":1`), ``},
		"identity version":   {with(`"schema_version":1`, `"schema_version":1,"identity_schema_version":2`), ``},
		"tainted":            {with(`"schema_version":1`, `"schema_version":1,"status":"tainted"`), `status: - > "tainted"`},
		"null":               {with(`"schema_version":1`, `"schema_version":1,"status":null`), ``},
		"schema version":     {with(`"schema_version":1`, `"schema_version":2`), `schema_version: 1 > 2`},
		"private":            {with(`"private":"x"`, `"private":"y"`), `private: "x" > "y" !`},
		"sets moved":         {with(`["a.b","c.d"]`, `["c.d", "a.b"]`, `[["a"],["b"]]`, `[["b"],[ "a"]]`), ``},
		"dependency less":    {with(`["a.b","c.d"]`, `["c.d"]`), `dependencies: ["a.b","c.d"] > ["c.d"]`},
		"no dependency":      {with(`,"dependencies":["a.b","c.d"]`, ``), `dependencies: ["a.b","c.d"] > -`},
		"sensitive paths":    {with(`[["a"],["b"]]`, `[["a"]]`), `sensitive_attributes: ["a"] > ["a"]`},
		"an unknown member":  {with(`"private"`, `"new":{"s":1},"private"`), `new: - > {"s":1} !`},
		"another's spelling": {with(`"schema_version":1`, `"Schema_Version":2`), `schema_version: 1 > 2`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := told(tfstate.DiffMembers, base, c.after); got != c.want {
				t.Errorf("%s\ngot\n%s\nwant\n%s", c.after, got, c.want)
			}
		})
	}
}

// FuzzDiffAttributes compares attributes of any form: the same differ in
// nothing, both directions tell of the same paths, and no value is told plainly
// at or below a path that either side calls sensitive.
func FuzzDiffAttributes(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,2]},"p":"x"}`), []byte(`{"a":{"b":[1,3,4]},"p":"y"}`), "p")
	f.Add([]byte(`{"l":[{"x":1}],"m":{"a/b":null}}`), []byte(`{"l":{"x":1}}`), "l")
	f.Add([]byte(`null`), []byte(`{"":[[]]}`), "")
	f.Fuzz(func(t *testing.T, a, b []byte, secret string) {
		quoted, err := json.Marshal(secret)
		if err != nil || !json.Valid(a) || !json.Valid(b) {
			return
		}
		wrap := func(attrs []byte, sensitive string) string {
			return `{"attributes":` + strings.TrimSpace(string(attrs)) + `,"sensitive_attributes":` + sensitive + `}`
		}
		marked := `[[{"type":"get_attr","value":` + string(quoted) + `}]]`
		before, after := wrap(a, `[]`), wrap(b, marked)
		if !json.Valid([]byte(before)) || !json.Valid([]byte(after)) {
			return // nested too deeply now
		}
		if got := told(tfstate.DiffAttributes, after, after); got != "" {
			t.Fatalf("the same differ: %s", got)
		}
		forwards, backwards := told(tfstate.DiffAttributes, before, after), told(tfstate.DiffAttributes, after, before)
		if strings.Count(forwards, "\n") != strings.Count(backwards, "\n") {
			t.Fatalf("forwards\n%s\nbackwards\n%s", forwards, backwards)
		}
		var name string
		if err := json.Unmarshal(quoted, &name); err != nil {
			t.Fatal(err)
		}
		tfstate.DiffAttributes([]byte(before), []byte(after), func(d tfstate.Difference) {
			if !d.Sensitive && len(name) > 0 && (d.Path == name || strings.HasPrefix(d.Path, name+".") || strings.HasPrefix(d.Path, name+"[")) && !strings.ContainsAny(name, ".[") {
				t.Fatalf("%s is told plainly", d.Path)
			}
		})
		tfstate.DiffMembers([]byte(before), []byte(after), func(tfstate.Difference) {})
	})
}
