package e2e

import (
	"bufio"
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The commands of every page are run by a script of the same name in
// testdata/docs. A line of a script that begins with #> quotes a command as the
// page has it; below it, up to the next quotation, stands the same command with
// real values in place of the page's. A line
//
//	#- COMMAND -- REASON
//
// says why a command is not run. TestDocsAreScripted compares pages with scripts;
// TestDocs runs the scripts.
//
// Placeholders of a page are words in capitals, what has an ellipsis in it, ids,
// addresses, absolute paths, and what a shell would put in ($NAME, $(…)).

const docsDir = "testdata/docs"

// pages maps the name of a script to its page.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{"README": "../README.md"}
	for _, pattern := range []string{"../docs/*.md", "../examples/*/README.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			script := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(name), "../"), ".md"), "/README")
			found[strings.ReplaceAll(script, "/", "-")] = name
		}
	}
	return found
}

// programs are the first words of what is taken for a command.
var programs = []string{
	"kl", "terraform", "tofu", "go", "make", "bash", "sh", "curl", "export", "while", "for", "sudo", "systemctl", "journalctl",
	"git", "cp", "mv", "rm", "cat", "cd", "mkdir", "jq", "dot", "useradd", "install", "scp", "ssh", "chmod", "chown", "caddy", "nginx", "docker",
}

// shells are the languages of fenced blocks that hold commands.
var shells = []string{"", "sh", "bash", "shell", "console"}

// commandsOf lists the commands of a page's code blocks in their order. A block
// with lines that begin with "$ " shows a session: those lines are its commands.
func commandsOf(page string) []string {
	var commands []string
	var block []string
	flush := func() {
		session := slices.ContainsFunc(block, func(l string) bool { return strings.HasPrefix(l, "$ ") })
		long := ""
		for _, line := range block {
			if session && long == "" {
				rest, ok := strings.CutPrefix(line, "$ ")
				if !ok {
					continue
				}
				line = rest
			}
			if part, ok := strings.CutSuffix(line, "\\"); ok {
				long += strings.TrimSpace(part) + " "
				continue
			}
			line, long = long+strings.TrimSpace(line), ""
			for _, c := range strings.Split(uncommented(line), " && ") {
				word, _, _ := strings.Cut(c, " ")
				if slices.Contains(programs, word) {
					commands = append(commands, strings.TrimSpace(c))
				}
			}
		}
		block = nil
	}
	fence, lang, blank := "", "", true
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && (strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~")):
			flush()
			fence, lang = trimmed[:3], strings.TrimSpace(trimmed[3:])
		case fence != "" && strings.HasPrefix(trimmed, fence):
			fence = ""
			flush()
		case fence != "":
			if slices.Contains(shells, lang) {
				block = append(block, trimmed)
			}
		case strings.HasPrefix(line, "    ") && (blank || block != nil):
			block = append(block, strings.TrimPrefix(line, "    "))
		case trimmed != "":
			flush()
		}
		blank = trimmed == ""
	}
	flush()
	return commands
}

// uncommented takes away what a page says beside a command: after a #, or in a
// second column.
func uncommented(line string) string {
	if i := strings.Index(line, " #"); i >= 0 {
		line = line[:i]
	}
	if i := strings.Index(line, "   "); i >= 0 {
		line = line[:i]
	}
	return strings.TrimSpace(line)
}

// script is what a file of testdata/docs says of its page's commands.
type script struct {
	run     map[string][]string // command of the page → lines below its quotation
	excused map[string]string   // command of the page → reason
}

func readScript(t *testing.T, file string) script {
	t.Helper()
	s := script{run: map[string][]string{}, excused: map[string]string{}}
	lines := bufio.NewScanner(bytes.NewReader(readFile(t, file)))
	quoted := ""
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "-- ") && strings.HasSuffix(line, " --") {
			break // files follow
		}
		if c, ok := strings.CutPrefix(line, "#> "); ok {
			quoted = c
			s.run[quoted] = append(s.run[quoted], "")
			continue
		}
		if c, ok := strings.CutPrefix(line, "#- "); ok {
			c, reason, _ := strings.Cut(c, " -- ")
			s.excused[c] = reason
			continue
		}
		if quoted != "" && line != "" && !strings.HasPrefix(line, "#") {
			s.run[quoted] = append(s.run[quoted], line)
		}
	}
	return s
}

// TestDocsAreScripted demands that each command of each page stands in the
// page's script, and that the script runs that very command.
func TestDocsAreScripted(t *testing.T) {
	known := map[string]bool{}
	for name, page := range pages(t) {
		known[name+".txtar"] = true
		commands := commandsOf(string(readFile(t, page)))
		file := filepath.Join(docsDir, name+".txtar")
		if !exists(file) {
			if len(commands) > 0 {
				t.Errorf("%s has commands and no script %s; the first is: %s", page, file, commands[0])
			}
			continue
		}
		s := readScript(t, file)
		for _, c := range commands {
			switch reason, excused := s.excused[c]; {
			case excused && reason == "":
				t.Errorf("%s: %q is excused without a reason", file, c)
			case excused && strings.HasPrefix(c, "kl "):
				t.Errorf("%s: %q is excused; commands of kl are always run", file, c)
			case excused:
			case s.run[c] == nil:
				t.Errorf("%s has a command that %s does not run: %s", page, file, c)
			case !slices.ContainsFunc(s.run[c], func(line string) bool { return sameCommand(c, line) }):
				t.Errorf("%s: below the quotation of %q stands no such command:\n%s", file, c, strings.Join(s.run[c], "\n"))
			}
		}
		for c := range s.run {
			if !slices.Contains(commands, c) {
				t.Errorf("%s quotes a command that %s does not have: %s", file, page, c)
			}
		}
		for c := range s.excused {
			if !slices.Contains(commands, c) {
				t.Errorf("%s excuses a command that %s does not have: %s", file, page, c)
			}
		}
	}
	scripts, err := filepath.Glob(docsDir + "/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		if !known[filepath.Base(s)] {
			t.Errorf("%s belongs to no page", s)
		}
	}
}

