//go:build unix

package sandbox

import (
	"os/exec"
	"syscall"
	"time"
)

// interrupt is what a child gets when we are told to end; killDelay is how long
// it may take.
const (
	interrupt = syscall.SIGTERM
	killDelay = 5 * time.Second

	defaultShell = "/bin/sh"
)

func childCode(e *exec.ExitError) int {
	if w, ok := e.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return e.ExitCode()
}
