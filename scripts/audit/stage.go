package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"kl/client"
	"kl/fault"
	"kl/scripts/rig"
	"kl/wire"
)

// audit is the stage on which scenarios play: a server, an organization with
// an environment, a person with a workspace of their own.
type audit struct {
	o      options
	folder string
	root   string // of the checkout
	bin    string // kl
	base   string
	token  string // the operator's
	server *rig.Server
	op     *client.Client

	run      string // distinguishes this audit's names from those of others
	org      wire.Workspace
	env      wire.Environment
	personal wire.Workspace
	home     wire.Environment // of the personal workspace
	ana      *person

	mu      sync.Mutex
	people  []*person
	environ []wire.Environment
}

// person is a user with a control token.
type person struct {
	wire.User
	client *client.Client
}

// run plays the scenarios and cleans up.
func run(ctx context.Context, o options) (_ *report, err error) {
	folder, err := os.MkdirTemp("", "kl-audit-")
	if err != nil {
		return nil, err
	}
	a := &audit{o: o, folder: folder, run: strings.ToLower(rand.Text()[:8])}
	rep := newReport(a)
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.close(ctx))
	}
	defer func() { err = errors.Join(err, a.close(ctx)) }()
	if rep.Terraform.Version, err = rig.TerraformVersion(ctx, o.terraform, folder); err != nil {
		return nil, err
	}
	v, err := a.op.Version(ctx)
	if err != nil {
		return nil, err
	}
	rep.Server.Version = v.Version
	rep.Records = a.play(ctx)
	rep.EndedAt = time.Now().UTC()
	rep.conclude(o.wanted)
	return rep, errors.Join(context.Cause(ctx), rep.save(o))
}

// open finds or starts the server and makes what all scenarios use.
func (a *audit) open(ctx context.Context) error {
	var err error
	if a.root, err = rig.Root(ctx); err != nil {
		return err
	}
	if a.bin, err = rig.BuildKL(ctx, a.folder); err != nil {
		return err
	}
	base, _, _ := strings.Cut(a.o.address, "/states/") // KL_ADDRESS may be a state's
	a.base, a.token = strings.TrimRight(base, "/"), a.o.token
	if a.base == "" {
		if a.server, err = rig.StartServer(ctx, a.bin, a.folder); err != nil {
			return err
		}
		a.base, a.token = a.server.Base, a.server.Boot.ControlToken
	}
	if a.op, err = a.client(a.token); err != nil {
		return err
	}
	who, err := a.op.Whoami(ctx)
	if err != nil {
		return fmt.Errorf("the server at %s: %w", a.base, err)
	}
	if !who.Operator {
		return fmt.Errorf("the token belongs to %s; the audit needs the operator's, for it makes users and workspaces", who.Name)
	}
	if a.org, err = a.op.CreateWorkspace(ctx, wire.WorkspaceRequest{Name: "audit " + a.run}); err != nil {
		return err
	}
	if a.env, err = a.environment(ctx, a.org.WorkspaceID, "audit", wire.EnvironmentPatch{}); err != nil {
		return err
	}
	if a.ana, err = a.person(ctx, "ana"); err != nil {
		return err
	}
	if a.personal, err = a.ana.client.CreateWorkspace(ctx, wire.WorkspaceRequest{Name: "audit " + a.run, Kind: wire.Personal}); err != nil {
		return err
	}
	a.home, err = a.environment(ctx, a.personal.WorkspaceID, "home", wire.EnvironmentPatch{})
	return err
}

// client talks to the server with a control token.
func (a *audit) client(token string) (*client.Client, error) {
	return client.New(client.Options{Base: a.base, Bearer: token, CA: os.Getenv(rig.AuthorityEnv)})
}

// environment makes one, which close removes.
func (a *audit) environment(ctx context.Context, workspace, slug string, p wire.EnvironmentPatch) (wire.Environment, error) {
	p.Slug = &slug
	e, err := a.op.CreateEnvironment(ctx, workspace, p)
	if err == nil {
		a.mu.Lock()
		a.environ = append(a.environ, e)
		a.mu.Unlock()
	}
	return e, err
}

// person makes a user who is a member of the organization.
func (a *audit) person(ctx context.Context, name string) (*person, error) {
	u, err := a.op.CreateUser(ctx, name+"-"+a.run)
	if err != nil {
		return nil, err
	}
	p := &person{User: u}
	a.mu.Lock()
	a.people = append(a.people, p)
	a.mu.Unlock()
	if p.client, err = a.client(u.ControlToken); err != nil {
		return nil, err
	}
	_, err = a.op.AddMember(ctx, a.org.WorkspaceID, wire.MemberRequest{User: u.UserID})
	return p, err
}

// tokenFor makes an automation token for one scenario.
func (r *record) tokenFor(ctx context.Context, environment string) (string, error) {
	t, err := r.a.op.CreateToken(ctx, environment, wire.TokenRequest{Name: "audit-" + strings.ToLower(r.ID)})
	if err == nil {
		r.ids["token "+t.ID] = environment
	}
	return t.Secret, err
}