var (
	condition   = regexp.MustCompile(`^(\[[^\]]*\] +)+`)
	exitsCode   = regexp.MustCompile(`^exits \d+ `)
	redirection = regexp.MustCompile(` (2>|>|\|) .*$`)
	token       = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|\$\([^)]*\)|[^\s'"])+`)
	quotes      = strings.NewReplacer(`'`, "", `"`, "")
	placeholder = regexp.MustCompile(`\\\$\\?[({].*[)}]|\\\$[A-Z_a-z]+|https?://[^ ]*|:[0-9]{4}\b|\b(ws|env|rw|req|run|tok|pat|usr)_[a-z0-9…]+|kl_(env|pat|ctl)_[a-z0-9…]*|\b[A-Z][A-Z_]+\b|[^ ]*…[^ ]*|(^|=)[/~][^ ]*`)
)

// sameCommand tells whether a line of a script is a page's command, with values
// where the page has placeholders.
func sameCommand(command, line string) bool {
	line = condition.ReplaceAllString(line, "")
	line = strings.TrimPrefix(strings.TrimPrefix(line, "! "), "? ")
	line = exitsCode.ReplaceAllString(line, "")
	line = strings.TrimPrefix(line, "exec ")
	line = strings.TrimSuffix(line, " &")
	if rest, ok := strings.CutPrefix(line, "server start"); ok {
		line = "kl serve" + rest
	}
	command = redirection.ReplaceAllString(command, "")
	if rest, ok := strings.CutPrefix(command, "export "); ok {
		return sameExport(rest, line)
	}
	want, got := token.FindAllString(command, -1), token.FindAllString(line, -1)
	// nobody is there to say yes
	got = slices.DeleteFunc(got, func(w string) bool { return !slices.Contains(want, w) && (w == "-auto-approve" || w == "--yes") })
	return slices.EqualFunc(want, got, sameWord)
}

// sameExport compares the variables of an export with those of an env line.
func sameExport(exports, line string) bool {
	rest, ok := strings.CutPrefix(line, "env ")
	if name, found := strings.CutPrefix(line, "capture "); found {
		name, _, ok = strings.Cut(name, " ")
		rest = name + "="
	}
	if !ok {
		return false
	}
	for _, want := range token.FindAllString(exports, -1) {
		name, _, ok := strings.Cut(want, "=")
		if ok && !slices.ContainsFunc(strings.Fields(rest), func(got string) bool { return strings.HasPrefix(got, name+"=") }) {
			return false
		}
	}
	return true
}

func sameWord(want, got string) bool {
	want, got = quotes.Replace(want), quotes.Replace(got)
	// a name before = is the option's or variable's own, whatever its letters
	pattern := "^" + placeholder.ReplaceAllString(regexp.QuoteMeta(want), ".+") + "$"
	re, err := regexp.Compile(pattern)
	return err == nil && re.MatchString(got)
}

// TestSameCommand keeps the comparison itself honest.
func TestSameCommand(t *testing.T) {
	for _, c := range []struct {
		command, line string
		want          bool
	}{
		{"kl lock release network --id ID", "exec kl lock release network --id $ID", true},
		{"kl lock release network --id ID", "exec kl lock release other --id $ID", false},
		{"kl lock show", "exec kl lock show network", false},
		{"kl lock show", "exec kl state show", false},
		{"kl backend network > backend.tf", "exec kl backend network", true},
		{"kl serve --listen :8443 --tls-cert cert.pem", "server start --listen 127.0.0.1:0 --tls-cert cert.pem", true},
		{"kl serve", "server start", true},
		{"kl recover show ID --raw", "exits 3 kl recover show rw_x --raw", true},
		{"kl login --address https://kl.example", "exec kl login --address $ADDR", true},
		{"export KL_TOKEN=kl_ctl_…", "env KL_TOKEN=$CTL", true},
		{"export KL_TOKEN=kl_ctl_…", "env KL_PASSWORD=$CTL", false},
		{"terraform apply -var size=1000", "[terraform] exec terraform apply -var size=1000", true},
		{"terraform apply -var size=1000", "[terraform] exec terraform apply -var size=10", false},
		{"kl workspace suspend WORKSPACE --reason TEXT", "exec kl workspace suspend $WS --reason 'till Friday'", true},
		{"kl recover merge rw_jjk --take 'terraform_data.a=mine'", "exec kl recover merge $RW --take 'terraform_data.a=mine'", true},
	} {
		if got := sameCommand(c.command, c.line); got != c.want {
			t.Errorf("%q and %q: got %v, want %v", c.command, c.line, got, c.want)
		}
	}
}
