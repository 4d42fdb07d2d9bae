package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kl/cli"
	"kl/fault"
)

// outcome is what a run of the command line has left.
type outcome struct {
	exit           int
	stdout, stderr string
}

// run runs the command line in an empty directory with that environment and
// nothing else around it.
func run(t *testing.T, env map[string]string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	dir := env["DIR"]
	if dir == "" {
		dir = t.TempDir()
	}
	exit := cli.Main(args, cli.Env{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(k string) string { return env[k] },
		Now:    func() time.Time { return time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC) },
		Dir:    dir,
	})
	return outcome{exit, stdout.String(), stderr.String()}
}

func TestExitCodes(t *testing.T) {
	// written out again: the table must not change unseen
	want := map[fault.Class]int{
		fault.Auth: 5, fault.Scope: 5, fault.Lock: 2, fault.Conflict: 2, fault.Quota: 4,
		fault.Lifecycle: 6, fault.Invalid: 3, fault.Unavailable: 7, fault.Unknown: 1,
	}
	seen := map[fault.Class]bool{}
	for _, code := range fault.Codes() {
		err := fault.New(code, "x")
		seen[err.Class()] = true
		if got := cli.ExitCode(err); got != want[err.Class()] {
			t.Errorf("%s (%s): exit code %d, want %d", code, err.Class(), got, want[err.Class()])
		}
	}
	for _, c := range fault.Classes {
		if !seen[c] {
			t.Errorf("class %s has no code", c)
		}
	}
	if cli.ExitCode(nil) != 0 || cli.ExitCode(os.ErrClosed) != 1 {
		t.Errorf("nil: %d, no fault: %d", cli.ExitCode(nil), cli.ExitCode(os.ErrClosed))
	}
}

func TestUsageErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		stderr string // a part
	}{
		"unknown command":          {[]string{"serv"}, "perhaps: kl serve"},
		"unknown command of group": {[]string{"state", "lst"}, "perhaps: kl state list"},
		"group alone":              {[]string{"state"}, "kl state needs a command\nnext: kl state --help"},
		"unknown flag":             {[]string{"serve", "--no-such"}, "unknown flag: --no-such\nnext: kl serve --help"},
		"bad value":                {[]string{"history", "--limit", "x"}, `invalid argument "x"`},
		"argument too many":        {[]string{"version", "x"}, `"x" is one argument too many`},
		"argument missing":         {[]string{"token", "create"}, "an argument is missing (usage: kl token create NAME"},
		"why of nothing":           {[]string{"why"}, "give a REQUEST_ID or --last"},
		"why of two things":        {[]string{"why", "req_1", "--last"}, "give a REQUEST_ID or --last"},
		"no reason":                {[]string{"workspace", "suspend"}, "kl workspace suspend WORKSPACE --reason TEXT"},
		"leave nothing":            {[]string{"member", "leave"}, "kl member leave --workspace WORKSPACE"},
		"no class":                 {[]string{"events", "--class", "x"}, "use one of: auth, scope"},
		"no time":                  {[]string{"events", "--since", "noon"}, "like 24h"},
		"no login":                 {[]string{"login"}, "kl login --address https://HOST"},
		"tls key alone":            {[]string{"serve", "--tls-key", "k", "--log-format", "xml"}, "one of them is missing; --log-format is \"xml\""},
		"external url":             {[]string{"init", "--external-url", "example.org"}, "--external-url is not the address of a server"},
		"listen":                   {[]string{"init", "--listen", "8080"}, "--listen is not an address"},
		"max body":                 {[]string{"serve", "--max-body", "-1"}, "is not a size such as 512MiB"},
		"no lock id":               {[]string{"lock", "release", "demo"}, "kl lock release STATE --id ID"},
		"nothing to allow":         {[]string{"state", "allow", "demo"}, "--lineage, --lower-serial, or both"},
		"nothing to set":           {[]string{"env", "set"}, "there is nothing to set"},
		"two states":               {[]string{"state", "show", "a", "--state", "b"}, "two states are named"},
		"two environments":         {[]string{"env", "show", "a", "--env", "b"}, "two environments are named"},
		"no server":                {[]string{"state", "list"}, "no server is named\nnext: give --address (KL_ADDRESS)"},
		"bad address":              {[]string{"state", "list", "--address", "localhost"}, "is neither a server's nor a state's"},
		"bad state":                {[]string{"state", "show", "a/b", "--address", "http://h", "--token", "t"}, `"a/b" cannot be the name of a state`},
		"no state":                 {[]string{"state", "show", "--address", "http://h", "--token", "t"}, "no state is named"},
		"no file":                  {[]string{"state", "push", "absent.tfstate"}, "cannot be read from absent.tfstate"},
		"check of nothing":         {[]string{"check", "--data", "absent/kl.db"}, "there is no file absent/kl.db"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, nil, tc.args...)
			if got.exit != 3 || got.stdout != "" || !strings.Contains(got.stderr, tc.stderr) {
				t.Errorf("kl %v: %+v, want exit 3, nothing on stdout, and %q on stderr", tc.args, got, tc.stderr)
			}
			if !strings.HasPrefix(got.stderr, "kl: ") || !strings.Contains(got.stderr, "\nnext: ") {
				t.Errorf("kl %v: stderr has not the form of a failure: %q", tc.args, got.stderr)
			}
			got = run(t, nil, append(tc.args, "--json")...)
			var m map[string]any
			if err := json.Unmarshal([]byte(got.stderr), &m); err != nil || got.exit != 3 || m["class"] != "invalid" || m["exit_code"] != 3.0 {
				t.Errorf("kl %v --json: %+v (%v)", tc.args, got, err)
			}
			for _, member := range []string{"code", "detail", "next_step", "request_id"} {
				if _, ok := m[member]; !ok {
					t.Errorf("kl %v --json: %s is missing: %s", tc.args, member, got.stderr)
				}
			}
		})
	}
}

