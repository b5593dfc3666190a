package dbfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// trailerLen is the SHA-256 that "etcdctl snapshot save" puts behind the pages.
const trailerLen = sha256.Size

// sealed tells whether a file of this size ends in a checksum: pages are a
// multiple of 512 bytes, so the trailer shows in the length.
func sealed(size int64) bool { return size > minPageSize && size%minPageSize == trailerLen }

// checkSeal compares a snapshot's pages with its trailer. It reads the pages
// through the map: other readers want them there too, and nothing is copied.
func checkSeal(ctx context.Context, path string, f *os.File, data []byte) error {
	h := sha256.New()
	err := pipeline.Guard(func() error {
		for rest := data; len(rest) > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(len(rest), 1<<20)
			h.Write(rest[:n])
			rest = rest[n:]
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s to check its SHA-256: %w", path, err)
	}
	pages := int64(len(data))
	e := &ChecksumError{Path: path}
	h.Sum(e.Got[:0])
	if _, err := f.ReadAt(e.Want[:], pages); err != nil {
		if errors.Is(err, io.EOF) {
			return &TruncatedError{Path: path, Have: pages, Want: pages + trailerLen}
		}
		return fmt.Errorf("read the SHA-256 behind %s: %w", path, err)
	}
	if e.Got != e.Want {
		return e
	}
	return nil
}
