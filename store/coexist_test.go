package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kl/fault"
	"kl/store"
	"kl/wire"
)

// document is a state as the model sees it: what an instance is at each
// address, and the outputs.
type document struct {
	inst map[string]instance // address → content
	outs map[string]string
}

type instance struct {
	value string
	deps  string // one resource, "" for none
}

func (d document) clone() document {
	return document{maps.Clone(d.inst), maps.Clone(d.outs)}
}

const modelLineage = "3f1c7c2e-0000-4000-8000-000000000001"

// Addresses are like a.r1["k2"], data.a.r1["k2"]: twelve resources, four
// instances each, so that sessions meet.
func splitAddress(a string) (mode, name, key string) {
	mode = "managed"
	if rest, ok := strings.CutPrefix(a, "data."); ok {
		mode, a = "data", rest
	}
	name, key, _ = strings.Cut(strings.TrimSuffix(strings.TrimPrefix(a, "a."), `"]`), `["`)
	return mode, name, key
}

type jsonInstance struct {
	IndexKey      string          `json:"index_key"`
	SchemaVersion int             `json:"schema_version"`
	Attributes    json.RawMessage `json:"attributes"`
	Dependencies  []string        `json:"dependencies,omitempty"`
}

type jsonResource struct {
	Mode      string         `json:"mode"`
	Type      string         `json:"type"`
	Name      string         `json:"name"`
	Provider  string         `json:"provider"`
	Instances []jsonInstance `json:"instances"`
}

type jsonOutput struct {
	Value string `json:"value"`
	Type  string `json:"type"`
}

type jsonState struct {
	Version          int                   `json:"version"`
	TerraformVersion string                `json:"terraform_version"`
	Serial           uint64                `json:"serial"`
	Lineage          string                `json:"lineage"`
	Outputs          map[string]jsonOutput `json:"outputs"`
	Resources        []jsonResource        `json:"resources"`
	CheckResults     any                   `json:"check_results"`
}

// render writes the document as Terraform or, compact, as OpenTofu does.
func (d document) render(serial uint64, compact bool) []byte {
	s := jsonState{Version: 4, TerraformVersion: "1.11.4", Serial: serial, Lineage: modelLineage, Outputs: map[string]jsonOutput{}, Resources: []jsonResource{}}
	for k, v := range d.outs {
		s.Outputs[k] = jsonOutput{v, "string"}
	}
	for _, a := range slices.Sorted(maps.Keys(d.inst)) {
		mode, name, key := splitAddress(a)
		in := jsonInstance{IndexKey: key, Attributes: json.RawMessage(fmt.Sprintf(`{"id":"%s","n":9007199254740993,"v":"%s"}`, a2id(a), d.inst[a].value))}
		if dep := d.inst[a].deps; dep != "" {
			in.Dependencies = []string{dep}
		}
		i := slices.IndexFunc(s.Resources, func(r jsonResource) bool { return r.Mode == mode && r.Name == name })
		if i < 0 {
			i = len(s.Resources)
			s.Resources = append(s.Resources, jsonResource{Mode: mode, Type: "a", Name: name, Provider: `provider["registry.terraform.io/hashicorp/a"]`})
		}
		s.Resources[i].Instances = append(s.Resources[i].Instances, in)
	}
	slices.SortFunc(s.Resources, func(a, b jsonResource) int { return strings.Compare(a.Mode+a.Name, b.Mode+b.Name) })
	b, err := json.MarshalIndent(s, "", "  ")
	if compact {
		b, err = json.Marshal(s)
	}
	if err != nil {
		panic(err)
	}
	return append(b, '\n')
}

func a2id(a string) string {
	return strings.Map(func(r rune) rune { return map[bool]rune{true: '-', false: r}[r == '"' || r == '[' || r == ']'] }, a)
}

// parseDocument reads what the store serves, by encoding/json.
func parseDocument(b []byte) (document, uint64, error) {
	var s jsonState
	if err := json.Unmarshal(b, &s); err != nil {
		return document{}, 0, err
	}
	d := document{map[string]instance{}, map[string]string{}}
	for k, o := range s.Outputs {
		d.outs[k] = o.Value
	}
	for _, r := range s.Resources {
		for _, in := range r.Instances {
			var attr struct {
				V string `json:"v"`
			}
			if err := json.Unmarshal(in.Attributes, &attr); err != nil {
				return d, 0, err
			}
			a := fmt.Sprintf("a.%s[%q]", r.Name, in.IndexKey)
			if r.Mode == "data" {
				a = "data." + a
			}
			if _, twice := d.inst[a]; twice {
				return d, 0, fmt.Errorf("%s is there twice", a)
			}
			i := instance{value: attr.V}
			if len(in.Dependencies) > 0 {
				i.deps = in.Dependencies[0]
			}
			d.inst[a] = i
		}
	}
	return d, s.Serial, nil
}

