package kltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"kl/tfstate"
)

// State is a Terraform state that can be changed as an apply changes one. The same seed and the same calls give the
// same bytes. A State must not be used by two goroutines at a time; Clone gives each its own.
type State struct {
	serial    uint64
	lineage   string
	writer    string // terraform_version
	resources []*stateResource
	rng       *rand.PCG
	made      int // instances ever made, for their identities
	instances int
	version   int // told apart in outputs, raised by Mutate
}

type stateResource struct {
	tfstate.Resource
	each      string // "list", "map" or empty
	instances []*stateInstance
}

type stateInstance struct {
	key      tfstate.Key
	deposed  string
	number   int // decides the attributes that stay
	revision int // decides those that an update changes
	deps     []string
	text     []byte // in Terraform's layout, without the indentation of the first line
}

// NewState makes a state of that many resource instances, about 2 KB each: root and nested modules with count and
// for_each, single and multiple resources, data sources, now and then a deposed object, dependencies, sensitive
// attributes, escapes. Its serial is 1.
func NewState(resources int, seed uint64) *State {
	s := &State{serial: 1, writer: "1.11.4", rng: rand.NewPCG(seed, 0x6b6c)}
	r := rand.New(s.rng)
	s.lineage = fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", r.Uint32(), r.Uint32N(1<<16), r.Uint32N(1<<12), r.Uint32N(1<<12),
		r.Uint64N(1<<48))
	for s.instances < resources {
		s.grow(resources - s.instances)
	}
	slices.SortFunc(s.resources, func(a, b *stateResource) int { return a.Compare(b.Resource) })
	return s
}

// Clone returns an independent copy, which goes on with the same pseudo-random choices.
func (s *State) Clone() *State {
	for _, r := range s.resources {
		for _, in := range r.instances {
			in.rendered(r) // now, because from here on two goroutines may hold it
		}
	}
	c := *s
	rng := *s.rng
	c.rng = &rng
	c.resources = make([]*stateResource, len(s.resources))
	for i, r := range s.resources {
		rc := *r
		rc.instances = slices.Clone(r.instances) // instances themselves are replaced, never changed
		c.resources[i] = &rc
	}
	return &c
}

// Serial returns the state's serial.
func (s *State) Serial() uint64 { return s.serial }

// SetSerial sets the state's serial.
func (s *State) SetSerial(n uint64) { s.serial = n }

// Lineage returns the state's lineage.
func (s *State) Lineage() string { return s.lineage }

// SetLineage sets the state's lineage.
func (s *State) SetLineage(l string) { s.lineage = l }

// SetTerraformVersion sets the version of the client that claims to have written the state.
func (s *State) SetTerraformVersion(v string) { s.writer = v }

// Len returns the number of resource instances, those of data sources and deposed objects included.
func (s *State) Len() int { return s.instances }

// Managed returns the number of instances that count toward quotas: neither data sources nor deposed objects.
func (s *State) Managed() int {
	n := 0
	for _, r := range s.resources {
		for _, in := range r.instances {
			if r.Mode == tfstate.ModeManaged && in.deposed == "" {
				n++
			}
		}
	}
	return n
}

// Addresses returns the addresses of all instances in the order of the document.
func (s *State) Addresses() []string {
	all := make([]string, 0, s.instances)
	for _, r := range s.resources {
		for _, in := range r.instances {
			all = append(all, in.address(r))
		}
	}
	return all
}

func (in *stateInstance) address(r *stateResource) string {
	i := tfstate.Instance{Resource: r.Resource, Key: in.key, Deposed: in.deposed}
	return i.Address()
}

// Mutate changes n instances as a checkpoint of an apply does, seven of ten by updates, the others by additions, and
// raises the serial by one. It returns the addresses touched.
func (s *State) Mutate(n int) []string {
	r := rand.New(s.rng)
	touched := make([]string, 0, n)
	for i := range n {
		if i%10 < 7 && s.instances > 0 {
			res, at := s.pick(r)
			res.update(at)
			touched = append(touched, res.instances[at].address(res))
			continue
		}
		res := tfstate.Resource{
			Module: moduleName(r, s.made), Mode: tfstate.ModeManaged,
			Type: stateTypes[r.IntN(len(stateTypes))].name, Name: fmt.Sprintf("added_%d", s.made),
		}
		touched = append(touched, s.insert(res, tfstate.Key{}))
	}
	s.serial++
	s.version++
	return touched
}

// Delete removes n instances, fewer when there are no more, and raises the serial by one. It returns their addresses.
func (s *State) Delete(n int) []string {
	r := rand.New(s.rng)
	var gone []string
	for len(gone) < n && s.instances > 0 {
		res, at := s.pick(r)
		gone = append(gone, res.instances[at].address(res))
		s.remove(res, at)
	}
	s.serial++
	return gone
}

