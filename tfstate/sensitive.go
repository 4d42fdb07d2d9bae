package tfstate

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// ErrInstance says that bytes are not one JSON object.
var ErrInstance = errors.New("the instance is not a JSON object")

// MaskAttributes returns an instance's attributes with null for every value that its sensitive_attributes name, and the
// paths of what was replaced as people write them: password, tags["a"], list[0].x, sorted. All other bytes stay as they
// are written. attributes is nil when the instance has none. Terraform writes a sensitive path as a list of steps
// {"type": "get_attr"|"index", "value": …}, where the value of an index is {"value": …, "type": …}
// (internal/states/statefile/version4.go); an index without that wrapping, a path of a single step and a plain name are
// taken as well. Of the flat form that Terraform 0.11 wrote (attributes_flat) all is masked that belongs to an
// attribute which a path begins with.
//
// It fails closed: a path that leads nowhere, such as one into a set, whose elements have no index, masks the nearest
// value around it, and what is not understood as a path masks all attributes. The error is ErrInstance.
func MaskAttributes(instance []byte) (attributes json.RawMessage, sensitive []string, err error) {
	start := space(instance, 0)
	if start >= len(instance) || instance[start] != '{' {
		return nil, nil, ErrInstance
	}
	end, f := skipValue(instance, start, 0)
	if f != ok || space(instance, end) < len(instance) {
		return nil, nil, ErrInstance
	}
	instance = instance[start:end]
	attrs, root := sensitiveOf(instance)
	if attrs == nil {
		return nil, nil, nil
	}
	var m masker
	attributes, _ = m.value(make([]byte, 0, len(attrs)), attrs, 0, root, "")
	slices.Sort(m.paths)
	return attributes, slices.Compact(m.paths), nil
}

// sensitiveOf returns the attributes of a valid instance, nil when there are none, and which of them are sensitive.
func sensitiveOf(instance []byte) (attrs []byte, root *sensitiveNode) {
	attrs, root = Attributes(instance), sensitivePaths(member(instance, instSensitiveAttributes))
	if attrs == nil {
		if attrs = member(instance, instAttributesFlat); attrs == nil || string(attrs) == "null" {
			return nil, root
		}
		root.flatten(attrs)
	}
	root.settle(attrs, 0)
	return attrs, root
}

// sensitiveNode is a value on the way of sensitive paths.
type sensitiveNode struct {
	text   string // as it is printed behind its parent
	all    bool   // a path ends here
	byName map[string]*sensitiveNode
	byItem map[uint64]*sensitiveNode
}

// pathStep is one step of a sensitive path.
type pathStep struct {
	kind pathStepKind
	name string
	item uint64
}

type pathStepKind uint8

const (
	stepAttr pathStepKind = iota // an attribute of an object
	stepKey                      // an element of a map
	stepItem                     // an element of a list
	stepSet                      // an element of a set, which is named by its value
)

func (n *sensitiveNode) children() int { return len(n.byName) + len(n.byItem) }

// child returns the node that a step leads to, a new one when there was none.
func (n *sensitiveNode) child(s pathStep) *sensitiveNode {
	if s.kind == stepSet {
		n.all = true
		return n
	}
	if s.kind == stepItem {
		c := n.byItem[s.item]
		if c == nil {
			if n.byItem == nil {
				n.byItem = map[uint64]*sensitiveNode{}
			}
			c = &sensitiveNode{text: "[" + strconv.FormatUint(s.item, 10) + "]"}
			n.byItem[s.item] = c
		}
		return c
	}
	c := n.byName[s.name]
	if c == nil {
		if n.byName == nil {
			n.byName = map[string]*sensitiveNode{}
		}
		c = &sensitiveNode{text: "." + s.name}
		if s.kind == stepKey {
			c.text = Key{KeyString, s.name}.String()
		}
		n.byName[s.name] = c
	}
	return c
}

// sensitivePaths reads sensitive_attributes into a tree.
func sensitivePaths(raw []byte) *sensitiveNode {
	root := &sensitiveNode{}
	if raw == nil || string(raw) == "null" {
		return root
	}
	var paths []json.RawMessage
	if json.Unmarshal(raw, &paths) != nil {
		root.all = true
	}
	for _, p := range paths {
		n := root
		steps, understood := stepsOf(p)
		if !understood {
			steps = nil
		}
		for i := 0; i < len(steps) && !n.all; i++ {
			n = n.child(steps[i])
		}
		n.all = true
	}
	return root
}

func stepsOf(raw json.RawMessage) (steps []pathStep, understood bool) {
	list := []json.RawMessage{raw}
	if raw[0] == '[' && json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	for _, item := range list {
		s, understood := stepOf(item)
		if !understood {
			return nil, false
		}
		steps = append(steps, s)
	}
	return steps, true
}

func stepOf(raw json.RawMessage) (s pathStep, understood bool) {
	if raw[0] == '"' {
		return pathStep{name: text(raw)}, true
	}
	var step struct {
		Type  string          `json:"type"`
		Value json.RawMessage `json:"value"`
	}
	if raw[0] != '{' || json.Unmarshal(raw, &step) != nil || len(step.Value) == 0 {
		return s, false
	}
	switch step.Type {
	case "get_attr":
		return pathStep{name: text(step.Value)}, step.Value[0] == '"'
	case "index":
		return indexStep(step.Value)
	}
	return s, false
}

