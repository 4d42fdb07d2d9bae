package merge

import (
	"errors"
	"io"
	"slices"

	"kl/tfstate"
)

// document is one side of a merge, as far as its stretches tell.
type document struct {
	b    []byte
	what string // names it in errors
	sc   *tfstate.Scanner

	outputs, resources, checks container

	byName map[tfstate.Resource]*resource
	all    []*resource // of byName, as they come

	serial, version span
	top             uint16 // members of the document begun before the end of the last stretch
	ended           bool   // the document's end was read
}

// span is a value's place; an end of 0 says that it is not known.
type span struct{ start, end int }

// container is outputs, resources or check_results.
type container struct {
	lists []*list
	null  span // of the value, where it is null
}

// in returns the list of that stretch, or nil. Lists are in the order of their stretches.
func in(lists []*list, stretch int) *list {
	i, found := slices.BinarySearchFunc(lists, stretch, func(l *list, n int) int { return l.stretch - n })
	if !found {
		return nil
	}
	return lists[i]
}

// list is the part of a container, or of a resource's instances, that lies in one stretch.
type list struct {
	stretch int
	opened  bool // the container begins here
	closed  bool // the container ends here
	left    int  // just after the opening bracket when opened, else after the element before; -1 when items[0] is that
	right   int  // the closing bracket when closed, else the start of the element that follows
	items   []*item
	inserts []insert // into the head's lists
}

// insert is an element that comes before items[at], or to the end.
type insert struct {
	at   int
	text []byte
}

// id tells an item from the others of its container.
type id struct {
	text    string // index key, output name, label of a check
	kind    tfstate.KeyKind
	deposed string
	hash    uint64 // of a check, for those without a label
}

// item is an element, or a resource.
type item struct {
	id
	class      Class // not of a resource
	res        *resource
	start, end int // -1 where it is outside of the stretch
	list       *list
	at         int
	twin       *item // the same one on the other side
	taken      bool  // as ours has it
	drop       bool  // it goes
}

// resource is a resource with what the stretches hold of it.
type resource struct {
	tfstate.Resource
	rest    uint64
	start   int // of the object; -1 when it began before the stretches
	headEnd int // just after the '[' of its instances, or the object's end
	end     int // of the object; -1 when that is outside of the stretches
	array   bool
	tail    [][]byte // names of the members behind the instances
	places  []*item  // in the lists of resources
	lists   []*list  // of its instances
}

// placeIn returns the resource's item in the list of that stretch, or its first one.
func (r *resource) placeIn(stretch int) *item {
	i, found := slices.BinarySearchFunc(r.places, stretch, func(p *item, n int) int { return p.list.stretch - n })
	if !found {
		i = 0
	}
	return r.places[i]
}

// whole reports whether all of the resource is in one stretch.
func (r *resource) whole() bool { return r.start >= 0 && r.end >= 0 && len(r.places) == 1 }

func (i *item) raw(b []byte) []byte { return b[i.start:i.end] }

func (i *item) element() Element {
	e := Element{i.class, i.id.text}
	if i.class == Instance {
		inst := tfstate.Instance{Resource: i.res.Resource, Key: i.key(), Deposed: i.deposed}
		e.Address = inst.Address()
	}
	return e
}

func (i *item) key() tfstate.Key { return tfstate.Key{Kind: i.kind, Text: i.id.text} }

func newDocument(b []byte, what string) *document {
	return &document{
		b: b, what: what, byName: map[tfstate.Resource]*resource{},
		sc: tfstate.NewScanner(nil, tfstate.Options{Fragment: true}),
	}
}

// where is what a reader stands in.
type where uint8

const (
	atStart where = iota
	inTop
	inList
	inInstances
	inTail // in a resource, behind its instances
	atEnd
)

// reader reads one stretch: the scanner names the elements, and the reader finds the brackets and members between them.
type reader struct {
	*document
	stretch int
	pos     int
	place   where
	kind    tfstate.CutKind
	list    *list // of outputs, resources or checks
	res     *resource
	inst    *list
}

