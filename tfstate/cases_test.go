package tfstate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kl/tfstate"
)

func doc(members string) string {
	return `{"version": 4, "serial": 1, "lineage": "l", ` + members + `}`
}

func withResource(members string) string { return doc(`"resources": [{` + members + `}]`) }

func withInstance(members string) string {
	return withResource(`"mode": "managed", "type": "t", "name": "n", "instances": [{` + members + `}]`)
}

// refused holds documents that a scan refuses, and what the error says.
var refused = map[string]struct{ doc, want string }{
	"empty":              {"", "not valid JSON: there is nothing (line 1, column 1)"},
	"blanks":             {" \n ", "not valid JSON: it ends too early (line 2, column 2)"},
	"null":               {"null", "not a version 4 state: the document must be an object, not null (line 1)"},
	"array":              {"[]", "not a version 4 state: the document must be an object, not an array (line 1)"},
	"half a word":        {"nul", "not valid JSON: it ends too early (line 1, column 4)"},
	"text":               {"404 page not found", "not valid JSON: unexpected 'p' (line 1, column 5)"},
	"page":               {"<html>", "not valid JSON: unexpected '<' (line 1, column 1)"},
	"empty object":       {"{}", "not a version 4 state: it has no version (line 1)"},
	"garbage behind":     {doc(`"x": 1`) + "\n}", "not valid JSON: unexpected '}' (line 2, column 1)"},
	"two documents":      {"{\"version\":4}\n{}", "not valid JSON: unexpected '{' (line 2, column 1)"},
	"trailing comma":     {"{\"version\": 4,\n}", "not valid JSON: unexpected '}' (line 2, column 1)"},
	"comma in resources": {doc("\"resources\": [,]"), "not valid JSON: unexpected ','"},
	"comma at the end":   {doc("\"resources\": [\n],"), "not valid JSON: unexpected '}'"},
	"raw newline":        {"{\"version\": 4, \"lineage\": \"a\nb\"}", "control character 0x0a within a string (line 1, column 29)"},
	"no text at all":     {"{\xff", "not valid JSON: unexpected byte 0xff (line 1, column 2)"},
	"bad escape":         {`{"version": 4, "lineage": "\x"}`, `'x' is no escape within a string (line 1, column 29)`},
	"bad hex":            {`{"version": 4, "lineage": "\u00g0"}`, `'g' is no escape within a string (line 1, column 32)`},
	"leading zero":       {`{"version": 4, "serial": 04}`, "unexpected '4'"},
	"version 3":          {"{\n\"version\": 3}", "version must be 4, not 3 (line 2)"},
	"version text":       {`{"version": "4"}`, `version must be 4, not a string`},
	"version fraction":   {`{"version": 4.0}`, `version must be 4, not 4.0`},
	"serial negative":    {`{"version": 4, "serial": -1}`, "serial must be a whole number from 0 to 2^64-1, not -1"},
	"serial too big":     {`{"version": 4, "serial": 18446744073709551616}`, "from 0 to 2^64-1, not 18446744073709551616"},
	"serial fraction":    {`{"version": 4, "serial": 1e3}`, "from 0 to 2^64-1, not 1e3"},
	"serial text":        {`{"version": 4, "serial": "1"}`, "serial must be a whole number, not a string"},
	"lineage number":     {`{"version": 4, "lineage": 1}`, "lineage must be a string, not a number"},
	"outputs array":      {doc(`"outputs": []`), "outputs must be an object, not an array"},
	"output null":        {doc(`"outputs": {"a": null}`), "an output must be an object, not null"},
	"resources object":   {doc(`"resources": {}`), "resources must be an array, not an object"},
	"resource null":      {doc(`"resources": [null]`), "a resource must be an object, not null"},
	"no type":            {withResource(`"mode": "managed", "name": "n"`), "a resource has no type"},
	"no name":            {withResource(`"mode": "managed", "type": "t", "instances": null`), "a resource has no name"},
	"empty mode":         {withResource(`"mode": "", "type": "t", "name": "n", "instances": []`), "a resource has no mode"},
	"null type":          {withResource(`"mode": "m", "type": null, "name": "n", "instances": []`), "a resource has no type"},
	"module number":      {withResource(`"module": 1`), "module must be a string, not a number"},
	"instances text":     {withResource(`"instances": "x"`), "instances must be an array, not a string"},
	"instance null":      {withResource(`"mode": "m", "type": "t", "name": "n", "instances": [null]`), "an instance must be an object, not null"},
	"key object":         {withInstance(`"index_key": {}`), "index_key must be a string, a number or null, not an object"},
	"key boolean":        {withInstance(`"index_key": true`), "index_key must be a string, a number or null, not a boolean"},
	"key rubbish":        {withInstance(`"index_key": tru`), "not valid JSON: unexpected '}'"},
	"deposed number":     {withInstance(`"deposed": 1`), "deposed must be a string, not a number"},
	"check text":         {doc(`"check_results": ["x"]`), "a check result must be an object, not a string"},
	"check object":       {doc(`"check_results": {}`), "check_results must be an array, not an object"},
	"serial twice":       {doc("\n\"serial\": 1"), `"serial" at line 2 is the second one`},
	"serial escaped":     {doc(`"s\u0065rial": 1`), `second one`},
	"serial in capitals": {doc(`"SERIAL": 1`), `"SERIAL" at line 1 is the second one`},
	"serial folded":      {doc("\"\u017ferial\": 1"), `second one`},
	"type twice":         {withResource(`"type": "t", "type": "t"`), `"type" at line 1 is the second one`},
	"instances twice":    {withResource(`"mode": "m", "type": "t", "name": "n", "instances": [], "instances": []`), `"instances" at`},
	"key twice":          {withInstance(`"index_key": 1, "Index_Key": 2`), `"Index_Key" at line 1 is the second one`},
	"attributes twice":   {withInstance(`"attributes": {}, "attributes": {}`), `"attributes" at`},
	"module late":        {withResource(`"mode": "m", "type": "t", "name": "n", "instances": [], "module": "m"`), "only after its instances"},
	"type late":          {withResource(`"mode": "m", "name": "n", "instances": [], "type": "t"`), "only after its instances"},
	"too deep":           {withInstance(`"attributes": ` + strings.Repeat("[", 9996)), "nested deeper than 10000 levels"},
}

