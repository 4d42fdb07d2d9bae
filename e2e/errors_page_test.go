package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kl/client"
	"kl/fault"
	"kl/wire"
)

var inBackquotes = regexp.MustCompile("`([^`]+)`")

// printedTexts reads from docs/errors.md what the client prints for each code.
func printedTexts(t *testing.T) map[fault.Code][]string {
	t.Helper()
	texts := map[fault.Code][]string{}
	for line := range strings.Lines(string(readFile(t, filepath.Join("..", "docs", "errors.md")))) {
		columns := strings.Split(line, " | ")
		if len(columns) != 5 || !strings.HasPrefix(line, "| `") {
			continue
		}
		code := fault.Code(strings.Trim(columns[0], "| `"))
		for _, m := range inBackquotes.FindAllStringSubmatch(columns[2], -1) {
			texts[code] = append(texts[code], m[1])
		}
	}
	return texts
}

// TestErrorsPagePrints makes the real client meet one code after another: it has
// to print what docs/errors.md says, and the server has to have given that code.
func TestErrorsPagePrints(t *testing.T) {
	t.Parallel()
	long(t)
	p := startServer(t, "--max-body", "8KiB").newPlace("platform")
	texts := printedTexts(t)
	config := httpBackend + item("a", `"1"`)
	net := initWorkdir(t, config, p.as(p.token, "net"))
	net.must("apply")
	old := net.must("state", "pull")
	net.write("main.tf", httpBackend+item("a", `"2"`))
	net.must("apply")
	c := p.clientFor(client.Options{Username: p.ws, Password: p.token})
	ref := client.Ref{Workspace: p.ws, Environment: p.environment, State: "net"}

	ana := p.newPerson("ana")
	pat := ana.newPAT("laptop").Secret
	token := func(args ...string) wire.Token {
		var tok wire.Token
		p.mustJSON(&tok, append([]string{"token", "create", "x", "--env", p.environment}, args...)...)
		return tok
	}
	init := func(change ...string) string {
		return newWorkdir(t, config, append(p.as(p.token, "net"), change...)).run("init").out
	}
	address := func(path string) string { return "TF_HTTP_ADDRESS=" + p.base + path }
	// around is the screen of a command while something holds
	around := func(begin, end func(), run func() string) string {
		begin()
		defer end()
		return run()
	}
	plan := func() string { return net.run("plan").out }
	held := wire.LockInfo{ID: "held-by-ben", Operation: wire.OperationApply, Who: "ben@desk", Version: "1.11.4"}
	lock := func() {
		if err := c.Lock(p.ctx(), ref, held); err != nil {
			t.Fatal(err)
		}
	}
	unlock := func() {
		if err := c.Unlock(p.ctx(), ref, held); err != nil {
			t.Fatal(err)
		}
	}
	pushForced := func(state string) string {
		net.write("other.tfstate", state)
		return net.run("state", "push", "-force", "other.tfstate").out
	}

	for _, tc := range []struct {
		code   fault.Code
		screen func() string
	}{
		{fault.CredentialsMissing, func() string { return init("TF_HTTP_USERNAME=", "TF_HTTP_PASSWORD=") }},
		{fault.CredentialsInvalid, func() string { return init("TF_HTTP_PASSWORD=kl_env_wrong") }},
		{fault.CredentialsExpired, func() string {
			tok := token("--expires-in", "200ms")
			await(t, "the token's end", func() bool {
				_, err := p.clientFor(client.Options{Username: p.ws, Password: tok.Secret}).Whoami(p.ctx())
				return err != nil
			})
			return init("TF_HTTP_PASSWORD=" + tok.Secret)
		}},
		{fault.CredentialsRevoked, func() string {
			tok := token()
			p.operator("token", "revoke", tok.ID)
			return init("TF_HTTP_PASSWORD=" + tok.Secret)
		}},
		{fault.NotMember, func() string { return init("TF_HTTP_PASSWORD=" + pat) }},
		{fault.NoGrant, func() string {
			p.operator("member", "add", "ana", "--workspace", p.ws)
			return init("TF_HTTP_PASSWORD=" + pat)
		}},
		{fault.RoleTooLow, func() string {
			w := newWorkdir(t, config, p.as(token("--role", "outputs").Secret, "net"))
			w.must("init")
			return w.run("plan").out
		}},
		{fault.WorkspaceMismatch, func() string { return init("TF_HTTP_USERNAME=ws_000000000000") }},
		{fault.UnknownEnvironment, func() string { return init(address(wire.StatePath(p.ws, "env_000000000000", "net"))) }},
		{fault.UnknownRun, func() string { return init(address(wire.RunStatePath("run_1_000000000000"))) }},
		{fault.SlugNotID, func() string { return init(address(wire.StatePath(p.ws, "prod", "net"))) }},
		{fault.MalformedPath, func() string { return init(address(wire.StatePath(p.ws, p.environment, "net") + "/more")) }},
		{fault.StateNameInvalid, func() string { return init(address(wire.StatePath(p.ws, p.environment, "-net"))) }},
		{fault.Locked, func() string { return around(lock, unlock, plan) }},
		{fault.LockRequired, func() string {
			return around(lock, unlock, func() string {
				net.write("main.tf", httpBackend+item("a", `"3"`))
				return net.run("apply", "-lock=false").out
			})
		}},
		{fault.ClientTooNew, func() string {
			return around(func() { p.operator("env", "set", "--max-terraform-version", "1.0.0") }, func() { p.operator("env", "set", "--max-terraform-version", "") }, plan)
		}},
		{fault.WorkspaceSuspended, func() string {
			return around(func() { p.operator("workspace", "suspend", p.ws, "--reason", "audit") }, func() { p.operator("workspace", "resume", p.ws) }, plan)
		}},
		{fault.StateArchived, func() string {
			return around(func() { p.operator("state", "archive", "net") }, func() { p.operator("state", "restore", "net") }, plan)
		}},
		{fault.StateDeleted, func() string {
			return around(func() { p.operator("state", "delete", "net") }, func() { p.operator("state", "restore", "net") }, func() string { return init() })
		}},
		{fault.SerialConflict, func() string { return pushForced(old) }},
		{fault.LineageConflict, func() string {
			return pushForced(strings.Replace(old, parseState(t, []byte(old)).Lineage, "6f2a7b1e-0000-4000-8000-000000000001", 1))
		}},
		{fault.BodyTooLarge, func() string {
			w := initWorkdir(t, httpBackend+item("a", `join("", [for i in range(1000) : "0123456789"])`), p.as(p.token, "large"))
			return w.run("apply").out
		}},
		{fault.RecoveryHold, func() string {
			w := initWorkdir(t, config, p.as(p.token, "hold"))
			w.must("apply")
			w.write("other.tfstate", strings.NewReplacer(`"a"`, `"b"`, `"lineage": "`, `"lineage": "f`).Replace(w.must("state", "pull")))
			w.run("state", "push", "-force", "other.tfstate")
			w.write("main.tf", httpBackend+item("a", `"2"`))
			return w.run("apply").out
		}},
	} {
		t.Run(string(tc.code), func(t *testing.T) {
			before := len(p.proc.out.String())
			screen := flatten(tc.screen())
			found := false
			for _, text := range texts[tc.code] {
				found = found || strings.Contains(screen, text)
			}
			if !found {
				t.Errorf("the screen has none of %q:\n%s", texts[tc.code], screen)
			}
			// the log comes through a pipe, a moment after the answer
			await(t, "the server's word for "+string(tc.code), func() bool {
				return strings.Contains(p.proc.out.String()[before:], string(tc.code))
			})
		})
	}
}
