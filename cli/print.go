package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"kl/wire"
)

// printJSON writes the answer as one JSON document.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.env.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// printf writes the answer for people.
func (a *app) printf(format string, args ...any) error {
	if _, err := fmt.Fprint(a.env.Stdout, clean(fmt.Sprintf(format, args...))); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// printTable writes aligned columns; the first row is the head.
func (a *app) printTable(rows [][]string) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				_, _ = fmt.Fprint(w, "\t")
			}
			_, _ = fmt.Fprint(w, oneLine(cell))
		}
		_, _ = fmt.Fprintln(w)
	}
	_ = w.Flush() // into memory
	return a.printf("%s", trimLines(b.String()))
}

// printPairs writes names and values one below the other.
func (a *app) printPairs(pairs [][2]string) error {
	rows := make([][]string, len(pairs))
	for i, p := range pairs {
		rows[i] = []string{p[0] + ":", p[1]}
	}
	return a.printTable(rows)
}

// printList writes a listing: a wire.List in JSON, for people a table or, when
// it is empty, a sentence on standard error.
func printList[T any](a *app, items []T, head []string, row func(T) []string, empty string) error {
	if a.asJSON {
		return a.printJSON(wire.List[T]{Items: items})
	}
	if len(items) == 0 {
		a.note("%s", empty)
		return nil
	}
	rows := [][]string{head}
	for _, it := range items {
		rows = append(rows, row(it))
	}
	return a.printTable(rows)
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\r' {
			return ' '
		}
		return r
	}, s)
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

// when writes a time for people; "" for none.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// ago writes how long ago t was.
func (a *app) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return span(a.env.Now().Sub(t)) + " ago"
}

// span writes a duration roughly, as people say it.
func span(d time.Duration) string {
	switch {
	case d < 0: // the server's clock is not ours
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// amount writes a number of bytes for people.
func amount(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// plural writes a count with its noun.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
