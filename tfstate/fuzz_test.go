package tfstate_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"kl/kltest"
	"kl/tfstate"
)

func addDocuments(f *testing.F) {
	f.Add([]byte(sample))
	f.Add(kltest.NewState(3, 1).Bytes())
	f.Add(kltest.NewState(3, 2).Compact())
	for i := range uint64(10) {
		f.Add(newGen(i, int(i)*3).document())
	}
	for _, c := range refused {
		f.Add([]byte(c.doc))
	}
}

// FuzzScan holds a scan against encoding/json, and every resumed scan against the whole one.
func FuzzScan(f *testing.F) {
	addDocuments(f)
	f.Fuzz(func(t *testing.T, doc []byte) {
		agree(t, doc)
		if len(doc) < 1<<14 { // resuming takes time that grows with the square
			r := rand.New(rand.NewPCG(uint64(len(doc)), 4))
			resumes(t, doc, false, r)
			resumes(t, doc, true, r)
		}
	})
}

// FuzzSniff holds Sniff against encoding/json.
func FuzzSniff(f *testing.F) {
	addDocuments(f)
	f.Fuzz(func(t *testing.T, doc []byte) { sniffAgrees(t, doc, json.Valid(doc)) })
}

// FuzzInstanceHash checks that the hash of an instance keeps when it is laid out anew and when its members change
// places, and that nothing about it panics on any bytes.
func FuzzInstanceHash(f *testing.F) {
	for i := range uint64(10) {
		g := newGen(i, 0)
		g.instance()
		f.Add([]byte(g.b.String()), i)
	}
	f.Add([]byte(`{"dependencies":[x`), uint64(1))
	f.Add([]byte(`{"dependencies":[}]}`), uint64(1))
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		inst, value := tfstate.InstanceHash(raw, seed), tfstate.ValueHash(raw, seed)
		tfstate.ObjectID(raw)
		tfstate.Attributes(raw)
		tfstate.Dependencies(raw)
		if !json.Valid(raw) {
			return
		}
		trimmed := bytes.TrimSpace(raw)
		if !bytes.Equal(trimmed, raw) { // an instance has no white space around it, a value may be given with some
			raw, inst = trimmed, tfstate.InstanceHash(trimmed, seed)
		}
		for _, other := range layouts(t, raw) {
			if tfstate.ValueHash(other, seed) != value {
				t.Fatalf("another value hash for\n%s\nthan for\n%s", other, raw)
			}
			if raw[0] == '{' {
				other = shuffled(t, other, seed)
			}
			if tfstate.InstanceHash(other, seed) != inst {
				t.Fatalf("another instance hash for\n%s\nthan for\n%s", other, raw)
			}
		}
	})
}

func layouts(t *testing.T, raw []byte) [][]byte {
	t.Helper()
	var compact, indented bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, raw, "\t", "  "); err != nil {
		t.Fatal(err)
	}
	return [][]byte{raw, compact.Bytes(), indented.Bytes()}
}

// shuffled puts the members of an object into another order.
func shuffled(t *testing.T, raw []byte, seed uint64) []byte {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	mustToken(dec)
	var members [][]byte
	for dec.More() {
		begin := dec.InputOffset()
		mustToken(dec)
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		members = append(members, bytes.TrimLeft(raw[begin:dec.InputOffset()], ", \t\r\n"))
	}
	r := rand.New(rand.NewPCG(seed, 5))
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return append(append([]byte("{ "), bytes.Join(members, []byte(",\n"))...), '}')
}
