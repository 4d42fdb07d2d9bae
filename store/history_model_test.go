package store_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kl/wire"
)

// past is a state of which all versions are remembered by a model that knows
// nothing of the store: what each instance and output was.
type past struct {
	rng      *rand.Rand
	inst     map[string]thing // address → instance, as it is now
	outs     map[string]string
	made     int
	serial   uint64
	compact  bool
	late     bool     // resources name themselves behind their instances
	versions []memory // versions[i] is version i+1
	bodies   [][]byte
}

type thing struct {
	id      string
	v       int // tells contents apart
	tainted bool
	deps    []string // addresses of resources
}

type memory struct {
	inst map[string]thing
	outs map[string]string
}

func newPast(seed uint64) *past {
	return &past{rng: rand.New(rand.NewPCG(seed, 3)), inst: map[string]thing{}, outs: map[string]string{}, compact: seed%3 == 0, late: seed%5 == 4}
}

// address draws one of a few addresses, in the root and in modules, with keys
// of all kinds.
func (p *past) address() string {
	module := []string{"", "", `module.m["x"].`, `module.m["y"].`, "module.n."}[p.rng.IntN(5)]
	key := []string{"", "[0]", "[1]", `["a.b"]`}[p.rng.IntN(4)]
	return fmt.Sprintf("%sthing.r%d%s", module, p.rng.IntN(3), key)
}

// step changes some instances and outputs, as an apply does.
func (p *past) step() {
	for range 1 + p.rng.IntN(4) {
		a := p.address()
		is, there := p.inst[a]
		p.made++
		switch k := p.rng.IntN(10); {
		case !there:
			p.inst[a] = thing{id: fmt.Sprintf("id-%d", p.made), v: p.made}
		case k < 2:
			delete(p.inst, a)
		case k < 4: // moved
			if to := p.address(); p.inst[to].id == "" {
				delete(p.inst, a)
				if k == 3 {
					is.v = p.made
				}
				p.inst[to] = is
			}
		case k < 5:
			is.tainted = !is.tainted
			p.inst[a] = is
		case k < 6:
			is.deps = []string{fmt.Sprintf("thing.r%d", p.rng.IntN(3))}
			p.inst[a] = is
		default:
			is.v = p.made
			p.inst[a] = is
		}
	}
	if p.rng.IntN(3) == 0 {
		p.outs[fmt.Sprintf("o%d", p.rng.IntN(2))] = strconv.Itoa(p.made)
	}
	p.serial++
}

// attributes are what the resource tells of itself, nested and with a secret.
func (t thing) attributes() map[string]any {
	attrs := map[string]any{
		"id": t.id, "n": json.Number("9007199254740993" + strconv.Itoa(t.v)), "secret": fmt.Sprintf("hush-%d", t.v%3),
		"o": map[string]any{"k": t.v % 2, "a/b": []any{t.v % 3, map[string]any{"deep": t.v % 5}}},
	}
	list := []any{}
	for i := range t.v % 4 {
		list = append(list, i)
	}
	attrs["l"] = list
	if t.v%2 == 0 {
		attrs["even"] = nil
	}
	return attrs
}

// render writes the document in the order that Terraform does.
func (p *past) render(serial uint64) []byte {
	type resource struct {
		module, name string
		each         []string // addresses
	}
	byName := map[string]*resource{}
	for _, a := range slices.Sorted(maps.Keys(p.inst)) {
		module, rest, found := strings.Cut(a, "thing.")
		if !found {
			panic(a)
		}
		name, _, _ := strings.Cut(rest, "[")
		r := byName[module+name]
		if r == nil {
			r = &resource{module: strings.TrimSuffix(module, "."), name: name}
			byName[module+name] = r
		}
		r.each = append(r.each, a)
	}
	resources := []any{}
	for _, k := range slices.SortedFunc(maps.Values(byName), func(a, b *resource) int { return strings.Compare(a.module+"\x00"+a.name, b.module+"\x00"+b.name) }) {
		r := map[string]any{"mode": "managed", "type": "thing", "name": k.name, "provider": `provider["example.com/a/thing"]`}
		if k.module != "" {
			r["module"] = k.module
		}
		instances := []any{}
		for _, a := range k.each {
			t := p.inst[a]
			in := map[string]any{"schema_version": 0, "attributes": t.attributes(), "sensitive_attributes": []any{[]any{map[string]any{"type": "get_attr", "value": "secret"}}}}
			if _, key, ok := strings.Cut(strings.TrimPrefix(a, k.module), "["); ok {
				if key, err := strconv.Atoi(strings.TrimSuffix(key, "]")); err == nil {
					in["index_key"] = key
				} else {
					in["index_key"] = "a.b"
				}
			}
			if t.tainted {
				in["status"] = "tainted"
			}
			if t.deps != nil {
				in["dependencies"] = t.deps
			}
			instances = append(instances, in)
		}
		r["instances"] = instances
		if p.late {
			resources = append(resources, r)
			continue
		}
		resources = append(resources, struct {
			Module    any `json:"module,omitempty"`
			Mode      any `json:"mode"`
			Type      any `json:"type"`
			Name      any `json:"name"`
			Provider  any `json:"provider"`
			Instances any `json:"instances"`
		}{r["module"], r["mode"], r["type"], r["name"], r["provider"], instances})
	}
	outs := map[string]any{}
	for k, v := range p.outs {
		outs[k] = map[string]any{"value": v, "type": "string"}
	}
	members := []struct {
		name  string
		value any
	}{
		{"version", 4}, {"terraform_version", "1.11.4"}, {"serial", serial}, {"lineage", modelLineage}, {"outputs", outs}, {"resources", resources}, {"check_results", nil},
	}
	b := []byte("{")
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		v, err := json.Marshal(m.value)
		if err != nil {
			panic(err)
		}
		b = append(append(fmt.Appendf(b, "%q:", m.name), v...), ' ')
	}
	b = append(b, '}')
	if !p.compact {
		var out bytes.Buffer
		if err := json.Indent(&out, b, "", "  "); err != nil {
			panic(err)
		}
		b = out.Bytes()
	}
	return append(b, '\n')
}

