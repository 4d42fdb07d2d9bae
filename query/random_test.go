package query_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"kl/tfstate"
)

// object is a JSON object whose members keep their order.
type object [][2]any

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(m[0])
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(m[1])
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// hostile are texts that mean something to SQL, JSON, terminals or graphs.
var hostile = []string{
	"plain", "it's", `say "hi"`, "'; DROP TABLE instances; --", "a\x00b", "snow ☃ and 🦀", `back\slash`, "line\nbreak", "%", "_", "", "x' OR '1'='1",
	"$.a", "null", "0", "-1", "1e400", "\u2028", "]", `["x"]`, "[0]", "/* */", "{}", "\u202e",
}

// world is a random state that changes from version to version.
type world struct {
	r         *rand.Rand
	lineage   string
	serial    int
	resources []*resource
	outputs   object
	layout    int // how the document is written
}

type resource struct {
	tfstate.Resource
	provider  string
	late      bool // names itself behind its instances
	instances []*instance
}

type instance struct {
	key     any // nil, int or string
	deposed string
	members object
}

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 77))
	w := &world{r: r, lineage: fmt.Sprintf("lineage-%d", seed), layout: r.IntN(3)}
	for range 1 + r.IntN(40) {
		w.add()
	}
	for range r.IntN(6) {
		w.addOutput()
	}
	return w
}

func (w *world) text() string { return hostile[w.r.IntN(len(hostile))] }

func (w *world) module() string {
	switch w.r.IntN(6) {
	case 0:
		return "module.net"
	case 1:
		return fmt.Sprintf("module.net[%d]", w.r.IntN(3))
	case 2:
		k := tfstate.Key{Kind: tfstate.KeyString, Text: w.text()}
		return "module.app" + k.String() + ".module.db"
	default:
		return ""
	}
}

func (w *world) add() {
	res := &resource{
		Resource: tfstate.Resource{
			Module: w.module(), Mode: []string{"managed", "managed", "data"}[w.r.IntN(3)], Type: []string{"aws_vpc", "aws_instance", "null_resource", "terraform_data"}[w.r.IntN(4)],
			Name: fmt.Sprintf("n%d", w.r.IntN(1000)),
		},
		provider: []string{`provider["registry.terraform.io/hashicorp/aws"]`, `module.x.provider["registry.terraform.io/hashicorp/null"].alias`}[w.r.IntN(2)],
		late:     w.r.IntN(8) == 0,
	}
	for _, o := range w.resources {
		if o.Resource == res.Resource {
			return
		}
	}
	for range w.r.IntN(5) {
		w.addInstance(res)
	}
	at := w.r.IntN(len(w.resources) + 1) // Terraform sorts, other clients need not
	w.resources = append(w.resources[:at], append([]*resource{res}, w.resources[at:]...)...)
}

func (w *world) addInstance(res *resource) {
	in := &instance{}
	switch w.r.IntN(3) {
	case 0:
		in.key = w.r.IntN(5)
	case 1:
		in.key = w.text()
	}
	if w.r.IntN(10) == 0 {
		in.deposed = fmt.Sprintf("%08x", w.r.Uint32())
	}
	for _, o := range res.instances {
		if o.key == in.key && o.deposed == in.deposed {
			return
		}
	}
	w.fill(in)
	res.instances = append(res.instances, in)
}

