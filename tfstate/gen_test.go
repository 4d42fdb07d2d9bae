package tfstate_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// gen writes random documents that are states in most respects: any order of members, any white space, escapes in
// names, odd cases, unknown members, and now and then a value or a member that should not be there.
type gen struct {
	*rand.Rand
	b strings.Builder
	// faults is how many of a thousand choices go wrong.
	faults int
}

func newGen(seed uint64, faults int) *gen {
	return &gen{Rand: rand.New(rand.NewPCG(seed, 1)), faults: faults}
}

func (g *gen) fault() bool { return g.IntN(1000) < g.faults }

func (g *gen) document() []byte {
	g.b.Reset()
	g.space()
	m := []func(){
		func() { g.member("version", func() { g.choose("4", "4", "4.0", "3", "null", `"4"`) }) },
		func() { g.member("terraform_version", g.text) },
		func() {
			g.member("serial", func() { g.choose("1", "18446744073709551615", "18446744073709551616", "-1", "1.5", "[]") })
		},
		func() { g.member("lineage", g.text) },
		func() { g.member("outputs", g.outputs) },
		func() { g.member("resources", func() { g.list(g.IntN(4), g.resource) }) },
		func() {
			g.member("check_results", func() { g.list(g.IntN(3), func() { g.object(g.unknown, g.unknown) }) })
		},
		g.unknown,
	}
	if g.IntN(3) > 0 {
		g.Shuffle(len(m), func(i, j int) { m[i], m[j] = m[j], m[i] })
	}
	g.object(m...)
	g.space()
	return []byte(g.b.String())
}

// choose writes the first alternative, or after a fault one of the others.
func (g *gen) choose(good string, others ...string) {
	if g.fault() {
		good = others[g.IntN(len(others))]
	}
	g.b.WriteString(good)
}

func (g *gen) space() {
	switch g.IntN(4) {
	case 0:
		g.b.WriteString("\n" + strings.Repeat(" ", g.IntN(20)))
	case 1:
		g.b.WriteString([...]string{" ", "\t", "\r\n", "  \n\t "}[g.IntN(4)])
	}
}

func (g *gen) object(members ...func()) {
	g.b.WriteByte('{')
	first := true
	for _, m := range members {
		if g.IntN(1000) < g.faults/4 {
			continue
		}
		again := 1
		if g.IntN(1000) < g.faults/4 {
			again = 2
		}
		for range again {
			if !first {
				g.b.WriteByte(',')
			}
			first = false
			g.space()
			m()
			g.space()
		}
	}
	g.b.WriteByte('}')
}

func (g *gen) list(n int, element func()) {
	if g.fault() {
		g.b.WriteString([...]string{"null", "{}", "1", `""`}[g.IntN(4)])
		return
	}
	g.b.WriteByte('[')
	g.space()
	for i := range n {
		if i > 0 {
			g.b.WriteByte(',')
			g.space()
		}
		if g.IntN(4000) < g.faults {
			g.b.WriteString([...]string{"null", "[]", "1", `""`}[g.IntN(4)])
		} else {
			element()
		}
		g.space()
	}
	g.b.WriteByte(']')
}

func (g *gen) member(name string, value func()) {
	g.b.WriteByte('"')
	for _, c := range []byte(name) {
		switch {
		case g.IntN(200) == 0:
			fmt.Fprintf(&g.b, `\u%04x`, c)
		case g.IntN(400) == 0:
			g.b.WriteString(strings.ToUpper(string(c)))
		case c == 's' && g.IntN(200) == 0:
			g.b.WriteString("\u017f") // folds to s
		default:
			g.b.WriteByte(c)
		}
	}
	g.b.WriteByte('"')
	g.space()
	g.b.WriteByte(':')
	g.space()
	value()
}

var genTexts = []string{
	"", "a", "aws_instance", "web", "eu-west-1", `q\"uote`, `\\`, `\u0041`, `\ud83d\ude00`, `\ud83d`, `\ude00\ud83d`, "é", "\xff", "${x}",
	`%{if}`, "$", `\n\r\t\b\f\/`, "\u2028", `\u0000`, "long text that is longer than eight bytes", "\U0001f600", "]", "}", ",",
}

func (g *gen) text() {
	if g.fault() {
		g.b.WriteString([...]string{"null", "1", "true", "[]", "{}"}[g.IntN(5)])
		return
	}
	g.b.WriteString(`"` + genTexts[g.IntN(len(genTexts))] + `"`)
}

// word writes a string that may stand in an identity.
func (g *gen) word() {
	if g.fault() {
		g.text()
		return
	}
	g.b.WriteString(`"` + genTexts[1+g.IntN(4)] + `"`)
}

func (g *gen) value() {
	switch g.IntN(12) {
	case 0:
		g.object(g.unknown, g.unknown)
	case 1:
		g.list(g.IntN(3), g.value)
	case 2, 3, 4:
		g.text()
	case 5:
		g.b.WriteString([...]string{"0", "-1", "1e9", "9007199254740993", "-0.5E+10", "1E400"}[g.IntN(6)])
	default:
		g.b.WriteString([...]string{"null", "true", "false", "{}", "[]"}[g.IntN(5)])
	}
}

func (g *gen) unknown() {
	name := [...]string{"x", "extra", "objects", "status_", `q\"`, "Ünknown", "resource", "namE_"}[g.IntN(8)]
	g.member(name, g.value)
}

func (g *gen) outputs() {
	m := make([]func(), g.IntN(3))
	for i := range m {
		m[i] = func() {
			g.b.WriteString(`"` + genTexts[g.IntN(len(genTexts))] + `"`)
			g.space()
			g.b.WriteByte(':')
			g.space()
			if g.fault() {
				g.value()
			} else {
				g.object(g.unknown, g.unknown)
			}
		}
	}
	g.object(m...)
}

func (g *gen) resource() {
	m := []func(){
		func() { g.member("mode", func() { g.choose(`"managed"`, `"data"`, `""`) }) },
		func() { g.member("type", g.word) },
		func() { g.member("name", g.word) },
		func() { g.member("provider", g.value) },
		func() { g.member("instances", func() { g.list(g.IntN(4), g.instance) }) },
	}
	if g.IntN(2) == 0 {
		m = append([]func(){func() {
			g.member("module", func() { g.b.WriteString(`"module.a[\"x.]\"].module.b[0]"`) })
		}}, m...)
	}
	if g.IntN(3) == 0 {
		m = append(m, g.unknown)
	}
	if twice := g.fault(); g.fault() || twice {
		g.Shuffle(len(m), func(i, j int) { m[i], m[j] = m[j], m[i] })
	}
	g.object(m...)
}

func (g *gen) instance() {
	m := []func(){
		func() { g.member("schema_version", func() { g.b.WriteByte('1') }) },
		func() { g.member("attributes", g.value) },
		func() { g.member("sensitive_attributes", func() { g.list(g.IntN(3), g.value) }) },
		func() { g.member("dependencies", func() { g.list(g.IntN(4), g.text) }) },
		g.unknown,
	}
	switch g.IntN(4) {
	case 0:
		m = append(m, func() { g.member("index_key", g.text) })
	case 1:
		m = append(m, func() { g.member("index_key", func() { g.choose("0", "-1", "1.0", "1e3", "null", "{}", "false") }) })
	case 2:
		m = append(m, func() { g.member("deposed", func() { g.choose(`"01234567"`, "null", "1", `""`) }) })
	}
	g.Shuffle(len(m), func(i, j int) { m[i], m[j] = m[j], m[i] })
	g.object(m...)
}
