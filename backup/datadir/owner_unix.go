//go:build unix

package datadir

import (
	"io/fs"
	"os"
	"syscall"
)

// closeFirst: a file that is open can be replaced.
const closeFirst = false

// keepOwner gives the new file the owner of the old one: etcd often runs as a user of its
// own, and we as root.
func keepOwner(path string, old fs.FileInfo) error {
	st, ok := old.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	if n, ok := now.Sys().(*syscall.Stat_t); ok && n.Uid == st.Uid && n.Gid == st.Gid {
		return nil
	}
	return os.Chown(path, int(st.Uid), int(st.Gid))
}
