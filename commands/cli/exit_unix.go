//go:build unix

package cli

import (
	"os/exec"
	"syscall"
)

func childCode(e *exec.ExitError) int {
	if w, ok := e.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return e.ExitCode()
}

// Terminate is the signal that asks a process to end.
const Terminate = syscall.SIGTERM
