package cli

import (
	"context"

	"github.com/spf13/pflag"
)

// Locator turns what a user calls a backup into a file. It is how a command that works
// on a file also works on what lies in a repository.
type Locator interface {
	// Define adds the flags it needs.
	Define(f *pflag.FlagSet)
	// Locate returns the path of a file that is there until env is closed.
	Locate(ctx context.Context, ref string) (path string, err error)
}
