//go:build unix

package supervise

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the one that controls our session; nil: none does.
type terminal struct {
	f    *os.File
	fd   int
	lent bool // to the command
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{f: os.NewFile(uintptr(fd), "/dev/tty"), fd: fd}
}

// ours tells whether we are in its foreground.
func (t *terminal) ours() bool {
	g, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && g == unix.Getpgrp()
}

// give puts a group into the foreground.
func (t *terminal) give(group int) error { return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }

// ignoreStops has us act on the terminal and write to it from the background, which would
// stop us. It stays so: Go has no way back. What is started afterwards inherits it.
func ignoreStops() { signal.Ignore(unix.SIGTTOU) }

// takeBack puts us into the foreground again, if the command was there.
func (t *terminal) takeBack() {
	if t != nil && t.lent {
		_ = t.give(unix.Getpgrp()) // a terminal that hung up has no foreground
		t.lent = false
	}
}

func (t *terminal) close() {
	if t != nil {
		t.takeBack()
		t.f.Close()
	}
}
