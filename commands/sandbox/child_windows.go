package sandbox

import (
	"os"
	"os/exec"
	"time"
)

var interrupt = os.Kill // Windows has no softer signal for another process

const (
	killDelay = 5 * time.Second

	defaultShell = "cmd.exe"
)

func childCode(e *exec.ExitError) int { return e.ExitCode() }
