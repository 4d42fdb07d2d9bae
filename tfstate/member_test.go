package tfstate_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"kl/tfstate"
)

// sameMembers compares Members, Text and Compact with encoding/json.
func sameMembers(t *testing.T, doc []byte) {
	t.Helper()
	n := 0
	var want []jsonMember
	if json.Valid(doc) && len(bytes.TrimSpace(doc)) > 0 && bytes.TrimSpace(doc)[0] == '{' {
		want = jsonMembers(doc)
	}
	for name, value := range tfstate.Members(doc) {
		if !json.Valid(value) {
			t.Fatalf("member %q of %q has the value %q", name, doc, value)
		}
		if want == nil {
			continue // only the valid beginning of something else
		}
		if n >= len(want) || name != want[n].name || !bytes.Equal(value, want[n].raw) {
			t.Fatalf("member %d of %q is %q: %q", n, doc, name, value)
		}
		n++
		var text string
		wantText := json.Unmarshal(value, &text) == nil && value[0] == '"'
		if got, ok := tfstate.Text(value); ok != wantText || got != text && wantText {
			t.Fatalf("text of %q is %q %v", value, got, ok)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			t.Fatal(err)
		}
		if got := tfstate.Compact(value); !bytes.Equal(got, compact.Bytes()) {
			t.Fatalf("%q becomes %q, want %q", value, got, compact.Bytes())
		}
	}
	if n != len(want) {
		t.Fatalf("%d of %d members of %q", n, len(want), doc)
	}
}

func TestMembers(t *testing.T) {
	for _, doc := range []string{"", " ", "[", "{", "{}", "null", `"a"`, `{"a":1,}`, `{"a":1 "b":2}`, `{"a":`, `{"\u0061\"": "\u00e9\ud83e\udd80" , "b":{ "c" : [ ] }}`} {
		sameMembers(t, []byte(doc))
	}
	for seed := range uint64(300) {
		sameMembers(t, newGen(seed, 0).document())
		doc := newGen(seed, 100).document()
		sameMembers(t, doc)
		r := rand.New(rand.NewPCG(seed, 9))
		if len(doc) > 0 {
			sameMembers(t, doc[:r.IntN(len(doc))])
		}
	}
}

func FuzzMembers(f *testing.F) {
	addDocuments(f)
	f.Fuzz(func(t *testing.T, doc []byte) { sameMembers(t, doc) })
}

func TestProvider(t *testing.T) {
	for head, want := range map[string]string{
		`{"mode":"managed","provider":"p[\"x\"]","instances":[`: `p["x"]`,
		`{"provider": null, "instances": [`:                     "",
		`{"instances":[`:                                        "",
		`{"mode":"managed","instances":[],"provider":"late"}`:   "late",
	} {
		if got := tfstate.Provider([]byte(head)); got != want {
			t.Errorf("%s: %q, want %q", head, got, want)
		}
	}
}
