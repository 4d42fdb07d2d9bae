package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"kl/fault"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```|^    [^\n]*$")
	inText    = regexp.MustCompile("`kl ([^`]+)`")
	spaces    = regexp.MustCompile(`\s+`)
	longFlag  = regexp.MustCompile(`^--([a-z-]+)`)
)

// TestDocsNameVerbs demands that each command that a page names in its text is
// one of kl, with flags that it has. Those in code blocks are run (e2e).
func TestDocsNameVerbs(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Glob("../examples/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, examples...), "../README.md", "../CHANGELOG.md")
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := codeBlock.ReplaceAllString(string(b), "")
		for _, m := range inText.FindAllStringSubmatch(text, -1) {
			command := spaces.ReplaceAllString(m[1], " ")
			for _, c := range alternatives(strings.Fields(command)) {
				if err := knownCommand(c); err != "" {
					t.Errorf("%s names `kl %s`: %s", page, command, err)
				}
			}
		}
	}
}

// alternatives writes out verbs such as create|list.
func alternatives(words []string) [][]string {
	all := [][]string{nil}
	for _, w := range words {
		choices := []string{w}
		if !strings.HasPrefix(w, "-") && !strings.ContainsAny(w, `"'[`) {
			choices = strings.Split(w, "|")
		}
		var next [][]string
		for _, head := range all {
			for _, c := range choices {
				next = append(next, append(append([]string{}, head...), c))
			}
		}
		all = next
	}
	return all
}

// knownCommand says what is wrong with a command, "" when nothing is.
func knownCommand(words []string) string {
	root := (&app{env: OS()}).root()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	verb := regexp.MustCompile(`^[a-z]+$`)
	group := cmd.HasSubCommands() && !strings.Contains(cmd.Use, " ") // takes no argument but a verb
	if cmd == root || group && len(rest) > 0 && verb.MatchString(rest[0]) {
		return "there is no such verb"
	}
	for _, w := range rest {
		if m := longFlag.FindStringSubmatch(w); m != nil {
			if cmd.Flags().Lookup(m[1]) == nil && cmd.InheritedFlags().Lookup(m[1]) == nil {
				return "the verb has no flag --" + m[1]
			}
		}
	}
	return ""
}

// TestKnownCommand keeps the judgement of TestDocsNameVerbs honest.
func TestKnownCommand(t *testing.T) {
	for command, known := range map[string]bool{
		"state show STATE":                      true,
		"token create NAME --role outputs":      true,
		"env set --recovery-hold=false":         true,
		"sate show":                             false,
		"state shwo":                            false,
		"token create NAME --rolle outputs":     false,
		"lock release STATE --id ID --force-it": false,
	} {
		if got := knownCommand(strings.Fields(command)); (got == "") != known {
			t.Errorf("kl %s: got %q, want known %v", command, got, known)
		}
	}
}

// TestHelpNamesVerbs holds the examples of every command's help, and the next
// steps of every refusal, to the same.
func TestHelpNamesVerbs(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			for c := range strings.SplitSeq(strings.TrimSpace(line), " && ") {
				rest, ok := strings.CutPrefix(c, "kl ")
				if !ok {
					continue
				}
				rest, _, _ = strings.Cut(rest, " | ")
				if err := knownCommand(strings.Fields(rest)); err != "" {
					t.Errorf("the help of %s has %q: %s", cmd.CommandPath(), c, err)
				}
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&app{env: OS()}).root())

	command := regexp.MustCompile(`\bkl ([a-z]+[^;,()]*)`)
	for _, code := range fault.Codes() {
		for _, m := range command.FindAllStringSubmatch(code.Info().Next, -1) {
			for _, c := range alternatives(strings.Fields(m[1])) {
				if err := knownCommand(c); err != "" {
					t.Errorf("the next step of %s names `kl %s`: %s", code, m[1], err)
				}
			}
		}
	}
}
