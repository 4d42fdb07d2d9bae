package tfstate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scope is a part of a state: an instance, a whole resource or a whole module, with all below it. A step without a
// key stands for all of its keys, also in the middle: module.a.aws_x.y covers module.a["k"].aws_x.y[0]. Terraform's
// -target is narrower there (a module's key may only be left out at the end); the wider meaning lets addresses of a
// configuration, which have no keys, be used as they are.
type Scope struct{ steps []scopeStep }

// scopeStep is a module call or a resource. The name of a module's step begins with "module.", that of a resource's has
// its mode, when it is not managed, its type and its name.
type scopeStep struct {
	name string
	key  Key
}

var errNoScope = errors.New("it is no address of an instance, a resource or a module")

// ParseScope reads an address as Terraform prints it. The deposed key of an instance is left out: who has an instance
// has its deposed objects.
func ParseScope(address string) (Scope, error) {
	rest, ok := strings.CutSuffix(address, ")")
	if ok {
		i := strings.LastIndex(rest, " (deposed object ")
		if i < 0 {
			return Scope{}, errNoScope
		}
		address = rest[:i]
	}
	if !utf8.ValidString(address) {
		return Scope{}, errNoScope
	}
	var s Scope
	for rest = address; rest != ""; {
		st, after, err := parseStep(rest)
		if err != nil {
			return Scope{}, err
		}
		s.steps = append(s.steps, st)
		rest = after
		if rest == "" {
			return s, nil
		}
		if !strings.HasPrefix(st.name, "module.") {
			return Scope{}, errNoScope // nothing comes behind a resource
		}
		if rest, ok = strings.CutPrefix(rest, "."); !ok {
			return Scope{}, errNoScope
		}
	}
	return Scope{}, errNoScope
}

func parseStep(s string) (st scopeStep, rest string, err error) {
	words := 2 // module.NAME or TYPE.NAME
	if strings.HasPrefix(s, "data.") || strings.HasPrefix(s, "ephemeral.") {
		words = 3
	}
	n := 0
	for i := range words {
		if i > 0 {
			if n == len(s) || s[n] != '.' {
				return st, "", errNoScope
			}
			n++
		}
		w := wordLen(s[n:])
		if w == 0 {
			return st, "", errNoScope
		}
		n += w
	}
	st.name, rest = s[:n], s[n:]
	if strings.HasPrefix(rest, "[") {
		st.key, rest, err = parseKey(rest)
	}
	return st, rest, err
}

// wordLen is the length of the identifier at the start of s. What a state calls its resources is not judged here.
func wordLen(s string) int {
	for i, r := range s {
		if strings.ContainsRune(".[]\"()", r) || unicode.IsSpace(r) || unicode.IsControl(r) || r == utf8.RuneError {
			return i
		}
	}
	return len(s)
}

func parseKey(s string) (k Key, rest string, err error) {
	if strings.HasPrefix(s, `["`) {
		text, n, err := unquote(s[2:])
		if err != nil || !strings.HasPrefix(s[2+n:], "]") {
			return k, "", errNoScope
		}
		return Key{KeyString, text}, s[3+n:], nil
	}
	end := strings.IndexByte(s, ']')
	if end < 0 {
		return k, "", errNoScope
	}
	digits := s[1:end]
	if n, err := strconv.ParseInt(digits, 10, 64); err != nil || strconv.FormatInt(n, 10) != digits {
		return k, "", errNoScope
	}
	return Key{KeyInt, digits}, s[end+1:], nil
}

// unquote reads what appendQuoted writes, behind the opening quote, and returns how much of s it took.
func unquote(s string) (text string, n int, err error) {
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"':
			return b.String(), i + 1, nil
		case c == '\\':
			r, w, err := unescape(s[i+1:])
			if err != nil {
				return "", 0, err
			}
			b.WriteRune(r)
			i += 1 + w
		case (c == '$' || c == '%') && strings.HasPrefix(s[i+1:], string(c)+"{"):
			b.WriteByte(c)
			b.WriteByte('{')
			i += 3
		default:
			b.WriteByte(c)
			i++
		}
	}
	return "", 0, errNoScope
}

