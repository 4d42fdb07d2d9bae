package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kl/auth"
	"kl/client"
	"kl/fault"
	"kl/terraform"
	"kl/wire"
)

// clockSkew is how far this machine's clock may be from the server's before it
// is worth a word: ends of tokens are written in minutes at the least.
const clockSkew = time.Minute

// Results of a check.
const (
	checkOK      = "ok"
	checkWarn    = "warn"
	checkFailed  = "failed"
	checkSkipped = "skipped"
)

// finding is what one check of kl doctor has found.
type finding struct {
	Check    string `json:"check"`
	Result   string `json:"result"` // ok, warn, failed, skipped
	Detail   string `json:"detail"`
	NextStep string `json:"next_step,omitempty"`
	Code     string `json:"code,omitempty"`
	Class    string `json:"class,omitempty"`
}

// doctor goes through the checks in the order in which a request meets what
// they look at, so that the first that fails is the cause of the others.
type doctor struct {
	app      *app
	target   *target
	who      wire.Whoami
	findings []finding
	failed   error // of the first check that failed
}

func (a *app) doctorCmd() *cobra.Command {
	return a.online(&cobra.Command{
		Use:   "doctor [STATE]",
		Short: "Find out why Terraform cannot use its state, and how to mend it",
		Long: `Look at all that stands between Terraform and its state, in the order in which a request
meets it: the address and where it comes from, the connection and its certificate, the
clock, the credentials, the path, the role, holds on workspace and state, the lock, and
refused writes, and limits. The first thing that is wrong is told with a next step and decides the
exit code. It takes no lock and changes nothing.`,
		Example: "  cd my-terraform-directory && kl doctor\n  kl doctor demo --json",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := &doctor{app: a}
			d.run(cmd.Context(), first(args))
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			if a.asJSON {
				return errors.Join(a.printJSON(map[string]any{"ok": d.failed == nil, "checks": d.findings}), d.failed)
			}
			rows := make([][]string, len(d.findings))
			for i, f := range d.findings {
				rows[i] = []string{f.Result, f.Check, f.Detail}
			}
			if err := a.printTable(rows); err != nil {
				return err
			}
			for _, f := range d.findings {
				if f.Result == checkWarn && f.NextStep != "" {
					a.note("%s: %s", f.Check, f.NextStep)
				}
			}
			return d.failed
		},
		ValidArgsFunction: a.completeState,
	})
}

func (d *doctor) run(ctx context.Context, state string) {
	for _, c := range []struct {
		name string
		look func(context.Context) (string, error)
	}{
		{"address", func(context.Context) (string, error) { return d.address(state) }},
		{"lock settings", d.lockSettings},
		{"connection", d.connection},
		{"credentials", d.credentials},
		{"path", d.path},
		{"role", d.role},
		{"lifecycle", d.lifecycle},
		{"lock", d.lock},
		{"refused writes", d.refused},
		{"quota", d.quota},
	} {
		if d.failed != nil {
			d.add(finding{Check: c.name, Result: checkSkipped, Detail: "not looked at"})
			continue
		}
		before := len(d.findings)
		detail, err := c.look(ctx)
		switch e := fault.Of(err); {
		case err != nil && e == nil:
			e = fault.Wrap(fault.Internal, err, "this check could not be made")
			fallthrough
		case err != nil:
			d.failed = e
			d.add(finding{c.name, checkFailed, e.Error(), e.Next, client.Code(e), string(e.Class())})
		case detail != "" || len(d.findings) == before:
			d.add(finding{Check: c.name, Result: checkOK, Detail: detail})
		}
	}
}

func (d *doctor) add(f finding) { d.findings = append(d.findings, f) }

func (d *doctor) warn(check, next, format string, args ...any) {
	d.add(finding{Check: check, Result: checkWarn, Detail: fmt.Sprintf(format, args...), NextStep: next})
}

func (d *doctor) address(state string) (string, error) {
	t, err := d.app.resolve(state)
	if err != nil {
		return "", err
	}
	d.target = t
	for _, n := range t.notes {
		d.warn("address", "", "%s", n)
	}
	return t.base + ", from " + cmp.Or(t.address, "--address (KL_ADDRESS)"), nil
}

