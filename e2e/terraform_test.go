package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kl/kltest"
)

// clientPatience bounds one run of the client.
const clientPatience = 3 * time.Minute

// workdir is a directory with a configuration, in which the real client runs.
type workdir struct {
	tb  testing.TB
	dir string
	env []string
	bin string
}

// newWorkdir writes a configuration into a directory of its own; env points the
// client at a state.
func newWorkdir(tb testing.TB, config string, env []string) *workdir {
	tb.Helper()
	w := &workdir{tb: tb, dir: tb.TempDir(), bin: kltest.Terraform(tb)}
	w.env = append(cleanEnv(), "GATE="+w.dir)
	w.env = append(w.env, env...)
	w.write("main.tf", config)
	return w
}

// initWorkdir is newWorkdir with init done.
func initWorkdir(tb testing.TB, config string, env []string) *workdir {
	tb.Helper()
	w := newWorkdir(tb, config, env)
	w.must("init")
	return w
}

func (w *workdir) path(name string) string { return filepath.Join(w.dir, name) }

func (w *workdir) write(name, text string) {
	w.tb.Helper()
	writeFile(w.tb, w.path(name), text)
}

// setenv changes the environment of later runs.
func (w *workdir) setenv(kv ...string) { w.env = append(slices.Clone(w.env), kv...) }

// start runs the client beside the test.
func (w *workdir) start(args ...string) *process {
	w.tb.Helper()
	if slices.Contains([]string{"apply", "destroy"}, args[0]) && !slices.ContainsFunc(args[1:], isPlanFile) {
		args = slices.Insert(slices.Clone(args), 1, "-auto-approve")
	}
	return startProcess(w.tb, w.dir, w.env, w.bin, slices.Insert(slices.Clone(args), 1, w.common(args[0])...)...)
}

func isPlanFile(arg string) bool { return strings.HasSuffix(arg, ".tfplan") }

// common are the flags that make output plain.
func (w *workdir) common(verb string) []string {
	switch verb {
	case "init", "plan", "apply", "destroy", "refresh":
		return []string{"-no-color", "-input=false"}
	}
	return nil
}

// run runs the client to its end.
func (w *workdir) run(args ...string) result {
	w.tb.Helper()
	return w.start(args...).result(clientPatience)
}

// must runs the client and demands exit code 0.
func (w *workdir) must(args ...string) string {
	w.tb.Helper()
	r := w.run(args...)
	if r.code != 0 {
		w.tb.Fatalf("terraform %s: exit %d\n%s", strings.Join(args, " "), r.code, r.out)
	}
	return r.stdout
}

// fails runs the client and demands exit code 1 and the texts on the screen,
// however the client wraps its lines.
func (w *workdir) fails(args []string, want ...string) string {
	w.tb.Helper()
	r := w.run(args...)
	if r.code != 1 {
		w.tb.Fatalf("terraform %s: exit %d, want 1\n%s", strings.Join(args, " "), r.code, r.out)
	}
	wantText(w.tb, r.out, want...)
	return r.out
}

// wantText demands texts on a screen of the client, however it wraps and frames
// its lines.
func wantText(tb testing.TB, screen string, want ...string) {
	tb.Helper()
	flat := flatten(screen)
	for _, text := range want {
		if !strings.Contains(flat, flatten(text)) {
			tb.Errorf("the screen does not say %q:\n%s", text, screen)
		}
	}
}

func flatten(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(text)), " ")
}

// gate is a resource that takes as long as the test wants: it makes the file
// NAME.begun and ends when NAME.open exists.
func gate(name, after string) string {
	return `
resource "terraform_data" "` + name + `" {
  input = ` + after + `
  provisioner "local-exec" {
    command = "touch $GATE/` + name + `.begun; while [ -d $GATE ] && [ ! -e $GATE/` + name + `.open ]; do sleep 0.05; done"
  }
}
`
}

// item is a resource that is made at once.
func item(name, input string) string {
	return "\nresource \"terraform_data\" \"" + name + "\" {\n  input = " + input + "\n}\n"
}

const httpBackend = "terraform {\n  backend \"http\" {}\n}\n"

// gated has one resource before the gate and one behind it.
func gated(prefix string) string {
	return httpBackend + item(prefix+"_before", `"x"`) + gate(prefix+"_gate", "terraform_data."+prefix+"_before.id") +
		item(prefix+"_behind", "terraform_data."+prefix+"_gate.id")
}

// awaitGate waits until an apply stands at a gate.
func (w *workdir) awaitGate(name string, apply *process) {
	w.tb.Helper()
	awaitFile(w.tb, w.path(name+".begun"), apply.out.String)
}

func (w *workdir) openGate(name string) {
	w.tb.Helper()
	w.write(name+".open", "")
}

// interrupt is Ctrl-C.
func interrupt(p *process) { p.signal(syscall.SIGINT) }

// document is what tests look at in a state.
type document struct {
	Serial    uint64 `json:"serial"`
	Lineage   string `json:"lineage"`
	Resources []struct {
		Module    string            `json:"module"`
		Type      string            `json:"type"`
		Name      string            `json:"name"`
		Instances []json.RawMessage `json:"instances"`
	} `json:"resources"`
}

func parseState(tb testing.TB, b []byte) document {
	tb.Helper()
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		tb.Fatalf("state: %v\n%s", err, b)
	}
	return d
}

// names lists the resources of a state that have an instance, sorted.
func (d document) names() []string {
	names := []string{}
	for _, r := range d.Resources {
		if len(r.Instances) > 0 {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

func wantNames(tb testing.TB, b []byte, want ...string) {
	tb.Helper()
	slices.Sort(want)
	if got := parseState(tb, b).names(); !slices.Equal(got, want) {
		tb.Errorf("resources of the state: got %v, want %v", got, want)
	}
}

// withSerial rewrites the serial of a state.
func withSerial(tb testing.TB, state []byte, serial uint64) []byte {
	tb.Helper()
	d := json.NewDecoder(strings.NewReader(string(state)))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		tb.Fatal(err)
	}
	m["serial"] = serial
	out, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		tb.Fatal(err)
	}
	return append(out, '\n')
}

func noFile(tb testing.TB, path string) {
	tb.Helper()
	if _, err := os.Stat(path); err == nil {
		tb.Errorf("%s exists", filepath.Base(path))
	}
}
