package tfstate_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/tfstate"
)

func TestInstanceHashes(t *testing.T) {
	const base = `{"schema_version": 0, "attributes": {"id": "i", "n": 1, "l": [1, 2]}, "sensitive_attributes": [[1], [2]],
		"identity_schema_version": 0, "dependencies": ["a.b", "c.d"]}`
	want := tfstate.InstanceHash([]byte(base), 1)
	for name, equal := range map[string]string{
		"compact": `{"schema_version":0,"attributes":{"id":"i","n":1,"l":[1,2]},"sensitive_attributes":[[1],[2]],"identity_schema_version":0,"dependencies":["a.b","c.d"]}`,
		"members moved": `{"dependencies":["a.b","c.d"],"attributes":{"id":"i","n":1,"l":[1,2]},"schema_version":0,
			"sensitive_attributes":[[1],[2]]}`,
		"sets moved":          `{"schema_version":0,"attributes":{"id":"i","n":1,"l":[1,2]},"sensitive_attributes":[[2],[1]],"dependencies":["c.d","a.b"]}`,
		"identity's version":  `{"identity_schema_version":7,"schema_version":0,"attributes":{"id":"i","n":1,"l":[1,2]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b","c.d"]}`,
		"escaped member name": `{"schema_versio\u006e":0,"attributes":{"id":"i","n":1,"l":[1,2]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b","c.d"]}`,
	} {
		if tfstate.InstanceHash([]byte(equal), 1) != want {
			t.Errorf("%s: the hash changed", name)
		}
	}
	for name, other := range map[string]string{
		"number's text":      `{"schema_version":0,"attributes":{"id":"i","n":1.0,"l":[1,2]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b","c.d"]}`,
		"white space inside": `{"schema_version":0,"attributes":{"id":"i ","n":1,"l":[1,2]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b","c.d"]}`,
		"list moved":         `{"schema_version":0,"attributes":{"id":"i","n":1,"l":[2,1]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b","c.d"]}`,
		"attributes moved":   `{"schema_version":0,"attributes":{"n":1,"id":"i","l":[1,2]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b","c.d"]}`,
		"dependency less":    `{"schema_version":0,"attributes":{"id":"i","n":1,"l":[1,2]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b"]}`,
		"dependency twice":   `{"schema_version":0,"attributes":{"id":"i","n":1,"l":[1,2]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b","c.d","c.d"]}`,
		"sets exchanged":     `{"schema_version":0,"attributes":{"id":"i","n":1,"l":[1,2]},"dependencies":[[1],[2]],"sensitive_attributes":["a.b","c.d"]}`,
		"unknown member":     `{"x":1,"schema_version":0,"attributes":{"id":"i","n":1,"l":[1,2]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b","c.d"]}`,
		"status":             `{"status":"tainted","schema_version":0,"attributes":{"id":"i","n":1,"l":[1,2]},"sensitive_attributes":[[1],[2]],"dependencies":["a.b","c.d"]}`,
	} {
		if tfstate.InstanceHash([]byte(other), 1) == want {
			t.Errorf("%s: the hash is the same", name)
		}
	}
	if tfstate.InstanceHash([]byte(base), 2) == want {
		t.Error("another seed, the same hash")
	}
	a, b := tfstate.InstanceHash([]byte(`{"a":9007199254740993}`), 1), tfstate.InstanceHash([]byte(`{"a":9007199254740992}`), 1)
	if a == b {
		t.Error("integers over 2^53 are told apart no more")
	}
}

