//go:build unix

package store

import (
	"os"
	"syscall"
)

// terminate asks a process to end, so that it can take back what it began.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
