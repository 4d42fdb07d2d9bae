package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"kl/client"
	"kl/fault"
	"kl/wire"
)

// server is a `kl serve` process on a data file of its own. When the test ends
// it is stopped, and `kl check` has to find the file sound.
type server struct {
	tb     testing.TB
	data   string
	args   []string
	boot   wire.Bootstrap
	listen string // host:port once known, so that a restart keeps the address
	base   string
	proc   *process
	c      *client.Client
}

// startServer bootstraps a data file and serves it on a port of its own; args
// are further arguments of `kl serve`.
func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	s := &server{tb: tb, data: filepath.Join(tb.TempDir(), "kl.db"), args: args, listen: "127.0.0.1:0"}
	r := runKL(tb, nil, "init", "--data", s.data, "--json")
	if r.code != 0 {
		tb.Fatalf("kl init: exit %d\n%s", r.code, r.out)
	}
	if err := json.Unmarshal([]byte(r.stdout), &s.boot); err != nil {
		tb.Fatalf("kl init --json: %v\n%s", err, r.stdout)
	}
	tb.Cleanup(func() {
		if s.proc != nil && s.proc.running() {
			s.stop()
		}
		if r := runKL(tb, nil, "check", "--data", s.data); r.code != 0 {
			tb.Errorf("kl check: exit %d\n%s", r.code, r.out)
		}
		if tb.Failed() {
			tb.Logf("last lines of the server:\n%s", tail(s.proc.out.String(), 15))
		}
	})
	s.start()
	return s
}

var listening = regexp.MustCompile(`listening on (https?)://(\S+)`)

// start runs `kl serve` and returns once it accepts.
func (s *server) start() {
	s.tb.Helper()
	args := append([]string{"serve", "--data", s.data, "--listen", s.listen}, s.args...)
	s.proc = startProcess(s.tb, filepath.Dir(s.data), cleanEnv(), klBinary(s.tb), args...)
	s.proc.awaitOutput("listening on http")
	var m []string
	await(s.tb, "the whole line with the address", func() bool {
		m = listening.FindStringSubmatch(s.proc.out.String())
		return m != nil
	})
	s.listen, s.base = m[2], m[1]+"://"+m[2]
}

// stop ends the server as an operator does, and demands exit code 0.
func (s *server) stop() {
	s.tb.Helper()
	s.proc.signal(syscall.SIGTERM)
	if code := s.proc.wait(patience); code != 0 {
		s.tb.Errorf("kl serve: exit %d after SIGTERM\n%s", code, tail(s.proc.out.String(), 40))
	}
}

// restart ends the server, by SIGKILL or as an operator does, and starts it
// again on the same address.
func (s *server) restart(kill bool) {
	s.tb.Helper()
	if kill {
		s.proc.kill()
	} else {
		s.stop()
	}
	s.start()
}

func (s *server) client() *client.Client {
	s.tb.Helper()
	if s.c == nil {
		s.c = s.clientFor(client.Options{Bearer: s.boot.ControlToken, Username: s.boot.WorkspaceID, Password: s.boot.AutomationToken})
	}
	return s.c
}

func (s *server) clientFor(o client.Options) *client.Client {
	s.tb.Helper()
	o.Base = s.base
	c, err := client.New(o)
	if err != nil {
		s.tb.Fatal(err)
	}
	return c
}

func (s *server) ref(state string) client.Ref {
	return client.Ref{Workspace: s.boot.WorkspaceID, Environment: s.boot.EnvPublicID, State: state}
}

func (s *server) stateURL(state string) string {
	return s.base + wire.StatePath(s.boot.WorkspaceID, s.boot.EnvPublicID, state)
}

func (s *server) lockURL(state string) string {
	return s.base + wire.LockPath(s.boot.WorkspaceID, s.boot.EnvPublicID, state)
}

// env is the environment that points a client at a state, as README.md says.
func (s *server) env(state string) []string {
	u := s.stateURL(state)
	return []string{
		"TF_HTTP_ADDRESS=" + u, "TF_HTTP_LOCK_ADDRESS=" + u, "TF_HTTP_UNLOCK_ADDRESS=" + u,
		"TF_HTTP_USERNAME=" + s.boot.WorkspaceID, "TF_HTTP_PASSWORD=" + s.boot.AutomationToken,
	}
}

