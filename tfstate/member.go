package tfstate

import "iter"

// Members walks over the members of a JSON object: decoded names, and the bytes of the values without the white space
// around them. It stops where the object ends or where it is no valid JSON any more, so that of a resource token, which
// ends with the '[' of its instances, it yields what stands before them. The values alias the object.
func Members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(name string, value []byte) bool) {
		i := space(object, 0)
		if i >= len(object) || object[i] != '{' {
			return
		}
		i++
		for first := true; ; first = false {
			name, value, closed, f := nextMember(object, i, first)
			if f != ok || closed {
				return
			}
			if i, f = skipValue(object, value, 0); f != ok {
				return
			}
			if !yield(decode(name, ""), object[value:i:i]) {
				return
			}
		}
	}
}

// Text decodes a JSON string; false when the value is none.
func Text(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	if end, f := skipString(value, 1); f != ok || end != len(value) {
		return "", false
	}
	return decode(value[1:len(value)-1], ""), true
}

// Provider is the provider that a resource token's bytes name before its instances, "" for none:
// provider["registry.terraform.io/hashicorp/aws"], behind the path of the module that configures it.
func Provider(resource []byte) string {
	for name, value := range Members(resource) {
		if name == "provider" {
			text, _ := Text(value)
			return text
		}
	}
	return ""
}

// Compact is a valid JSON value without the white space outside its strings; all else stays as it is written.
func Compact(value []byte) []byte {
	out, _ := appendCompact(make([]byte, 0, len(value)), value, 0)
	return out
}