func indexStep(key json.RawMessage) (s pathStep, understood bool) {
	var wrapped struct {
		Value json.RawMessage `json:"value"`
	}
	if key[0] == '{' {
		if json.Unmarshal(key, &wrapped) != nil || len(wrapped.Value) == 0 {
			return s, false
		}
		key = wrapped.Value
	}
	if key[0] == '"' {
		return pathStep{kind: stepKey, name: text(key)}, true
	}
	if n, whole := unsigned(key); whole {
		return pathStep{kind: stepItem, item: n}, true
	}
	return pathStep{kind: stepSet}, true
}

// flatten turns a tree of paths into one for attributes of the flat form, whose keys are whole paths with dots.
func (n *sensitiveNode) flatten(attrs []byte) {
	if n.all || n.children() == 0 {
		return
	}
	first := n.byName
	n.all = len(n.byItem) > 0 || attrs[0] != '{'
	n.byName, n.byItem = nil, nil
	met := map[string]struct{}{}
	for i, begin := 1, true; !n.all; begin = false {
		name, value, closed, _ := nextMember(attrs, i, begin)
		if closed {
			break
		}
		key := decode(name, "")
		attribute, _, _ := strings.Cut(key, ".")
		if _, hidden := first[attribute]; hidden {
			met[attribute] = struct{}{}
			n.child(pathStep{name: key}).all = true
		}
		i, _ = skipValue(attrs, value, 0)
	}
	n.all = n.all || len(met) < len(first)
}

// settle makes the nearest value around each path that leads nowhere sensitive as a whole. It returns the offset after
// the value at b[i].
func (n *sensitiveNode) settle(b []byte, i int) (end int) {
	i = space(b, i)
	if n == nil || n.all || n.children() == 0 || b[i] != '{' && b[i] != '[' {
		if n != nil && n.children() > 0 {
			n.hide()
		}
		end, _ = skipValue(b, i, 0)
		return end
	}
	met := map[*sensitiveNode]struct{}{}
	element := func(at int, c *sensitiveNode) int {
		if c != nil {
			met[c] = struct{}{}
		}
		return c.settle(b, at)
	}
	if b[i] == '[' {
		end = eachElement(b, i, func(k uint64, at int) int { return element(at, n.byItem[k]) })
	} else {
		end = eachMember(b, i, func(name string, at int) int { return element(at, n.byName[name]) })
	}
	if len(met) < n.children() {
		n.hide()
	}
	return end
}

// hide makes all of the value sensitive. What paths say of its parts is dropped: they may be longer than any value is
// deep.
func (n *sensitiveNode) hide() { n.all, n.byName, n.byItem = true, nil, nil }

// eachElement walks over the valid array at b[i]. f gets the offset of each value and returns the one after it.
func eachElement(b []byte, i int, f func(k uint64, at int) (end int)) (end int) {
	i++
	for k := uint64(0); ; k++ {
		if i = space(b, i); b[i] == ']' {
			return i + 1
		}
		if k > 0 {
			i = space(b, i+1)
		}
		i = f(k, i)
	}
}

// eachMember walks over the valid object at b[i]. f gets the offset of each value and returns the one after it.
func eachMember(b []byte, i int, f func(name string, at int) (end int)) (end int) {
	i++
	for first := true; ; first = false {
		name, value, closed, _ := nextMember(b, i, first)
		if closed {
			return value
		}
		i = f(decode(name, ""), value)
	}
}

// masker copies valid JSON and masks it by a tree that is settled for it.
type masker struct{ paths []string }

// value appends the value at b[i], masked as n says, and returns the offset after it. path is how the value is called,
// empty for all attributes.
func (m *masker) value(dst, b []byte, i int, n *sensitiveNode, path string) ([]byte, int) {
	i = space(b, i)
	if n == nil || !n.all && n.children() == 0 {
		end, _ := skipValue(b, i, 0)
		return append(dst, b[i:end]...), end
	}
	if n.all && (path != "" || b[i] != '{') {
		m.paths = append(m.paths, strings.TrimPrefix(path, "."))
		end, _ := skipValue(b, i, 0)
		return append(dst, "null"...), end
	}
	from := i
	element := func(at int, c *sensitiveNode) (end int) {
		dst = append(dst, b[from:at]...)
		text := ""
		if c != nil {
			text = path + c.text
		}
		dst, end = m.value(dst, b, at, c, text)
		from = end
		return end
	}
	var end int
	if b[i] == '[' {
		end = eachElement(b, i, func(k uint64, at int) int { return element(at, n.byItem[k]) })
	} else {
		end = eachMember(b, i, func(name string, at int) int {
			c := n.byName[name]
			if n.all { // all attributes: their names stay
				c = &sensitiveNode{text: "." + name, all: true}
			}
			return element(at, c)
		})
	}
	return append(dst, b[from:end]...), end
}
