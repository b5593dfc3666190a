//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package store

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryLock takes the lock of a file, which ends when the file is closed or the
// process dies. It is not free when somebody else has it. An error says that this
// file system has no locks; free is true then.
func tryLock(f *os.File) (free bool, err error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		}
		return true, err
	}
}

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// ignoreUnsyncable forgives file systems that cannot sync a folder.
func ignoreUnsyncable(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