// block is a configuration's backend block for a state; the credentials come
// from env.
func (s *server) block(state string) string {
	u := s.stateURL(state)
	return fmt.Sprintf("terraform {\n  backend \"http\" {\n    address        = %q\n    lock_address   = %q\n    unlock_address = %q\n  }\n}\n", u, u, u)
}

// kl runs a verb of the command line against the server, as the operator.
func (s *server) kl(args ...string) result {
	s.tb.Helper()
	return runKL(s.tb, []string{
		"KL_ADDRESS=" + s.base, "KL_TOKEN=" + s.boot.ControlToken, "KL_ENV=" + s.boot.EnvPublicID,
		"KL_USERNAME=" + s.boot.WorkspaceID, "KL_PASSWORD=" + s.boot.AutomationToken,
	}, args...)
}

func (s *server) mustKL(args ...string) string {
	s.tb.Helper()
	r := s.kl(args...)
	if r.code != 0 {
		s.tb.Fatalf("kl %s: exit %d\n%s", strings.Join(args, " "), r.code, r.out)
	}
	return r.stdout
}

// versions lists a state's versions, oldest first; none of one never written.
func (s *server) versions(state string) []wire.Version {
	s.tb.Helper()
	var all []wire.Version
	for v, err := range s.client().Versions(s.ctx(), s.boot.EnvPublicID, state) {
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			s.tb.Fatalf("versions of %s: %v", state, err)
		}
		all = append([]wire.Version{v}, all...)
	}
	return all
}

// head is the newest version; a state without one fails the test.
func (s *server) head(state string) wire.Version {
	s.tb.Helper()
	all := s.versions(state)
	if len(all) == 0 {
		s.tb.Fatalf("state %s has no version", state)
	}
	return all[len(all)-1]
}

func (s *server) lock(state string) wire.Lock {
	s.tb.Helper()
	l, err := s.client().LockState(s.ctx(), s.boot.EnvPublicID, state)
	if err != nil {
		s.tb.Fatalf("lock of %s: %v", state, err)
	}
	return l
}

// holder is the only holder of a state's lock.
func (s *server) holder(state string) wire.Holder {
	s.tb.Helper()
	l := s.lock(state)
	if len(l.Holders) != 1 {
		s.tb.Fatalf("lock of %s: got %d holders, want 1: %+v", state, len(l.Holders), l)
	}
	return l.Holders[0]
}

func (s *server) wantUnlocked(state string) {
	s.tb.Helper()
	if l := s.lock(state); len(l.Holders) != 0 {
		s.tb.Errorf("lock of %s: got %+v, want no holder", state, l.Holders)
	}
}

func (s *server) refused(state string) []wire.Refused {
	s.tb.Helper()
	all, err := client.Collect(s.client().RefusedList(s.ctx(), s.boot.EnvPublicID, state), 0)
	if err != nil {
		s.tb.Fatalf("refused writes of %s: %v", state, err)
	}
	return all
}

// pull reads a state's newest bytes.
func (s *server) pull(state string) []byte {
	s.tb.Helper()
	b, err := s.client().Pull(s.ctx(), s.ref(state))
	return s.read("pull "+state, b, err)
}

func (s *server) refusedBody(state, id string) []byte {
	s.tb.Helper()
	b, err := s.client().RefusedBody(s.ctx(), s.boot.EnvPublicID, state, id)
	return s.read("refused write "+id, b, err)
}

func (s *server) read(what string, b *client.Bytes, err error) []byte {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("%s: %v", what, err)
	}
	data, err := io.ReadAll(b)
	if err != nil {
		s.tb.Fatalf("%s: %v", what, err)
	}
	if err := b.Close(); err != nil {
		s.tb.Fatalf("%s: %v", what, err)
	}
	return data
}

// ctx has no deadline: requests to a server on this machine end by themselves,
// and the test binary has a timeout.
func (s *server) ctx() context.Context { return context.Background() }

// runKL runs a verb and waits for its end.
func runKL(tb testing.TB, env []string, args ...string) result {
	tb.Helper()
	return startProcess(tb, tb.TempDir(), append(cleanEnv(), env...), klBinary(tb), args...).result(patience)
}

// cleanEnv is this process's environment without what would redirect a client
// or kl.
func cleanEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "TF_") || strings.HasPrefix(name, "KL_") || name == "HOME" || name == "XDG_CONFIG_HOME" {
			continue
		}
		env = append(env, kv)
	}
	return append(env, "HOME="+buildDir, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0")
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
