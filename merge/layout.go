package merge

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// layout is how a document is laid out: every member and element on a line of its own, indented by units, as
// Terraform writes it, or all in one line, as OpenTofu does. Layouts that are equal agree.
type layout struct {
	lines bool
	unit  string
	first string // white space before the first member, but for line ends
	colon string // white space behind the first colon
}

// layoutOf goes by the document's first member.
func layoutOf(b []byte) layout {
	open := space(b, 0)
	if open >= len(b) {
		return layout{}
	}
	i := space(b, open+1)
	l := layout{first: string(b[open+1 : i])}
	if nl := strings.LastIndexByte(l.first, '\n'); nl >= 0 {
		l.lines = true
		l.first = l.first[nl+1:]
		l.unit = l.first
	}
	if i < len(b) && b[i] == '"' {
		if colon := space(b, stringEnd(b, i)); colon < len(b) {
			l.colon = string(b[colon+1 : space(b, colon+1)])
		}
	}
	return l
}

// line is what stands before an element that is within that many containers.
func (l layout) line(depth int) string {
	if !l.lines {
		return ""
	}
	return "\n" + strings.Repeat(l.unit, depth)
}

// name is a member up to its value.
func (l layout) name(quoted []byte) []byte {
	if !l.lines {
		return slices.Concat(quoted, []byte{':'})
	}
	return slices.Concat(quoted, []byte(": "))
}

// apply lays out a JSON value that stands within that many containers.
func (l layout) apply(raw []byte, depth int) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(len(raw))
	var err error
	if l.lines {
		err = json.Indent(&buf, raw, strings.Repeat(l.unit, depth), l.unit)
	} else {
		err = json.Compact(&buf, raw)
	}
	return buf.Bytes(), err
}

// elements is what stands between a container's brackets when it holds these elements or members, which are laid out
// already, within that many containers.
func (l layout) elements(depth int, texts [][]byte) []byte {
	var inner []byte
	for i, t := range texts {
		if i > 0 {
			inner = append(inner, ',')
		}
		inner = append(append(inner, l.line(depth)...), t...)
	}
	if len(texts) > 0 {
		inner = append(inner, l.line(depth-1)...)
	}
	return inner
}
