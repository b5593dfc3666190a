package place

import (
	"errors"
	"io/fs"
	"os"
)

// renameElse is Rename where the system has no such call.
func renameElse(from, to string) error {
	st, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return byLink(from, to)
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return os.Rename(from, to)
}
