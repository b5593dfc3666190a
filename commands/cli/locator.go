package cli

import (
	"context"
	"strings"

	"github.com/spf13/pflag"
)

// Locator turns what a user calls a backup into a file. It is how a command that works
// on a file also works on what lies in a repository.
type Locator interface {
	// Define adds the flags it needs.
	Define(f *pflag.FlagSet)
	// Locate returns the path of a file that is there until env is closed, and what people
	// call it.
	Locate(ctx context.Context, ref string) (path, name string, err error)
}

// Named says name in the message of an error where it says path: the file that a Locator
// made means nothing to anybody.
func Named(err error, path, name string) error {
	if err == nil || path == "" || path == name || !strings.Contains(err.Error(), path) {
		return err
	}
	return &namedError{err: err, message: strings.ReplaceAll(err.Error(), path, name)}
}

type namedError struct {
	err     error
	message string
}

func (e *namedError) Error() string { return e.message }
func (e *namedError) Unwrap() error { return e.err }
