package dbfile

import (
	"context"
	"fmt"
	"io"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// Check reads everything in the file that etcd reads when it starts: every page
// in use, and every record. It returns the first damage it meets.
func (s *Source) Check(ctx context.Context) error {
	if _, err := s.BytesInUse(ctx); err != nil {
		return err
	}
	names, err := s.Buckets(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		check := func(item) error { return nil }
		if name == bucketKey {
			check = s.checkRecord
		}
		if err := s.each(ctx, name, check); err != nil {
			return err
		}
	}
	if _, err := s.Leases(ctx); err != nil {
		return err
	}
	_, err = s.Members(ctx)
	return err
}

func (s *Source) checkRecord(it item) error {
	rk, err := s.revisionOf(it)
	if err != nil || len(it.value) == 0 && !rk.tombstone {
		return err
	}
	_, err = s.record(it.page, rk.rev, rk.tombstone, it.value)
	return err
}

// WritePages writes the file's pages to w, as a database that etcd and bbolt can
// open: without the trailer of a snapshot, with two valid meta pages that agree,
// and without a freelist, which bbolt then makes anew from the pages in use. It
// holds 1 MB.
//
// It fails when the pages changed meanwhile; what was written is then useless.
func (s *Source) WritePages(ctx context.Context, w io.Writer) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	if err := s.trusted(ctx); err != nil {
		return err
	}
	m := s.pager.meta
	for _, id := range []uint64{0, 1} {
		if _, err := w.Write(s.metaPage(id)); err != nil {
			return fmt.Errorf("write a copy of %s: %w", s.file, err)
		}
	}
	// Through the file, not the map: a write from memory that is gone is an error
	// of the system call that says nothing about which side failed.
	pages := io.NewSectionReader(s.f, int64(2*m.pageSize), int64(len(s.pager.data))-int64(2*m.pageSize))
	n, err := io.CopyBuffer(onlyWriter{w}, &ctxReader{ctx: ctx, r: pages}, make([]byte, 1<<20))
	if err != nil {
		return fmt.Errorf("write a copy of %s: %w", s.file, err)
	}
	if n < pages.Size() {
		return &TruncatedError{Path: s.file, Have: int64(2*m.pageSize) + n, Want: s.size}
	}
	return pipeline.Guard(func() error { return s.check(ctx) })
}

// metaPage makes meta page id of a clean copy. bbolt takes the one with the higher
// transaction, whose number is even on page 0.
func (s *Source) metaPage(id uint64) []byte {
	m := s.pager.meta
	page := make([]byte, m.pageSize)
	le.PutUint64(page, id)
	le.PutUint16(page[8:], flagMeta)
	b := page[pageHeaderLen:]
	le.PutUint32(b, magic)
	le.PutUint32(b[4:], fileVersion)
	le.PutUint32(b[8:], uint32(m.pageSize))
	le.PutUint64(b[16:], m.root)
	le.PutUint64(b[32:], noFreelist)
	le.PutUint64(b[40:], m.pages)
	txid := m.txid
	if txid%2 != id {
		txid--
	}
	le.PutUint64(b[48:], txid)
	le.PutUint64(b[metaLen-8:], metaSum(b))
	return page
}

// onlyWriter hides every other method, so that io.CopyBuffer uses the buffer.
type onlyWriter struct{ io.Writer }

// WriteFile writes the file as it is, unpacked and decrypted, with its checksum, to w.
// It fails when the checksum is wrong, and holds 1 MB.
func (s *Source) WriteFile(ctx context.Context, w io.Writer) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	if err := s.trusted(ctx); err != nil {
		return err
	}
	in := &ctxReader{ctx: ctx, r: io.NewSectionReader(s.f, 0, s.size)}
	if _, err := io.CopyBuffer(onlyWriter{w}, in, make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("copy %s: %w", s.file, err)
	}
	return pipeline.Guard(func() error { return s.check(ctx) })
}
