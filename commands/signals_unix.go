//go:build unix

package commands

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// SIGPIPE is among them so that a reader that goes away (`… | head`) ends us
// by the ordinary way, which removes temporary files, before it kills us.
var endSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE}

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
