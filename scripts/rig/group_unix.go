//go:build unix

package rig

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup gives a program that will start a process group of its own.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup signals a process and its children; none that have ended.
func signalGroup(p *os.Process, sig syscall.Signal) error {
	if err := syscall.Kill(-p.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// there tells whether the kernel knows a process.
func there(pid int) bool { return syscall.Kill(pid, 0) == nil }
