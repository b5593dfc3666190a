package commands

import (
	"os"
	"syscall"
)

var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// raise ends the process with the code a shell would show: Windows has no
// signals to raise.
func raise(os.Signal) { os.Exit(130) }

// raiseBrokenPipe has nothing to raise on Windows.
func raiseBrokenPipe() {}
