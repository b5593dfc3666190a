//go:build !unix

package store

import "os"

// terminate ends a process.
func terminate(p *os.Process) error { return p.Kill() }