func (w *world) fill(in *instance) {
	attrs := object{{"id", fmt.Sprintf("i-%d", w.r.IntN(1e6))}}
	paths := []any{}
	secret := func(steps ...any) { paths = append(paths, steps) }
	attr := func(name string) any { return object{{"type", "get_attr"}, {"value", name}} }
	for i := range w.r.IntN(5) {
		name := fmt.Sprintf("a%d", i)
		var v any
		switch w.r.IntN(7) {
		case 0:
			v = w.text()
		case 1:
			v = json.RawMessage([]string{"9007199254740993", "1.5", "1e400", "123456789012345678901234567890", "-0", "0.1", "2.0"}[w.r.IntN(7)])
		case 2:
			v = w.r.IntN(2) == 0
		case 3:
			v = nil
		case 4:
			v = []any{w.text(), 1, nil}
		default:
			v = object{{"inner", w.text()}, {w.text() + "k", w.text()}}
			if w.r.IntN(3) == 0 {
				secret(attr(name), object{{"type", "index"}, {"value", object{{"value", "inner"}, {"type", "string"}}}})
			}
		}
		attrs = append(attrs, [2]any{name, v})
		if w.r.IntN(4) == 0 {
			secret(attr(name))
		}
	}
	in.members = object{{"schema_version", w.r.IntN(3)}, {"attributes", attrs}}
	if len(paths) > 0 {
		in.members = append(in.members, [2]any{"sensitive_attributes", paths})
	}
	if n := w.r.IntN(4); n > 0 {
		deps := []string{}
		for range n {
			o := w.pick()
			if o != nil {
				deps = append(deps, strings.ReplaceAll(o.Type+"."+o.Name, "x", "x"))
			}
		}
		in.members = append(in.members, [2]any{"dependencies", deps})
	}
	if w.r.IntN(6) == 0 {
		in.members = append(in.members, [2]any{"status", "tainted"})
	}
}

func (w *world) pick() *resource {
	if len(w.resources) == 0 {
		return nil
	}
	return w.resources[w.r.IntN(len(w.resources))]
}

func (w *world) addOutput() {
	name := fmt.Sprintf("out%d%s", len(w.outputs), w.text())
	o := object{{"value", w.text()}, {"type", "string"}}
	switch w.r.IntN(3) {
	case 0:
		o = append(o, [2]any{"sensitive", true})
	case 1:
		o = object{{"type", []any{"list", "string"}}, {"value", []any{w.text()}}}
	}
	w.outputs = append(w.outputs, [2]any{name, o})
}

// change makes the next version.
func (w *world) change() {
	for range 1 + w.r.IntN(4) {
		switch res := w.pick(); {
		case res == nil || w.r.IntN(4) == 0:
			w.add()
		case w.r.IntN(5) == 0:
			for i, o := range w.resources {
				if o == res {
					w.resources = append(w.resources[:i:i], w.resources[i+1:]...)
					break
				}
			}
		case len(res.instances) > 0 && w.r.IntN(2) == 0:
			w.fill(res.instances[w.r.IntN(len(res.instances))])
		default:
			w.addInstance(res)
		}
	}
	if w.r.IntN(3) == 0 {
		w.addOutput()
	}
}

// document writes the next version.
func (w *world) document(tb interface{ Fatal(...any) }) []byte {
	w.serial++
	var list []any
	for _, res := range w.resources {
		id := object{{"mode", res.Mode}, {"type", res.Type}, {"name", res.Name}}
		if res.Module != "" {
			id = append(object{{"module", res.Module}}, id...)
		}
		ins := []any{}
		for _, in := range res.instances {
			m := object{}
			if in.key != nil {
				m = append(m, [2]any{"index_key", in.key})
			}
			if in.deposed != "" {
				m = append(m, [2]any{"deposed", in.deposed})
			}
			ins = append(ins, append(m, in.members...))
		}
		provider, instances := [2]any{"provider", res.provider}, [2]any{"instances", ins}
		if res.late {
			list = append(list, append(object{provider, instances}, id...))
		} else {
			list = append(list, append(id, provider, instances))
		}
	}
	head := object{{"version", 4}, {"terraform_version", "1.11.4"}, {"serial", w.serial}, {"lineage", w.lineage}}
	outputs, resources := [2]any{"outputs", w.outputs}, [2]any{"resources", list}
	if len(w.outputs) == 0 {
		outputs[1] = object{}
	}
	if list == nil {
		resources[1] = []any{}
	}
	doc := append(head, outputs, resources)
	if w.layout == 1 {
		doc = append(object{resources}, append(head, outputs)...)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		tb.Fatal(err)
	}
	if w.layout != 2 {
		var out bytes.Buffer
		if err := json.Indent(&out, b, "", "  "); err != nil {
			tb.Fatal(err)
		}
		return out.Bytes()
	}
	return b
}
