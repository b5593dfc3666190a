package dbfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// A bbolt transaction writes to pages that the last committed one does not use,
// and then to one meta page. A plain copy whose meta pages were taken first is
// therefore whole when nothing was committed until its end. One commit is already
// too many: the transaction after it may be writing over pages of the copied state.
const copyTries = 20

// privateCopy makes a copy of the file src, which a running etcd may be writing
// to, as one consistent state. The copy is readable by its owner only; the caller
// removes it. size is the length of the file to copy.
func privateCopy(ctx context.Context, src *os.File, dir string) (_ *os.File, err error) {
	dst, err := os.CreateTemp(dir, "etcdctl-plus-*.db") // 0600, and a name nobody else has
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", src.Name(), err)
	}
	defer func() {
		if err != nil {
			dst.Close()
			os.Remove(dst.Name())
		}
	}()
	for range copyTries {
		whole, err := copyOnce(ctx, dst, src)
		if err != nil {
			return nil, fmt.Errorf("copy %s to %s: %w", src.Name(), dst.Name(), err)
		}
		if whole {
			return dst, nil
		}
	}
	return nil, &ChangedError{Path: src.Name(), How: fmt.Sprintf("its owner wrote to it during each of %d tries to copy it; save a snapshot from the running member instead", copyTries)}
}

func copyOnce(ctx context.Context, dst, src *os.File) (whole bool, err error) {
	if err := dst.Truncate(0); err != nil {
		return false, err
	}
	if _, err := dst.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	// A clone is one instant of the file; nothing can come between.
	if cloneFile(dst, src) == nil {
		return true, nil
	}
	front, before, err := readMetas(src)
	if err != nil {
		return false, err
	}
	if _, err := dst.Write(front); err != nil {
		return false, err
	}
	if _, err := io.Copy(dst, &ctxReader{ctx: ctx, r: io.NewSectionReader(src, int64(len(front)), 1<<62)}); err != nil {
		return false, err
	}
	_, after, err := readMetas(src)
	if err != nil {
		return false, err
	}
	return after.txid == before.txid, nil
}

// readMetas reads the two meta pages of f in one go, and decodes them. A file
// without valid ones is given back as it is: the reader of the copy says what is
// wrong with it.
func readMetas(f *os.File) (front []byte, m meta, err error) {
	front = make([]byte, 2*maxPageSize)
	n, err := f.ReadAt(front, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, m, err
	}
	m, reason := newestMeta(front[:n])
	if reason != "" {
		return front[:0], m, nil
	}
	return front[:min(uint64(n), 2*m.pageSize)], m, nil
}

// ctxReader ends a long copy when ctx is done.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
