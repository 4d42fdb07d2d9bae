package terraform

import (
	"encoding/json"
	"strings"

	"kl/tfstate"
)

// planConfig is the member "configuration" of a plan's JSON
// (https://developer.hashicorp.com/terraform/internals/json-format).
type planConfig struct {
	Providers map[string]struct {
		Module      string          `json:"module_address"`
		Expressions json.RawMessage `json:"expressions"`
	} `json:"provider_config"`
	Root configModule `json:"root_module"`
}

type configModule struct {
	Outputs map[string]struct {
		Expression json.RawMessage `json:"expression"`
		DependsOn  []string        `json:"depends_on"`
	} `json:"outputs"`
	Resources []configResource       `json:"resources"`
	Calls     map[string]*moduleCall `json:"module_calls"`
}

type moduleCall struct {
	Expressions map[string]json.RawMessage `json:"expressions"`
	Count       json.RawMessage            `json:"count_expression"`
	ForEach     json.RawMessage            `json:"for_each_expression"`
	DependsOn   []string                   `json:"depends_on"`
	Module      configModule               `json:"module"`
}

type configResource struct {
	Address      string          `json:"address"`
	Provider     string          `json:"provider_config_key"`
	Expressions  json.RawMessage `json:"expressions"`
	Provisioners json.RawMessage `json:"provisioners"`
	Count        json.RawMessage `json:"count_expression"`
	ForEach      json.RawMessage `json:"for_each_expression"`
	DependsOn    []string        `json:"depends_on"`
}

// references finds the managed resources that others refer to, through data
// sources, locals, variables and outputs of modules. Addresses are configured
// ones, without keys.
type references struct {
	config planConfig
	// locals are the references of each local, by module and name: "module.a
	// local.x". It is nil when nobody could look.
	locals    map[string][]string
	at        map[string]configResource // by address from the root
	seen      map[string]bool
	resources map[string]bool // what was found
	unknown   bool            // something refers to what is not known
}

func newReferences(c planConfig) *references {
	r := &references{config: c, at: map[string]configResource{}, seen: map[string]bool{}, resources: map[string]bool{}}
	r.index("", &c.Root)
	return r
}

func (r *references) index(module string, m *configModule) {
	for _, res := range m.Resources {
		r.at[join(module, res.Address)] = res
	}
	for name, call := range m.Calls {
		if call != nil {
			r.index(join(module, "module."+name), &call.Module)
		}
	}
}

func join(module, rest string) string {
	if module == "" {
		return rest
	}
	return module + "." + rest
}

// ofResource adds what a resource refers to, and the calls of the modules it is
// in.
func (r *references) ofResource(a tfstate.Scope) {
	if !r.once(a.String()) {
		return
	}
	parent, inside := a.Parent()
	module := parent.String()
	res, ok := r.at[a.String()]
	if !ok {
		r.unknown = true
		return
	}
	for _, e := range []json.RawMessage{res.Expressions, res.Provisioners, res.Count, res.ForEach} {
		r.expression(module, e)
	}
	r.whole(module, res.DependsOn)
	if p, ok := r.config.Providers[res.Provider]; ok {
		r.expression(p.Module, p.Expressions)
	}
	for inside {
		call := parent.String()
		parent, inside = parent.Parent()
		r.ofCall(parent.String(), call)
	}
}

// ofCall adds what decides whether, and after what, a module is there at all.
// parent is the module that calls it.
func (r *references) ofCall(parent, module string) {
	if !r.once("call " + module) {
		return
	}
	m := r.module(parent)
	c := (*moduleCall)(nil)
	if m != nil {
		c = m.Calls[module[strings.LastIndex(module, ".")+1:]]
	}
	if c == nil {
		r.unknown = true
		return
	}
	r.expression(parent, c.Count)
	r.expression(parent, c.ForEach)
	r.whole(parent, c.DependsOn)
}

// whole adds what depends_on names: all of it, whatever is used of it.
func (r *references) whole(module string, names []string) {
	for _, n := range names {
		n = withoutKeys(n)
		if strings.HasPrefix(n, "module.") && strings.Count(n, ".") == 1 {
			r.add(join(module, n))
			continue
		}
		r.reference(module, n)
	}
}

