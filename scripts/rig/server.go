package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"kl/client"
	"kl/wire"
)

// grace is how long a server may take to stop.
const grace = 40 * time.Second

// AuthorityEnv is the variable with the certificate of a private authority, in
// which terraform and kl both believe.
const AuthorityEnv = "TF_HTTP_CLIENT_CA_CERTIFICATE_PEM"

// CleanEnv is this process's environment without what would redirect a client
// or kl, and with home in place of the user's own. AuthorityEnv stays.
func CleanEnv(home string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "TF_") && name != AuthorityEnv || strings.HasPrefix(name, "KL_") || name == "HOME" || name == "XDG_CONFIG_HOME" {
			continue
		}
		env = append(env, kv)
	}
	return append(env, "HOME="+home, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0")
}

// FindTerraform returns the absolute path of the client that name means: a
// path, or a name on the PATH; "" means KL_TERRAFORM, else terraform, else tofu.
func FindTerraform(name string) (string, error) {
	names := []string{name}
	if name == "" {
		names = []string{"terraform", "tofu"}
		if set := os.Getenv("KL_TERRAFORM"); set != "" {
			names = []string{set}
		}
	}
	var failures []error
	for _, n := range names {
		path, err := exec.LookPath(n)
		if err == nil {
			return filepath.Abs(path)
		}
		failures = append(failures, err)
	}
	return "", fmt.Errorf("no terraform or tofu: %w; name one with --terraform", errors.Join(failures...))
}

// TerraformVersion is the version that a client tells of itself.
func TerraformVersion(ctx context.Context, bin, home string) (string, error) {
	r, err := Run(ctx, home, CleanEnv(home), bin, "version", "-json")
	if err != nil {
		return "", err
	}
	var v struct {
		Version string `json:"terraform_version"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil || v.Version == "" {
		return "", fmt.Errorf("%s version -json tells no version: %w\n%s", bin, err, r.Out)
	}
	return v.Version, nil
}

// BuildKL builds kl into dir and returns the path of the binary. It has to be
// called within the module.
func BuildKL(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "kl")
	out, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", bin, "kl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build kl: %w\n%s", err, out)
	}
	return bin, nil
}

// Root is the folder of the module in which the program runs.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if filepath.Base(file) != "go.mod" {
		return "", errors.New("run this within the checkout")
	}
	return filepath.Dir(file), nil
}

// Server is a `kl serve` process on a data file of its own.
type Server struct {
	Base string // http://127.0.0.1:PORT
	Boot wire.Bootstrap

	bin, data string
	proc      *Process
}

// StartServer makes a data file in dir and serves it on a free port. Its log is
// JSON.
func StartServer(ctx context.Context, bin, dir string, args ...string) (*Server, error) {
	s := &Server{bin: bin, data: filepath.Join(dir, "kl.db")}
	r, err := Run(ctx, dir, CleanEnv(dir), bin, "init", "--data", s.data, "--json")
	if err != nil {
		return nil, err
	}
	if r.Code != 0 {
		return nil, fmt.Errorf("kl init: exit code %d\n%s", r.Code, r.Out)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &s.Boot); err != nil {
		return nil, fmt.Errorf("kl init --json: %w", err)
	}
	args = append([]string{"serve", "--data", s.data, "--listen", "127.0.0.1:0", "--log-format", "json"}, args...)
	if s.proc, err = Start(dir, CleanEnv(dir), bin, args...); err != nil {
		return nil, err
	}
	err = Await(ctx, "kl serve to listen", func() (bool, error) {
		for line := range strings.Lines(s.proc.Out.String()) {
			var event struct{ Message, Address string }
			if json.Unmarshal([]byte(line), &event) == nil && event.Message == "listening" {
				s.Base = event.Address
				return true, nil
			}
		}
		if !s.proc.Alive() {
			return false, fmt.Errorf("kl serve has ended:\n%s", s.proc.Out.String())
		}
		return false, nil
	})
	if err != nil {
		return nil, errors.Join(err, s.proc.Kill())
	}
	return s, nil
}

// Client talks to the server as its operator, and to states with the automation
// token of the first environment.
func (s *Server) Client() (*client.Client, error) {
	return client.New(client.Options{
		Base: s.Base, Bearer: s.Boot.ControlToken, Username: s.Boot.WorkspaceID, Password: s.Boot.AutomationToken,
	})
}

// Log is what the server has logged, one JSON object per line.
func (s *Server) Log() string { return s.proc.Out.String() }

// Stop ends the server as an operator does, and demands that it says it went
// well and that kl check finds the file sound.
func (s *Server) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := s.proc.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	code, err := s.proc.Wait(ctx)
	if err != nil {
		return errors.Join(err, s.proc.Kill())
	}
	if code != 0 {
		return fmt.Errorf("kl serve: exit code %d after SIGTERM", code)
	}
	dir := filepath.Dir(s.data)
	r, err := Run(ctx, dir, CleanEnv(dir), s.bin, "check", "--data", s.data)
	if err != nil {
		return err
	}
	if r.Code != 0 {
		return fmt.Errorf("kl check: exit code %d\n%s", r.Code, r.Out)
	}
	return nil
}

// StateEnv is the environment that points a client at a state; password is an
// automation token or a personal access token.
func StateEnv(base, workspace, environment, state, password string) []string {
	u := base + wire.StatePath(workspace, environment, state)
	return []string{
		"TF_HTTP_ADDRESS=" + u, "TF_HTTP_LOCK_ADDRESS=" + u, "TF_HTTP_UNLOCK_ADDRESS=" + u,
		"TF_HTTP_USERNAME=" + workspace, "TF_HTTP_PASSWORD=" + password,
	}
}

// Writable tells of the files to be written, "" for none, whose folder is not
// there: what takes minutes should not end with the loss of its report.
func Writable(files ...string) error {
	var missing []error
	for _, file := range files {
		if file == "" {
			continue
		}
		if info, err := os.Stat(filepath.Dir(file)); err != nil {
			missing = append(missing, fmt.Errorf("%s cannot be written: %w", file, err))
		} else if !info.IsDir() {
			missing = append(missing, fmt.Errorf("%s cannot be written: %s is no folder", file, filepath.Dir(file)))
		}
	}
	return errors.Join(missing...)
}

// WriteJSON writes v into a file, indented.
func WriteJSON(path string, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}
