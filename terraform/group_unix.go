//go:build unix

package terraform

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's signals from the command.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
