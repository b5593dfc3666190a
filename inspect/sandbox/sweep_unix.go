//go:build unix

package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// own holds a lock in the sandbox's folder for as long as the process lives, so
// that another one can tell a folder in use from one that a kill left behind.
func own(dir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// sweep removes folders of sandboxes whose process is gone: a kill -9 leaves
// a copy of the database behind. It touches only folders of this user, with our
// name and our owner file, on which nobody holds the lock.
func sweep(parent string) {
	dirs, err := filepath.Glob(filepath.Join(parent, dirPattern))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if st, err := os.Lstat(dir); err != nil || !st.IsDir() || !mine(st) || time.Since(st.ModTime()) < time.Minute {
			continue // a young folder may not have its lock yet
		}
		f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir) // what cannot be removed now is tried again next time
		}
		f.Close()
	}
}

func mine(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Getuid()
}
