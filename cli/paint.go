package cli

import (
	"fmt"
	"strings"
)

// Colours of a terminal, as its escape sequences number them.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// canvas gathers lines for people; they are coloured on a terminal, unless the
// user does not want that (NO_COLOR, or TERM=dumb).
type canvas struct {
	b       strings.Builder
	colours bool
}

func (a *app) canvas() *canvas {
	plain := a.env.Getenv("NO_COLOR") != "" || a.env.Getenv("TERM") == "dumb"
	return &canvas{colours: !plain && terminal(a.env.Stdout)}
}

// line adds a line; colour "" is the terminal's own.
func (c *canvas) line(colour, format string, args ...any) {
	text := oneLine(clean(fmt.Sprintf(format, args...)))
	if c.colours && colour != "" {
		text = "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	c.b.WriteString(text)
	c.b.WriteByte('\n')
}

// printCanvas writes the lines as the answer.
func (a *app) printCanvas(c *canvas) error {
	if _, err := fmt.Fprint(a.env.Stdout, c.b.String()); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
