package dbfile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openFile opens path for reading without touching its access time where the
// system allows that (to the file's owner), and without waiting for a writer
// when path is a pipe after all.
func openFile(path string) (*os.File, error) {
	const flags = os.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
	f, err := os.OpenFile(path, flags|unix.O_NOATIME, 0)
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.OpenFile(path, flags, 0)
	}
	return f, err
}

// cloneFile makes dst share the blocks of src, on file systems that can.
func cloneFile(dst, src *os.File) error {
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
}

// readAhead asks the system to have a part of the file in its cache soon.
func readAhead(f *os.File, from, n int64) {
	_ = unix.Fadvise(int(f.Fd()), from, n, unix.FADV_WILLNEED) // an advice: pages come when they are touched, too
}
