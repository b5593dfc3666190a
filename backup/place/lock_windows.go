package place

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

const (
	noFollow          = 0
	removeBeforeClose = false
)

// TryLock takes the lock of an open file, which ends when the file is closed or the
// process dies. It is not free when another open file has it.
func TryLock(f *os.File) (free bool, err error) {
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 1<<30, &windows.Overlapped{OffsetHigh: 1 << 30})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return false, nil
	}
	return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
}

// A folder cannot be opened for syncing here.
func unsyncable(err error) bool { return err != nil }

// private: the system's folder for temporary files is the user's own here.
func private(os.FileInfo) bool { return true }