// read reads a stretch and returns the context at its end.
func (d *document) read(stretch, start, end int, ctx tfstate.Context) (tfstate.Context, error) {
	r := &reader{document: d, stretch: stretch, pos: start}
	if err := r.begin(ctx); err != nil {
		return tfstate.Context{}, err
	}
	d.sc.Reset(d.b[:end], start, ctx)
	for {
		t, err := d.sc.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return tfstate.Context{}, cannot("%s cannot be read: %w", d.what, err)
		}
		if err := r.gap(t.Start); err != nil {
			return tfstate.Context{}, err
		}
		if err := r.token(t); err != nil {
			return tfstate.Context{}, err
		}
		r.pos = t.End
	}
	if err := r.gap(end); err != nil {
		return tfstate.Context{}, err
	}
	r.finish(end)
	ctx = d.sc.Context()
	d.top, d.ended = ctx.Top, d.sc.Done()
	if d.ended != (end == len(d.b)) {
		return ctx, cannot("a stretch of %s does not end where an element begins", d.what)
	}
	return ctx, nil
}

// begin sets the reader up where a stretch starts in ctx.
func (r *reader) begin(ctx tfstate.Context) error {
	r.kind = ctx.Kind
	if ctx.Kind == tfstate.CutStart {
		if r.pos != 0 {
			return cannot("a stretch of %s starts anew at byte %d", r.what, r.pos)
		}
		return nil
	}
	l := &list{stretch: r.stretch, left: spaceBefore(r.b, r.pos), opened: ctx.First}
	want := byte(',')
	switch {
	case ctx.First && ctx.Kind == tfstate.CutOutput:
		want = '{'
	case ctx.First:
		want = '['
	}
	if l.left == 0 || r.b[l.left-1] != want {
		return cannot("a stretch of %s does not start where an element begins", r.what)
	}
	if !ctx.First {
		l.left = spaceBefore(r.b, l.left-1)
	}
	if ctx.Kind != tfstate.CutInstance {
		r.place, r.list = inList, l
		c := r.containerOf(ctx.Kind)
		c.lists = append(c.lists, l)
		return nil
	}
	res := r.byName[ctx.Resource]
	if res == nil {
		res = &resource{Resource: ctx.Resource, start: -1}
		r.byName[ctx.Resource] = res
		r.all = append(r.all, res)
	}
	res.rest, res.end, res.array = ctx.Rest, -1, true
	res.lists = append(res.lists, l)
	r.list = &list{stretch: r.stretch, left: -1}
	r.resources.lists = append(r.resources.lists, r.list)
	r.kind = tfstate.CutResource
	r.place, r.res, r.inst = inInstances, res, l
	res.places = append(res.places, r.list.add(&item{res: res, start: -1, end: -1}))
	return nil
}

func (l *list) add(i *item) *item {
	i.list, i.at = l, len(l.items)
	l.items = append(l.items, i)
	return i
}

func (d *document) containerOf(k tfstate.CutKind) *container {
	switch k {
	case tfstate.CutOutput:
		return &d.outputs
	case tfstate.CutCheck:
		return &d.checks
	default:
		return &d.resources
	}
}

func (r *reader) token(t *tfstate.Token) error {
	i := &item{start: t.Start, end: t.End}
	switch t.Kind {
	case tfstate.CutOutput:
		i.class, i.id.text = Output, t.Name
	case tfstate.CutCheck:
		i.class, i.id.text, i.hash = Check, t.Label(), t.StartHash(0)
	case tfstate.CutInstance:
		i.id = id{text: t.Inst.Key.Text, kind: t.Inst.Key.Kind, deposed: t.Inst.Deposed}
		i.res = r.res
		r.inst.add(i)
		return nil
	default:
		return r.resource(t, i)
	}
	r.list.add(i)
	return nil
}