// TestHashesStayTheSame pins values, because hashes and bits are stored: a change here needs a new file format.
func TestHashesStayTheSame(t *testing.T) {
	tokens, err := scanAll(tfstate.NewScanner([]byte(sample), tfstate.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	h := tfstate.NewHasher(42)
	for i := range tokens {
		tok := &tokens[i]
		line := fmt.Sprintf("%d %016x", tok.Kind, tok.StartHash(42))
		if tok.Cut {
			line += fmt.Sprintf(" %016x top %03x res %03x", tok.Ctx.Hash(42), tok.Ctx.Top, tok.Ctx.Res)
		}
		if tok.Kind != tfstate.CutResource {
			line += fmt.Sprintf(" %x", tok.Content(h))
		}
		got = append(got, line)
	}
	want := []string{
		"1 d10c0d5a2db06859 5eda02f5debb710b top 01f res 000 d82dd3e80174ff43acaa1cd61db29f93",
		"1 0b8cbb401bbf402f 968856f942ed15d7 top 01f res 000 50e5c72ddea3b15ca617113858e26418",
		"2 64b4135fce21d09f e0e9cf53c0612cfa top 03f res 000",
		"3 cb1211cd8483fc82 7009bee0b1acbc4b9858d4be244cadd1",
		"2 adfee430bc7ef416 34095d84b8e54777 top 03f res 000",
		"3 db188f8da0efcf39 49589d0e9207aa12a64af4a09d6ce14a",
		"3 e13b4000444f3b77 d1dcd9e1a8d053ae top 03f res 05f fba2b7c1445cecebd1e5474aa67c01bc",
		"3 2586edf8745d4abe d1dcd9e1a8d053ae top 03f res 05f b858c4cd9c42103b0d942721bf65585e",
		"2 6844420ec5c9f32b 34095d84b8e54777 top 03f res 000",
		"2 c8891f2e0e63203e 34095d84b8e54777 top 03f res 000",
		"2 15edb1572f823cd9 34095d84b8e54777 top 03f res 000",
		"4 52e8e11a364be637 de1ea2f8b246b888 top 07f res 000 51f6664c413fc313d484282ac310ce48",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestContextHashes(t *testing.T) {
	all := []tfstate.Context{
		{},
		{Kind: tfstate.CutOutput},
		{Kind: tfstate.CutResource},
		{Kind: tfstate.CutResource, First: true},
		{Kind: tfstate.CutResource, Top: 1},
		{Kind: tfstate.CutResource, Res: 1},
		{Kind: tfstate.CutResource, Top: 256},
		{Resource: tfstate.Resource{Module: "ab"}},
		{Resource: tfstate.Resource{Module: "a", Mode: "b"}},
		{Resource: tfstate.Resource{Mode: "ab"}},
		{Resource: tfstate.Resource{Type: "ab"}},
		{Resource: tfstate.Resource{Name: "ab"}},
		{Rest: 1},
	}
	seen := map[uint64]tfstate.Context{}
	for _, c := range all {
		h := c.Hash(1)
		if other, twice := seen[h]; twice {
			t.Errorf("%+v and %+v hash alike", c, other)
		}
		seen[h] = c
	}
}

func TestIdentityHashesTellKeysApart(t *testing.T) {
	res := tfstate.Resource{Mode: "managed", Type: "t", Name: "n"}
	all := []tfstate.Instance{
		{Resource: res},
		{Resource: res, Key: tfstate.Key{Kind: tfstate.KeyInt, Text: "1"}},
		{Resource: res, Key: tfstate.Key{Kind: tfstate.KeyString, Text: "1"}},
		{Resource: res, Key: tfstate.Key{Kind: tfstate.KeyInt, Text: "1.0"}},
		{Resource: res, Key: tfstate.Key{Kind: tfstate.KeyString}},
		{Resource: res, Deposed: "1"},
	}
	seen := map[uint64]string{}
	for i := range all {
		h := all[i].IdentityHash(1)
		if other, twice := seen[h]; twice {
			t.Errorf("%s and %s hash alike", all[i].Address(), other)
		}
		seen[h] = all[i].Address()
	}
}

func TestOrder(t *testing.T) {
	number := func(s string) tfstate.Key { return tfstate.Key{Kind: tfstate.KeyInt, Text: s} }
	text := func(s string) tfstate.Key { return tfstate.Key{Kind: tfstate.KeyString, Text: s} }
	keys := []tfstate.Key{
		{}, number("-1"), number("0"), number("2"), number("10"), number("1.0"), number("1e999999999999"), number("99999999999999999999"), text(""), text("10"), text("2"),
	}
	got := slices.Clone(keys)
	slices.Reverse(got)
	slices.SortFunc(got, tfstate.Key.Compare)
	if diff := cmp.Diff(keys, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	resources := []tfstate.Resource{
		{Mode: "data", Type: "z"}, {Mode: "managed", Type: "a", Name: "b"}, {Mode: "managed", Type: "b", Name: "a"}, {Module: "module.a"},
	}
	sorted := slices.Clone(resources)
	slices.Reverse(sorted)
	slices.SortFunc(sorted, tfstate.Resource.Compare)
	if diff := cmp.Diff(resources, sorted); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

func TestPartsOfAnInstance(t *testing.T) {
	for name, c := range map[string]struct {
		raw, id, attributes string
		deps                []string
	}{
		"usual":       {`{"attributes": {"id": "i-\u0031", "x": {"id": 2}}, "dependencies": ["a.b", "c\u002ed"]}`, "i-1", `{"id": "i-\u0031", "x": {"id": 2}}`, []string{"a.b", "c.d"}},
		"none":        {`{}`, "", "", nil},
		"null":        {`{"attributes": null, "dependencies": null}`, "", "", nil},
		"no string":   {`{"attributes": {"id": 7}, "dependencies": []}`, "", `{"id": 7}`, nil},
		"flat":        {`{"attributes_flat": {"id": "f"}}`, "f", "", nil},
		"nested only": {`{"private": {"attributes": {"id": "x"}}, "attributes": {"a": {"id": "y"}}}`, "", `{"a": {"id": "y"}}`, nil},
	} {
		raw := []byte(c.raw)
		if got := tfstate.ObjectID(raw); got != c.id {
			t.Errorf("%s: id %q, want %q", name, got, c.id)
		}
		if got := string(tfstate.Attributes(raw)); got != c.attributes {
			t.Errorf("%s: attributes %q, want %q", name, got, c.attributes)
		}
		if diff := cmp.Diff(c.deps, tfstate.Dependencies(raw)); diff != "" {
			t.Errorf("%s: dependencies (-want +got):\n%s", name, diff)
		}
	}
}

func TestManaged(t *testing.T) {
	for mode, want := range map[string]bool{"managed": true, "data": false} {
		inst := tfstate.Instance{Resource: tfstate.Resource{Mode: mode}}
		if inst.Managed() != want {
			t.Errorf("mode %s counts: %v", mode, !want)
		}
		inst.Deposed = "01234567"
		if inst.Managed() {
			t.Errorf("a deposed object of mode %s counts", mode)
		}
	}
}