func TestHelpHasExitCodesExamplesAndVariables(t *testing.T) {
	for _, args := range [][]string{
		{"serve"},
		{"init"},
		{"check"},
		{"version"},
		{"backend"},
		{"history"},
		{"why"},
		{"whoami"},
		{"state", "list"},
		{"state", "show"},
		{"state", "pull"},
		{"state", "push"},
		{"state", "delete"},
		{"state", "restore"},
		{"state", "purge"},
		{"state", "allow"},
		{"lock", "show"},
		{"lock", "release"},
		{"recover", "list"},
		{"recover", "show"},
		{"recover", "discard"},
		{"env", "show"},
		{"env", "set"},
		{"login"},
		{"doctor"},
		{"events"},
		{"workspace", "create"},
		{"workspace", "list"},
		{"workspace", "show"},
		{"workspace", "suspend"},
		{"workspace", "resume"},
		{"user", "create"},
		{"user", "list"},
		{"user", "delete"},
		{"member", "add"},
		{"member", "remove"},
		{"member", "list"},
		{"member", "leave"},
		{"pat", "create"},
		{"pat", "list"},
		{"pat", "revoke"},
		{"grant", "add"},
		{"grant", "remove"},
		{"grant", "list"},
		{"state", "archive"},
	} {
		got := run(t, nil, append(args, "--help")...)
		if got.exit != 0 || got.stderr != "" {
			t.Errorf("kl %v --help: %+v", args, got)
		}
		for _, part := range []string{"Exit codes:\n  0  done\n  1  failed", "Examples:\n", "(KL_JSON)", "(KL_CONFIG)"} {
			if !strings.Contains(got.stdout, part) {
				t.Errorf("kl %v --help lacks %q:\n%s", args, part, got.stdout)
			}
		}
	}
	if got := run(t, nil); got.exit != 0 || !strings.Contains(got.stdout, "Available Commands:") {
		t.Errorf("kl alone: %+v", got)
	}
}

