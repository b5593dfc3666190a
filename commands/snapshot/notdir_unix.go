//go:build unix

package snapshot

import (
	"errors"
	"syscall"
)

// isNotDir: what should be a folder in a path is a file.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
