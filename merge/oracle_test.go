package merge_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"kl/merge"
	"kl/tfstate"
)

// part is an element of a document as the tests see it.
type part struct {
	merge.Element
	raw  string
	rest uint64
	res  tfstate.Resource
	key  tfstate.Key
	dep  string
	hash uint64 // of what makes it itself
}

// parts is a document taken apart.
type parts struct {
	list      []part
	at        map[merge.Element]int
	resources []tfstate.Resource
	instances map[tfstate.Resource]int
	twice     bool // an element or a resource is there twice
}

func (p *parts) get(e merge.Element) *part {
	if i, ok := p.at[e]; ok {
		return &p.list[i]
	}
	return nil
}

func takeApart(doc []byte) (*parts, error) {
	p := &parts{at: map[merge.Element]int{}, instances: map[tfstate.Resource]int{}}
	sc := tfstate.NewScanner(doc, tfstate.Options{})
	for {
		t, err := sc.Next()
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return nil, err
		}
		e := part{Element: merge.Element{Address: t.Label()}, raw: string(t.Raw()), hash: t.StartHash(1)}
		switch t.Kind {
		case tfstate.CutResource:
			p.twice = p.twice || slices.Contains(p.resources, t.Resource)
			p.resources = append(p.resources, t.Resource)
			continue
		case tfstate.CutInstance:
			e.rest, e.res, e.key, e.dep = t.Inst.Rest, t.Resource, t.Inst.Key, t.Inst.Deposed
			p.instances[t.Resource]++
		case tfstate.CutOutput:
			e.Class = merge.Output
		default:
			e.Class = merge.Check
		}
		_, there := p.at[e.Element]
		p.twice = p.twice || there
		p.at[e.Element] = len(p.list)
		p.list = append(p.list, e)
	}
}

// sorted reports whether all is in Terraform's order.
func (p *parts) sorted() bool {
	if !slices.IsSortedFunc(p.resources, tfstate.Resource.Compare) {
		return false
	}
	for i := 1; i < len(p.list); i++ {
		a, b := &p.list[i-1], &p.list[i]
		if a.Class == merge.Output && b.Class == merge.Output && a.Address > b.Address {
			return false
		}
		if a.Class == merge.Instance && b.Class == merge.Instance && a.res == b.res {
			if c := a.key.Compare(b.key); c > 0 || c == 0 && a.dep > b.dep {
				return false
			}
		}
	}
	return true
}

func compact(raw string) string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(raw)); err != nil {
		return raw
	}
	return b.String()
}

// sameText compares elements whatever their layout.
func sameText(class merge.Class, a, b string) bool {
	if class == merge.Output { // a member, not a value
		a, b = "{"+a+"}", "{"+b+"}"
	}
	return compact(a) == compact(b)
}

// chooser takes elements by a number, and remembers which it was asked about.
type chooser struct {
	seed  uint64
	asked map[merge.Element]bool
	twice []merge.Element
}