// pull reads a state's newest bytes, as the operator.
func (a *audit) pull(ctx context.Context, environment, state, ref string) (all []byte, err error) {
	b, err := a.op.VersionBytes(ctx, environment, state, ref)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return io.ReadAll(b)
}

// versions lists a state's versions, oldest first; none of one never written.
func (a *audit) versions(ctx context.Context, environment, state string) ([]wire.Version, error) {
	all, err := client.Collect(a.op.Versions(ctx, environment, state), 0)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	slices.Reverse(all)
	return all, err
}

// close removes what the audit has made: states, environments with their tokens
// and grants, users with theirs, workspaces. The audit trail keeps its entries.
func (a *audit) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	for _, e := range a.environ {
		errs = append(errs, a.removeEnvironment(ctx, e))
	}
	for _, p := range a.people {
		errs = append(errs, a.op.DeleteUser(ctx, p.UserID))
	}
	for _, w := range []wire.Workspace{a.org, a.personal} {
		if w.WorkspaceID != "" {
			errs = append(errs, a.op.DeleteWorkspace(ctx, w.WorkspaceID))
		}
	}
	if a.server != nil {
		errs = append(errs, a.server.Stop(ctx))
	}
	return errors.Join(errs...)
}

// removeEnvironment ends what holds an environment's states, and removes it.
func (a *audit) removeEnvironment(ctx context.Context, e wire.Environment) error {
	if _, err := a.op.ResumeWorkspace(ctx, e.WorkspaceID); err != nil {
		return err
	}
	// what comes back from the archive needs room
	none := int64(0)
	if _, err := a.op.PatchEnvironment(ctx, e.EnvPublicID, wire.EnvironmentPatch{LimitsPatch: wire.LimitsPatch{EnvironmentHardLimit: &none}}); err != nil {
		return err
	}
	for s, err := range a.op.States(ctx, e.EnvPublicID) {
		if err != nil {
			return err
		}
		if err := a.removeState(ctx, e.EnvPublicID, s); err != nil {
			return fmt.Errorf("remove the state %s: %w", s.Name, err)
		}
	}
	return a.op.DeleteEnvironment(ctx, e.EnvPublicID)
}

func (a *audit) removeState(ctx context.Context, environment string, s wire.State) error {
	for run, err := range a.op.Runs(ctx, environment, s.Name, true) {
		if err != nil {
			return err
		}
		if _, err := a.op.AbortRun(ctx, environment, s.Name, run.ID, "the audit is over"); err != nil {
			return err
		}
	}
	l, err := a.op.LockState(ctx, environment, s.Name)
	if err != nil {
		return err
	}
	for _, h := range l.Holders {
		if err := a.op.ReleaseLock(ctx, environment, s.Name, h.ID); err != nil {
			return err
		}
	}
	if s.Version == 0 { // never written: it goes with its environment
		return nil
	}
	if s.Lifecycle == "archived" { // the trash takes active ones only
		if _, err := a.op.RestoreState(ctx, environment, s.Name); err != nil {
			return err
		}
	}
	if s.Lifecycle != "deleted" {
		if err := a.op.DeleteState(ctx, environment, s.Name); err != nil {
			return err
		}
	}
	return a.op.PurgeState(ctx, environment, s.Name)
}

// play runs the scenarios: those that wait for checkpoints beside all others.
func (a *audit) play(ctx context.Context) []*record {
	var chosen []scenario
	for _, s := range scenarios {
		if s.play != nil && (len(a.o.wanted) == 0 || slices.Contains(a.o.wanted, s.id)) {
			chosen = append(chosen, s)
		}
	}
	records := make([]*record, len(chosen))
	var beside sync.WaitGroup
	for i, s := range chosen {
		if s.long {
			beside.Go(func() { records[i] = a.scenario(ctx, s) })
		}
	}
	for i, s := range chosen {
		if !s.long {
			records[i] = a.scenario(ctx, s)
		}
	}
	beside.Wait()
	return records
}

// scenario plays one.
func (a *audit) scenario(ctx context.Context, s scenario) *record {
	began := time.Now()
	r := &record{
		ID: s.id, Title: s.title, Result: pass, a: a, states: map[string]bool{}, paths: map[[2]string]bool{},
		Did: []string{}, Screen: []screen{}, Log: []string{}, HTTP: []httpFact{}, Met: []met{}, Notes: []string{},
		ids: map[string]string{"workspace": a.org.WorkspaceID, "environment": a.env.EnvPublicID},
	}
	if a.server != nil {
		r.mark = len(a.server.Log())
	}
	err := s.play(ctx, a, r)
	switch {
	case err != nil && ctx.Err() != nil:
		r.Result = unclear
		r.note("not played to its end: %v", context.Cause(ctx))
	case err != nil:
		r.failed("%v", err)
	}
	if err := r.end(began); err != nil {
		r.failed("%v", err)
	}
	a.mu.Lock() // of the writer too
	defer a.mu.Unlock()
	fmt.Fprintf(a.o.stderr, "%-3s %-7s %6s  %s\n", r.ID, r.Result, time.Since(began).Round(100*time.Millisecond), r.Title)
	return r
}

// stateName is a state of the scenario's own.
func (r *record) stateName() string { return "audit-" + strings.ToLower(r.ID) }