// Add adds an instance by its address, for example module.a["x"].aws_instance.web[0], and leaves the serial as it is.
// It panics when the address cannot be understood or is taken.
func (s *State) Add(address string) {
	res, key := parseAddress(address)
	if r, at := s.find(address); r != nil {
		panic(fmt.Sprintf("kltest: %s is there already, as number %d of %s", address, at, r.Address()))
	}
	s.insert(res, key)
}

// Update changes the instance at the address, and leaves the serial as it is. It panics when there is none.
func (s *State) Update(address string) {
	r, at := s.find(address)
	if r == nil {
		panic("kltest: nothing at " + address)
	}
	r.update(at)
}

// Remove deletes the instance at the address, and leaves the serial as it is. It panics when there is none.
func (s *State) Remove(address string) {
	r, at := s.find(address)
	if r == nil {
		panic("kltest: nothing at " + address)
	}
	s.remove(r, at)
}

// Depend makes the instance at the address depend on resources, and leaves the serial as it is.
func (s *State) Depend(address string, on ...string) {
	r, at := s.find(address)
	if r == nil {
		panic("kltest: nothing at " + address)
	}
	in := *r.instances[at]
	in.deps, in.text = on, nil
	r.instances[at] = &in
}

func (in *stateInstance) rendered(r *stateResource) []byte {
	if in.text == nil {
		in.text = in.render(r)
	}
	return in.text
}

func (s *State) find(address string) (*stateResource, int) {
	for _, r := range s.resources {
		if !strings.HasPrefix(address, r.Address()) {
			continue
		}
		for at, in := range r.instances {
			if in.address(r) == address {
				return r, at
			}
		}
	}
	return nil, 0
}

func (s *State) pick(r *rand.Rand) (*stateResource, int) {
	res := s.resources[r.IntN(len(s.resources))]
	return res, r.IntN(len(res.instances))
}

func (r *stateResource) update(at int) {
	in := *r.instances[at]
	in.revision++
	in.text = nil
	r.instances[at] = &in
}

func (s *State) remove(r *stateResource, at int) {
	r.instances = slices.Delete(r.instances, at, at+1)
	s.instances--
	if len(r.instances) == 0 {
		i := slices.Index(s.resources, r)
		s.resources = slices.Delete(s.resources, i, i+1)
	}
}

func (s *State) insert(res tfstate.Resource, key tfstate.Key) string {
	i, found := slices.BinarySearchFunc(s.resources, res, func(r *stateResource, t tfstate.Resource) int { return r.Compare(t) })
	if !found {
		s.resources = slices.Insert(s.resources, i, &stateResource{Resource: res})
	}
	r := s.resources[i]
	in := s.newInstance(key)
	at, _ := slices.BinarySearchFunc(r.instances, in, compareInstances)
	r.instances = slices.Insert(r.instances, at, in)
	return in.address(r)
}

func compareInstances(a, b *stateInstance) int {
	if c := a.key.Compare(b.key); c != 0 {
		return c
	}
	return strings.Compare(a.deposed, b.deposed)
}

func (s *State) newInstance(key tfstate.Key) *stateInstance {
	s.made++
	s.instances++
	return &stateInstance{key: key, number: s.made}
}

// grow appends one resource with up to limit instances; the caller sorts.
func (s *State) grow(limit int) {
	r := rand.New(s.rng)
	kind := stateTypes[r.IntN(len(stateTypes))]
	res := &stateResource{Resource: tfstate.Resource{
		Module: moduleName(r, s.made), Mode: tfstate.ModeManaged, Type: kind.name, Name: fmt.Sprintf("r%d", s.made),
	}}
	if r.IntN(100) < 8 {
		res.Mode, res.Type = tfstate.ModeData, "aws_ami"
	}
	var deps []string
	for range min(r.IntN(5), len(s.resources)) {
		d := s.resources[len(s.resources)-1-r.IntN(min(len(s.resources), 200))]
		deps = append(deps, configAddress(d.Resource))
	}
	slices.Sort(deps)
	deps = slices.Compact(deps)
	switch n := min(limit, 2+r.IntN(9)); r.IntN(4) {
	case 0:
		res.each = "list"
		for i := range n {
			res.instances = append(res.instances, s.newInstance(tfstate.Key{Kind: tfstate.KeyInt, Text: strconv.Itoa(i)}))
		}
	case 1:
		res.each = "map"
		for i := range n {
			key := stateKeys[(i+s.made)%len(stateKeys)] + strconv.Itoa(i)
			res.instances = append(res.instances, s.newInstance(tfstate.Key{Kind: tfstate.KeyString, Text: key}))
		}
	default:
		res.instances = append(res.instances, s.newInstance(tfstate.Key{}))
		if limit > 1 && res.Mode == tfstate.ModeManaged && r.IntN(100) == 0 {
			old := s.newInstance(tfstate.Key{})
			old.deposed = fmt.Sprintf("%08x", r.Uint32())
			res.instances = append(res.instances, old)
		}
	}
	if res.Mode == tfstate.ModeManaged {
		for _, in := range res.instances {
			in.deps = deps
		}
	}
	slices.SortFunc(res.instances, compareInstances)
	s.resources = append(s.resources, res)
}

