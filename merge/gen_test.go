package merge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"kl/tfstate"
)

// model is a small state that can be changed and written in many ways.
type model struct {
	serial    int
	version   string
	outputs   []member
	resources []*res
	checks    []member
	forms     [3]form // of outputs, resources and check_results
	order     uint64  // of the document's members; 0 as Terraform has it
	extra     string  // an unknown member
}

// form is how a container that has nothing is written.
type form uint8

const (
	brackets form = iota
	null
	absent
)

// member is an output or a check with a number that stands for its value.
type member struct {
	name  string
	value int
}

type res struct {
	tfstate.Resource
	provider  int
	each      bool
	tail      int // value of an unknown member behind the instances, 0 for none
	form      form
	instances []inst
}

type inst struct {
	key     tfstate.Key
	deposed string
	value   int
}

var (
	genModules = []string{"", "module.a", `module.a["k.\"x"]`, "module.b[0].module.c"}
	genKeys    = []tfstate.Key{
		{},
		{Kind: tfstate.KeyInt, Text: "0"},
		{Kind: tfstate.KeyInt, Text: "2"},
		{Kind: tfstate.KeyInt, Text: "10"},
		{Kind: tfstate.KeyInt, Text: "-1"},
		{Kind: tfstate.KeyString, Text: ""},
		{Kind: tfstate.KeyString, Text: "10"},
		{Kind: tfstate.KeyString, Text: "a]b"},
		{Kind: tfstate.KeyString, Text: "Zürich, \\ \"x\""},
	}
)

func compareInst(a, b inst) int {
	if c := a.key.Compare(b.key); c != 0 {
		return c
	}
	return strings.Compare(a.deposed, b.deposed)
}

func newModel(r *rand.Rand) *model {
	m := &model{serial: 1 + r.IntN(3), version: "1.9.0"}
	for range r.IntN(20) {
		m.change(r, false)
	}
	return m
}

func (m *model) clone() *model {
	c := *m
	c.outputs, c.checks, c.resources = slices.Clone(m.outputs), slices.Clone(m.checks), nil
	for _, r := range m.resources {
		rc := *r
		rc.instances = slices.Clone(r.instances)
		c.resources = append(c.resources, &rc)
	}
	return &c
}

// put changes, adds or removes a member.
func put(list []member, name string, value int) []member {
	i := slices.IndexFunc(list, func(m member) bool { return m.name == name })
	switch {
	case i < 0:
		return append(list, member{name, value})
	case value%3 == 0:
		return slices.Delete(list, i, i+1)
	}
	list[i].value = value
	return list
}

// change makes one change, which keeps Terraform's order; odd allows what Terraform does not write.
func (m *model) change(r *rand.Rand, odd bool) {
	value := 1 + r.IntN(1000)
	switch n := r.IntN(20); {
	case n == 0:
		m.outputs = put(m.outputs, fmt.Sprintf("out_%d", r.IntN(5)), value)
		slices.SortFunc(m.outputs, func(a, b member) int { return strings.Compare(a.name, b.name) })
	case n == 1:
		m.checks = put(m.checks, fmt.Sprintf("var.c%d", r.IntN(4)), value)
		r.Shuffle(len(m.checks), func(i, j int) { m.checks[i], m.checks[j] = m.checks[j], m.checks[i] })
	case n == 2 && len(m.resources) > 0:
		m.resources[r.IntN(len(m.resources))].provider = value
	case n == 3 && len(m.resources) > 0:
		i := r.IntN(len(m.resources))
		m.resources = slices.Delete(m.resources, i, i+1)
	case n == 4:
		m.serial, m.version = m.serial+1, fmt.Sprintf("1.%d.0", r.IntN(13))
	case n == 5 && odd:
		m.forms[r.IntN(3)] = form(r.IntN(3))
	case n == 6 && odd:
		m.extra = fmt.Sprint(r.IntN(3))
	case n == 7 && odd && len(m.resources) > 0:
		res := m.resources[r.IntN(len(m.resources))]
		switch r.IntN(4) {
		case 0:
			res.tail = r.IntN(3)
		case 1:
			res.instances, res.form = nil, form(r.IntN(3))
		case 2:
			r.Shuffle(len(res.instances), func(i, j int) { res.instances[i], res.instances[j] = res.instances[j], res.instances[i] })
		default:
			r.Shuffle(len(m.resources), func(i, j int) { m.resources[i], m.resources[j] = m.resources[j], m.resources[i] })
		}
	case n == 8 && odd:
		m.order = r.Uint64N(3)
	default:
		m.instance(r, value)
	}
}