func (c *chooser) choose(e merge.Element) bool {
	h := c.seed
	switch c.seed {
	case 0:
		return false
	case 1:
		return true
	}
	for _, b := range []byte(fmt.Sprint(e)) {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return h>>32&1 == 0
}

func (c *chooser) take(e merge.Element) bool {
	if c.asked[e] {
		c.twice = append(c.twice, e)
	}
	c.asked[e] = true
	return c.choose(e)
}

// build merges with a chooser.
func build(head, ours []byte, stretches []merge.Stretch, seed uint64, opt merge.Options) ([]byte, *chooser, error) {
	c := &chooser{seed: seed, asked: map[merge.Element]bool{}}
	got, err := merge.Build(head, ours, stretches, c.take, opt)
	return got, c, err
}

// problem says what is wrong with a merged document, compared with what maps of elements give.
func problem(head, ours, got []byte, c *chooser, opt merge.Options) error {
	h, err := takeApart(head)
	if err != nil {
		return fmt.Errorf("head: %w", err)
	}
	o, err := takeApart(ours)
	if err != nil {
		return fmt.Errorf("ours: %w", err)
	}
	g, err := takeApart(got)
	if err != nil {
		return fmt.Errorf("the result cannot be scanned: %w", err)
	}
	if len(c.twice) > 0 {
		return fmt.Errorf("asked twice about %v", c.twice)
	}
	if err := elementProblem(h, o, g, c, layoutsAgree(head, ours)); err != nil {
		return err
	}
	if err := resourceProblem(h, o, g, c); err != nil {
		return err
	}
	if h.sorted() && o.sorted() && !g.sorted() {
		return errors.New("the result is not in order though head and ours are")
	}
	if err := orderProblem(h, o, g, c); err != nil {
		return err
	}
	if err := layoutProblem(head, ours, got); err != nil {
		return err
	}
	return topProblem(head, got, opt)
}

func differ(h, o *part) bool { return h == nil || o == nil || h.raw != o.raw || h.rest != o.rest }

func elementProblem(h, o, g *parts, c *chooser, agree bool) error {
	all := map[merge.Element]bool{}
	for _, p := range [...]*parts{h, o} {
		for e := range p.at {
			all[e] = true
		}
	}
	if g.twice {
		return errors.New("the result has something twice")
	}
	for e := range g.at {
		if !all[e] {
			return fmt.Errorf("%v was invented", e)
		}
	}
	for e := range all {
		hp, op, gp := h.get(e), o.get(e), g.get(e)
		if c.asked[e] != differ(hp, op) {
			return fmt.Errorf("%v: asked %v, differs %v", e, c.asked[e], differ(hp, op))
		}
		want := hp
		if c.asked[e] && c.choose(e) {
			want = op
		}
		switch {
		case want == nil && gp == nil:
		case want == nil:
			return fmt.Errorf("%v is still there", e)
		case gp == nil:
			return fmt.Errorf("%v is lost", e)
		case want == hp || agree:
			if gp.raw != want.raw {
				return fmt.Errorf("%v has other bytes: %s instead of %s", e, gp.raw, want.raw)
			}
		case !sameText(e.Class, gp.raw, want.raw):
			return fmt.Errorf("%v has another content: %s instead of %s", e, gp.raw, want.raw)
		}
	}
	return nil
}

// resourceProblem checks which resources there are and what they say of all their instances.
func resourceProblem(h, o, g *parts, c *chooser) error {
	type tally struct {
		head, ours               uint64 // rest
		both, taken, added, left int
	}
	tallies := map[tfstate.Resource]*tally{}
	of := func(r tfstate.Resource) *tally {
		if tallies[r] == nil {
			tallies[r] = &tally{}
		}
		return tallies[r]
	}
	for i := range h.list {
		if p := &h.list[i]; p.Class == merge.Instance {
			n := of(p.res)
			n.head = p.rest
			op := o.get(p.Element)
			taken := c.asked[p.Element] && c.choose(p.Element)
			if op != nil {
				n.both++
				if taken {
					n.taken++
				}
			}
			if op != nil || !taken {
				n.left++
			}
		}
	}
	for i := range o.list {
		if p := &o.list[i]; p.Class == merge.Instance {
			n := of(p.res)
			n.ours = p.rest
			if h.get(p.Element) == nil && c.choose(p.Element) {
				n.added++
			}
		}
	}
	for i := range g.list {
		p := &g.list[i]
		if p.Class != merge.Instance {
			continue
		}
		n := of(p.res)
		want := n.head
		if n.taken > 0 || n.both == 0 && n.added > 0 {
			want = n.ours
		}
		if p.rest != want {
			return fmt.Errorf("%s has the provider of the wrong side", p.res.Address())
		}
	}
	for _, r := range h.resources {
		n := of(r)
		gone := h.instances[r] > 0 && n.left == 0 && n.added == 0
		if slices.Contains(g.resources, r) == gone {
			return fmt.Errorf("%s: there %v, gone %v", r.Address(), !gone, gone)
		}
	}
	for _, r := range o.resources {
		if !slices.Contains(h.resources, r) && slices.Contains(g.resources, r) != (of(r).added > 0) {
			return fmt.Errorf("%s: %d of its instances were added", r.Address(), of(r).added)
		}
	}
	return nil
}

// orderProblem checks that what was there stays in its order.
func orderProblem(h, o, g *parts, c *chooser) error {
	kept := func(p, in *parts, skip *parts) (all []merge.Element) {
		for i := range p.list {
			e := p.list[i].Element
			if in.get(e) != nil && (skip == nil || skip.get(e) == nil) {
				all = append(all, e)
			}
		}
		return all
	}
	if a, b := kept(h, g, nil), kept(g, h, nil); !slices.Equal(a, b) {
		return fmt.Errorf("the head's elements have changed places: %v, were %v", b, a)
	}
	byList := func(all []merge.Element, in *parts) map[string][]merge.Element {
		lists := map[string][]merge.Element{}
		for _, e := range all {
			key := fmt.Sprint(e.Class, in.get(e).res)
			lists[key] = append(lists[key], e)
		}
		return lists
	}
	a, b := byList(kept(o, g, h), o), byList(kept(g, o, h), o)
	for k := range a {
		if !slices.Equal(a[k], b[k]) {
			return fmt.Errorf("the new elements have changed places: %v, were %v", b[k], a[k])
		}
	}
	return nil
}

// laidOut reports whether a document is indented by two spaces or compact.
func laidOut(doc []byte) bool {
	trim := string(bytes.TrimSpace(doc))
	return bytes.Equal(indented(doc), doc) || compact(trim) == trim
}

func indented(doc []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, doc, "", "  ") != nil {
		return nil
	}
	return b.Bytes()
}

