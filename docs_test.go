package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kl/fault"
)

// TestErrorsPage keeps docs/errors.md equal to the catalogue. KL_UPDATE=1
// rewrites the page's tables.
func TestErrorsPage(t *testing.T) {
	const page = "docs/errors.md"
	const begin, end = "<!-- catalogue: written by go test, KL_UPDATE=1 -->\n", "<!-- end of catalogue -->\n"
	text := string(read(t, page))
	head, rest, ok := strings.Cut(text, begin)
	_, foot, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its marks %q and %q", page, begin, end)
	}
	want := head + begin + catalogue() + end + foot
	if os.Getenv("KL_UPDATE") != "" {
		if err := os.WriteFile(filepath.FromSlash(page), []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != want {
		t.Errorf("%s is not what the catalogue in package fault says; make golden rewrites it", page)
	}
}

// catalogue writes one table for each class.
func catalogue() string {
	var out strings.Builder
	for _, class := range fault.Classes {
		codes := slices.DeleteFunc(fault.Codes(), func(c fault.Code) bool { return c.Info().Class != class })
		slices.SortFunc(codes, func(a, b fault.Code) int {
			return cmp.Or(cmp.Compare(a.Info().Status, b.Info().Status), cmp.Compare(a, b))
		})
		fmt.Fprintf(&out, "\n## %s\n\n| code | status | what Terraform prints | what has happened | what to do |\n|---|---|---|---|---|\n", class)
		for _, c := range codes {
			i := c.Info()
			fmt.Fprintf(&out, "| `%s` | %d | %s | %s | %s |\n", c, i.Status, cell(printed(c)), cell(i.Why), cell(i.Next))
		}
	}
	return out.String() + "\n"
}

// printed is what Terraform has on the screen when it meets the code. The tests
// in e2e compare the texts in backquotes with the real client's screen.
func printed(c fault.Code) string {
	const atWork = "`HTTP error: %d` (apply at work)"
	onlyKL := []fault.Code{
		fault.ParameterInvalid, fault.MethodNotAllowed, fault.LockInfoInvalid, fault.FileInvalid, fault.FileInUse,
		fault.QueryInvalid, fault.QueryNotAllowed, fault.QueryTimeout, fault.QueryMemory, fault.QueryAnswer, fault.StateOpaque,
	}
	i := c.Info()
	switch {
	case slices.Contains(onlyKL, c):
		return "nothing: only `kl` and other programs meet it"
	case c == fault.NotFound:
		return "nothing: to Terraform, a state that was never written is an empty one"
	case c == fault.LockMismatch, c == fault.LockAmbiguous:
		return "`Unexpected HTTP response code 409` (unlock)"
	case c == fault.StateNameInvalid:
		return "`Unexpected HTTP response code 400`"
	case c == fault.Locked:
		return "`already locked: ID=` and the ID of the holder's lock; a sentence where others only wait"
	case c == fault.StateDeleted:
		return "`HTTP remote state endpoint invalid auth`; " + fmt.Sprintf(atWork, i.Status)
	case i.Status == 423:
		return "`already locked: ID=` and a sentence"
	case i.Class == fault.Lifecycle:
		return "`already locked: ID=` and a sentence; " + fmt.Sprintf(atWork, i.Status)
	case i.Status == 401:
		return "`HTTP remote state endpoint requires auth`; " + fmt.Sprintf(atWork, i.Status)
	case i.Class == fault.Auth:
		return "`HTTP remote state endpoint invalid auth`; " + fmt.Sprintf(atWork, i.Status)
	case i.Class == fault.Scope:
		return "`Unexpected HTTP response code 422` (init)"
	case i.Status >= 500:
		return "`giving up after 3 attempt(s)`"
	}
	return fmt.Sprintf("`HTTP error: %d`", i.Status)
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// TestLinks follows the relative links of every page.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md")
	examples, err := filepath.Glob("examples/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, examples...)
	for _, page := range pages {
		for _, match := range link.FindAllSubmatch(read(t, page), -1) {
			target := filepath.Join(filepath.Dir(page), filepath.FromSlash(string(match[1])))
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, match[1], err)
			}
		}
	}
}

// TestMap demands that the map of the documentation has every page and every
// example that explains itself.
func TestMap(t *testing.T) {
	const page = "docs/README.md"
	there := map[string]bool{}
	for _, match := range link.FindAllSubmatch(read(t, page), -1) {
		there[filepath.ToSlash(filepath.Join("docs", filepath.FromSlash(string(match[1]))))] = true
	}
	for _, pattern := range []string{"docs/*.md", "examples/*/README.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pages {
			if p = filepath.ToSlash(p); p != page && !there[p] {
				t.Errorf("%s does not link to %s", page, p)
			}
		}
	}
}

// TestPagesNameCodes demands that a code in backquotes on any page is one of
// the catalogue, where the page writes it as an error code.
func TestPagesNameCodes(t *testing.T) {
	named := regexp.MustCompile("code `([a-z_]+)`")
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md") {
		for _, match := range named.FindAllSubmatch(bytes.ReplaceAll(read(t, page), []byte("\n"), []byte(" ")), -1) {
			if !fault.Code(match[1]).Known() {
				t.Errorf("%s names the code %s, which the catalogue does not have", page, match[1])
			}
		}
	}
}
