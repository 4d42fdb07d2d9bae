// Package e2e runs kl as its users do: the built binary as a process of its
// own, and the real terraform (or tofu) in front of it. It has tests only.
//
// Environment:
//
//	KL_TERRAFORM   the client to run; "none" leaves its tests out knowingly
//	KL_SEED        the seed of the random tests, which each run prints
package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for something that should come at once.
// It is generous, for a busy machine, and costs time only when a test fails.
const patience = 60 * time.Second

// buildDir is where the binary goes; TestMain makes and removes it.
var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kl-e2e-")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	flag.Parse()
	// these tests wait for other processes, and for the client's 20 seconds
	// between checkpoints, more than they compute
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("8"); err != nil {
			panic(err)
		}
	}
	m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// build makes the binary once per run of the tests. It has no race detector, so
// that it runs as released ones do.
var build = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(buildDir, "kl")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-buildvcs=false", "-o", bin, "kl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build kl: %w\n%s", err, out)
	}
	return bin, nil
})

func klBinary(tb testing.TB) string {
	tb.Helper()
	bin, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

// long marks a test that takes more than a few seconds.
func long(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("takes long; runs without -short")
	}
}

// seeded returns a random source whose seed is printed, and settable by
// KL_SEED.
func seeded(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("KL_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			tb.Fatalf("KL_SEED: %v", err)
		}
		seed = n
	}
	tb.Logf("seed: KL_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// await waits until cond holds and fails the test when it does not within
// patience. dump, when there is one, adds to the message.
func await(tb testing.TB, what string, cond func() bool, dump ...func() string) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			var more strings.Builder
			for _, d := range dump {
				more.WriteString("\n" + d())
			}
			tb.Fatalf("waited %s in vain for: %s%s", patience, what, more.String())
		}
	}
}

// answers lets a test wait for what its clients are answered: how fast a disk is
// then decides how long it takes, not how much it proves.
type answers chan struct{}

func newAnswers() answers { return make(answers, 1<<12) }

// add notes an answer. Those that nobody waits for are dropped in the end.
func (a answers) add() {
	select {
	case a <- struct{}{}:
	default:
	}
}

// await waits until n more requests were answered. It does not end the test, for
// the clients still run.
func (a answers) await(tb testing.TB, n int) {
	tb.Helper()
	deadline := time.After(patience)
	for i := range n {
		select {
		case <-a:
		case <-deadline:
			tb.Errorf("waited %s in vain for %d answers, %d came", patience, n, i)
			return
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func awaitFile(tb testing.TB, path string, dump ...func() string) {
	tb.Helper()
	await(tb, "file "+filepath.Base(path), func() bool { return exists(path) }, dump...)
}

func writeFile(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func readFile(tb testing.TB, path string) []byte {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// output collects what a process prints and can be read meanwhile.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func itoa[N int | int64 | uint64](n N) string { return fmt.Sprint(n) }
