package tfstate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"kl/tfstate"
)

// An oracle reads a document with encoding/json, which is what Terraform does, and says what a scan must find.
type oracle struct {
	elements  []element
	shape     bool // it is no version 4 state
	ambiguous bool // a known member occurs twice
	reordered bool // a resource names itself after its instances
}

type element struct {
	what string
	raw  string // empty for a resource
}

type jsonMember struct {
	name string // decoded
	raw  json.RawMessage
}

func jsonMembers(raw []byte) []jsonMember {
	dec := json.NewDecoder(bytes.NewReader(raw))
	mustToken(dec)
	var all []jsonMember
	for dec.More() {
		name := mustToken(dec).(string)
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			panic(err)
		}
		all = append(all, jsonMember{name, v})
	}
	return all
}

func jsonElements(raw []byte) []json.RawMessage {
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		panic(err)
	}
	return all
}

func mustToken(dec *json.Decoder) json.Token {
	t, err := dec.Token()
	if err != nil {
		panic(err)
	}
	return t
}

// Probes let encoding/json itself decide which member a name is.
type (
	topProbe struct {
		A any `json:"version"`
		B any `json:"terraform_version"`
		C any `json:"serial"`
		D any `json:"lineage"`
		E any `json:"outputs"`
		F any `json:"resources"`
		G any `json:"check_results"`
		H any `json:"encrypted_data"`
		I any `json:"encryption_version"`
		J any `json:"meta"`
	}
	resProbe struct {
		A any `json:"module"`
		B any `json:"mode"`
		C any `json:"type"`
		D any `json:"name"`
		E any `json:"provider"`
		F any `json:"each"`
		G any `json:"instances"`
	}
	instProbe struct {
		A any `json:"index_key"`
		B any `json:"deposed"`
		C any `json:"status"`
		D any `json:"schema_version"`
		E any `json:"attributes"`
		F any `json:"attributes_flat"`
		G any `json:"sensitive_attributes"`
		H any `json:"identity_schema_version"`
		I any `json:"identity"`
		J any `json:"private"`
		K any `json:"dependencies"`
		L any `json:"depends_on"`
		M any `json:"create_before_destroy"`
		N any `json:"skip_destroy"`
		O any `json:"provider"`
	}
)

// knownNames keeps the answers of known, by name and probe.
var knownNames sync.Map

func known[P any](name string) string {
	var p P
	key := fmt.Sprintf("%T %s", p, name)
	if proper, ok := knownNames.Load(key); ok {
		return proper.(string)
	}
	proper := probe[P](name)
	knownNames.Store(key, proper)
	return proper
}

func probe[P any](name string) string {
	quoted, _ := json.Marshal(name)
	var p P
	if err := json.Unmarshal(fmt.Appendf(nil, "{%s:1}", quoted), &p); err != nil {
		panic(err)
	}
	out, _ := json.Marshal(p)
	for _, m := range jsonMembers(out) {
		if string(m.raw) == "1" {
			return m.name
		}
	}
	return ""
}

// knownMembers returns the members that P knows, by their proper names, and their order.
func knownMembers[P any](o *oracle, raw []byte) (map[string]json.RawMessage, []string) {
	found := map[string]json.RawMessage{}
	var order []string
	for _, m := range jsonMembers(raw) {
		name := known[P](m.name)
		if name == "" {
			continue
		}
		if _, twice := found[name]; twice {
			o.ambiguous = true
		}
		found[name] = m.raw
		order = append(order, name)
	}
	return found, order
}

func (o *oracle) text(raw json.RawMessage) string {
	var s *string
	if raw == nil {
		return ""
	}
	if json.Unmarshal(raw, &s) != nil {
		o.shape = true
	}
	if s == nil {
		return ""
	}
	return *s
}

