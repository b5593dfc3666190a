//go:build unix && !linux

package supervise

import "golang.org/x/sys/unix"

const clockID = unix.CLOCK_MONOTONIC
