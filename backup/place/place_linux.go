package place

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Rename moves a file or folder to a name that is free; an error wraps fs.ErrExist when
// it is not. On file systems that cannot do that in one step, folders are renamed after
// a look, and files by a second link.
func Rename(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return renameElse(from, to)
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
