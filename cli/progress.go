package cli

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"sync"
)

// progress tells what a run is doing: on a terminal in one line at the bottom
// that is written anew, elsewhere in a line for each thing that happens.
type progress struct {
	w    io.Writer
	live bool

	mu      sync.Mutex
	line    string // what stands at the bottom now
	partial bool   // the client's output has not ended its line
	done    int    // of the client's changes, while it applies
}

// say writes a line for good.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	_, _ = fmt.Fprintf(p.w, "%s\n", clean(fmt.Sprintf(format, args...)))
	p.draw()
}

// set says what goes on now; again the same is said once.
func (p *progress) set(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := clean(fmt.Sprintf(format, args...))
	if line == p.line {
		return
	}
	if !p.live {
		p.line = line
		_, _ = fmt.Fprintf(p.w, "%s\n", line)
		return
	}
	p.erase()
	p.line = line
	p.draw()
}

// end takes the line at the bottom away.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.line = ""
}

func (p *progress) erase() {
	if p.live && p.line != "" && !p.partial {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

func (p *progress) draw() {
	if p.live && p.line != "" && !p.partial {
		_, _ = fmt.Fprintf(p.w, "\x1b[1m%s\x1b[0m", p.line)
	}
}

// over lets the client's output through to w without writing over the line.
func (p *progress) over(w io.Writer) io.Writer { return &overProgress{p: p, w: w} }

type overProgress struct {
	p *progress
	w io.Writer
}

// Write passes b on.
func (o *overProgress) Write(b []byte) (int, error) {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	o.p.erase()
	n, err := o.w.Write(b)
	if len(b) > 0 {
		o.p.partial = b[len(b)-1] != '\n'
	}
	o.p.draw()
	return n, err //nolint:wrapcheck // a writer passes on what its writer says
}

// completed is how the client says that it has done something, for people and
// with -json (Terraform's internal/command/views/hook_json.go and hook_ui.go).
var completed = regexp.MustCompile(`: (?:Creation|Modifications|Destruction|Import) complete|"type":"apply_complete"`)

// counting shows how much of the client's work is done, as its output tells it.
type counting struct {
	p     *progress
	w     io.Writer
	run   string
	total int
	rest  []byte // a line that has only begun
}

// Write passes b on.
func (c *counting) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.rest = append(c.rest, b...)
	for {
		line, rest, found := bytes.Cut(c.rest, []byte("\n"))
		if !found {
			break
		}
		if completed.Match(line) {
			c.p.done++
			if c.p.live {
				c.p.set("%s", applying(c.run, c.p.done, c.total))
			}
		}
		c.rest = rest
	}
	if len(c.rest) > 1<<20 { // no line of the client's
		c.rest = nil
	}
	return n, err //nolint:wrapcheck // as above
}

func applying(run string, done, total int) string {
	if total == 0 { // outputs, moves and the like, of which the client tells nothing
		return fmt.Sprintf("run %s: applying", run)
	}
	return fmt.Sprintf("run %s: applying %d of %d", run, min(done, total), total)
}
