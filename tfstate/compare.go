package tfstate

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Difference is a value that two forms of one instance have differently.
type Difference struct {
	Path          string // as people write it: tags.Name, list[0].x, map["a/b"]
	Before, After []byte // as they are written; nil: it is not there. They alias the instances
	// Sensitive says that a sensitive path of either instance leads to the value, around it or into it, or that the
	// provider alone knows what it holds.
	Sensitive bool
}

// maxCompared is how deep values are compared part by part; what is below is one value.
const maxCompared = 64

// DiffAttributes calls f for every attribute, or part of one, that two instances have differently, in the order of
// their names. Numbers are compared by their texts, objects by their members, arrays element by element. Instances must
// be what a Scanner reported.
func DiffAttributes(before, after []byte, f func(Difference)) {
	a, sensitive := sensitiveOf(before)
	b, others := sensitiveOf(after)
	sensitive.join(others)
	d := differ{f}
	if isObject(a) && isObject(b) || a == nil && isObject(b) || isObject(a) && b == nil {
		d.objects(a, b, sensitive, "", 0)
		return
	}
	d.value(a, b, sensitive, "", 0)
}

func isObject(b []byte) bool { return len(b) > 0 && b[0] == '{' }

// join adds another tree of paths.
func (n *sensitiveNode) join(o *sensitiveNode) {
	n.all = n.all || o.all
	for name, c := range o.byName {
		if n.byName[name] == nil {
			if n.byName == nil {
				n.byName = map[string]*sensitiveNode{}
			}
			n.byName[name] = c
			continue
		}
		n.byName[name].join(c)
	}
	for k, c := range o.byItem {
		if n.byItem[k] == nil {
			if n.byItem == nil {
				n.byItem = map[uint64]*sensitiveNode{}
			}
			n.byItem[k] = c
			continue
		}
		n.byItem[k].join(c)
	}
}

type differ struct{ f func(Difference) }

// value compares two values, nil for one that is not there.
func (d differ) value(a, b []byte, n *sensitiveNode, path string, depth int) {
	if bytes.Equal(a, b) && (a == nil) == (b == nil) {
		return
	}
	if len(a) > 0 && len(b) > 0 && a[0] == b[0] && depth < maxCompared && (n == nil || !n.all) {
		switch a[0] {
		case '{':
			d.objects(a, b, n, path, depth)
			return
		case '[':
			d.arrays(a, b, n, path, depth)
			return
		}
	}
	if a != nil && b != nil && bytes.Equal(compact(a), compact(b)) {
		return
	}
	d.f(Difference{strings.TrimPrefix(path, "."), a, b, n != nil && (n.all || n.children() > 0)})
}

func compact(b []byte) []byte {
	if b[0] != '{' && b[0] != '[' {
		return b
	}
	return Compact(b)
}

func (d differ) objects(a, b []byte, n *sensitiveNode, path string, depth int) {
	was, is := membersOf(a), membersOf(b)
	names := slices.AppendSeq(make([]string, 0, len(was)+len(is)), maps.Keys(was))
	for name := range is {
		if _, both := was[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		var c *sensitiveNode
		if n != nil {
			if c = n.byName[name]; n.all {
				c = &sensitiveNode{all: true}
			}
		}
		d.value(was[name], is[name], c, path+memberText(name), depth+1)
	}
}

func membersOf(object []byte) map[string][]byte { return maps.Collect(Members(object)) }

// memberText is how a member of an object is called behind the object.
func memberText(name string) string {
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '_', i > 0 && (r >= '0' && r <= '9' || r == '-'):
		default:
			return Key{KeyString, name}.String()
		}
	}
	if name == "" {
		return `[""]`
	}
	return "." + name
}

// elementsOf are the elements of a valid array.
func elementsOf(array []byte) (out [][]byte) {
	eachElement(array, 0, func(_ uint64, at int) int {
		end, _ := skipValue(array, at, 0)
		out = append(out, array[at:end:end])
		return end
	})
	return out
}

func (d differ) arrays(a, b []byte, n *sensitiveNode, path string, depth int) {
	was, is := elementsOf(a), elementsOf(b)
	at := func(list [][]byte, k int) []byte {
		if k < len(list) {
			return list[k]
		}
		return nil
	}
	for k := range max(len(was), len(is)) {
		var c *sensitiveNode
		if n != nil {
			c = n.byItem[uint64(k)]
		}
		d.value(at(was, k), at(is, k), c, path+"["+strconv.Itoa(k)+"]", depth+1)
	}
}

// DiffMembers calls f for every member of an instance besides its attributes that two instances have differently, such
// as status or dependencies, in the order of their names. sensitive_attributes and dependencies are compared as sets,
// and the former are given as a list of printed paths; identity_schema_version, which Terraform 1.12 began to write, does
// not count. What a provider keeps in private, and members that are not known, are sensitive. Instances must be what a
// Scanner reported.
func DiffMembers(before, after []byte, f func(Difference)) {
	a, b := instanceMembers(before), instanceMembers(after)
	for i, name := range instNames {
		bit := uint32(1) << i
		x, y := a[name], b[name]
		delete(a, name)
		delete(b, name)
		switch bit {
		case instIndexKey, instDeposed, instAttributes, instAttributesFlat, instIdentitySchemaVersion:
			continue
		case instSensitiveAttributes:
			if !sameSet(x, y) {
				x, y = sensitiveList(before), sensitiveList(after)
				f(Difference{Path: name, Before: x, After: y})
			}
			continue
		case instDependencies, instDependsOn:
			if sameSet(x, y) {
				continue
			}
		}
		differ{f}.value(x, y, hideIf(bit == instPrivate), name, maxCompared)
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		differ{f}.value(a[name], b[name], hideIf(true), name, maxCompared)
		delete(b, name)
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		differ{f}.value(nil, b[name], hideIf(true), name, maxCompared)
	}
}

func hideIf(sensitive bool) *sensitiveNode {
	if !sensitive {
		return nil
	}
	return &sensitiveNode{all: true}
}

// instanceMembers are the members of an instance by name; those that the format knows by its own spelling. One that is
// null is as one that is not there, but for members that are not known.
func instanceMembers(raw []byte) map[string][]byte {
	out := map[string][]byte{}
	for name, value := range Members(raw) {
		for _, known := range instNames {
			if strings.EqualFold(name, known) {
				name = known
				if string(value) == "null" {
					value = nil
				}
				break
			}
		}
		if value != nil {
			out[name] = value
		}
	}
	return out
}

// sameSet reports whether two arrays have the same elements in any order; nil is as an empty one.
func sameSet(a, b []byte) bool {
	set := func(b []byte) (out []string) {
		if b == nil {
			return nil
		}
		for _, e := range elementsOf(b) {
			out = append(out, string(compact(e)))
		}
		slices.Sort(out)
		return out
	}
	if a != nil && a[0] != '[' || b != nil && b[0] != '[' {
		return a != nil && b != nil && bytes.Equal(compact(a), compact(b))
	}
	return slices.Equal(set(a), set(b))
}

// sensitiveList is the JSON list of the paths at which an instance is masked.
func sensitiveList(instance []byte) []byte {
	_, paths, err := MaskAttributes(instance)
	if err != nil || paths == nil {
		paths = []string{}
	}
	b, err := json.Marshal(paths)
	if err != nil {
		return nil // texts can always be written
	}
	return b
}
