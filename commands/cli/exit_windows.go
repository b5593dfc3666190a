package cli

import (
	"os"
	"os/exec"
)

func childCode(e *exec.ExitError) int { return e.ExitCode() }

// Terminate ends a process at once: Windows has nothing softer for another process.
var Terminate = os.Kill