// lockSettings looks where an initialised directory takes its locks. Without a
// lock address Terraform locks nothing, without one for unlocking it never gives
// a lock back, and it says neither.
func (d *doctor) lockSettings(context.Context) (string, error) {
	b, err := terraform.FromInitialised(d.app.env.Dir, d.app.env.Getenv("TF_DATA_DIR"))
	if err != nil {
		return "", err
	}
	if b == nil || b.Type != "http" {
		return "not known: this is no initialised directory", nil
	}
	get := d.app.env.Getenv // counts only where the setting is left out
	own := source{name: b.Source, address: cmp.Or(b.Address, get("TF_HTTP_ADDRESS"))}
	if !own.means(d.target) {
		return "not looked at: this directory is initialised for another address", nil
	}
	address := own.address
	lock, unlock := cmp.Or(b.LockAddress, get("TF_HTTP_LOCK_ADDRESS")), cmp.Or(b.UnlockAddress, get("TF_HTTP_UNLOCK_ADDRESS"))
	next := "set lock_address and unlock_address to the state's address: kl backend STATE prints the block"
	switch {
	case lock == "":
		d.warn("lock settings", next, "there is no lock_address, so terraform locks nothing")
	case unlock == "":
		d.warn("lock settings", next, "there is a lock_address and no unlock_address, so locks are never given back")
	case lock != unlock || asState(lock) != asState(address):
		d.warn("lock settings", next, "address, lock_address and unlock_address are not of the same state")
	case d.oddMethods(b, lock, unlock):
	default:
		return "locks are taken and given back", nil
	}
	return "", nil
}

// oddMethods warns of methods that the addresses do not answer as Terraform
// would have it. A state's own address takes those of HTTP for writes of the state.
func (d *doctor) oddMethods(b *terraform.Backend, lock, unlock string) (odd bool) {
	get := d.app.env.Getenv
	for _, m := range []struct {
		setting, method, address string
		states, locks            []string
	}{
		{"update_method", cmp.Or(b.UpdateMethod, get("TF_HTTP_UPDATE_METHOD"), "POST"), "", []string{"POST", "PUT"}, nil},
		{"lock_method", cmp.Or(b.LockMethod, get("TF_HTTP_LOCK_METHOD"), "LOCK"), lock, []string{"LOCK"}, []string{"LOCK", "POST", "PUT"}},
		{"unlock_method", cmp.Or(b.UnlockMethod, get("TF_HTTP_UNLOCK_METHOD"), "UNLOCK"), unlock, []string{"UNLOCK"}, []string{"UNLOCK", "DELETE"}},
	} {
		known := m.states
		if strings.Contains(m.address, "/locks/") {
			known = m.locks
		}
		if slices.Contains(known, m.method) {
			continue
		}
		odd = true
		next := "leave " + m.setting + " out"
		if slices.Contains(m.locks, m.method) {
			next += ", or set lock_address and unlock_address to the same address with /locks/ for /states/"
		}
		d.warn("lock settings", next, "%s is %s, which that address does not take", m.setting, m.method)
	}
	return odd
}

// means reports whether the source's address is that of the target's state.
func (s *source) means(t *target) bool {
	return s.parse() == nil && sameServer(s.base, t.base) && s.environment == t.environment && s.key == t.state
}

// asState is a state's address in one of its two forms.
func asState(address string) string { return strings.Replace(address, "/locks/", "/states/", 1) }

// connection asks for what takes no credentials.
func (d *doctor) connection(ctx context.Context) (string, error) {
	r, err := d.target.Reach(ctx)
	if err != nil {
		return "", err
	}
	detail := "kl " + r.Version.Version + " answers"
	if u, err := url.Parse(d.target.base); err == nil && u.Scheme == "https" {
		detail += ", its certificate is trusted"
	} else if err == nil && !loopback(u.Hostname()) {
		d.warn("connection", "serve with --tls-cert and --tls-key, and use https:// in the address",
			"plain HTTP: tokens and states can be read on the way to %s", u.Host)
	}
	if !r.Date.IsZero() {
		// the header has whole seconds, and the answer took its time
		if skew := d.app.env.Now().Sub(r.Date); skew.Abs() > clockSkew+r.Took {
			ahead := "ahead of"
			if skew < 0 {
				ahead = "behind"
			}
			d.warn("clock", "set the clock of the machine that is wrong: the server's decides when tokens end",
				"this machine's clock is %s %s the server's", span(skew.Abs()), ahead)
		} else {
			d.add(finding{Check: "clock", Result: checkOK, Detail: "agrees with the server's"})
		}
	}
	return detail, nil
}

func loopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}