func (m *model) instance(r *rand.Rand, value int) {
	id := tfstate.Resource{
		Module: genModules[r.IntN(len(genModules))], Mode: tfstate.ModeManaged,
		Type: [...]string{"t", "aws_x"}[r.IntN(2)], Name: fmt.Sprintf("n%d", r.IntN(2)),
	}
	if r.IntN(6) == 0 {
		id.Mode = tfstate.ModeData
	}
	i, found := slices.BinarySearchFunc(m.resources, id, func(a *res, b tfstate.Resource) int { return a.Compare(b) })
	if at := slices.IndexFunc(m.resources, func(a *res) bool { return a.Resource == id }); at >= 0 {
		i, found = at, true
	}
	if !found {
		m.resources = slices.Insert(m.resources, i, &res{Resource: id, each: r.IntN(3) == 0})
	}
	in := inst{key: genKeys[r.IntN(len(genKeys))], value: value}
	if r.IntN(8) == 0 {
		in.deposed = fmt.Sprintf("%08x", r.IntN(2))
	}
	list := m.resources[i].instances
	j, found := slices.BinarySearchFunc(list, in, compareInst)
	if at := slices.IndexFunc(list, func(a inst) bool { return compareInst(a, in) == 0 }); at >= 0 {
		j, found = at, true
	}
	switch {
	case !found:
		list = slices.Insert(list, j, in)
	case value%3 > 0:
		list[j] = in
	default:
		list = slices.Delete(list, j, j+1)
	}
	m.resources[i].instances = list
	if len(list) == 0 {
		m.resources = slices.Delete(m.resources, i, i+1)
	}
}

// compact writes the state without white space.
func (m *model) compact() []byte {
	quote := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	container := func(f form, name, open, end string, elements []string) string {
		if len(elements) == 0 && f != brackets {
			return map[form]string{null: quote(name) + ":null"}[f]
		}
		return quote(name) + ":" + open + strings.Join(elements, ",") + end
	}
	var outputs, checks, resources []string
	for _, o := range m.outputs {
		outputs = append(outputs, fmt.Sprintf(`%s:{"value":[%d.50,{}],"type":"number"}`, quote(o.name), o.value))
	}
	for _, c := range m.checks {
		checks = append(checks, fmt.Sprintf(`{"object_kind":"var","config_addr":%s,"status":"%d","objects":[]}`, quote(c.name), c.value))
	}
	for _, r := range m.resources {
		var instances []string
		for _, i := range r.instances {
			var members []string
			if i.key.Kind != tfstate.KeyNone {
				text := i.key.Text
				if i.key.Kind == tfstate.KeyString {
					text = quote(text)
				}
				members = append(members, `"index_key":`+text)
			}
			if i.deposed != "" {
				members = append(members, `"deposed":`+quote(i.deposed))
			}
			members = append(members, fmt.Sprintf(`"schema_version":0,"attributes":{"id":"i-%d","n":9007199254740993e%d,"list":[1,[]]}`, i.value, i.value))
			instances = append(instances, "{"+strings.Join(members, ",")+"}")
		}
		var members []string
		if r.Module != "" {
			members = append(members, `"module":`+quote(r.Module))
		}
		members = append(members, `"mode":`+quote(r.Mode), `"type":`+quote(r.Type), `"name":`+quote(r.Name))
		if r.each {
			members = append(members, `"each":"map"`)
		}
		members = append(members, fmt.Sprintf(`"provider":"provider[%d]"`, r.provider))
		if in := container(r.form, "instances", "[", "]", instances); in != "" {
			members = append(members, in)
		}
		if r.tail > 0 {
			members = append(members, fmt.Sprintf(`"later":[%d]`, r.tail))
		}
		resources = append(resources, "{"+strings.Join(members, ",")+"}")
	}
	members := []string{
		`"version":4`, `"terraform_version":` + quote(m.version), fmt.Sprintf(`"serial":%d`, m.serial), `"lineage":"l"`,
		container(m.forms[0], "outputs", "{", "}", outputs), container(m.forms[1], "resources", "[", "]", resources),
		container(m.forms[2], "check_results", "[", "]", checks),
	}
	if m.extra != "" {
		members = append(members, `"extra":{"a":[`+m.extra+`]}`)
	}
	members = slices.DeleteFunc(members, func(s string) bool { return s == "" })
	if m.order > 0 {
		rand.New(rand.NewPCG(m.order, 0)).Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	}
	return []byte("{" + strings.Join(members, ",") + "}")
}

// layouts are ways to lay out a compact document.
var genLayouts = map[string]func([]byte) []byte{
	"compact":  func(b []byte) []byte { return append(b, '\n') },
	"indented": func(b []byte) []byte { return append(reindent(b, "  "), '\n') },
	"tabs":     func(b []byte) []byte { return reindent(b, "\t") },
	"loose":    loosen,
}

func reindent(b []byte, unit string) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", unit); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// loosen puts white space between tokens, which depends on the bytes nearby only.
func loosen(b []byte) []byte {
	var out []byte
	quoted := false
	for i, c := range b {
		space := ""
		if !quoted && strings.IndexByte(`{}[],:"`, c) >= 0 {
			h := uint32(2166136261)
			for _, near := range b[max(0, i-6):min(len(b), i+7)] {
				h = (h ^ uint32(near)) * 16777619
			}
			space = [...]string{"", "", "", "", " ", "\n", "\t ", "\r\n  "}[h>>13&7]
		}
		out = append(append(out, space...), c)
		if c == '"' && b[i-1] != '\\' {
			quoted = !quoted
		}
	}
	return append(out, '\n')
}