func TestRefused(t *testing.T) {
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			agree(t, []byte(c.doc))
			_, err := scanAll(tfstate.NewScanner([]byte(c.doc), tfstate.Options{}))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q\n%.200s", err, c.want, c.doc)
			}
		})
	}
}

func TestErrorsAreFinal(t *testing.T) {
	s := tfstate.NewScanner([]byte(doc(`"outputs": {"a": {}, 1}`)), tfstate.Options{})
	_, first := scanAll(s)
	if _, err := s.Next(); first == nil || !errors.Is(err, first) {
		t.Errorf("first %v, then %v", first, err)
	}
	if s.Done() {
		t.Error("Done after an error")
	}
}

func addresses(t *testing.T, doc string, opt tfstate.Options) []string {
	t.Helper()
	tokens, err := scanAll(tfstate.NewScanner([]byte(doc), opt))
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	var all []string
	for i := range tokens {
		if tokens[i].Kind == tfstate.CutInstance {
			all = append(all, tokens[i].Inst.Address())
		}
	}
	return all
}

func TestAddresses(t *testing.T) {
	const res = `"mode": "managed", "type": "t", "name": "n", `
	for name, c := range map[string]struct{ members, want string }{
		"single":         {res + `"instances": [{}]`, `t.n`},
		"null key":       {res + `"instances": [{"index_key": null}]`, `t.n`},
		"number":         {res + `"instances": [{"index_key": 10}]`, `t.n[10]`},
		"number as text": {res + `"instances": [{"index_key": 1.0}]`, `t.n[1.0]`},
		"string":         {res + `"instances": [{"index_key": "10"}]`, `t.n["10"]`},
		"empty string":   {res + `"instances": [{"index_key": ""}]`, `t.n[""]`},
		"quotes":         {res + `"instances": [{"index_key": "a\"b\\c"}]`, `t.n["a\"b\\c"]`},
		"templates":      {res + `"instances": [{"index_key": "$${a}%{b}$ %%"}]`, `t.n["$$${a}%%{b}$ %%"]`},
		"white space":    {res + `"instances": [{"index_key": "\n\r\t"}]`, `t.n["\n\r\t"]`},
		"not printable":  {res + `"instances": [{"index_key": "\u0000\u00a0\udb40\udc01"}]`, `t.n["\u0000\u00a0\U000e0001"]`},
		"lone surrogate": {res + `"instances": [{"index_key": "\ud83dx"}]`, "t.n[\"\ufffdx\"]"},
		"two surrogates": {res + `"instances": [{"index_key": "\ud83d\ud83d\ude00"}]`, "t.n[\"\ufffd\U0001f600\"]"},
		"no UTF-8":       {res + "\"instances\": [{\"index_key\": \"a\xffb\"}]", "t.n[\"a\ufffdb\"]"},
		"deposed":        {res + `"instances": [{"deposed": "0a1b2c3d", "index_key": 1}]`, `t.n[1] (deposed object 0a1b2c3d)`},
		"not deposed":    {res + `"instances": [{"deposed": ""}]`, `t.n`},
		"data":           {`"module": "module.a", "mode": "data", "type": "t", "name": "n", "instances": [{}]`, `module.a.data.t.n`},
		"null module":    {`"module": null, ` + res + `"instances": [{}]`, `t.n`},
		"module":         {`"module": "module.a[\"x.y]\\\"\"].module.b[0]", ` + res + `"instances": [{}]`, `module.a["x.y]\""].module.b[0].t.n`},
		"escaped names": {
			`"\u006dode": "managed", "TYPE": "t", "name": "n", "instance\u0073": [{"inde\u0078_key": 1}]`,
			`t.n[1]`,
		},
		"nested look-alikes": {res + `"x": {"type": "z", "instances": [{}]}, "instances": [{"attributes": {"index_key": 3, "deposed": 1}}]`, `t.n`},
	} {
		t.Run(name, func(t *testing.T) {
			d := withResource(c.members)
			agree(t, []byte(d))
			if diff := cmp.Diff([]string{c.want}, addresses(t, d, tfstate.Options{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReordered(t *testing.T) {
	d := doc(`"resources": [
		{"mode": "managed", "type": "a", "name": "whole", "instances": [{}, {"index_key": 1}], "each": "list"},
		{"instances": [{}, {"index_key": 1}], "type": "b", "name": "late", "mode": "data", "module": "module.m"},
		{"mode": "managed", "type": "c", "name": "after", "instances": [{}, {"index_key": 1}]}]`)
	agree(t, []byte(d))
	s := tfstate.NewScanner([]byte(d), tfstate.Options{Reordered: true})
	tokens, err := scanAll(s)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range tokens {
		got = append(got, fmt.Sprint(describe(&tokens[i]), " ", tokens[i].Cut))
	}
	want := []string{
		"resource a.whole true", "instance a.whole false", "instance a.whole[1] true",
		"resource module.m.data.b.late true", "instance module.m.data.b.late false", "instance module.m.data.b.late[1] false",
		"resource c.after true", "instance c.after false", "instance c.after[1] true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEmptyContainers(t *testing.T) {
	for name, members := range map[string]string{
		"null":   `"outputs": null, "resources": null, "check_results": null`,
		"empty":  `"outputs": { }, "resources": [ ], "check_results": [ ]`,
		"absent": `"x": 1`,
	} {
		tokens, err := scanAll(tfstate.NewScanner([]byte(doc(members)), tfstate.Options{}))
		if err != nil || len(tokens) > 0 {
			t.Errorf("%s: %v, %v", name, tokens, err)
		}
	}
}

func TestDepthLimitIsThatOfEncodingJSON(t *testing.T) {
	for _, n := range []int{9000, 9994, 9995, 9996, 20000} {
		d := []byte(withInstance(`"attributes": ` + strings.Repeat("[", n) + strings.Repeat("]", n)))
		_, err := scanAll(tfstate.NewScanner(d, tfstate.Options{}))
		if valid := json.Valid(d); valid != (err == nil) {
			t.Errorf("%d brackets: scan says %v, encoding/json says %v", n, err, valid)
		}
		if _, err := tfstate.Sniff(d); json.Valid(d) != (err == nil) {
			t.Errorf("%d brackets: Sniff says %v", n, err)
		}
	}
	mixed := []byte(withInstance(`"attributes": ` + strings.Repeat(`{"a":[`, 400) + "1" + strings.Repeat(`]}`, 400)))
	agree(t, mixed)
	mixed[len(mixed)-200] = ']'
	agree(t, mixed)
}

func TestResourceAt(t *testing.T) {
	d := []byte(sample)
	tokens, err := scanAll(tfstate.NewScanner(d, tfstate.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	start := 0
	for i := range tokens {
		tok := &tokens[i]
		switch {
		case tok.Kind == tfstate.CutResource:
			start = tok.Start
			at, err := tfstate.ResourceAt(d, start)
			if err != nil || at.Resource != tok.Resource {
				t.Errorf("ResourceAt(%d) = %v, %v; want %v", start, at.Resource, err, tok.Resource)
			}
		case tok.Kind == tfstate.CutInstance && tok.Cut:
			at, err := tfstate.ResourceAt(d[:tok.Start], start)
			at.Top = tok.Ctx.Top
			if err != nil || at != tok.Ctx {
				t.Errorf("ResourceAt gives %+v, %v; want %+v", at, err, tok.Ctx)
			}
		}
	}
	if _, err := tfstate.ResourceAt([]byte(`{"type":"t","instances":[`), 0); !errors.Is(err, tfstate.ErrReordered) {
		t.Errorf("without a name before the instances: %v", err)
	}
	for _, bad := range []string{"", "[", `{"type"`, `{"type":1}`, `{"mode":"m","type":"t"}`} {
		if _, err := tfstate.ResourceAt([]byte(bad), 0); err == nil {
			t.Errorf("ResourceAt(%q) took it", bad)
		}
	}
}

func TestSniff(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		want tfstate.Info
	}{
		"encrypted": {
			`{"serial":2,"lineage":"l","meta":{"k":"x"},"encrypted_data":"ZGF0YQ==","encryption_version":"v0"}`,
			tfstate.Info{
				Members: tfstate.TopSerial | tfstate.TopLineage | tfstate.TopMeta | tfstate.TopEncryptedData | tfstate.TopEncryptionVersion,
				Serial:  2, HasSerial: true, SerialStart: 10, SerialEnd: 11, Lineage: "l", Encrypted: true,
			},
		},
		"version 3": {
			`{"version":3,"terraform_version":"0.11.14","serial": 98 ,"lineage":"l","modules":[]}`,
			tfstate.Info{
				Members: tfstate.TopVersion | tfstate.TopTerraformVersion | tfstate.TopSerial | tfstate.TopLineage,
				Version: 3, HasVersion: true, Serial: 98, HasSerial: true, SerialStart: 53, SerialEnd: 55, Lineage: "l", TerraformVersion: "0.11.14",
			},
		},
		"twice":     {`{"serial":1,"Serial":2}`, tfstate.Info{Members: tfstate.TopSerial, Serial: 2, HasSerial: true, SerialStart: 21, SerialEnd: 22, Ambiguous: true}},
		"odd types": {`{"version":"4","serial":-1,"lineage":7}`, tfstate.Info{Members: tfstate.TopVersion | tfstate.TopSerial | tfstate.TopLineage, SerialStart: 24, SerialEnd: 26}},
	} {
		got, err := tfstate.Sniff([]byte(c.doc))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