func isNull(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

// consult reads doc, which must be valid JSON.
func consult(doc []byte) *oracle {
	o := &oracle{}
	doc = bytes.TrimLeft(doc, " \t\r\n")
	if doc[0] != '{' {
		o.shape = true
		return o
	}
	top, order := knownMembers[topProbe](o, doc)
	var version *uint64
	if raw := top["version"]; raw == nil || json.Unmarshal(raw, &version) != nil || version == nil || *version != 4 {
		o.shape = true
	}
	var serial uint64
	if raw := top["serial"]; raw != nil && json.Unmarshal(raw, &serial) != nil {
		o.shape = true
	}
	o.text(top["lineage"])
	o.text(top["terraform_version"])
	for _, name := range order {
		raw := top[name]
		if isNull(raw) {
			continue
		}
		switch name {
		case "outputs":
			o.outputs(raw)
		case "resources":
			o.each(raw, o.resource)
		case "check_results":
			o.each(raw, func(raw json.RawMessage) {
				o.shape = o.shape || raw[0] != '{'
				o.elements = append(o.elements, element{"check", string(raw)})
			})
		}
	}
	return o
}

func (o *oracle) each(raw json.RawMessage, fn func(json.RawMessage)) {
	if raw[0] != '[' {
		o.shape = true
		return
	}
	for _, e := range jsonElements(raw) {
		fn(e)
	}
}

func (o *oracle) outputs(raw json.RawMessage) {
	if raw[0] != '{' {
		o.shape = true
		return
	}
	for _, m := range jsonMembers(raw) {
		o.shape = o.shape || m.raw[0] != '{'
		o.elements = append(o.elements, element{"output " + m.name, string(m.raw)})
	}
}

func (o *oracle) resource(raw json.RawMessage) {
	if raw[0] != '{' {
		o.shape = true
		return
	}
	m, order := knownMembers[resProbe](o, raw)
	module, mode, typ, name := o.text(m["module"]), o.text(m["mode"]), o.text(m["type"]), o.text(m["name"])
	o.shape = o.shape || mode == "" || typ == "" || name == ""
	path := typ + "." + name
	if mode != "managed" {
		path = mode + "." + path
	}
	if module != "" {
		path = module + "." + path
	}
	o.elements = append(o.elements, element{"resource " + path, ""})
	instances := m["instances"]
	if isNull(instances) {
		return
	}
	if at := slices.Index(order, "instances"); instances[0] == '[' {
		for _, late := range order[at:] {
			o.reordered = o.reordered || slices.Contains([]string{"module", "mode", "type", "name"}, late)
		}
		for _, needed := range []string{"mode", "type", "name"} {
			o.reordered = o.reordered || !slices.Contains(order[:at], needed) // as far as a scan can tell at that place
		}
	}
	o.each(instances, func(raw json.RawMessage) {
		if raw[0] != '{' {
			o.shape = true
			return
		}
		m, _ := knownMembers[instProbe](o, raw)
		address := path
		switch key := m["index_key"]; {
		case isNull(key):
		case key[0] == '"':
			address += "[" + hclQuote(o.text(key)) + "]"
		case strings.ContainsRune("-0123456789", rune(key[0])):
			address += "[" + string(key) + "]"
		default:
			o.shape = true
		}
		if d := o.text(m["deposed"]); d != "" {
			address += " (deposed object " + d + ")"
		}
		o.elements = append(o.elements, element{"instance " + address, string(raw)})
	})
}

func hclQuote(s string) string {
	var b strings.Builder
	for _, r := range strings.NewReplacer("${", "$${", "%{", "%%{").Replace(s) {
		switch r {
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '"':
			b.WriteString(`\"`)
		case '\\':
			b.WriteString(`\\`)
		default:
			switch {
			case unicode.IsPrint(r):
				b.WriteRune(r)
			case r < 1<<16:
				fmt.Fprintf(&b, `\u%04x`, r)
			default:
				fmt.Fprintf(&b, `\U%08x`, r)
			}
		}
	}
	return `"` + b.String() + `"`
}

// agree fails the test when a scan of doc tells anything else than the oracle.
func agree(t *testing.T, doc []byte) {
	t.Helper()
	valid := json.Valid(doc)
	o := &oracle{}
	if valid {
		o = consult(doc)
	}
	for _, reordered := range []bool{false, true} {
		tokens, err := scanAll(tfstate.NewScanner(doc, tfstate.Options{Reordered: reordered}))
		var syntax *tfstate.SyntaxError
		var shape *tfstate.ShapeError
		possible := false
		switch {
		case err == nil:
			possible = valid && !o.shape && !o.ambiguous && (!o.reordered || reordered)
		case errors.As(err, &syntax):
			possible = !valid
		case errors.As(err, &shape):
			possible = !valid || o.shape || o.ambiguous // the oracle looks only into the last of two members
		case errors.Is(err, tfstate.ErrAmbiguous):
			possible = !valid || o.ambiguous
		case errors.Is(err, tfstate.ErrReordered):
			possible = !reordered && (!valid || o.reordered || o.ambiguous)
		}
		if !possible {
			t.Fatalf("reordered %v: scan says %v; encoding/json: valid %v, shape %v, ambiguous %v, reordered %v\n%s",
				reordered, err, valid, o.shape, o.ambiguous, o.reordered, doc)
		}
		covers(t, doc, tokens)
		if err == nil {
			compareElements(t, doc, tokens, o)
		}
	}
	sniffAgrees(t, doc, valid)
}

// covers checks that the tokens' spans are in order, lie apart, and hold the bytes that the tokens give.
func covers(t *testing.T, doc []byte, tokens []tfstate.Token) {
	t.Helper()
	var rebuilt []byte
	at := 0
	for i := range tokens {
		tok := &tokens[i]
		if tok.Start < at || tok.End <= tok.Start || tok.End > len(doc) {
			t.Fatalf("token %s spans %d to %d after %d in\n%s", describe(tok), tok.Start, tok.End, at, doc)
		}
		rebuilt = append(append(rebuilt, doc[at:tok.Start]...), tok.Raw()...)
		at = tok.End
	}
	if rebuilt = append(rebuilt, doc[at:]...); !bytes.Equal(rebuilt, doc) {
		t.Fatalf("gaps and spans give\n%s\ninstead of\n%s", rebuilt, doc)
	}
}

func compareElements(t *testing.T, doc []byte, tokens []tfstate.Token, o *oracle) {
	t.Helper()
	for i := range min(len(tokens), len(o.elements)) {
		tok := &tokens[i]
		raw := string(doc[tok.Start:tok.End])
		switch tok.Kind {
		case tfstate.CutResource:
			raw = ""
		case tfstate.CutOutput:
			raw = string(doc[tok.Value:tok.End])
		case tfstate.CutInstance:
			if raw != string(tok.Inst.Raw) {
				t.Fatalf("Raw is %q, the span is %q", tok.Inst.Raw, raw)
			}
		}
		if got := (element{describe(tok), raw}); got != o.elements[i] {
			t.Fatalf("element %d: got %q, want %q in\n%s", i, got, o.elements[i], doc)
		}
	}
	if len(tokens) != len(o.elements) {
		t.Fatalf("got %d elements, want %d in\n%s", len(tokens), len(o.elements), doc)
	}
}

func sniffAgrees(t *testing.T, doc []byte, valid bool) {
	t.Helper()
	info, err := tfstate.Sniff(doc)
	var syntax *tfstate.SyntaxError
	if errors.As(err, &syntax) == valid {
		t.Fatalf("Sniff says %v, encoding/json says valid %v\n%s", err, valid, doc)
	}
	if err != nil {
		return
	}
	o := &oracle{}
	top, _ := knownMembers[topProbe](o, doc)
	if info.Ambiguous != o.ambiguous {
		t.Fatalf("Sniff says ambiguous %v, encoding/json says %v\n%s", info.Ambiguous, o.ambiguous, doc)
	}
	if o.ambiguous {
		return
	}
	var want tfstate.Info
	number := func(name string, n any) bool {
		raw := top[name]
		return !isNull(raw) && json.Unmarshal(raw, n) == nil
	}
	want.HasVersion = number("version", &want.Version) && want.Version >= 0 && top["version"][0] != '-'
	if !want.HasVersion {
		want.Version = 0
	}
	if want.HasSerial = number("serial", &want.Serial); !want.HasSerial {
		want.Serial = 0
	}
	if raw, there := top["serial"]; there { // where it is, encoding/json does not say: what is there must be it
		want.SerialStart, want.SerialEnd = info.SerialStart, info.SerialEnd
		if got := doc[info.SerialStart:info.SerialEnd]; !bytes.Equal(got, bytes.TrimSpace(raw)) {
			t.Fatalf("Sniff says that the serial is %s, encoding/json says %s\n%s", got, raw, doc)
		}
	}
	want.Lineage, want.TerraformVersion = o.text(top["lineage"]), o.text(top["terraform_version"])
	want.Encrypted = o.text(top["encryption_version"]) != ""
	want.Members = info.Members
	if info != want {
		t.Fatalf("Sniff = %+v, want %+v\n%s", info, want, doc)
	}
}
