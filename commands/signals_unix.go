//go:build unix

package commands

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

var endSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// raise ends the process by the signal that ended its work.
func raise(s os.Signal) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	signal.Reset(sig)
	if err := syscall.Kill(syscall.Getpid(), sig); err == nil {
		time.Sleep(time.Second) // the signal is on its way
	}
	os.Exit(128 + int(sig))
}

// raiseBrokenPipe ends the process as SIGPIPE does. Go's runtime does that at
// a failing write to descriptor 1; a signal sent with kill it ignores.
func raiseBrokenPipe() {
	_, _ = os.Stdout.Write([]byte{'\n'}) // nobody reads it
}