// layoutProblem checks that a result is laid out by encoding/json if head and ours are.
func layoutProblem(head, ours, got []byte) error {
	if !laidOut(head) || !laidOut(ours) {
		return nil
	}
	if bytes.Equal(indented(head), head) && !bytes.Equal(indented(got), got) {
		return errors.New("the result is not indented as the head is")
	}
	if trim := bytes.TrimSpace(head); compact(string(trim)) == string(trim) && compact(string(got)) != string(bytes.TrimSpace(got)) {
		return errors.New("the result is not compact as the head is")
	}
	return nil
}

// layoutsAgree goes by the white space around the first member's name.
func layoutsAgree(a, b []byte) bool {
	first := regexp.MustCompile(`^\s*\{(\s*)"(?:[^"\\]|\\.)*"\s*:(\s*)`)
	x, y := first.FindSubmatch(a), first.FindSubmatch(b)
	line := func(s []byte) string {
		i := bytes.LastIndexByte(s, '\n')
		return string(s[max(i, 0):])
	}
	return line(x[1]) == line(y[1]) && string(x[2]) == string(y[2])
}

// topProblem checks the members of the document.
func topProblem(head, got []byte, opt merge.Options) error {
	var was, is map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(head, &was), json.Unmarshal(got, &is)); err != nil {
		return err
	}
	merged := func(name string) bool {
		switch topName(name) {
		case "outputs", "resources", "check_results":
			return true
		}
		return false
	}
	for name, v := range is {
		want := string(was[name])
		switch topName(name) {
		case "serial":
			want = fmt.Sprint(opt.Serial)
		case "terraform_version":
			if opt.TerraformVersion != "" {
				text, err := json.Marshal(opt.TerraformVersion)
				if err != nil {
					return err
				}
				want = string(text)
			}
		}
		if !merged(name) && string(v) != want {
			return fmt.Errorf("member %s is %s, want %s", name, v, want)
		}
	}
	for name := range was {
		if _, ok := is[name]; !ok {
			return fmt.Errorf("member %s is lost", name)
		}
	}
	return nil
}

// topName is the name as the format has it.
func topName(name string) string {
	for _, known := range [...]string{"serial", "terraform_version", "outputs", "resources", "check_results"} {
		if bytes.EqualFold([]byte(name), []byte(known)) {
			return known
		}
	}
	return name
}

// merges checks a merge with the whole documents as one stretch and with random ones.
func merges(t *testing.T, head, ours []byte, seed uint64, opt merge.Options) []byte {
	t.Helper()
	fail := func(what string, st []merge.Stretch, got []byte, err error) {
		t.Helper()
		t.Fatalf("%s, choice %d, stretches %+v: %v\nhead:\n%s\nours:\n%s\nresult:\n%s", what, seed, st, err, head, ours, got)
	}
	st := whole(head, ours)
	got, c, err := build(head, ours, st, seed, opt)
	if err != nil {
		fail("whole", st, nil, err)
	}
	if err := problem(head, ours, got, c, opt); err != nil {
		fail("whole", st, got, err)
	}
	r := rand.New(rand.NewPCG(seed, 11))
	for range 3 {
		st := stretches(head, ours, r)
		other, c, err := build(head, ours, st, seed, opt)
		if err != nil {
			fail("in parts", st, got, err)
		}
		if err := problem(head, ours, other, c, opt); err != nil {
			fail("in parts", st, other, err)
		}
		a, b := string(got), string(other)
		if !laidOut(head) { // separators may be those of other neighbours
			a, b = compact(a), compact(b)
		}
		if a != b {
			fail("in parts", st, other, fmt.Errorf("another result than of one stretch:\n%s", got))
		}
	}
	return got
}
