package tfstate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"kl/tfstate"
)

func TestMaskAttributes(t *testing.T) {
	const attrs = `{"id": "i", "password" : "p", "n": 9007199254740993, "tags": {"a": "x", "b.c": "y"}, "list": [ {"x": 1}, {"x": 2} ], "gone": null}`
	attr := func(s string) string { return `{"type": "get_attr", "value": "` + s + `"}` }
	key := func(s string) string {
		return `{"type": "index", "value": {"value": "` + s + `", "type": "string"}}`
	}
	item := func(s string) string {
		return `{"type": "index", "value": {"value": ` + s + `, "type": "number"}}`
	}
	all := []string{"gone", "id", "list", "n", "password", "tags"}
	const nothing = `{"id": null, "password" : null, "n": null, "tags": null, "list": null, "gone": null}`
	without := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(attrs) }
	cases := map[string]struct {
		paths string
		want  string
		told  []string
	}{
		"none":                      {`[]`, attrs, nil},
		"null":                      {`null`, attrs, nil},
		"attribute":                 {`[[` + attr("password") + `]]`, without(`"p"`, `null`), []string{"password"}},
		"escaped name":              {`[[{"type":"get_attr","value":"passw\u006frd"}]]`, without(`"p"`, `null`), []string{"password"}},
		"twice":                     {`[[` + attr("password") + `],[` + attr("password") + `]]`, without(`"p"`, `null`), []string{"password"}},
		"key of a map":              {`[[` + attr("tags") + `,` + key("a") + `]]`, without(`"x",`, `null,`), []string{`tags["a"]`}},
		"key with a dot":            {`[[` + attr("tags") + `,` + key("b.c") + `]]`, without(`"y"`, `null`), []string{`tags["b.c"]`}},
		"element":                   {`[[` + attr("list") + `,` + item("1") + `,` + attr("x") + `]]`, without(`"x": 2`, `"x": null`), []string{`list[1].x`}},
		"whole element":             {`[[` + attr("list") + `,` + item("0") + `]]`, without(`{"x": 1}`, `null`), []string{`list[0]`}},
		"two in one":                {`[[` + attr("list") + `,` + item("0") + `],[` + attr("list") + `,` + item("1") + `]]`, without(`{"x": 1}`, `null`, `{"x": 2}`, `null`), []string{`list[0]`, `list[1]`}},
		"within what is masked":     {`[[` + attr("tags") + `],[` + attr("tags") + `,` + key("a") + `]]`, without(`{"a": "x", "b.c": "y"}`, `null`), []string{"tags"}},
		"bare index":                {`[[` + attr("tags") + `,{"type":"index","value":"a"}]]`, without(`"x",`, `null,`), []string{`tags["a"]`}},
		"bare number":               {`[[` + attr("list") + `,{"type":"index","value":0}]]`, without(`{"x": 1}`, `null`), []string{`list[0]`}},
		"plain name":                {`["password"]`, without(`"p"`, `null`), []string{"password"}},
		"plain steps":               {`[["password"]]`, without(`"p"`, `null`), []string{"password"}},
		"single step":               {`[` + attr("password") + `]`, without(`"p"`, `null`), []string{"password"}},
		"no such key":               {`[[` + attr("tags") + `,` + key("z") + `]]`, without(`{"a": "x", "b.c": "y"}`, `null`), []string{"tags"}},
		"a found and a lost one":    {`[[` + attr("tags") + `,` + key("a") + `],[` + attr("tags") + `,` + key("z") + `]]`, without(`{"a": "x", "b.c": "y"}`, `null`), []string{"tags"}},
		"beyond the end":            {`[[` + attr("list") + `,` + item("2") + `]]`, without(`[ {"x": 1}, {"x": 2} ]`, `null`), []string{"list"}},
		"into a scalar":             {`[[` + attr("password") + `,` + attr("x") + `]]`, without(`"p"`, `null`), []string{"password"}},
		"into null":                 {`[[` + attr("gone") + `,` + attr("x") + `]]`, attrs, []string{"gone"}},
		"number into a map":         {`[[` + attr("tags") + `,` + item("0") + `]]`, without(`{"a": "x", "b.c": "y"}`, `null`), []string{"tags"}},
		"key into a list":           {`[[` + attr("list") + `,` + key("0") + `]]`, without(`[ {"x": 1}, {"x": 2} ]`, `null`), []string{"list"}},
		"fraction":                  {`[[` + attr("list") + `,` + item("0.5") + `]]`, without(`[ {"x": 1}, {"x": 2} ]`, `null`), []string{"list"}},
		"element of a set":          {`[[` + attr("list") + `,{"type":"index","value":{"value":{"x":1},"type":["object",{"x":"number"}]}},` + attr("x") + `]]`, without(`[ {"x": 1}, {"x": 2} ]`, `null`), []string{"list"}},
		"no such attribute":         {`[[` + attr("none") + `]]`, nothing, all},
		"the empty path":            {`[[]]`, nothing, all},
		"an unknown step":           {`[[{"type":"splat","value":"password"}]]`, nothing, all},
		"a number for a path":       {`[1]`, nothing, all},
		"an object for the paths":   {`{"password": true}`, nothing, all},
		"an attribute's odd name":   {`[[{"type":"get_attr","value":1}]]`, nothing, all},
		"an index without a value":  {`[[` + attr("tags") + `,{"type":"index","value":{}}]]`, nothing, all},
		"understood and not at all": {`[[` + attr("password") + `],7]`, nothing, all},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			raw := `{"schema_version": 0, "attributes": ` + attrs + `, "sensitive_attributes": ` + c.paths + `}`
			got, told, err := tfstate.MaskAttributes([]byte(raw))
			if err != nil || string(got) != c.want || !slices.Equal(told, c.told) {
				t.Errorf("%s\ngot  %s %q %v\nwant %s %q", c.paths, got, told, err, c.want, c.told)
			}
		})
	}
}