func (r *reader) resource(t *tfstate.Token, i *item) error {
	if r.byName[t.Resource] != nil {
		return cannot("%s has two objects for %s", r.what, t.Resource.Address())
	}
	raw := t.Raw()
	res := &resource{Resource: t.Resource, start: t.Start, headEnd: t.End, end: -1, array: raw[len(raw)-1] == '['}
	r.byName[t.Resource] = res
	r.all = append(r.all, res)
	i.res = res
	res.places = append(res.places, r.list.add(i))
	if !res.array {
		res.end = t.End
		return nil
	}
	res.rest = r.sc.Context().Rest
	i.end = -1
	r.place, r.res = inInstances, res
	r.inst = &list{stretch: r.stretch, opened: true, left: t.End}
	res.lists = append(res.lists, r.inst)
	return nil
}

// gap reads on to an element or the stretch's end.
func (r *reader) gap(end int) error {
	b := r.b[:end]
	for i := space(b, r.pos); i < end; i = space(b, i) {
		switch c := b[i]; {
		case c == '{' && r.place == atStart:
			r.place = inTop
			i++
		case c == ',':
			i++
		case c == '"' && r.place == inTop:
			i = r.topMember(b, i)
		case c == '"' && r.place == inTail:
			name, value := member(b, i)
			r.res.tail = append(r.res.tail, name)
			i = valueEnd(b, value)
		case c == '}' || c == ']':
			i++
			r.close(i)
		default:
			return cannot("%s cannot be read: byte %d is not where a member begins", r.what, i)
		}
	}
	return nil
}

// close leaves the container or object that ends before end.
func (r *reader) close(end int) {
	switch r.place {
	case inInstances:
		r.inst.closed, r.inst.right = true, end-1
		r.place = inTail
	case inTail:
		r.res.end = end
		r.res.places[len(r.res.places)-1].end = end
		r.place = inList
	case inList:
		r.list.closed, r.list.right = true, end-1
		r.place = inTop
	default:
		r.place = atEnd
	}
}

// topMember reads the member at b[i] and returns the offset after it, or that of the first element within it.
func (r *reader) topMember(b []byte, i int) int {
	name, value := member(b, i)
	bit := topMember(name)
	var c *container
	switch bit {
	case tfstate.TopOutputs:
		c, r.kind = &r.outputs, tfstate.CutOutput
	case tfstate.TopResources:
		c, r.kind = &r.resources, tfstate.CutResource
	case tfstate.TopCheckResults:
		c, r.kind = &r.checks, tfstate.CutCheck
	}
	if c != nil && value < len(b) && (b[value] == '{' || b[value] == '[') {
		r.place, r.list = inList, &list{stretch: r.stretch, opened: true, left: value + 1}
		c.lists = append(c.lists, r.list)
		return value + 1
	}
	s := span{value, valueEnd(b, value)}
	switch {
	case c != nil:
		c.null = s
	case bit == tfstate.TopSerial:
		r.serial = s
	case bit == tfstate.TopTerraformVersion:
		r.version = s
	}
	return s.end
}

// finish closes the lists that go on behind the stretch.
func (r *reader) finish(end int) {
	switch r.place {
	case inList:
		r.list.right = end
	case inInstances:
		r.list.right, r.inst.right = end, end
	default:
	}
}

// skimLimit is how much of a document is read again for members that are in no stretch.
const skimLimit = 1 << 20

// skim looks for the serial and the version among the first members, where no stretch has them.
func (d *document) skim() {
	b := d.b[:min(len(d.b), skimLimit)]
	r := &reader{document: &document{b: b}}
	for i := space(b, 0) + 1; ; i++ {
		if i = space(b, i); i >= len(b) || b[i] != '"' {
			break
		}
		r.place = inTop
		if i = r.topMember(b, i); r.place != inTop {
			i = valueEnd(b, i-1)
		}
		if i = space(b, i); i >= len(b) || b[i] != ',' && b[i] != '}' {
			break // what the limit cut off counts for nothing
		}
		if d.serial.end == 0 {
			d.serial = r.serial
		}
		if d.version.end == 0 {
			d.version = r.version
		}
	}
}
