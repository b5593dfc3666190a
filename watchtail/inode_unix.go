//go:build unix

package watchtail

import (
	"io/fs"
	"syscall"
)

// inode is by what a file is known again under another name.
func inode(st fs.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino) //nolint:unconvert // not everywhere of this type
	}
	return 0
}
