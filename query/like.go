package query

import (
	"errors"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"
)

// patterns registers LIKE and GLOB: SQLite's own compare in time proportional
// to the product of the lengths of text and pattern, and nothing interrupts
// them. Ours ask the budget as they go.
func (s *statement) patterns() error {
	like, glob := &pattern{parse: parseLike}, &pattern{parse: parseGlob}
	for _, f := range []struct {
		name string
		args int
		p    *pattern
	}{{"like", 2, like}, {"like", 3, like}, {"glob", 2, glob}} {
		err := s.db.CreateFunction(f.name, f.args, sqlite3.DETERMINISTIC|sqlite3.INNOCUOUS, func(ctx sqlite3.Context, arg ...sqlite3.Value) {
			if err := result(ctx, s.compare(f.p, arg)); err != nil {
				ctx.ResultError(err)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// maxPattern bounds a pattern, in bytes.
const maxPattern = 1000

// As SQLite says it.
var (
	errEscape  = errors.New("ESCAPE expression must be a single character")
	errPattern = errors.New("LIKE or GLOB pattern too complex")
)

// compare has the arguments of SQLite's function: a pattern, a text, and for
// LIKE perhaps a character that escapes.
func (s *statement) compare(p *pattern, arg []sqlite3.Value) any {
	if null(arg...) {
		return nil
	}
	escape := rune(-1)
	if len(arg) > 2 {
		e, n := utf8.DecodeRuneInString(arg[2].Text())
		if n == 0 || n != len(arg[2].Text()) {
			return errEscape
		}
		escape = e
	}
	text := arg[0].Text()
	if len(text) > maxPattern {
		return errPattern
	}
	p.set(text, escape)
	found, err := p.match(arg[1].Text(), s.budget.Err)
	if err != nil {
		return sqlite3.INTERRUPT
	}
	return found
}

// pattern is the last one that was used, in pieces.
type pattern struct {
	parse  func(text string, escape rune) []piece
	text   string
	escape rune
	pieces []piece
	ready  bool
}

func (p *pattern) set(text string, escape rune) {
	if !p.ready || p.text != text || p.escape != escape {
		p.text, p.escape, p.pieces, p.ready = text, escape, p.parse(text, escape), true
	}
}

// piece stands for any number of characters (many), or for one: of these
// ranges, or, inverted, of none of them.
type piece struct {
	many   bool
	invert bool
	fold   bool // letters of ASCII are the same in both cases
	ranges [][2]rune
}

func (p *piece) holds(r rune) bool {
	if p.fold {
		r = lower(r)
	}
	for _, g := range p.ranges {
		if g[0] <= r && r <= g[1] {
			return !p.invert
		}
	}
	return p.invert
}

func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}

var anyCharacter = piece{invert: true}

func parseLike(text string, escape rune) (out []piece) {
	escaped := false
	for _, r := range text {
		switch {
		case escaped, r != escape && r != '%' && r != '_':
			out, escaped = append(out, piece{fold: true, ranges: [][2]rune{{lower(r), lower(r)}}}), false
		case r == escape:
			escaped = true
		case r == '%':
			out = append(out, piece{many: true})
		default:
			out = append(out, anyCharacter)
		}
	}
	if escaped {
		out = append(out, piece{}) // nothing was escaped: nothing matches
	}
	return out
}

func parseGlob(text string, _ rune) (out []piece) {
	for rest := []rune(text); len(rest) > 0; {
		r := rest[0]
		rest = rest[1:]
		switch r {
		case '*':
			out = append(out, piece{many: true})
		case '?':
			out = append(out, anyCharacter)
		case '[':
			var p piece
			p, rest = parseClass(rest)
			out = append(out, p)
		default:
			out = append(out, piece{ranges: [][2]rune{{r, r}}})
		}
	}
	return out
}

// parseClass reads what is between brackets, and the closing one.
func parseClass(rest []rune) (p piece, after []rune) {
	if len(rest) > 0 && rest[0] == '^' {
		p.invert, rest = true, rest[1:]
	}
	for i, from := 0, rune(-1); i < len(rest); i++ {
		r := rest[i]
		switch {
		case r == ']' && i > 0:
			return p, rest[i+1:]
		case r == '-' && from >= 0 && i+1 < len(rest) && rest[i+1] != ']':
			i++
			p.ranges = append(p.ranges, [2]rune{from, rest[i]})
			from = -1
		default:
			p.ranges = append(p.ranges, [2]rune{r, r})
			if from = r; r == ']' {
				from = -1 // the bracket that comes first begins no range
			}
		}
	}
	return piece{}, nil // it is not closed: nothing matches
}

// match compares, and asks now and then whether it may go on.
func (p *pattern) match(text string, may func() error) (bool, error) {
	at, i := 0, 0       // in the text, in the pieces
	many, mark := -1, 0 // the last piece of many, and where what follows it was tried
	for steps := 1; at < len(text); steps++ {
		if steps%(1<<16) == 0 {
			if err := may(); err != nil {
				return false, err
			}
		}
		r, n := utf8.DecodeRuneInString(text[at:])
		switch {
		case i < len(p.pieces) && p.pieces[i].many:
			many, mark = i, at
			if i++; i == len(p.pieces) {
				return true, nil
			}
		case i < len(p.pieces) && p.pieces[i].holds(r):
			i++
			at += n
		case many >= 0:
			_, n := utf8.DecodeRuneInString(text[mark:])
			mark += n
			at, i = mark, many+1
		default:
			return false, nil
		}
	}
	for i < len(p.pieces) && p.pieces[i].many {
		i++
	}
	return i == len(p.pieces), nil
}
