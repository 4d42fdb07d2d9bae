package query

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"kl/auth"
	"kl/store"
	"kl/tfstate"
)

// contents walks over the elements of states: of the newest version of each,
// or of the one that is asked for.
type contents struct {
	s      *statement
	states []*store.MomentState
	f      filter
	keys   []store.Key
	deps   bool
	reveal bool // sensitive values are shown
	open   *store.Content
	state  *store.MomentState
}

// contents begins to read; keys are what the elements are found by.
func (s *statement) contents(f filter, keep func(st *store.MomentState) bool, kinds map[string]store.KeyKind) *contents {
	c := &contents{s: s, f: f}
	c.states = s.states(f, func(st *store.MomentState) bool { return st.Lifecycle != "deleted" && keep(st) })
	for column, kind := range kinds {
		if want, ok := f.text[column]; ok {
			c.keys = append(c.keys, store.KeyOf(kind, want))
		}
		c.deps = c.deps || kind == store.KeyDependsOn
	}
	return c
}

// next returns the next element; io.EOF behind the last.
func (c *contents) next() (*tfstate.Token, error) {
	for {
		if c.open == nil {
			if len(c.states) == 0 {
				return nil, io.EOF
			}
			c.state, c.states = c.states[0], c.states[1:]
			var err error
			if c.open, err = c.s.moment.Content(c.state, c.f.version, c.deps, c.keys...); err != nil {
				return nil, err
			}
			if c.reveal {
				c.s.moment.Reveal(c.state)
			}
		}
		t, err := c.open.Next()
		if !errors.Is(err, io.EOF) {
			return t, err
		}
		c.close()
		if err := c.s.budget.Err(); err != nil {
			return nil, err
		}
	}
}

func (c *contents) close() {
	if c.open != nil {
		c.open.Close()
		c.open = nil
	}
}

// place says where an element is from.
type place struct {
	state   *store.MomentState
	version uint64
}

func (c *contents) place() place { return place{c.state, c.open.Version()} }

// placeColumns say which version of which state a row is about.
func placeColumns[R any](of func(r *R) *place) []col[R] {
	return append(stateColumns(func(r *R) *store.MomentState { return of(r).state }),
		find(value("version", "INTEGER", "version that the row is about: the newest, unless version = N asks for another", func(r *R) any { return of(r).version })))
}

var resourceKeys = map[string]store.KeyKind{
	"address": store.KeyResource, "config_address": store.KeyConfig, "type": store.KeyType, "mode": store.KeyMode, "module": store.KeyModule,
}

var instanceKeys = map[string]store.KeyKind{
	"address": store.KeyAddress, "resource": store.KeyResource, "config_address": store.KeyConfig, "type": store.KeyType, "mode": store.KeyMode,
	"module": store.KeyModule,
}

// resourceRow is a resource with the number of its instances.
type resourceRow struct {
	place
	tfstate.Resource
	provider  string
	instances int64
}

var resourceTable = table(Table{Name: "resources", About: "resources, each with its instances", newest: true}, append(placeColumns(func(r *resourceRow) *place { return &r.place }), []col[resourceRow]{
	find(text("address", "as Terraform prints it, with the module's keys", func(r *resourceRow) string { return r.Address() })),
	find(text("config_address", "without any keys, as in the configuration", func(r *resourceRow) string { return configAddress(r.Resource) })),
	find(text("module", "path of its module, '' for the root", func(r *resourceRow) string { return r.Module })),
	find(text("mode", "managed or data", func(r *resourceRow) string { return r.Mode })),
	find(text("type", "such as aws_instance", func(r *resourceRow) string { return r.Type })),
	text("name", "in the configuration", func(r *resourceRow) string { return r.Name }),
	orNull("provider", "as the state names it", func(r *resourceRow) string { return r.provider }),
	value("instances", "INTEGER", "how many, deposed ones too", func(r *resourceRow) any { return r.instances }),
}...), func(s *statement, f filter) (pull[resourceRow], error) {
	return &resources{contents: s.contents(f, mayRead, resourceKeys)}, nil
})

