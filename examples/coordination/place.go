package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"kl/client"
	"kl/fault"
	"kl/scripts/rig"
	"kl/wire"
)

// The backends.
const (
	local = "local"
	kl    = "kl"
)

// place is where the contended state is.
type place interface {
	// block is the backend block of a directory.
	block() string
	// env points a client at the state.
	env() []string
	// lock is the lock information that anybody can look at, nil when there is
	// none.
	lock(ctx context.Context) (*lockFacts, error)
	// bytes are the state's.
	bytes(ctx context.Context) ([]byte, error)
	// close ends what serves the state.
	close(ctx context.Context) error
}

// newPlace prepares a backend in a folder.
func newPlace(ctx context.Context, backend, folder string) (place, error) {
	if backend == local {
		return localPlace{filepath.Join(folder, "shared.tfstate")}, nil
	}
	bin, err := rig.BuildKL(ctx, folder)
	if err != nil {
		return nil, err
	}
	s, err := rig.StartServer(ctx, bin, folder)
	if err != nil {
		return nil, err
	}
	c, err := s.Client()
	if err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return &klPlace{server: s, client: c, ref: client.Ref{Workspace: s.Boot.WorkspaceID, Environment: s.Boot.EnvPublicID, State: "contended"}}, nil
}

// localPlace is a state file that several directories share. Terraform's local
// backend locks the file, and writes beside it who holds the lock: a file named
// .NAME.lock.info (internal/states/statemgr/filesystem.go, Terraform 1.11).
type localPlace struct{ path string }

func (p localPlace) block() string {
	return fmt.Sprintf("terraform {\n  backend \"local\" {\n    path = %q\n  }\n}\n", p.path)
}

func (p localPlace) env() []string { return nil }

func (p localPlace) lock(context.Context) (*lockFacts, error) {
	b, err := os.ReadFile(filepath.Join(filepath.Dir(p.path), "."+filepath.Base(p.path)+".lock.info"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var info wire.LockInfo
	if err := json.Unmarshal(b, &info); err != nil {
		return nil, nil //nolint:nilerr // caught while terraform writes it: not there yet
	}
	return factsOf(info), nil
}

func (p localPlace) bytes(context.Context) ([]byte, error) { return os.ReadFile(p.path) }

func (p localPlace) close(context.Context) error { return nil }

// klPlace is a state on a server of its own.
type klPlace struct {
	server *rig.Server
	client *client.Client
	ref    client.Ref
}

func (p *klPlace) block() string { return "terraform {\n  backend \"http\" {}\n}\n" }

func (p *klPlace) env() []string {
	return rig.StateEnv(p.server.Base, p.ref.Workspace, p.ref.Environment, p.ref.State, p.server.Boot.AutomationToken)
}

func (p *klPlace) lock(ctx context.Context) (*lockFacts, error) {
	l, err := p.show(ctx)
	if err != nil || len(l.Holders) == 0 {
		return nil, err
	}
	h := l.Holders[0]
	f := factsOf(h.LockInfo)
	f.Age = time.Since(h.Since).Round(time.Millisecond).String()
	return f, nil
}

// show is GET …/lock; of a state that was never written it is empty.
func (p *klPlace) show(ctx context.Context) (wire.Lock, error) {
	l, err := p.client.LockState(ctx, p.ref.Environment, p.ref.State)
	if fault.Is(err, fault.NotFound) {
		return wire.Lock{}, nil
	}
	return l, err
}

func (p *klPlace) bytes(ctx context.Context) (all []byte, err error) {
	b, err := p.client.Pull(ctx, p.ref)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return io.ReadAll(b)
}

func (p *klPlace) close(ctx context.Context) error { return p.server.Stop(ctx) }

func factsOf(info wire.LockInfo) *lockFacts {
	return &lockFacts{ID: info.ID, Version: info.Version, Operation: info.Operation, Who: info.Who, Created: info.Created}
}
