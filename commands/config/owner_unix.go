//go:build unix

package config

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner of the file that it replaces: root, with the home of
// somebody else, must not take the file away from them.
func keepOwner(f *os.File, path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return f.Chown(int(s.Uid), int(s.Gid))
}