// resources walks over resources, each when all its instances were seen.
type resources struct {
	*contents
	row  resourceRow
	open bool
}

func (r *resources) pull(into *resourceRow) error {
	for {
		t, err := r.next()
		if errors.Is(err, io.EOF) && r.open {
			*into, r.open = r.row, false
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case t.Kind == tfstate.CutInstance && r.open && r.row.state == r.state && t.Resource == r.row.Resource:
			r.row.instances++
		case t.Kind == tfstate.CutResource:
			was, open := r.row, r.open
			r.row, r.open = resourceRow{r.place(), t.Resource, r.contents.open.Provider(), 0}, true
			if open {
				*into = was
				return nil
			}
		}
	}
}

// instanceRow is an instance; its bytes are good until the next row.
type instanceRow struct {
	place
	inst     tfstate.Instance
	provider string
	reveal   bool
	masked   bool // attributes and sensitive are set
	attrs    []byte
	hidden   []string
}

// attributes are the instance's, without what is sensitive unless that is to
// be revealed, and the paths of what is sensitive.
func (r *instanceRow) attributes() ([]byte, []string) {
	if !r.masked {
		r.masked = true
		var err error
		if r.attrs, r.hidden, err = tfstate.MaskAttributes(r.inst.Raw); err != nil {
			r.attrs = nil // nothing rather than something secret
		} else if r.reveal {
			r.attrs = rawAttributes(r.inst.Raw)
		}
	}
	return r.attrs, r.hidden
}

func rawAttributes(instance []byte) []byte {
	var flat []byte
	for name, v := range tfstate.Members(instance) {
		switch name {
		case "attributes":
			if string(v) != "null" {
				return v
			}
		case "attributes_flat":
			flat = v
		}
	}
	return flat
}

// member is a member of the instance object as an SQL value.
func (r *instanceRow) member(name string) any {
	for n, v := range tfstate.Members(r.inst.Raw) {
		if n == name {
			return scalar(v)
		}
	}
	return nil
}

// instances walks over instances.
type instances struct{ *contents }

func (i instances) pull(into *instanceRow) error {
	for {
		t, err := i.next()
		if err != nil {
			return err
		}
		if t.Kind == tfstate.CutInstance {
			*into = instanceRow{place: i.place(), inst: t.Inst, provider: i.open.Provider(), reveal: i.reveal}
			return nil
		}
	}
}

func (s *statement) instances(f filter) instances {
	c := s.contents(f, mayRead, instanceKeys)
	c.reveal = s.request.Reveal
	return instances{c}
}

// instanceColumns say which instance a row is about.
func instanceColumns[R any](of func(r *R) *instanceRow) []col[R] {
	return append(placeColumns(func(r *R) *place { return &of(r).place }), []col[R]{
		find(text("address", "of the instance, as Terraform prints it", func(r *R) string { return of(r).inst.Address() })),
		find(text("resource", "address of its resource", func(r *R) string { return of(r).inst.Resource.Address() })),
		find(text("module", "path of its module, '' for the root", func(r *R) string { return of(r).inst.Resource.Module })),
		find(text("mode", "managed or data", func(r *R) string { return of(r).inst.Resource.Mode })),
		find(text("type", "such as aws_instance", func(r *R) string { return of(r).inst.Resource.Type })),
	}...)
}

func ownInstance(r *instanceRow) *instanceRow { return r }

