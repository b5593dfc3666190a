package supervise

import (
	"os"
	"time"
)

// Command is what runs while something is held.
type Command struct {
	Path  string   // as exec.LookPath gives it
	Args  []string // with the name first
	Env   []string
	Files [3]*os.File // standard input, output and error
	// KillAfter is how long after it was told to end the command is killed, when what it
	// runs under is lost. It is killed before the lease ends in any case.
	KillAfter time.Duration
	Warn      func(format string, a ...any)
}

// End is how a command ended.
type End struct {
	Code   int   // its exit code; of one that a signal killed 128 and the signal's number
	Killed bool  // by a signal
	Lost   error // why it was stopped; nil: it ended by itself
}
