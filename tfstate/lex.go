package tfstate

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is encoding/json's limit, so that both accept the same documents.
const maxDepth = 10000

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// stops marks the bytes of x that end a plain run within a string: quotes, backslashes and control characters. Only
// the lowest mark is exact, because a borrow can mark bytes above it.
func stops(x uint64) uint64 {
	quote := x ^ lowBits*'"'
	slash := x ^ lowBits*'\\'
	return ((x-lowBits*' ')&^x | (quote-lowBits)&^quote | (slash-lowBits)&^slash) & highBits
}

// skipString takes the offset just after an opening quote to the one just after the closing quote.
func skipString(b []byte, i int) (int, fail) {
	for {
		for i+8 <= len(b) {
			m := stops(binary.LittleEndian.Uint64(b[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i >= len(b) {
			return len(b), failToken
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, ok
		case c == '\\':
			var f fail
			if i, f = skipEscape(b, i+1); f != ok {
				return i, f
			}
		case c < ' ':
			return i, failControl
		default:
			i++
		}
	}
}

func skipEscape(b []byte, i int) (int, fail) {
	if i >= len(b) {
		return len(b), failToken
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, ok
	case 'u':
		for n := 0; n < 4; n++ {
			i++
			if i >= len(b) {
				return len(b), failToken
			}
			if _, hex := hexDigit(b[i]); !hex {
				return i, failEscape
			}
		}
		return i + 1, ok
	}
	return i, failEscape
}

func hexDigit(c byte) (rune, bool) {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0'), true
	case 'a' <= c && c <= 'f':
		return rune(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return rune(c-'A') + 10, true
	}
	return 0, false
}

// space skips white space; small enough to be inlined for the frequent case that there is none.
func space(b []byte, i int) int {
	if i < len(b) && b[i] > ' ' {
		return i
	}
	return skipSpace(b, i)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\n', '\r', '\t':
			i++
		default:
			return i
		}
		for i+8 <= len(b) {
			if x := binary.LittleEndian.Uint64(b[i:]) ^ lowBits*' '; x != 0 {
				i += bits.TrailingZeros64(x) >> 3
				break
			}
			i += 8
		}
	}
	return i
}

func skipWord(b []byte, i int, word string) (int, fail) {
	for n := 0; n < len(word); n++ {
		if i+n >= len(b) || b[i+n] != word[n] {
			return i + n, failToken
		}
	}
	return i + len(word), ok
}

func skipDigits(b []byte, i int) (int, fail) {
	start := i
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	if i == start {
		return i, failToken
	}
	return i, ok
}

func skipNumber(b []byte, i int) (int, fail) {
	var f fail
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i, f = skipDigits(b, i); f != ok {
		return i, f
	}
	if i < len(b) && b[i] == '.' {
		if i, f = skipDigits(b, i+1); f != ok {
			return i, f
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i, ok
}

// skipValue validates the JSON value at b[i], white space before it included, and returns the offset just after it.
// depth is the number of containers around it. It keeps its own stack, one bit per open container, because nesting in
// a request body must not become nesting of calls.
func skipValue(b []byte, i, depth int) (int, fail) {
	var (
		objects uint64   // the newest 64 open containers, newest lowest, 1 for an object
		older   []uint64 // full words below
		open    int
		f       fail
		c       byte
	)
value:
	if i = space(b, i); i >= len(b) {
		return i, failToken
	}
	switch c = b[i]; c {
	case '"':
		i, f = skipString(b, i+1)
	case '{', '[':
		if depth+open >= maxDepth {
			return i, failDepth
		}
		if i = space(b, i+1); i >= len(b) {
			return i, failToken
		}
		if b[i] == c+2 { // ']' and '}' both stand two after their opening brackets
			i++
			break
		}
		if open > 0 && open&63 == 0 {
			older = append(older, objects)
		}
		open++
		objects <<= 1
		if c == '{' {
			objects |= 1
			goto name
		}
		goto value
	case 't':
		i, f = skipWord(b, i, "true")
	case 'f':
		i, f = skipWord(b, i, "false")
	case 'n':
		i, f = skipWord(b, i, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		i, f = skipNumber(b, i)
	default:
		return i, failToken
	}
	if f != ok {
		return i, f
	}
after:
	if open == 0 {
		return i, ok
	}
	if i = space(b, i); i >= len(b) {
		return i, failToken
	}
	c = b[i]
	if objects&1 == 0 {
		if c == ',' {
			i++
			goto value
		}
		if c != ']' {
			return i, failToken
		}
	} else {
		if c == ',' {
			i = space(b, i+1)
			goto name
		}
		if c != '}' {
			return i, failToken
		}
	}
	i++
	open--
	objects >>= 1
	if open > 0 && open&63 == 0 {
		objects = older[len(older)-1]
		older = older[:len(older)-1]
	}
	goto after
name:
	if i >= len(b) || b[i] != '"' {
		return i, failToken
	}
	if i, f = skipString(b, i+1); f != ok {
		return i, f
	}
	if i = space(b, i); i >= len(b) || b[i] != ':' {
		return i, failToken
	}
	i++
	goto value
}

// nextMember reads on in an object, from just after its '{' (first) or just after a member's value. It returns the
// member's name as it is written between its quotes and the offset of its value; or, at the object's end, closed and
// the offset just after '}'. On failure the offset is where it failed.
func nextMember(b []byte, i int, first bool) (name []byte, value int, closed bool, f fail) {
	if i = space(b, i); i >= len(b) {
		return nil, i, false, failToken
	}
	if b[i] == '}' {
		return nil, i + 1, true, ok
	}
	if !first {
		if b[i] != ',' {
			return nil, i, false, failToken
		}
		i = space(b, i+1)
	}
	return memberAt(b, i)
}

// memberAt reads a member's name and colon at b[i].
func memberAt(b []byte, i int) (name []byte, value int, closed bool, f fail) {
	if i >= len(b) || b[i] != '"' {
		return nil, i, false, failToken
	}
	start := i + 1
	if i, f = skipString(b, start); f != ok {
		return nil, i, false, f
	}
	name = b[start : i-1]
	if i = space(b, i); i >= len(b) || b[i] != ':' {
		return nil, i, false, failToken
	}
	if i = space(b, i+1); i >= len(b) {
		return nil, i, false, failToken
	}
	return name, i, false, ok
}

// readString decodes the string or null at b[i] and returns the offset after it; null is the empty string. When the
// text equals prev, prev itself is returned, so that neighbours share one string.
func readString(b []byte, i, depth int, prev, what string) (string, int, error) {
	switch b[i] {
	case '"':
		end, f := skipString(b, i+1)
		if f != ok {
			return "", 0, syntaxError(b, end, f)
		}
		return decode(b[i+1:end-1], prev), end, nil
	case 'n':
		end, f := skipWord(b, i, "null")
		if f != ok {
			return "", 0, syntaxError(b, end, f)
		}
		return "", end, nil
	}
	return "", 0, wrongType(b, i, depth, what, "a string")
}

// decode resolves the text between a valid string's quotes as encoding/json does: what is no Unicode becomes U+FFFD.
func decode(raw []byte, prev string) string {
	plain, ascii := true, true
	for _, c := range raw {
		plain = plain && c != '\\'
		ascii = ascii && c < utf8.RuneSelf
	}
	switch {
	case !plain || !ascii && !utf8.Valid(raw):
		return decodeSlow(raw)
	case string(raw) == prev:
		return prev
	}
	return string(raw)
}

func decodeSlow(raw []byte) string {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			r, n := utf8.DecodeRune(raw[i:])
			out = utf8.AppendRune(out, r)
			i += n
			continue
		}
		i += 2
		switch c = raw[i-1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(raw[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				second := rune(-1)
				if len(raw) >= i+6 && raw[i] == '\\' && raw[i+1] == 'u' {
					second = hex4(raw[i+2:])
				}
				if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

func hex4(raw []byte) rune {
	var r rune
	for _, c := range raw[:4] {
		d, _ := hexDigit(c)
		r = r<<4 | d
	}
	return r
}
