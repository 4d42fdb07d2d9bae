package cli

import (
	"fmt"
	"strings"

	"kl/fault"
)

// Exit codes. They are part of the contract.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitConflict    = 2
	ExitUsage       = 3
	ExitQuota       = 4
	ExitAuth        = 5
	ExitLifecycle   = 6
	ExitUnavailable = 7
)

// exitOf is the one place where a class of failures meets an exit code.
var exitOf = map[fault.Class]int{
	fault.Auth:        ExitAuth,
	fault.Scope:       ExitAuth,
	fault.Lock:        ExitConflict,
	fault.Conflict:    ExitConflict,
	fault.Quota:       ExitQuota,
	fault.Lifecycle:   ExitLifecycle,
	fault.Invalid:     ExitUsage,
	fault.Unavailable: ExitUnavailable,
	fault.Unknown:     ExitFailed,
}

var exitMeaning = [...]string{
	ExitDone:        "done",
	ExitFailed:      "failed",
	ExitConflict:    "conflict, or the lock is held",
	ExitUsage:       "usage, configuration or input is not valid",
	ExitQuota:       "a hard limit would be exceeded",
	ExitAuth:        "credentials or their scope",
	ExitLifecycle:   "the state or workspace is on hold",
	ExitUnavailable: "the server or file is not available",
}

// ExitCode is the exit code for err.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	if code, ok := exitOf[fault.ClassOf(err)]; ok {
		return code
	}
	return ExitFailed
}

func exitHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for code, meaning := range exitMeaning {
		fmt.Fprintf(&b, "  %d  %s\n", code, meaning)
	}
	return b.String()
}