// credentials looks at those that Terraform would send; where there are none,
// at the control token.
func (d *doctor) credentials(ctx context.Context) (string, error) {
	t := d.target
	if t.password != "" {
		kind, ok := auth.KindOf(t.password)
		switch {
		case !ok:
			return "", fault.New(fault.CredentialsInvalid, "the password is not a token of kl: it is cut, mistyped, or of another system")
		case kind == auth.Control:
			return "", fault.New(fault.CredentialsInvalid, "the password is a control token, which is not valid for states").
				WithNext("set TF_HTTP_PASSWORD to an automation token or a personal access token (kl pat create)")
		case t.username == "":
			return "", fault.New(fault.CredentialsMissing, "there is a password but no user name").
				WithNext("set username (TF_HTTP_USERNAME) to the workspace's id")
		}
	} else if t.token != "" {
		if kind, _ := auth.KindOf(t.token); kind == auth.Control {
			d.warn("credentials", "for terraform set TF_HTTP_USERNAME and TF_HTTP_PASSWORD", "there is only a control token, which terraform cannot use")
		}
	}
	who, err := d.terraformsClient().Whoami(ctx)
	if err != nil {
		return "", err
	}
	d.who = who
	return fmt.Sprintf("%s %s (%s)", map[string]string{"automation": "automation token", "pat": "personal access token", "control": "control token"}[who.Kind],
		cmp.Or(who.Name, who.ID), who.ID), nil
}

// terraformsClient sends what Terraform would send, and nothing stronger.
func (d *doctor) terraformsClient() *client.Client {
	if d.target.password != "" {
		return d.target.WithoutBearer()
	}
	return d.target.Client
}

// path looks whether the address leads to a state that may be read.
func (d *doctor) path(ctx context.Context) (string, error) {
	t := d.target
	if t.workspace != "" && d.who.Workspace != "" && t.workspace != d.who.Workspace {
		return "", fault.New(fault.WorkspaceMismatch, "the credentials are of the workspace %s, and the path is of %s", d.who.Workspace, t.workspace).
			WithNext("print the right block with: kl backend STATE")
	}
	if t.noState {
		return "", fault.New(fault.MalformedPath, "the address in %s names no state: terraform finds none there and would make everything anew", t.address).
			WithNext("print the right block with: kl backend STATE")
	}
	if t.state == "" {
		d.warn("path", "name it: kl doctor STATE", "no state is named, so only what comes before it was looked at")
		return "", nil
	}
	// terraform takes no slug, but --env and the configuration file do
	byHand := t.environment == d.app.flags.env || t.environment == d.app.config.get("env")
	if t.environment == "" || byHand && !environmentID.MatchString(t.environment) {
		if err := t.findEnvironment(ctx); err != nil {
			return "", err
		}
	}
	if err := t.findWorkspace(ctx); err != nil {
		return "", err
	}
	where := wire.StatePath(t.workspace, t.environment, t.state)
	if t.password == "" {
		return where, nil
	}
	b, err := d.terraformsClient().Pull(ctx, client.Ref{Workspace: t.workspace, Environment: t.environment, State: t.state})
	switch {
	case fault.Is(err, fault.NotFound):
		return where + ", which has never been written", nil
	case fault.ClassOf(err) == fault.Lifecycle:
		return where, nil // the check that follows tells of it
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("%s, at serial %d", where, b.Serial), b.Close()
}

// role tells what the credentials may do. Less than all is a choice, and no
// fault.
func (d *doctor) role(ctx context.Context) (string, error) {
	if environmentID.MatchString(d.target.environment) {
		who, err := d.terraformsClient().WhoamiIn(ctx, d.target.environment)
		if err != nil {
			return "", err
		}
		d.who = who
	}
	switch role := auth.Role(d.who.Role); {
	case d.who.Operator:
		return "operator: all", nil
	case role == "":
		return "not known without an environment", nil
	case role == auth.Write:
		return "write", nil
	default:
		d.warn("role", "to apply, use credentials with the role write", "%s: %s", role, map[auth.Role]string{
			auth.Plan: "plans work, an apply does not", auth.Read: "only what takes no lock works, such as output and plan -lock=false",
			auth.Outputs: "only terraform_remote_state and output work",
		}[role])
		return "", nil
	}
}

// state asks for the state's record; nil when there is none, or when the
// credentials may read no more than outputs.
func (d *doctor) state(ctx context.Context) (*wire.State, error) {
	if d.target.state == "" {
		return nil, nil
	}
	s, err := d.terraformsClient().State(ctx, d.target.environment, d.target.state)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.RoleTooLow) {
		return nil, nil
	}
	return &s, err
}

func (d *doctor) lifecycle(ctx context.Context) (string, error) {
	if d.who.Hold != "" {
		return "", fault.New(fault.WorkspaceSuspended, "%s", d.who.Hold)
	}
	s, err := d.state(ctx)
	if err != nil || s == nil {
		return "there is no hold", err
	}
	switch s.Lifecycle {
	case "archived":
		return "", fault.New(fault.StateArchived, "the state %s is archived: it can be read but not written", s.Name).WithNext("kl state restore %s", s.Name)
	case "deleted":
		return "", fault.New(fault.StateDeleted, "the state %s is in the trash", s.Name).
			WithNext("bring it back with: kl state restore %[1]s; or free the name with: kl state purge %[1]s", s.Name)
	}
	return "the state is active", nil
}