func resourceOf(address string) string { r, _, _ := strings.Cut(address, "["); return r }

// merge3 is the textbook merge with an explicit base. It returns the merged
// document, or the addresses in conflict and of which kind.
func merge3(base, head, ours document) (document, []string, fault.Code) {
	out := head.clone()
	var conflicts []string
	took := map[string]bool{}
	keys := map[string]bool{}
	for _, d := range []document{base, head, ours} {
		for a := range d.inst {
			keys[a] = true
		}
	}
	for a := range keys {
		b, inB := base.inst[a]
		h, inH := head.inst[a]
		o, inO := ours.inst[a]
		same := func(x instance, inX bool, y instance, inY bool) bool { return inX == inY && x == y }
		switch {
		case same(o, inO, b, inB), same(o, inO, h, inH):
		case same(h, inH, b, inB), strings.HasPrefix(a, "data."):
			took[a] = true
			if inO {
				out.inst[a] = o
			} else {
				delete(out.inst, a)
			}
		default:
			conflicts = append(conflicts, a)
		}
	}
	for k := range mergeKeys(base.outs, head.outs, ours.outs) {
		b, inB := base.outs[k]
		o, inO := ours.outs[k]
		if o == b && inO == inB {
			continue
		}
		delete(out.outs, k)
		if inO {
			out.outs[k] = o
		}
	}
	slices.Sort(conflicts)
	if len(conflicts) > 0 {
		return out, conflicts, fault.OverlapConflict
	}
	for a := range took {
		o, inO := ours.inst[a]
		if !inO || o.deps == "" {
			continue
		}
		gone, left := false, false
		for x := range ours.inst {
			_, inH := head.inst[x]
			gone = gone || resourceOf(x) == o.deps && !inH && !took[x]
		}
		for x := range head.inst {
			left = left || resourceOf(x) == o.deps
		}
		if gone && !left {
			conflicts = append(conflicts, a)
		}
	}
	slices.Sort(conflicts)
	return out, conflicts, fault.DependencyConflict
}

func mergeKeys(ms ...map[string]string) map[string]bool {
	out := map[string]bool{}
	for _, m := range ms {
		for k := range m {
			out[k] = true
		}
	}
	return out
}

// client is a session as its terraform sees it.
type client struct {
	id      string
	seen    document // what it read, or its last write that was accepted
	doc     document // what it has in memory
	serial  uint64
	last    []byte // bytes of the last accepted write
	compact bool
	refused bool
}

type coexistModel struct {
	f        *fixture
	t        *rapid.T
	head     document
	clients  []*client
	n        int
	disjoint bool
}

const maxClients = 4

func (m *coexistModel) address(c *client) string {
	r := rapid.IntRange(0, 11).Draw(m.t, "resource")
	if m.disjoint {
		r = r/maxClients*maxClients + slices.Index(m.clients, c) // each client has resources of its own
	}
	a := fmt.Sprintf(`a.r%02d["k%d"]`, r, rapid.IntRange(0, 3).Draw(m.t, "key"))
	if r%6 == 5 {
		a = "data." + a
	}
	return a
}

// Open lets another session begin: lock, then read.
func (m *coexistModel) open(t *rapid.T) {
	if len(m.clients) >= maxClients {
		t.Skip("enough sessions")
	}
	m.n++
	c := &client{id: fmt.Sprintf("lock-%d", m.n), compact: rapid.IntRange(0, 3).Draw(t, "compact") == 0}
	if err := m.f.lock("s", c.id, wire.OperationApply); err != nil {
		t.Fatalf("a session is not granted in optimistic mode: %v", err)
	}
	d, serial, err := parseDocument(m.f.get("s", "head"))
	if err != nil {
		t.Fatal(err)
	}
	c.seen, c.doc, c.serial = d, d.clone(), serial
	m.clients = append(m.clients, c)
}

func (m *coexistModel) any(t *rapid.T) *client {
	if len(m.clients) == 0 {
		t.Skip("no session")
	}
	return m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(t, "session")]
}

