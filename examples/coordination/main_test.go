package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kl/kltest"
)

// TestMain lets the test's binary be the helper that terraform calls.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == holdVerb {
		os.Exit(Main(os.Args, os.Stdout, os.Stderr)) //nolint:forbidigo // this is the main of the helper's process
	}
	m.Run()
}

// TestCoordination runs the whole experiment. What it writes fits the schema, and
// a schema that let everything pass would be noticed.
func TestCoordination(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long; runs without -short")
	}
	out := filepath.Join(t.TempDir(), "evidence.json")
	var stdout, stderr bytes.Buffer
	code := Main([]string{"coordination", "--terraform", kltest.Terraform(t), "--out", out, "--deadline", "3m"}, &stdout, &stderr)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout.String(), stderr.String())
	}
	document, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := fitsSchema(document); err != nil {
		t.Fatal(err)
	}
	var e evidence
	if err := json.Unmarshal(document, &e); err != nil {
		t.Fatal(err)
	}
	if !e.OK || len(e.Runs) != 2 {
		t.Fatalf("evidence: ok %v of %d runs, want true of 2", e.OK, len(e.Runs))
	}
	for _, r := range e.Runs {
		for _, dir := range r.Directories {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left behind", dir)
			}
		}
	}

	for name, spoil := range map[string]func(r map[string]any){
		"a step is missing":      func(r map[string]any) { r["steps"] = r["steps"].([]any)[:7] },
		"steps change places":    func(r map[string]any) { s := r["steps"].([]any); s[0], s[1] = s[1], s[0] },
		"a lock was forced":      func(r map[string]any) { r["unused"].(map[string]any)["force_unlock"] = 1 },
		"a process runs on":      func(r map[string]any) { r["processes"].([]any)[0].(map[string]any)["running"] = true },
		"a fact is missing":      func(r map[string]any) { delete(facts(r, 2), "names_holder") },
		"a digest is cut":        func(r map[string]any) { facts(r, 3)["sha256_after"] = "abc" },
		"an unknown fact stands": func(r map[string]any) { facts(r, 0)["mood"] = "good" },
	} {
		t.Run(name, func(t *testing.T) {
			var doc map[string]any
			if err := json.Unmarshal(document, &doc); err != nil {
				t.Fatal(err)
			}
			spoil(doc["runs"].([]any)[0].(map[string]any))
			spoiled, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			if fitsSchema(spoiled) == nil {
				t.Error("the schema takes it")
			}
		})
	}
}

func facts(r map[string]any, n int) map[string]any {
	return r["steps"].([]any)[n].(map[string]any)["facts"].(map[string]any)
}

// TestHoldEnds lets the helper wait for a release that never comes.
func TestHoldEnds(t *testing.T) {
	gates := t.TempDir()
	out, err := exec.Command(os.Args[0], holdVerb, gates, "50ms", "one").CombinedOutput()
	if err == nil {
		t.Error("a helper that was never released reports success")
	}
	if want := "waited in vain for the release of round one"; !strings.Contains(string(out), want) {
		t.Errorf("got %q, want %q", out, want)
	}
	if !(gate{gates, "one"}).seen() {
		t.Error("the helper has made no marker")
	}
}

func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"backend":   {[]string{"--backend", "s3"}, "--backend is local or kl"},
		"deadline":  {[]string{"--deadline", "-1s"}, "--deadline is a time above zero"},
		"argument":  {[]string{"local"}, `"local" is no flag`},
		"no client": {[]string{"--terraform", "/nowhere/terraform"}, "name one with --terraform"},
		"no folder": {[]string{"--out", "/nowhere/evidence.json"}, "/nowhere/evidence.json cannot be written"},
		"flag":      {[]string{"--force-unlock"}, "flag provided but not defined"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := Main(append([]string{"coordination"}, c.args...), &bytes.Buffer{}, &stderr); code != 3 {
				t.Errorf("exit code %d, want 3", code)
			}
			if !strings.Contains(stderr.String(), c.want) {
				t.Errorf("got %q, want %q", stderr.String(), c.want)
			}
		})
	}
}