func (d *doctor) lock(ctx context.Context) (string, error) {
	s, err := d.state(ctx)
	if err != nil || s == nil {
		return "nobody holds it", err
	}
	l, err := d.terraformsClient().LockState(ctx, d.target.environment, d.target.state)
	if err != nil {
		return "", err
	}
	if len(l.Holders) == 0 && len(l.Runs) > 0 {
		return reservedBy(d.target.state, l)
	}
	if len(l.Holders) == 0 {
		if len(l.Queue) == 0 || l.Mode == "optimistic" {
			return "nobody holds it", nil
		}
		w := l.Queue[0]
		d.warn("lock", fmt.Sprintf("wait with -lock-timeout=5m, or look with: kl lock show %s", d.target.state),
			"nobody holds it, but %s waits for it since %s and comes first", cmp.Or(w.Who, w.ID), when(w.Since))
		return "", nil
	}
	h := l.Holders[0]
	text := fmt.Sprintf("%s holds the lock %s for %s since %s", cmp.Or(h.Who, h.Principal), h.ID, cmp.Or(h.Operation, "an unnamed operation"), when(h.Since))
	if len(l.Holders) > 1 {
		text += fmt.Sprintf(", and so do %d others", len(l.Holders)-1)
	}
	if l.Mode == "optimistic" {
		return text + "; that stops nobody, for changes are merged", nil
	}
	if h.Operation == wire.OperationPlan {
		d.warn("lock", "", "%s; plans go on, an apply waits", text)
		return "", nil
	}
	next := fmt.Sprintf("wait with -lock-timeout=5m, or look with: kl lock show %s", d.target.state)
	if h.Stale {
		next = fmt.Sprintf("nothing came from there for long; if it is gone: kl lock release %s --id %s", d.target.state, h.ID)
	}
	return "", fault.New(fault.Locked, "%s", text).WithNext("%s", next)
}

// reservedBy says what runs mean for a plain apply.
func reservedBy(state string, l wire.Lock) (string, error) {
	r := l.Runs[0]
	text := fmt.Sprintf("the run %s of %s has reserved parts of the state since %s", r.RunID, r.Actor, when(r.Since))
	if len(l.Runs) > 1 {
		text += fmt.Sprintf(", and so have %d others", len(l.Runs)-1)
	}
	if l.Mode == "optimistic" {
		return text + "; an apply that changes other parts is not stopped", nil
	}
	return "", fault.New(fault.Locked, "%s", text).
		WithNext("wait with -lock-timeout=5m, or look with: kl runs --state %s; if its owner is gone: kl apply abort --state %s --apply-id %s", state, state, r.RunID)
}

func (d *doctor) refused(ctx context.Context) (string, error) {
	s, err := d.state(ctx)
	if err != nil || s == nil || s.RefusedOpen == 0 {
		return "none waits", err
	}
	d.warn("refused writes", fmt.Sprintf("kl recover list --state %s", s.Name),
		"%s for recovery; while one of your own tells of objects that the state does not know, an apply is held back", plural(int64(s.RefusedOpen), "waits", "wait"))
	return "", nil
}

// quota looks whether anything may still be added.
func (d *doctor) quota(ctx context.Context) (string, error) {
	t := d.target
	if t.state == "" || !environmentID.MatchString(t.environment) {
		return "not known without a state", nil
	}
	q, err := d.terraformsClient().Quota(ctx, t.environment, t.state)
	switch {
	case fault.Is(err, fault.RoleTooLow), fault.Is(err, fault.NotFound): // these may read no more than outputs, or the server is older
		return "not known to these credentials", nil
	case err != nil:
		return "", err
	}
	text := quotaText(q)
	full := func(u wire.QuotaUse) bool { return u.RemainingHard != nil && *u.RemainingHard <= 0 }
	switch next := fmt.Sprintf("kl quota remaining %s", t.state); {
	case full(q.State), full(q.Environment):
		d.warn("quota", next, "%s: nothing may be added", text)
		return "", nil
	case full(q.Bytes), full(q.HistoryBytes):
		d.warn("quota", next, "the state may not grow: its size has met a limit")
		return "", nil
	case q.State.RemainingSoft != nil && *q.State.RemainingSoft < 0, q.Environment.RemainingSoft != nil && *q.Environment.RemainingSoft < 0:
		d.warn("quota", next, "%s", text)
		return "", nil
	}
	return cmp.Or(text, "there is no limit"), nil
}
