package cli

import (
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"
)

// consoleLog makes lines for people out of the JSON lines of a logger: time,
// level, message, and the fields in the order in which they were added. Every
// request writes one, so it goes over the bytes once and decodes nothing, as
// zerolog's own ConsoleWriter would, which takes longer than the rest of a
// small request. A value that is not plain text stays in its JSON form.
type consoleLog struct {
	out   io.Writer
	color bool
	bufs  sync.Pool // of *[]byte
}

// levels are the shown names of zerolog's levels, and their colors.
var levels = map[string]struct{ name, color string }{
	zerolog.LevelDebugValue: {"DBG", "\x1b[35m"},
	zerolog.LevelInfoValue:  {"INF", "\x1b[32m"},
	zerolog.LevelWarnValue:  {"WRN", "\x1b[33m"},
	zerolog.LevelErrorValue: {"ERR", "\x1b[31m"},
}

const (
	colorTime  = "\x1b[90m"
	colorField = "\x1b[36m"
	colorOff   = "\x1b[0m"
)

// Write writes one line. It may be called by several goroutines.
func (l *consoleLog) Write(line []byte) (int, error) {
	buf, ok := l.bufs.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	*buf = l.format((*buf)[:0], line)
	_, err := l.out.Write(*buf)
	l.bufs.Put(buf)
	return len(line), err
}

// format appends the line for people.
func (l *consoleLog) format(dst, line []byte) []byte {
	level := levels[string(text(member(line, zerolog.LevelFieldName)))]
	dst = l.colored(dst, colorTime, text(member(line, zerolog.TimestampFieldName)))
	dst = append(dst, ' ')
	dst = l.colored(dst, level.color, []byte(level.name))
	dst = append(append(dst, ' '), text(member(line, zerolog.MessageFieldName))...)
	for name, value := range members(line) {
		switch string(name) {
		case zerolog.LevelFieldName, zerolog.TimestampFieldName, zerolog.MessageFieldName:
			continue
		}
		dst = append(dst, ' ')
		dst = l.colored(dst, colorField, name)
		dst = printable(append(dst, '='), plain(value))
	}
	return append(dst, '\n')
}

func (l *consoleLog) colored(dst []byte, color string, text []byte) []byte {
	if !l.color || color == "" {
		return append(dst, text...)
	}
	return append(append(append(dst, color...), text...), colorOff...)
}

// member returns the value of one member, nil when there is none.
func member(line []byte, name string) []byte {
	for n, v := range members(line) {
		if string(n) == name {
			return v
		}
	}
	return nil
}

// members yields the members of a JSON object that a logger wrote: names
// without their quotes, values as they stand.
func members(line []byte) func(yield func(name, value []byte) bool) {
	return func(yield func(name, value []byte) bool) {
		for i := 1; i < len(line) && line[i] == '"'; i++ { // behind the brace or a comma
			start := i
			i = valueEnd(line, i)
			if i < start+2 { // cut off behind a quote
				return
			}
			name := line[start+1 : i-1]
			start = min(i+1, len(line)) // behind the colon
			i = valueEnd(line, start)
			if !yield(name, line[start:i]) {
				return
			}
		}
	}
}

// valueEnd returns the offset behind the JSON value at b[i].
func valueEnd(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(b))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of the object around a number
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ':':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}

// text takes the quotes from a string.
func text(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return value
	}
	return value[1 : len(value)-1]
}

// plain takes the quotes from a string in which nothing needs them.
func plain(value []byte) []byte {
	t := text(value)
	for _, c := range t {
		if c <= ' ' || c >= 0x7f || c == '\\' || c == '=' {
			return value
		}
	}
	if len(t) == 0 {
		return value
	}
	return t
}

// printable appends a value, and instead of what a terminal would not print,
// or obey, its number.
func printable(dst, value []byte) []byte {
	for i := 0; i < len(value); {
		if value[i] < utf8.RuneSelf { // the logger has escaped the controls among these
			dst = append(dst, value[i])
			i++
			continue
		}
		r, n := utf8.DecodeRune(value[i:])
		if unicode.IsPrint(r) {
			dst = append(dst, value[i:i+n]...)
		} else {
			dst = fmt.Appendf(dst, "\\u%04x", r)
		}
		i += n
	}
	return dst
}
