//go:build unix

package place

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	noFollow          = unix.O_NOFOLLOW
	removeBeforeClose = true
)

// TryLock takes the lock of an open file, which ends when the file is closed or the
// process dies. It is not free when another open file has it. A file system without
// locks gives an error.
func TryLock(f *os.File) (free bool, err error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

func unsyncable(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) }

// private tells whether a folder is this user's, and nobody else may enter it.
func private(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Getuid() && st.Mode().Perm()&0o077 == 0
}
