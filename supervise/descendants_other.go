//go:build unix && !linux

package supervise

import "golang.org/x/sys/unix"

// family is what belongs to a process group. Here nobody tells.
type family struct{}

func familyOf(int) family { return family{} }

func (family) add(int) {}

func (family) signal(int, unix.Signal) {}

func (family) kill(int) {}

// empty cannot be told, and is not.
func (family) empty(int) bool { return false }
