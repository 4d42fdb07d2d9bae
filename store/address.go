package store

import "strings"

// isData reports whether an instance address is one of a data source.
func isData(address string) bool {
	_, rest := splitModule(address)
	return strings.HasPrefix(rest, "data.")
}

// splitModule splits an address into its module path, with the final dot, and
// the rest.
func splitModule(address string) (module, rest string) {
	rest = address
	for strings.HasPrefix(rest, "module.") {
		i := len("module.")
		for i < len(rest) && rest[i] != '.' && rest[i] != '[' {
			i++
		}
		i += keyLen(rest[i:])
		if i >= len(rest) || rest[i] != '.' {
			break
		}
		rest = rest[i+1:]
	}
	return address[:len(address)-len(rest)], rest
}

// keyLen is the length of the instance key at the start of s, 0 without one.
func keyLen(s string) int {
	if !strings.HasPrefix(s, "[") {
		return 0
	}
	quoted := false
	for i := 1; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ']' && !quoted:
			return i + 1
		}
	}
	return 0
}

// deposedMark is what an address has behind it when it is that of a deposed
// object (tfstate.Instance.Address).
const deposedMark = " (deposed object "

// ConfigAddress takes all instance keys out of an address: dependencies name
// resources, not instances.
func ConfigAddress(address string) string {
	address, _, _ = strings.Cut(address, deposedMark)
	var b strings.Builder
	for len(address) > 0 {
		i := strings.IndexByte(address, '[')
		if i < 0 {
			b.WriteString(address)
			break
		}
		b.WriteString(address[:i])
		n := keyLen(address[i:])
		if n == 0 {
			break
		}
		address = address[i+n:]
	}
	return b.String()
}