var instanceTable = table(Table{Name: "instances", About: "resource instances, deposed ones too", newest: true}, append(instanceColumns(ownInstance), []col[instanceRow]{
	text("name", "of its resource in the configuration", func(r *instanceRow) string { return r.inst.Resource.Name }),
	find(text("config_address", "of its resource without any keys, as dependencies name it", func(r *instanceRow) string { return configAddress(r.inst.Resource) })),
	value("key", "ANY", "a number with count, a text with for_each, else NULL", func(r *instanceRow) any { return keyOf(r.inst.Key) }),
	orNull("deposed", "key of a deposed object, NULL for the current one", func(r *instanceRow) string { return r.inst.Deposed }),
	orNull("provider", "as the state names it", func(r *instanceRow) string { return r.provider }),
	value("status", "TEXT", "tainted, or NULL", func(r *instanceRow) any { return r.member("status") }),
	value("schema_version", "INTEGER", "of the resource type in its provider", func(r *instanceRow) any { return r.member("schema_version") }),
	value("attributes", "JSON", "object; sensitive values are null, unless they are revealed", func(r *instanceRow) any {
		a, _ := r.attributes()
		return jsonText(a)
	}),
	value("sensitive", "JSON", "array of the paths of sensitive values", func(r *instanceRow) any {
		_, hidden := r.attributes()
		if hidden == nil {
			hidden = []string{}
		}
		return asJSON(hidden)
	}),
	value("dependencies", "JSON", "array of what it depends on, as in the table dependencies", func(r *instanceRow) any {
		for name, v := range tfstate.Members(r.inst.Raw) {
			if name == "dependencies" {
				return jsonText(v)
			}
		}
		return "[]"
	}),
}...), func(s *statement, f filter) (pull[instanceRow], error) { return s.instances(f), nil })

// attributeRow is one attribute of an instance.
type attributeRow struct {
	*instanceRow
	name string
	json []byte
}

