package dbfile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockedElsewhere tells whether another process holds the lock that bbolt takes
// for writing, a one-byte range at the end of what can be addressed. It asks by
// taking a shared lock for a moment.
func lockedElsewhere(f *os.File) bool {
	h := windows.Handle(f.Fd())
	at := &windows.Overlapped{Offset: 1<<32 - 1, OffsetHigh: 1<<32 - 1}
	err := windows.LockFileEx(h, windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if err == nil {
		_ = windows.UnlockFileEx(h, 0, 1, 0, at)
		return false
	}
	return errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}
