package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kl/scripts/rig"
)

// holdVerb makes this program the helper that terraform calls while it creates
// the work.
const holdVerb = "hold"

// hold is the helper: `hold FOLDER LONGEST ROUND` makes the marker of the round
// and ends when the release is there. It never waits longer than it was told, so
// that nothing hangs on a release that does not come.
func hold(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: hold FOLDER LONGEST ROUND")
	}
	longest, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	g := gate{folder: args[0], round: args[2]}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := os.WriteFile(g.begun(), nil, 0o600); err != nil {
		return err
	}
	return rig.Await(ctx, "the release of round "+g.round, func() (bool, error) {
		if _, err := os.Stat(g.folder); err != nil {
			return false, err // nobody is left who could release it
		}
		return g.released(), nil
	})
}

// gate is where an apply of one round stands until it is released.
type gate struct{ folder, round string }

func (g gate) begun() string   { return filepath.Join(g.folder, g.round+".begun") }
func (g gate) release() string { return filepath.Join(g.folder, g.round+".release") }

// released tells whether somebody has asked for the release.
func (g gate) released() bool {
	_, err := os.Stat(g.release())
	return err == nil
}

// seen tells whether an apply has come to the gate.
func (g gate) seen() bool {
	_, err := os.Stat(g.begun())
	return err == nil
}

// open asks for the release.
func (g gate) open() error { return os.WriteFile(g.release(), nil, 0o600) }