func TestVersion(t *testing.T) {
	got := run(t, nil, "version", "--json")
	var v struct{ Version, Commit, Go string }
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || got.exit != 0 {
		t.Fatalf("%+v: %v", got, err)
	}
	if v.Version == "" || v.Commit == "" || !strings.HasPrefix(v.Go, "go1.") {
		t.Errorf("got %+v", v)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := run(t, nil, "completion", shell); got.exit != 0 || !strings.Contains(got.stdout, "kl") || got.stderr != "" {
			t.Errorf("completion %s: exit %d, stderr %q, %d bytes", shell, got.exit, got.stderr, len(got.stdout))
		}
	}
	// no server, no configuration: nothing to offer, and nothing said
	if got := run(t, nil, "__complete", "state", "show", ""); got.exit != 0 || strings.Contains(got.stdout, "kl:") {
		t.Errorf("completion of states: %+v", got)
	}
}

func TestConfigFile(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		mode   os.FileMode
		stderr string // "" when the file is good
	}{
		"good":               {"token = \"geheim\"\nmax_body = 1000\njson = true\n", 0o600, ""},
		"readable by others": {"token = \"geheim\"\n", 0o644, "can be read or changed by others (mode 0644)\nnext: chmod 600"},
		"readable by group":  {"", 0o640, "next: chmod 600"},
		"unknown key":        {"tokn = \"geheim\"\n", 0o600, "there is no setting \"tokn\"\nnext: take it out, or use one of: address,"},
		"table":              {"[server]\ntoken = \"geheim\"\n", 0o600, "there is no setting \"server\""},
		"list":               {"token = [\"geheim\"]\n", 0o600, "the setting \"token\" must be text"},
		"no quotes":          {"address = \"x\"\ntoken = geheim\n", 0o600, "line 2 is not valid TOML"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			file := filepath.Join(home, ".config", "kl", "config.toml")
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(tc.text), tc.mode); err != nil {
				t.Fatal(err)
			}
			for how, env := range map[string]map[string]string{"HOME": {"HOME": home}, "KL_CONFIG": {"KL_CONFIG": file}} {
				got := run(t, env, "version")
				if tc.stderr == "" && got.exit != 0 || tc.stderr != "" && (got.exit != 3 || !strings.Contains(got.stderr, tc.stderr)) {
					t.Errorf("%s: %+v, want %q", how, got, tc.stderr)
				}
				if strings.Contains(got.stderr, "geheim") {
					t.Errorf("%s: the secret is told: %s", how, got.stderr)
				}
			}
		})
	}
	if got := run(t, map[string]string{"KL_CONFIG": "/absent/config.toml"}, "version"); got.exit != 3 {
		t.Errorf("a named file that is not there: %+v", got)
	}
}

// Flag over environment over file, for a flag of each kind.
func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte("listen = \"file\"\ntls_key = \"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KL_CONFIG": file}
	// a bad value of --log-format makes serve name it and stop before it begins
	says := func(args ...string) string { return run(t, env, append([]string{"serve"}, args...)...).stderr }
	if got := says(); !strings.Contains(got, "--listen is not an address: address file") {
		t.Errorf("file: %q", got)
	}
	env["KL_LISTEN"] = "environment"
	if got := says(); !strings.Contains(got, "address environment") {
		t.Errorf("environment over file: %q", got)
	}
	if got := says("--listen", "flag"); !strings.Contains(got, "address flag") {
		t.Errorf("flag over environment: %q", got)
	}
	env["KL_MAX_BODY"] = "much"
	if got := says("--listen", "flag"); !strings.Contains(got, "max_body in KL_MAX_BODY is not valid for --max-body") {
		t.Errorf("bad value: %q", got)
	}
}

// Text that others have chosen must not reach the terminal as commands to it.
func TestControlCharactersAreTakenOut(t *testing.T) {
	got := run(t, nil, "state", "show", "x\x1b]0;evil\x07", "--address", "http://h", "--token", "t")
	if strings.ContainsAny(got.stderr, "\x1b\x07") {
		t.Errorf("got %q", got.stderr)
	}
}