func (r *references) once(what string) bool {
	if r.seen[what] {
		return false
	}
	r.seen[what] = true
	return true
}

func (r *references) module(path string) *configModule {
	m := &r.config.Root
	if path == "" {
		return m
	}
	for _, step := range strings.Split(strings.TrimPrefix(path, "module."), ".module.") {
		call := m.Calls[step]
		if call == nil {
			return nil
		}
		m = &call.Module
	}
	return m
}

// expression adds what an expression of a module refers to.
func (r *references) expression(module string, raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		r.unknown = true
		return
	}
	r.value(module, v)
}

func (r *references) value(module string, v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			r.value(module, e)
		}
	case map[string]any:
		for name, e := range v {
			if list, ok := e.([]any); ok && name == "references" {
				r.list(module, list)
				continue
			}
			if name != "constant_value" {
				r.value(module, e)
			}
		}
	}
}

// list adds the references of one expression. Terraform lists the beginnings of
// a reference as well: module.a.id comes with module.a, which would mean all of
// the module.
func (r *references) list(module string, list []any) {
	var refs []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			refs = append(refs, withoutKeys(s))
		}
	}
	for _, ref := range refs {
		longer := false
		for _, other := range refs {
			longer = longer || strings.HasPrefix(other, ref+".")
		}
		if !longer {
			r.reference(module, ref)
		}
	}
}

// reference follows one reference of a module.
func (r *references) reference(module, ref string) {
	if !r.once(module + " " + ref) {
		return
	}
	parts := strings.Split(ref, ".")
	switch {
	case len(parts) < 2, parts[0] == "each", parts[0] == "count", parts[0] == "path", parts[0] == "self", parts[0] == "terraform", parts[0] == "ephemeral":
	case parts[0] == "var":
		r.variable(module, parts[1])
	case parts[0] == "local":
		refs, ok := r.locals[module+" local."+parts[1]]
		r.unknown = r.unknown || !ok
		for _, ref := range refs {
			r.reference(module, ref)
		}
	case parts[0] == "module":
		r.output(join(module, "module."+parts[1]), parts[2:])
	case parts[0] == "data" && len(parts) > 2:
		if a, err := parseAddress(join(module, strings.Join(parts[:3], "."))); err == nil {
			r.ofResource(a)
		}
	default:
		r.add(join(module, parts[0]+"."+parts[1]))
	}
}

// add adds a resource, or a whole module.
func (r *references) add(address string) {
	if _, err := parseAddress(address); err != nil {
		r.unknown = true
		return
	}
	r.resources[address] = true
}

// variable follows a variable to the call that sets it.
func (r *references) variable(module, name string) {
	i := strings.LastIndex("."+module, ".module.")
	if i < 0 {
		return // of the root: from outside
	}
	parent := strings.TrimSuffix(module[:i], ".")
	if m := r.module(parent); m != nil {
		if call := m.Calls[module[i+len("module."):]]; call != nil {
			r.expression(parent, call.Expressions[name])
		}
	}
}

// output follows an output of a module, or all of them, to what it is made of.
func (r *references) output(module string, rest []string) {
	m := r.module(module)
	if m == nil {
		r.unknown = true
		return
	}
	for name, o := range m.Outputs {
		if len(rest) == 0 || rest[0] == name || rest[0] == "" || rest[0] == "*" {
			r.expression(module, o.Expression)
			r.whole(module, o.DependsOn)
		}
	}
}

// withoutKeys drops the keys from a reference: a["x"].b[0] is a.b.
func withoutKeys(ref string) string {
	var b strings.Builder
	depth, quoted := 0, false
	for i := 0; i < len(ref); i++ {
		switch c := ref[i]; {
		case quoted && c == '\\':
			i++
		case depth > 0 && c == '"':
			quoted = !quoted
		case !quoted && c == '[':
			depth++
		case !quoted && c == ']':
			depth--
		case depth == 0:
			b.WriteByte(c)
		}
	}
	return strings.TrimSuffix(b.String(), ".")
}
