//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dbfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockedElsewhere tells whether another process holds the lock that bbolt takes
// for writing. It asks by taking a shared lock for a moment: bbolt waits and
// tries again when it meets one, so an etcd that starts right then is not refused.
// A file system without locks counts as not locked.
func lockedElsewhere(f *os.File) bool {
	fd := int(f.Fd())
	for {
		err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return true
		case err == nil:
			_ = unix.Flock(fd, unix.LOCK_UN)
		}
		return false
	}
}