// remember notes the current content as the next version.
func (p *past) remember(body []byte) {
	p.versions = append(p.versions, memory{maps.Clone(p.inst), maps.Clone(p.outs)})
	p.bodies = append(p.bodies, body)
}

// write makes a step and stores it.
func (p *past) write(f *fixture, name string) {
	f.tb.Helper()
	p.step()
	body := p.render(p.serial)
	w, err := f.write(name, "", body)
	if err != nil {
		f.tb.Fatal(err)
	}
	p.remember(body)
	if w.Version != uint64(len(p.versions)) {
		f.tb.Fatalf("version %d is stored as %d", len(p.versions), w.Version)
	}
}

// forms are the instances of a version as decoded JSON.
func (m memory) forms(t *testing.T) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for a, i := range m.inst {
		form := map[string]any{"attributes": i.attributes()}
		if i.tainted {
			form["status"] = "tainted"
		}
		if i.deps != nil {
			form["dependencies"] = i.deps
		}
		b, err := json.Marshal(form)
		if err != nil {
			t.Fatal(err)
		}
		out[a] = decoded(t, b).(map[string]any)
	}
	return out
}

func decoded(t *testing.T, b []byte) (v any) {
	t.Helper()
	if b == nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// apply does to the instances of one version what a diff says. Those that are
// added have to be known from elsewhere.
func apply(t *testing.T, d wire.Diff, forms map[string]map[string]any, known map[string]map[string]any) {
	t.Helper()
	take := func(address string) map[string]any {
		form, ok := forms[address]
		if !ok {
			t.Fatalf("the diff tells of %s, which is not there", address)
		}
		delete(forms, address)
		return form
	}
	for _, i := range d.Removed {
		take(i.Address)
	}
	moved := map[string]map[string]any{}
	for _, i := range d.Moved {
		moved[i.Address] = take(i.From)
	}
	for _, i := range d.Added {
		moved[i.Address] = known[i.Address]
	}
	for a, form := range moved {
		if forms[a] != nil {
			t.Fatalf("the diff puts something at %s, where something is", a)
		}
		forms[a] = form
	}
	for _, i := range slices.Concat(d.Changed, d.Moved) {
		for _, v := range i.Attributes {
			set(t, forms[i.Address]["attributes"].(map[string]any), v)
		}
		for _, v := range i.Members {
			set(t, forms[i.Address], v)
		}
	}
}

// set does one change at its path.
func set(t *testing.T, root map[string]any, v wire.DiffValue) {
	t.Helper()
	steps := pathSteps(t, v.Path)
	var at any = root
	var put func(any) // replaces at in what it is in
	for _, s := range steps[:len(steps)-1] {
		switch c := at.(type) {
		case map[string]any:
			put = func(n any) { c[s] = n }
			at = c[s]
		case []any:
			k, _ := strconv.Atoi(s)
			put = func(n any) { c[k] = n }
			at = c[k]
		default:
			t.Fatalf("%s leads nowhere", v.Path)
		}
	}
	last := steps[len(steps)-1]
	switch c := at.(type) {
	case map[string]any:
		old, there := c[last]
		if there != (v.Change != wire.DiffAdded) || there && !reflect.DeepEqual(old, decoded(t, v.Before)) {
			t.Fatalf("%s was %v, the diff says %s", v.Path, old, v.Before)
		}
		if c[last] = decoded(t, v.After); v.Change == wire.DiffRemoved {
			delete(c, last)
		}
	case []any:
		k, _ := strconv.Atoi(last)
		switch v.Change {
		case wire.DiffAdded:
			put(append(c, decoded(t, v.After)))
		case wire.DiffRemoved:
			// elements go from the end, but are told from the start
			put(c[:min(k, len(c))])
		default:
			c[k] = decoded(t, v.After)
		}
	default:
		t.Fatalf("%s leads nowhere", v.Path)
	}
}

// pathSteps splits a printed path.
func pathSteps(t *testing.T, path string) (steps []string) {
	t.Helper()
	for rest := path; rest != ""; {
		rest = strings.TrimPrefix(rest, ".")
		if !strings.HasPrefix(rest, "[") {
			i := strings.IndexAny(rest, ".[")
			if i < 0 {
				return append(steps, rest)
			}
			steps, rest = append(steps, rest[:i]), rest[i:]
			continue
		}
		end := strings.Index(rest, "]")
		key, err := strconv.Unquote(rest[1:end])
		if err != nil {
			key = rest[1:end]
		}
		steps, rest = append(steps, key), rest[end+1:]
	}
	return steps
}
