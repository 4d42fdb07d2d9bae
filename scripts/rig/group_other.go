//go:build !unix

package rig

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup does nothing: there are no process groups.
func ownGroup(*exec.Cmd) {}

// signalGroup signals the process alone, and not one that has ended.
func signalGroup(p *os.Process, sig syscall.Signal) error {
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// there leaves it to the bookkeeping of the processes that were started.
func there(int) bool { return true }