func TestMaskAttributesForms(t *testing.T) {
	const flat = `{"id": "i", "tags.%": "1", "tags.a": "x", "tagsx": "2"}`
	cases := map[string]struct {
		raw, want string
		told      []string
		err       error
	}{
		"no attributes":     {`{"schema_version": 0}`, ``, nil, nil},
		"null":              {`{"attributes": null, "sensitive_attributes": [["a"]]}`, ``, nil, nil},
		"not an object":     {`{"attributes": [1], "sensitive_attributes": [["a"]]}`, `null`, []string{""}, nil},
		"flat":              {`{"attributes_flat": ` + flat + `}`, flat, nil, nil},
		"flat, sensitive":   {`{"attributes_flat": ` + flat + `, "sensitive_attributes": [["tags", {"type":"index","value":"a"}]]}`, `{"id": "i", "tags.%": null, "tags.a": null, "tagsx": "2"}`, []string{"tags.%", "tags.a"}, nil},
		"flat, nowhere":     {`{"attributes_flat": ` + flat + `, "sensitive_attributes": [["id"], ["z"]]}`, `{"id": null, "tags.%": null, "tags.a": null, "tagsx": null}`, []string{"id", "tags.%", "tags.a", "tagsx"}, nil},
		"other case":        {`{"Attributes": {"a": 1}, "SENSITIVE_attributes": ["a"]}`, `{"a": null}`, []string{"a"}, nil},
		"a name twice":      {`{"attributes": {"a": 1, "a": 2}, "sensitive_attributes": ["a"]}`, `{"a": null, "a": null}`, []string{"a"}, nil},
		"no object":         {`[]`, ``, nil, tfstate.ErrInstance},
		"cut":               {`{"attributes": {`, ``, nil, tfstate.ErrInstance},
		"more behind":       {`{} {}`, ``, nil, tfstate.ErrInstance},
		"nothing":           {``, ``, nil, tfstate.ErrInstance},
		"white space stays": {" {\"attributes\":\n{ \"a\" :\t1 } , \"sensitive_attributes\": [] } ", "{ \"a\" :\t1 }", nil, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, told, err := tfstate.MaskAttributes([]byte(c.raw))
			if !errors.Is(err, c.err) || string(got) != c.want || !slices.Equal(told, c.told) {
				t.Errorf("%s\ngot  %s %q %v\nwant %s %q %v", c.raw, got, told, err, c.want, c.told, c.err)
			}
		})
	}
}

// FuzzMaskAttributes checks that masking fails on what is no object only, leaves JSON of the same form, and that no
// value is left which a simple path names.
func FuzzMaskAttributes(f *testing.F) {
	f.Add([]byte(`{"attributes":{"a":{"b":[1,"secret"]},"c":2},"sensitive_attributes":[[{"type":"get_attr","value":"a"},{"type":"get_attr","value":"b"},{"type":"index","value":{"value":1,"type":"number"}}]]}`), "a")
	f.Add([]byte(`{"attributes_flat":{"a.b":"1","c":"2"},"sensitive_attributes":["a"]}`), "c")
	for i := range uint64(10) {
		g := newGen(i, 0)
		g.instance()
		f.Add([]byte(g.b.String()), "id")
	}
	f.Fuzz(func(t *testing.T, raw []byte, name string) {
		got, told, err := tfstate.MaskAttributes(raw)
		trimmed := bytes.TrimSpace(raw)
		if valid := json.Valid(raw) && trimmed[0] == '{'; valid != (err == nil) {
			t.Fatalf("valid %v, error %v", valid, err)
		}
		if err != nil {
			return
		}
		if got != nil && !json.Valid(got) {
			t.Fatalf("not JSON: %s", got)
		}
		if len(told) == 0 && got != nil && !bytes.Contains(raw, got) {
			t.Fatalf("nothing is masked, but %s is not what was there", got)
		}
		var attrs map[string]json.RawMessage
		quoted, _ := json.Marshal(name)
		masked, told, err := tfstate.MaskAttributes([]byte(`{"sensitive_attributes":[[{"type":"get_attr","value":` + string(quoted) + `}]],"attributes":` + string(trimmed) + `}`))
		if err != nil {
			return // nested too deeply now
		}
		if err := json.Unmarshal(masked, &attrs); err != nil {
			t.Fatal(err)
		}
		var want string
		if err := json.Unmarshal(quoted, &want); err != nil {
			t.Fatal(err)
		}
		value, found := attrs[want]
		if found && string(value) != "null" || len(attrs) > 0 && len(told) == 0 {
			t.Fatalf("%q is left: %s, %q", name, masked, told)
		}
	})
}
