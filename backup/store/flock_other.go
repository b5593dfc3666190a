//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package store

import (
	"errors"
	"os"
	"syscall"
)

// tryLock has no locks to take here: whether a writer or holder lives is told by
// the age of its file.
func tryLock(*os.File) (free bool, err error) { return true, errors.ErrUnsupported }

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// ignoreUnsyncable: a folder cannot be synced here.
func ignoreUnsyncable(error) error { return nil }
