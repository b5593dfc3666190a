package supervise

import "golang.org/x/sys/windows"

// Now is the present moment.
func Now() Instant { return Instant(windows.DurationSinceBoot()) }
