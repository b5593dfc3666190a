package supervise

import "time"

// Instant is a moment on a clock that all processes of this machine share, that nobody
// sets, and that goes on while the machine sleeps: CLOCK_BOOTTIME on Linux,
// CLOCK_MONOTONIC on the other systems of its kind (macOS counts sleep in it; what the
// BSDs do varies), the tick count on Windows. Nanoseconds; 0 is none.
type Instant int64

// Add returns the moment d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// tick is how often deadlines are looked at. Timers stand still while the machine sleeps,
// so they cannot be waited for at once.
const tick = 50 * time.Millisecond
