package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"kl/cli"
	"kl/client"
	"kl/wire"
)

func TestMain(m *testing.M) {
	kl := func() {
		os.Exit(cli.Main(os.Args[1:], cli.OS())) //nolint:forbidigo // this is the main of the process under test
	}
	testscript.Main(m, map[string]func(){"kl": kl})
}

// TestScripts runs testdata/script: kl as a process of its own, against a real
// kl serve. KL_UPDATE=1 rewrites what cmp expects.
//
// Commands besides testscript's own:
//
//	exits N CMD ARG…        runs the command and wants this exit code
//	server start ARG…       runs kl serve on a free port until the script ends; sets
//	                        ADDR and, when the file is new, CTL, WS, ENV and TOKEN
//	server stop [SIGNAL]    ends it and wants exit code 0; its output is in serve.out
//	                        and serve.err
//	lock STATE ID OPERATION takes a lock as Terraform does; unlock STATE ID
//	[!] post STATE FILE ID  writes as Terraform does; sets REQUEST when refused
//	as-token FILE           sets TOKEN to the secret that kl token create printed
//	damage FILE STATE       changes the digest of STATE in the record of the state whose newest version it is
//	certificate             writes cert.pem and key.pem for 127.0.0.1
func TestScripts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the scripts send signals")
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       os.Getenv("KL_UPDATE") == "1",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Values[serverKey{}] = &process{}
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			// under -race every process would wait a second before it ends
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "server": serverCmd, "lock": lockCmd, "unlock": unlockCmd, "post": postCmd,
			"as-token": asTokenCmd, "damage": damageCmd, "certificate": certificateCmd,
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N CMD ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if ee := (*exec.ExitError)(nil); errors.As(err, &ee) {
		got = ee.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

type serverKey struct{}

// process is a running kl serve.
type process struct {
	cmd  *exec.Cmd
	err  bytes.Buffer
	done chan struct{} // closed when stderr has ended
}

func serverCmd(ts *testscript.TestScript, neg bool, args []string) {
	p, ok := ts.Value(serverKey{}).(*process)
	if !ok {
		ts.Fatalf("Setup has not run")
	}
	switch {
	case !neg && len(args) >= 1 && args[0] == "start" && p.cmd == nil:
		p.start(ts, args[1:])
	case !neg && len(args) >= 1 && args[0] == "stop" && p.cmd != nil:
		sig := syscall.SIGTERM
		if len(args) > 1 {
			sig = map[string]syscall.Signal{"INT": syscall.SIGINT, "KILL": syscall.SIGKILL}[args[1]]
		}
		p.stop(ts, sig)
	default:
		ts.Fatalf("usage: server start|stop, in turns")
	}
}

var (
	listening = regexp.MustCompile(`(?:listening on |"address":")(https?://[^\s"]+)`)
	tokens    = regexp.MustCompile(`(?s)control token +(\S+).*workspace +(\S+).*environment +(\S+).*automation token +(\S+)`)
)

func (p *process) start(ts *testscript.TestScript, args []string) {
	path, err := lookPath(ts, "kl")
	ts.Check(err)
	*p = process{done: make(chan struct{})}
	p.cmd = exec.Command(path, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	p.cmd.Dir = ts.MkAbs(".")
	p.cmd.Env = []string{"HOME=" + ts.Getenv("HOME"), "PATH=" + ts.Getenv("PATH"), "GORACE=" + ts.Getenv("GORACE")}
	// a file and no pipe: all of it is there once the server listens
	out, err := os.Create(ts.MkAbs("serve.out"))
	ts.Check(err)
	defer func() { _ = out.Close() }()
	p.cmd.Stdout = out
	stderr, err := p.cmd.StderrPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	ts.Defer(func() {
		if p.cmd != nil {
			_ = p.cmd.Process.Kill()
			<-p.done
			_ = p.cmd.Wait()
		}
	})
	found := make(chan string, 1)
	go func() {
		defer close(p.done)
		defer close(found)
		r := bufio.NewReader(io.TeeReader(stderr, &p.err))
		for {
			line, err := r.ReadString('\n')
			if m := listening.FindStringSubmatch(line); m != nil && !strings.Contains(line, `"warn"`) {
				select {
				case found <- m[1]:
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	addr, ok := <-found
	if !ok {
		_ = p.cmd.Wait()
		p.cmd = nil
		ts.Fatalf("kl serve ended: %s", p.err.String())
	}
	ts.Setenv("ADDR", addr)
	if m := tokens.FindStringSubmatch(ts.ReadFile("serve.out")); m != nil {
		for i, name := range []string{"CTL", "WS", "ENV", "TOKEN"} {
			ts.Setenv(name, m[i+1])
		}
	}
}

func (p *process) stop(ts *testscript.TestScript, sig syscall.Signal) {
	ts.Check(p.cmd.Process.Signal(sig))
	<-p.done
	err := p.cmd.Wait()
	p.cmd = nil
	ts.Check(os.WriteFile(ts.MkAbs("serve.err"), p.err.Bytes(), 0o600))
	if err != nil && sig != syscall.SIGKILL {
		ts.Fatalf("kl serve: %v\n%s", err, p.err.String())
	}
}

func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		p := filepath.Join(dir, name)
		if info, err := os.Stat(p); err == nil && info.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not in PATH", name)
}

// terraformClient talks to the server as Terraform does.
func terraformClient(ts *testscript.TestScript, state string) (*client.Client, client.Ref) {
	c, err := client.New(client.Options{Base: ts.Getenv("ADDR"), Username: ts.Getenv("WS"), Password: ts.Getenv("TOKEN")})
	ts.Check(err)
	return c, client.Ref{Workspace: ts.Getenv("WS"), Environment: ts.Getenv("ENV"), State: state}
}

func lockCmd(ts *testscript.TestScript, neg bool, args []string) {
	c, ref := terraformClient(ts, args[0])
	err := c.Lock(context.Background(), ref, wire.LockInfo{
		ID: args[1], Operation: args[2], Who: "ana@laptop", Version: "1.11.4", Created: "2026-05-04T03:02:01Z",
	})
	outcomeOf(ts, neg, err)
}

func unlockCmd(ts *testscript.TestScript, neg bool, args []string) {
	c, ref := terraformClient(ts, args[0])
	outcomeOf(ts, neg, c.Unlock(context.Background(), ref, wire.LockInfo{ID: args[1]}))
}

func postCmd(ts *testscript.TestScript, neg bool, args []string) {
	c, ref := terraformClient(ts, args[0])
	_, err := c.Push(context.Background(), ref, args[2], []byte(ts.ReadFile(args[1])))
	outcomeOf(ts, neg, err)
}

func outcomeOf(ts *testscript.TestScript, neg bool, err error) {
	if neg == (err == nil) {
		ts.Fatalf("refused: %v", err)
	}
	ts.Setenv("REQUEST", client.RequestID(err))
}

var secretLine = regexp.MustCompile(`(?m)^secret: +(\S+)$`)

func asTokenCmd(ts *testscript.TestScript, _ bool, args []string) {
	m := secretLine.FindStringSubmatch(ts.ReadFile(args[0]))
	if m == nil {
		ts.Fatalf("%s holds no secret", args[0])
	}
	ts.Setenv("TOKEN", m[1])
}

func damageCmd(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.MkAbs(args[0])
	b, err := os.ReadFile(file)
	ts.Check(err)
	sum := sha256.Sum256([]byte(ts.ReadFile(args[1])))
	form := []byte(`"sha256":"` + base64.StdEncoding.EncodeToString(sum[:]))
	if !bytes.Contains(b, form) {
		ts.Fatalf("no state in %s has the digest of %s", args[0], args[1])
	}
	other := bytes.Clone(form)
	other[len(other)/2] ^= 1 // a digit or letter stays one, or becomes a neighbour of one
	ts.Check(os.WriteFile(file, bytes.ReplaceAll(b, form, other), 0o600))
}

func certificateCmd(ts *testscript.TestScript, _ bool, _ []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	ts.Check(err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	for name, b := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: der}} {
		ts.Check(os.WriteFile(ts.MkAbs(name), pem.EncodeToMemory(b), 0o600))
	}
}
