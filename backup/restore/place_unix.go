//go:build unix

package restore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const errNoSpace = syscall.ENOSPC

// canLock tells whether folders have locks.
const canLock = true

// lockFolder takes the lock of a folder, without waiting. It goes with the process.
func lockFolder(dir string) (io.Closer, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errFolderLocked
		}
		return nil, &fs.PathError{Op: "lock", Path: dir, Err: err}
	}
	return f, nil
}

func mine(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Getuid()
}

// freeSpace returns how many bytes a user may still write below dir.
func freeSpace(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(uint64(st.Bavail) * uint64(st.Bsize)), true //nolint:unconvert // types differ between systems
}

// ignoreUnsupported drops the error of file systems that have no sync for folders.
func ignoreUnsupported(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
