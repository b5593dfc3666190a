package store

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// place moves a file to its name in one step and replaces nothing: ErrExists.
func (d *subfolder) place(tmp, base string) error {
	fd := int(d.file.Fd())
	err := unix.Renameat2(fd, tmp, fd, base, unix.RENAME_NOREPLACE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST):
		return ErrExists
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return d.placeByLink(tmp, base) // a file system or kernel that lacks the flag
	}
	return &os.LinkError{Op: "rename", Old: tmp, New: base, Err: err}
}