func unescape(s string) (r rune, n int, err error) {
	if s == "" {
		return 0, 0, errNoScope
	}
	digits := 0
	switch s[0] {
	case '"', '\\':
		return rune(s[0]), 1, nil
	case 'n':
		return '\n', 1, nil
	case 'r':
		return '\r', 1, nil
	case 't':
		return '\t', 1, nil
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	}
	if digits == 0 || len(s) <= digits {
		return 0, 0, errNoScope
	}
	v, err := strconv.ParseUint(s[1:1+digits], 16, 32)
	if err != nil || !utf8.ValidRune(rune(v)) {
		return 0, 0, errNoScope
	}
	return rune(v), 1 + digits, nil
}

// String is the address as Terraform prints it.
func (s Scope) String() string {
	var b []byte
	for i, st := range s.steps {
		if i > 0 {
			b = append(b, '.')
		}
		b = st.key.append(append(b, st.name...))
	}
	return string(b)
}

// Data reports whether the scope is a data source or an instance of one.
func (s Scope) Data() bool {
	return len(s.steps) > 0 && strings.HasPrefix(s.steps[len(s.steps)-1].name, ModeData+".")
}

// Covers reports whether all of o lies within s.
func (s Scope) Covers(o Scope) bool {
	if len(s.steps) > len(o.steps) {
		return false
	}
	for i, st := range s.steps {
		if st.name != o.steps[i].name || st.key.Kind != KeyNone && st.key != o.steps[i].key {
			return false
		}
	}
	return true
}

// Overlaps reports whether something can lie within both.
func (s Scope) Overlaps(o Scope) bool {
	for i := range min(len(s.steps), len(o.steps)) {
		a, b := s.steps[i], o.steps[i]
		if a.name != b.name || a.key.Kind != KeyNone && b.key.Kind != KeyNone && a.key != b.key {
			return false
		}
	}
	return true
}

// path is the address without keys of the first n steps.
func (s Scope) path(n int) string {
	names := make([]string, n)
	for i := range n {
		names[i] = s.steps[i].name
	}
	return strings.Join(names, ".")
}

// Scopes is a set of scopes that is quickly searched. The zero value is empty.
type Scopes struct {
	all   []Scope
	at    map[string][]int // path → those with this very path
	below map[string][]int // path → those with longer ones
}

// ParseScopes reads a set of addresses; the same one twice is there once.
func ParseScopes(addresses []string) (*Scopes, error) {
	s := &Scopes{at: map[string][]int{}, below: map[string][]int{}}
	seen := map[string]bool{}
	for _, a := range addresses {
		sc, err := ParseScope(a)
		if err != nil {
			return nil, fmt.Errorf("%.200q: %w", a, err)
		}
		if text := sc.String(); seen[text] {
			continue
		} else {
			seen[text] = true
		}
		i := len(s.all)
		s.all = append(s.all, sc)
		for n := 1; n < len(sc.steps); n++ {
			p := sc.path(n)
			s.below[p] = append(s.below[p], i)
		}
		p := sc.path(len(sc.steps))
		s.at[p] = append(s.at[p], i)
	}
	return s, nil
}

// Len is the number of scopes.
func (s *Scopes) Len() int { return len(s.all) }

// Addresses are the scopes as Terraform prints them, sorted.
func (s *Scopes) Addresses() []string {
	out := make([]string, len(s.all))
	for i, sc := range s.all {
		out[i] = sc.String()
	}
	slices.Sort(out)
	return out
}

// Cover reports whether one of the scopes covers o.
func (s *Scopes) Cover(o Scope) bool {
	for n := 1; n <= len(o.steps); n++ {
		for _, i := range s.at[o.path(n)] {
			if s.all[i].Covers(o) {
				return true
			}
		}
	}
	return false
}

// Overlap reports whether one of the scopes overlaps with o.
func (s *Scopes) Overlap(o Scope) bool {
	if len(s.all) == 0 {
		return false
	}
	for n := 1; n <= len(o.steps); n++ {
		p := o.path(n)
		for _, i := range s.at[p] {
			if s.all[i].Overlaps(o) {
				return true
			}
		}
		if n < len(o.steps) {
			continue
		}
		for _, i := range s.below[p] {
			if s.all[i].Overlaps(o) {
				return true
			}
		}
	}
	return false
}

// Common returns the addresses of those of s that overlap with one of o, sorted.
func (s *Scopes) Common(o *Scopes) []string {
	var out []string
	for _, sc := range s.all {
		if o.Overlap(sc) {
			out = append(out, sc.String())
		}
	}
	slices.Sort(out)
	return out
}
