package restore

import (
	"io"
	"io/fs"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

const errNoSpace = syscall.Errno(windows.ERROR_DISK_FULL)

// canLock tells whether folders have locks. Without them a folder that a killed restore
// left cannot be told from one that is at work, and stays.
const canLock = false

func lockFolder(string) (io.Closer, error) { return io.NopCloser(strings.NewReader("")), nil }

// mine cannot tell owners here.
func mine(fs.FileInfo) bool { return false }

// freeSpace returns how many bytes a user may still write below dir.
func freeSpace(dir string) (int64, bool) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, false
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, false
	}
	return int64(free), true
}

// ignoreUnsupported drops the error of folders, which cannot be synced here.
func ignoreUnsupported(error) error { return nil }
