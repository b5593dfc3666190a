//go:build unix

package dbfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first size bytes of f, never more: what lies behind a file's
// end can be mapped but not read.
func mapFile(f *os.File, size int64) (data []byte, unmap func() error, err error) {
	data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return data, func() error { return os.NewSyscallError("munmap", unix.Munmap(data)) }, nil
}
