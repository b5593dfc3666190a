package startup

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// After the first collection the collector works as it always does.
func TestFirstCollection(t *testing.T) { //nolint:paralleltest // it looks at the whole process
	runtime.GC()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		got := debug.SetGCPercent(100)
		debug.SetGCPercent(got)
		if got == 100 {
			return
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("the collector's percentage is %d", got)
		}
	}
}