func moduleName(r *rand.Rand, made int) string {
	tenant := r.IntN(made/60 + 2)
	switch r.IntN(6) {
	case 0:
		return "module.network"
	case 1:
		return fmt.Sprintf("module.tenant[\"t%03d.eu\"]", tenant)
	case 2:
		return fmt.Sprintf("module.tenant[\"t%03d.eu\"].module.db[%d]", tenant, r.IntN(3))
	case 3:
		return fmt.Sprintf("module.worker[%d]", tenant)
	}
	return ""
}

// configAddress is a resource's address without the keys of its modules, as dependencies name it.
func configAddress(r tfstate.Resource) string {
	path := splitAddress(r.Module)
	for i := range path {
		path[i], _, _ = strings.Cut(path[i], "[")
	}
	r.Module = strings.Join(path, ".")
	return r.Address()
}

// splitAddress splits at dots outside brackets.
func splitAddress(address string) []string {
	if address == "" {
		return nil
	}
	var parts []string
	start, quoted, depth := 0, false, 0
	for i := 0; i < len(address); i++ {
		switch c := address[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '.' && depth == 0:
			parts = append(parts, address[start:i])
			start = i + 1
		}
	}
	return append(parts, address[start:])
}

func parseAddress(address string) (tfstate.Resource, tfstate.Key) {
	var key tfstate.Key
	parts := splitAddress(address)
	n := len(parts)
	if n < 2 {
		panic("kltest: not an address: " + address)
	}
	res := tfstate.Resource{Mode: tfstate.ModeManaged, Type: parts[n-2]}
	name, text, keyed := strings.Cut(parts[n-1], "[")
	res.Name = name
	if keyed {
		text = strings.TrimSuffix(text, "]")
		key = tfstate.Key{Kind: tfstate.KeyInt, Text: text}
		if strings.HasPrefix(text, `"`) {
			plain, err := strconv.Unquote(text)
			if err != nil {
				panic("kltest: not an address: " + address)
			}
			key = tfstate.Key{Kind: tfstate.KeyString, Text: plain}
		}
	}
	n -= 2
	if n%2 == 1 && parts[n-1] == "data" {
		res.Mode = tfstate.ModeData
		n--
	}
	res.Module = strings.Join(parts[:n], ".")
	return res, key
}

// Bytes returns the document as Terraform writes it: indented by two spaces, ending with a newline.
func (s *State) Bytes() []byte { return s.Append(nil) }

// Append appends what Bytes returns to dst, which a benchmark of big states uses again.
func (s *State) Append(dst []byte) []byte {
	size := 4096
	for _, r := range s.resources {
		size += 256 + len(r.Module) + 2*len(r.Type) + len(r.Name)
		for _, in := range r.instances {
			size += len(in.rendered(r)) + 10
		}
	}
	b := bytes.NewBuffer(slices.Grow(dst, size))
	s.write(b)
	return b.Bytes()
}

func (s *State) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "{\n  \"version\": 4,\n  \"terraform_version\": %q,\n  \"serial\": %d,\n  \"lineage\": %q,\n  \"outputs\": ",
		s.writer, s.serial, s.lineage)
	writeJSON(b, s.outputs(), 2)
	b.WriteString(",\n  \"resources\": [")
	for i, r := range s.resources {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    {")
		member := func(name, value string) {
			if value != "" {
				b.WriteString("\n      ")
				writeString(b, name)
				b.WriteString(": ")
				writeString(b, value)
				b.WriteByte(',')
			}
		}
		member("module", r.Module)
		member("mode", r.Mode)
		member("type", r.Type)
		member("name", r.Name)
		member("each", r.each)
		member("provider", providerOf(r.Type))
		b.WriteString("\n      \"instances\": [")
		for j, in := range r.instances {
			if j > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n        ")
			b.Write(in.rendered(r))
		}
		b.WriteString("\n      ]\n    }")
	}
	if len(s.resources) > 0 {
		b.WriteString("\n  ")
	}
	b.WriteString("],\n  \"check_results\": ")
	writeJSON(b, s.checks(), 2)
	b.WriteString("\n}\n")
}

// Compact returns the document as OpenTofu writes it: without white space, ending with a newline.
func (s *State) Compact() []byte {
	indented := s.Bytes()
	var b bytes.Buffer
	b.Grow(len(indented))
	if err := json.Compact(&b, indented); err != nil {
		panic(err) // Bytes wrote no JSON
	}
	b.WriteByte('\n')
	return b.Bytes()
}
