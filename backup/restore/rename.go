package restore

import (
	"errors"
	"io/fs"
	"os"
)

// errFolderLocked says that another process holds the lock of a folder.
var errFolderLocked = errors.New("locked by another process")

// renameChecked looks first whether the name is free, for systems that cannot rename
// without overwriting. Another process may take the name in between; a folder that is
// not empty is not overwritten even then.
func renameChecked(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(from, to)
}
