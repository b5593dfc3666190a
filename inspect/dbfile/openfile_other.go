//go:build !linux

package dbfile

import (
	"errors"
	"os"
)

func openFile(path string) (*os.File, error) { return os.Open(path) }

// cloneFile is not available here; the caller copies.
func cloneFile(_, _ *os.File) error { return errors.ErrUnsupported }

// readAhead is advice that other systems need not follow.
func readAhead(*os.File, int64, int64) {}
