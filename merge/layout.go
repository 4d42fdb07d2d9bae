package merge

import (
	"bytes"
	"encoding/json"
	"strings"
)

// layout is how a document is laid out: every member and element on a line of its own, indented by units, as
// Terraform writes it, or all in one line, as OpenTofu does.
type layout struct {
	lines bool
	unit  string
}

// layoutOf goes by what stands before the document's first member.
func layoutOf(b []byte) layout {
	open := space(b, 0)
	if open >= len(b) {
		return layout{}
	}
	first := b[open+1 : space(b, open+1)]
	nl := bytes.LastIndexByte(first, '\n')
	if nl < 0 {
		return layout{}
	}
	return layout{lines: true, unit: string(first[nl+1:])}
}

// line is what stands before an element that is within that many containers.
func (l layout) line(depth int) string {
	if !l.lines {
		return ""
	}
	return "\n" + strings.Repeat(l.unit, depth)
}

// colon is what stands between a member's name and its value.
func (l layout) colon() string {
	if !l.lines {
		return ":"
	}
	return ": "
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
