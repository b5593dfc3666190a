//go:build unix

package cli

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// stdout returns a writer to standard output that reports a broken pipe. Go ends
// the process when a write to descriptor 1 breaks; by another descriptor of the
// same file the write only fails, and we end in order: temporary files go first.
func stdout() io.Writer {
	fd, err := unix.FcntlInt(os.Stdout.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return os.Stdout
	}
	return pipeWriter{os.NewFile(uintptr(fd), os.Stdout.Name())}
}

type pipeWriter struct{ f *os.File }

func (w pipeWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		err = ErrBrokenPipe
	}
	return n, err
}
