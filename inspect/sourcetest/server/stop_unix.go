//go:build unix

package server

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// awaitStopped waits until SIGSTOP has its effect; of other signals there is nothing to
// wait for. Where there is no /proc it waits a while.
func awaitStopped(pid int, sig syscall.Signal) {
	if sig != syscall.SIGSTOP {
		return
	}
	for range 200 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		// The state is behind the name in parentheses.
		if _, state, ok := strings.Cut(string(stat), ") "); err == nil && ok && state[0] == 'T' {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