// sensitive reports whether the attribute is sensitive, or holds something
// that is.
func (r *attributeRow) sensitive() bool {
	for _, path := range r.hidden {
		if rest, ok := strings.CutPrefix(path, r.name); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

var attributeTable = table(Table{Name: "attributes", About: "attributes of instances, one row for each at the top", newest: true}, append(instanceColumns(func(r *attributeRow) *instanceRow { return r.instanceRow }), []col[attributeRow]{
	text("attribute", "name", func(r *attributeRow) string { return r.name }),
	value("value", "ANY", "text, number, 1 or 0; JSON of lists and objects; NULL when it is null or sensitive", func(r *attributeRow) any { return scalar(r.json) }),
	value("json", "JSON", "as it stands in the state", func(r *attributeRow) any { return jsonText(r.json) }),
	value("sensitive", "INTEGER", "1 when it is sensitive, or holds something that is", func(r *attributeRow) any { return r.sensitive() }),
}...), func(s *statement, f filter) (pull[attributeRow], error) {
	return &attributes{instances: s.instances(f)}, nil
})

// attributes walks over the attributes of instances.
type attributes struct {
	instances
	row  instanceRow
	all  []attributeRow // of the row
	left []attributeRow
}

func (a *attributes) pull(into *attributeRow) error {
	for len(a.left) == 0 {
		if err := a.instances.pull(&a.row); err != nil {
			return err
		}
		attrs, _ := a.row.attributes()
		a.all = a.all[:0]
		for name, v := range tfstate.Members(attrs) {
			a.all = append(a.all, attributeRow{&a.row, name, v})
		}
		a.left = a.all
	}
	*into, a.left = a.left[0], a.left[1:]
	return nil
}

// dependencyRow is one thing that an instance depends on.
type dependencyRow struct {
	*instanceRow
	on string
}

var dependencyTable = table(Table{Name: "dependencies", About: "what instances depend on, as Terraform recorded it", newest: true}, append(instanceColumns(func(r *dependencyRow) *instanceRow { return r.instanceRow }), []col[dependencyRow]{
	find(text("config_address", "of the instance's resource without any keys", func(r *dependencyRow) string { return configAddress(r.inst.Resource) })),
	find(text("depends_on", "config_address of a resource", func(r *dependencyRow) string { return r.on })),
}...), func(s *statement, f filter) (pull[dependencyRow], error) {
	return &dependencies{instances: instances{s.contents(f, mayRead, dependencyKeys)}}, nil
})

var dependencyKeys = map[string]store.KeyKind{
	"address": store.KeyAddress, "resource": store.KeyResource, "config_address": store.KeyConfig, "type": store.KeyType, "mode": store.KeyMode,
	"module": store.KeyModule, "depends_on": store.KeyDependsOn,
}

// dependencies walks over what instances depend on.
type dependencies struct {
	instances
	row  instanceRow
	left []string
}

func (d *dependencies) pull(into *dependencyRow) error {
	for len(d.left) == 0 {
		if err := d.instances.pull(&d.row); err != nil {
			return err
		}
		d.left = tfstate.Dependencies(d.row.inst.Raw)
	}
	*into = dependencyRow{&d.row, d.left[0]}
	d.left = d.left[1:]
	return nil
}

// outputRow is a root output.
type outputRow struct {
	place
	name      string
	kind      []byte
	json      []byte
	sensitive bool
	reveal    bool
}

var outputTable = table(Table{Name: "outputs", About: "root outputs", needs: needsOutputs, newest: true}, append(placeColumns(func(r *outputRow) *place { return &r.place }), []col[outputRow]{
	text("name", "of the output", func(r *outputRow) string { return r.name }),
	value("value", "ANY", "text, number, 1 or 0; JSON of lists and objects; NULL when it is null or sensitive", func(r *outputRow) any {
		if r.sensitive && !r.reveal {
			return nil
		}
		return scalar(r.json)
	}),
	value("json", "JSON", "as it stands in the state; NULL when it is sensitive, unless it is revealed", func(r *outputRow) any {
		if r.sensitive && !r.reveal {
			return nil
		}
		return jsonText(r.json)
	}),
	value("type", "JSON", "as Terraform writes types, such as \"string\"", func(r *outputRow) any { return jsonText(r.kind) }),
	value("sensitive", "INTEGER", "1 when it is sensitive", func(r *outputRow) any { return r.sensitive }),
}...), func(s *statement, f filter) (pull[outputRow], error) {
	c := s.contents(f, func(st *store.MomentState) bool {
		// the role outputs reads the newest version, as GET serves it
		return mayRead(st) || st.Role.Allows(auth.ReadOutputs) && (f.version == 0 || f.version == st.Version)
	}, nil)
	c.keys = append(c.keys, store.KeyOf(store.KeyOutput, ""))
	c.reveal = s.request.Reveal
	return &outputs{c}, nil
})

// outputs walks over root outputs.
type outputs struct{ *contents }

func (o *outputs) pull(into *outputRow) error {
	for {
		t, err := o.next()
		if err != nil {
			return err
		}
		if t.Kind != tfstate.CutOutput {
			continue
		}
		*into = outputRow{place: o.place(), name: t.Name, reveal: o.reveal}
		for name, v := range tfstate.Members(t.Raw()[t.Value-t.Start:]) {
			switch name {
			case "value":
				into.json = v
			case "type":
				into.kind = v
			case "sensitive":
				into.sensitive = string(v) != "false" && string(v) != "null"
			}
		}
		if into.sensitive && !mayRead(o.state) && !o.s.reader.Sensitive {
			continue // to this reader GET does not even name it
		}
		return nil
	}
}

// configAddress is a resource's address without the keys of its modules, as
// the configuration and the member dependencies have it.
func configAddress(r tfstate.Resource) string {
	if !strings.Contains(r.Module, "[") {
		return r.Address()
	}
	return store.ConfigAddress(r.Address())
}

// keyOf is an instance key as an SQL value.
func keyOf(k tfstate.Key) any {
	switch k.Kind {
	case tfstate.KeyInt:
		return number(k.Text)
	case tfstate.KeyString:
		return k.Text
	default:
		return nil
	}
}

// scalar is a JSON value as an SQL value: numbers become ones when SQLite has
// the very same, and stay text otherwise; lists and objects stay JSON.
func scalar(v []byte) any {
	if len(v) == 0 {
		return nil
	}
	switch v[0] {
	case 'n':
		return nil
	case 't':
		return int64(1)
	case 'f':
		return int64(0)
	case '"':
		t, _ := tfstate.Text(v)
		return t
	case '{', '[':
		return string(tfstate.Compact(v))
	default:
		return number(string(v))
	}
}

// number is an SQL number when it is exactly what the text says.
func number(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && strconv.FormatFloat(f, 'f', -1, 64) == strings.TrimSuffix(text, ".0") {
		return f
	}
	return text
}

// jsonText is JSON as it is written but for white space, NULL for none.
func jsonText(v []byte) any {
	if len(v) == 0 {
		return nil
	}
	return string(tfstate.Compact(v))
}
