package merge

import (
	"bytes"
	"encoding/json"
	"strings"

	"kl/tfstate"
)

// The functions of this file read JSON that a tfstate.Scanner has validated. On anything else they end somewhere within
// the bytes and say nothing useful.

// space returns the offset of the next byte at or after i that is no white space.
func space(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// spaceBefore returns the offset after the last byte before i that is no white space.
func spaceBefore(b []byte, i int) int {
	for i > 0 && isSpace(b[i-1]) {
		i--
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// stringEnd returns the offset after the string that begins at b[i].
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(b)
}

// valueEnd returns the offset after the value that begins at b[i].
func valueEnd(b []byte, i int) int {
	switch {
	case i >= len(b):
		return len(b)
	case b[i] == '"':
		return stringEnd(b, i)
	case b[i] != '{' && b[i] != '[':
		for i < len(b) && !isSpace(b[i]) && b[i] != ',' && b[i] != '}' && b[i] != ']' {
			i++
		}
		return i
	}
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if i++; depth == 0 {
			return i
		}
	}
	return len(b)
}

// member reads a member's name at b[i]: what stands between its quotes, and the offset of its value.
func member(b []byte, i int) (name []byte, value int) {
	end := stringEnd(b, i)
	value = space(b, end)
	if value < len(b) {
		value = space(b, value+1)
	}
	return b[i+1 : max(end-1, i+1)], value
}

// names returns the names of an object's members, as far as they are within b.
func names(b []byte) (all [][]byte) {
	for i := space(b, 1); i < len(b) && b[i] == '"'; i = space(b, i) {
		name, value := member(b, i)
		all = append(all, name)
		if i = space(b, valueEnd(b, value)); i < len(b) && b[i] == ',' {
			i++
		}
	}
	return all
}

// topNames are the members of the document that a merge writes.
var topNames = [...]struct {
	bit  uint16
	name string
}{
	{tfstate.TopSerial, "serial"},
	{tfstate.TopTerraformVersion, "terraform_version"},
	{tfstate.TopOutputs, "outputs"},
	{tfstate.TopResources, "resources"},
	{tfstate.TopCheckResults, "check_results"},
}

// topMember tells which of topNames a member of the document is, 0 for the others.
func topMember(name []byte) uint16 {
	plain := decode(name)
	for _, n := range topNames {
		if strings.EqualFold(plain, n.name) {
			return n.bit
		}
	}
	return 0
}

// decode resolves the escapes of a name.
func decode(name []byte) string {
	if bytes.IndexByte(name, '\\') < 0 {
		return string(name)
	}
	quoted := append(append([]byte{'"'}, name...), '"')
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return string(name)
	}
	return s
}
