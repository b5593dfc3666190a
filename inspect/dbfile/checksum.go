package dbfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
)

// trailerLen is the SHA-256 that "etcdctl snapshot save" puts behind the pages.
const trailerLen = sha256.Size

// sealed tells whether a file of this size ends in a checksum: pages are a
// multiple of 512 bytes, so the trailer shows in the length.
func sealed(size int64) bool { return size > minPageSize && size%minPageSize == trailerLen }

// checkSeal compares a snapshot's pages with its trailer. It reads the file in
// pieces of 1 MB, not through the map.
func checkSeal(ctx context.Context, path string, f *os.File, size int64) error {
	pages := size - trailerLen
	h := sha256.New()
	n, err := io.CopyBuffer(onlyWriter{h}, &ctxReader{ctx: ctx, r: io.NewSectionReader(f, 0, pages)}, make([]byte, 1<<20))
	if err != nil {
		return fmt.Errorf("read %s to check its SHA-256: %w", path, err)
	}
	if n < pages {
		return &TruncatedError{Path: path, Have: n, Want: size}
	}
	e := &ChecksumError{Path: path}
	h.Sum(e.Got[:0])
	if _, err := f.ReadAt(e.Want[:], pages); err != nil {
		if errors.Is(err, io.EOF) {
			return &TruncatedError{Path: path, Have: pages, Want: size}
		}
		return fmt.Errorf("read the SHA-256 behind %s: %w", path, err)
	}
	if e.Got != e.Want {
		return e
	}
	return nil
}

// onlyWriter hides every other method, so that io.CopyBuffer uses the buffer.
type onlyWriter struct{ io.Writer }