// Checkpoint changes a few things in a session and writes.
func (m *coexistModel) checkpoint(t *rapid.T) {
	c := m.any(t)
	if c.refused {
		t.Skip("a refused write ends an apply")
	}
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		a := m.address(c)
		switch rapid.IntRange(0, 3).Draw(t, "op") {
		case 0:
			delete(c.doc.inst, a)
		case 1:
			if out := fmt.Sprintf("o%d", rapid.IntRange(0, 2).Draw(t, "output")); !m.disjoint {
				c.doc.outs[out] = fmt.Sprintf("v%d", rapid.IntRange(0, 3).Draw(t, "value"))
			}
		default:
			in := instance{value: fmt.Sprintf("v%d", rapid.IntRange(0, 3).Draw(t, "value"))}
			if !m.disjoint && rapid.IntRange(0, 4).Draw(t, "depends") == 0 {
				in.deps = resourceOf(m.address(c))
			}
			c.doc.inst[a] = in
		}
	}
	gap := 1 // the first write's serial is the only echo of what was read
	if c.last != nil {
		gap = rapid.IntRange(1, 3).Draw(t, "gap")
	}
	c.serial += uint64(gap)
	body := c.doc.render(c.serial, c.compact)
	want, conflicts, code := merge3(c.seen, m.head, c.doc)
	w, err := m.f.write("s", c.id, body)
	switch {
	case len(conflicts) > 0:
		f := fault.Of(err)
		if f == nil || f.Code != code {
			t.Fatalf("%s: got %v, %v; want %s on %v", c.id, w, err, code, conflicts)
		}
		if got, _ := f.Details["conflicting_addresses"].([]string); !slices.Equal(got, conflicts) {
			t.Fatalf("%s: conflict on %v, want %v", c.id, got, conflicts)
		}
		m.kept(t, f, body)
		c.refused = true
	case err != nil:
		t.Fatalf("%s: refused: %v", c.id, err)
	default:
		m.head, c.seen, c.last = want, c.doc.clone(), body
	}
}

// kept verifies that a refused write is there byte for byte.
func (m *coexistModel) kept(t *rapid.T, f *fault.Error, body []byte) {
	id, _ := f.Details["refused_write"].(string)
	snap, err := m.f.s.RefusedBody(context.Background(), m.f.ref("s"), id)
	if err != nil {
		t.Fatalf("the refused write %q is not kept: %v", id, err)
	}
	var got bytes.Buffer
	if _, err := snap.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), body) {
		t.Fatalf("the refused write %s has other bytes (%v)", id, err)
	}
}

// Replay sends the last accepted write again.
func (m *coexistModel) replay(t *rapid.T) {
	c := m.any(t)
	if c.last == nil || c.refused {
		t.Skip("nothing to send again")
	}
	if w, err := m.f.write("s", c.id, c.last); err != nil || !w.Replay {
		t.Fatalf("a replay gives %+v, %v", w, err)
	}
}

func (m *coexistModel) end(t *rapid.T) {
	c := m.any(t)
	if err := m.f.unlock("s", c.id); err != nil {
		t.Fatal(err)
	}
	m.clients = slices.DeleteFunc(m.clients, func(x *client) bool { return x == c })
}

func (m *coexistModel) restart(*rapid.T) { m.f.reopen() }

// agree compares the head with the model.
func (m *coexistModel) agree(t *rapid.T) {
	d, _, err := parseDocument(m.f.get("s", "head"))
	if err != nil {
		t.Fatalf("the head cannot be read: %v", err)
	}
	if !maps.Equal(d.inst, m.head.inst) || !maps.Equal(d.outs, m.head.outs) {
		t.Fatalf("the head is\n%v\nwant\n%v", d, m.head)
	}
}

// TestCoexistence runs any interleaving of sessions against the textbook
// merge. In disjoint runs nothing may ever be refused.
func TestCoexistence(t *testing.T) {
	for name, disjoint := range map[string]bool{"overlapping": false, "disjoint": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				f := newFixture(t, store.Options{ChunkTarget: rapid.SampledFrom([]int{0, 256, 1024}).Draw(rt, "chunk")})
				defer f.finish()
				mode, off := "optimistic", false
				if _, err := f.s.PatchEnvironment(context.Background(), f.actor, f.env, wire.EnvironmentPatch{LockMode: &mode, RecoveryHold: &off}); err != nil {
					rt.Fatal(err)
				}
				m := &coexistModel{f: f, t: rt, head: document{map[string]instance{}, map[string]string{}}, disjoint: disjoint}
				for i := range 12 {
					m.head.inst[fmt.Sprintf(`a.r%02d["k0"]`, i)] = instance{value: "v0"}
				}
				if _, err := f.write("s", "", m.head.render(1, false)); err != nil {
					rt.Fatal(err)
				}
				rt.Repeat(map[string]func(*rapid.T){
					"":           m.agree,
					"open":       m.open,
					"checkpoint": m.checkpoint,
					"another":    m.checkpoint,
					"replay":     m.replay,
					"end":        m.end,
					"restart":    m.restart,
				})
				if r := f.check(); len(r.Problems) > 0 {
					rt.Fatal(r.Problems)
				}
			})
		})
	}
}
