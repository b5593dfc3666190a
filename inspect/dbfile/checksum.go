package dbfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// trailerLen is the SHA-256 that "etcdctl snapshot save" puts behind the pages.
const trailerLen = sha256.Size

// sealed tells whether a file of this size ends in a checksum: pages are a
// multiple of 512 bytes, so the trailer shows in the length.
func sealed(size int64) bool { return size > minPageSize && size%minPageSize == trailerLen }

// Checksum waits for a snapshot's SHA-256 to be compared with the trailer behind its
// pages; a *ChecksumError says that they differ, a *StrippedError that there is none where
// one should be. Of a file without a trailer, or with
// Options.IgnoreChecksum, there is nothing to compare: sealed is false then.
func (s *Source) Checksum(ctx context.Context) (sealed bool, err error) {
	return s.comparing, s.seal(ctx)
}

// CompareTrailer compares the pages with the checksum behind them at once, also of a file
// that was opened as damaged, whose checksum stops nothing. The error is a *ChecksumError;
// nil where there is none.
func (s *Source) CompareTrailer(ctx context.Context) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	if !s.HasTrailer() {
		return nil
	}
	return checkSeal(ctx, s.file, s.f, s.pager.data)
}

// HasTrailer tells whether a checksum stands behind the pages.
func (s *Source) HasTrailer() bool { return s.kind == keyspace.Snapshot }

// Stripped tells whether the file looks like a snapshot whose checksum was cut off.
// bbolt writes a snapshot with two meta pages of one state and no page behind the last
// one in use; the meta pages of a member's own file are of two transactions. When the last
// of them changed nothing the two look alike, so what lies in a member's folder under the
// member's name is taken for its own.
func (s *Source) Stripped() bool {
	if s.kind != keyspace.Member || strings.HasSuffix(filepath.ToSlash(s.file), "member/snap/db") {
		return false
	}
	d, m := s.pager.data, s.pager.meta
	m0, bad0 := parseMeta(d)
	m1, bad1 := parseMeta(d[min(m.pageSize, uint64(len(d))):])
	return bad0 == "" && bad1 == "" && m0.root == m1.root && m0.pages == m1.pages && m0.freelist == m1.freelist &&
		uint64(len(d)) == m.pages*m.pageSize
}

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
