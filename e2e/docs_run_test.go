package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"kl/client"
	"kl/kltest"
	"kl/scripts/rig"
	"kl/wire"
)

// TestDocs runs the scripts of the pages, with the built kl and the real client.
//
// Commands besides testscript's own:
//
//	exits N CMD ARG…      runs the command and wants this exit code
//	server start ARG…     runs kl serve on a free port until the script ends; sets ADDR
//	                      and, when the file is new, CTL, WS, ENV and TOKEN; prints
//	                      into serve.out
//	server stop           ends it and wants exit code 0
//	capture NAME REGEXP FILE…  sets NAME to what the first group matches in a file,
//	                      or in stdout
//	block FILE            writes the backend block that the first start printed
//	lock STATE ID         takes a lock as Terraform does
//	await FILE            waits until another process has made the file
//
// The folder $SHARED has a certificate for 127.0.0.1 in cert.pem and key.pem, and
// its authority's in ca.pem.
func TestDocs(t *testing.T) {
	t.Parallel()
	long(t)
	if runtime.GOOS == "windows" {
		t.Skip("the scripts send signals")
	}
	bin := klBinary(t)
	tf := kltest.Terraform(t)
	shared := t.TempDir()
	if err := os.Symlink(tf, filepath.Join(shared, "terraform")); err != nil {
		t.Fatal(err)
	}
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	authority := newAuthority(t)
	writeFile(t, filepath.Join(shared, "ca.pem"), authority.pem)
	authority.issue(t, filepath.Join(shared, "cert.pem"), filepath.Join(shared, "key.pem"), 2)
	var environment []string
	for _, name := range []string{"GOCACHE", "GOPATH", "GOMODCACHE"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		environment = append(environment, name+"="+strings.TrimSpace(string(out)))
	}
	testscript.Run(t, testscript.Params{
		Dir:                 docsDir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Values[docServerKey{}] = &docServer{bin: bin}
			e.Vars = append(e.Vars, environment...)
			e.Vars = append(e.Vars,
				"PATH="+filepath.Dir(bin)+string(os.PathListSeparator)+shared+string(os.PathListSeparator)+os.Getenv("PATH"),
				"HOME="+filepath.Join(e.WorkDir, "home"), "REPO="+repo, "SHARED="+shared,
				"CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0")
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": docExits, "server": docServerCmd, "capture": docCapture, "block": docBlock, "lock": docLock, "await": docAwait,
		},
	})
}

type docServerKey struct{}

// docServer is the server of a script.
type docServer struct {
	bin  string
	proc *rig.Process
}

func serverOf(ts *testscript.TestScript) *docServer {
	s, ok := ts.Value(docServerKey{}).(*docServer)
	if !ok {
		ts.Fatalf("Setup has not run")
	}
	return s
}

func docServerCmd(ts *testscript.TestScript, _ bool, args []string) {
	s := serverOf(ts)
	switch {
	case len(args) > 0 && args[0] == "start" && s.proc == nil:
		s.start(ts, args[1:])
	case len(args) == 1 && args[0] == "stop" && s.proc != nil:
		ts.Check(s.proc.Signal(syscall.SIGTERM))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		code, err := s.proc.Wait(ctx)
		ts.Check(err)
		if code != 0 {
			ts.Fatalf("kl serve: exit code %d\n%s", code, s.proc.Out.String())
		}
		s.proc = nil
	default:
		ts.Fatalf("usage: server start ARG… and server stop, in turns")
	}
}

var bootstrapTokens = regexp.MustCompile(`(?s)control token +(\S+).*workspace +(\S+).*environment +(\S+).*automation token +(\S+)`)

func (s *docServer) start(ts *testscript.TestScript, args []string) {
	if !slices.Contains(args, "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	data := "kl.db"
	if i := slices.Index(args, "--data"); i >= 0 && i+1 < len(args) {
		data = args[i+1]
	}
	_, err := os.Stat(ts.MkAbs(data))
	first := os.IsNotExist(err)
	env := []string{"HOME=" + ts.Getenv("HOME"), "PATH=" + ts.Getenv("PATH")}
	p, err := rig.Start(ts.MkAbs("."), env, s.bin, append([]string{"serve"}, args...)...)
	ts.Check(err)
	s.proc = p
	ts.Defer(func() { _ = p.Kill() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var at []string
	ts.Check(rig.Await(ctx, "kl serve to listen", func() (bool, error) {
		if !p.Alive() {
			return false, errors.New(p.Out.String())
		}
		at = listeningLine.FindStringSubmatch(p.Out.String())
		// what the first start prints comes by another pipe, maybe later
		return at != nil && (!first || backendBlock.MatchString(p.Stdout.String())), nil
	}))
	ts.Setenv("ADDR", at[1])
	ts.Check(os.WriteFile(ts.MkAbs("serve.out"), []byte(p.Stdout.String()), 0o600))
	if m := bootstrapTokens.FindStringSubmatch(p.Stdout.String()); m != nil {
		for i, name := range []string{"CTL", "WS", "ENV", "TOKEN"} {
			ts.Setenv(name, m[i+1])
		}
	}
}

// listeningLine waits for the whole line, for the port may come in pieces.
var listeningLine = regexp.MustCompile(`listening on (https?://\S+)\n`)

func docExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N CMD ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ee := (*exec.ExitError)(nil)
		if !errors.As(err, &ee) {
			ts.Check(err)
		}
		got = ee.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func docCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: capture NAME REGEXP FILE")
	}
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	text := ts.ReadFile(args[2])
	m := re.FindStringSubmatch(text)
	if len(m) < 2 {
		ts.Fatalf("%s does not match %s:\n%s", args[1], args[2], text)
	}
	ts.Setenv(args[0], m[1])
}

var backendBlock = regexp.MustCompile(`(?ms)^terraform \{.*^\}\n`)

func docBlock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: block FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(backendBlock.FindString(serverOf(ts).proc.Stdout.String())), 0o600))
}

// docClient talks to the server as the operator, and as Terraform with the
// first automation token.
func docClient(ts *testscript.TestScript) *client.Client {
	c, err := client.New(client.Options{Base: ts.Getenv("ADDR"), Bearer: ts.Getenv("CTL"), Username: ts.Getenv("WS"), Password: ts.Getenv("TOKEN")})
	ts.Check(err)
	return c
}

func docLock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lock STATE ID")
	}
	ts.Check(docClient(ts).Lock(context.Background(),
		client.Ref{Workspace: ts.Getenv("WS"), Environment: ts.Getenv("ENV"), State: args[0]},
		wire.LockInfo{ID: args[1], Operation: wire.OperationApply, Who: "ghost@ci", Version: "1.11.4"}))
}

func docAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ts.Check(rig.Await(ctx, "the file "+args[0], func() (bool, error) { return exists(ts.MkAbs(args[0])), nil }))
}
