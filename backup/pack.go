package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
)

// packTo writes what r has to w, compressed and then encrypted as asked for, and notes
// size, hash and packing of what was written in m.
func packTo(ctx context.Context, m *Manifest, w io.Writer, r io.Reader, o *SaveOptions) (err error) {
	h := sha256.New()
	n := &counter{w: io.MultiWriter(w, h)}
	var dst io.Writer = n
	var closers []io.Closer
	m.Packing = nil
	if len(o.Recipients) > 0 {
		enc, err := age.Encrypt(dst, o.Recipients...)
		if err != nil {
			return fmt.Errorf("encrypt the snapshot: %w", err)
		}
		dst, closers = enc, append(closers, enc)
		m.Packing = []string{"age"}
	}
	if o.Compress {
		// The frame carries a checksum of its own; two goroutines, as there are cores.
		enc, err := zstd.NewWriter(dst, zstd.WithEncoderCRC(true), zstd.WithEncoderConcurrency(2))
		if err != nil {
			return fmt.Errorf("compress the snapshot: %w", err)
		}
		dst, closers = enc, append(closers, enc)
		m.Packing = append([]string{"zstd"}, m.Packing...)
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{ctxReader{ctx, r}}, make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	for i := len(closers) - 1; i >= 0; i-- {
		if err := closers[i].Close(); err != nil {
			return fmt.Errorf("write the snapshot: %w", err)
		}
	}
	m.Bytes, m.SHA256 = n.n, hex.EncodeToString(h.Sum(nil))
	return nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// pack replaces the temporary file by a packed one.
func (t *target) pack(ctx context.Context, m *Manifest, o *SaveOptions) error {
	plain := *t
	plain.lock = nil
	defer plain.abandon()
	f, err := place.Temp(t.path)
	if err != nil {
		t.f = nil
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	t.f = f
	if _, err := plain.f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	return packTo(ctx, m, f, plain.f, o)
}

// Unpack writes the snapshot that is in a packed or encrypted file into a new one, out, as
// etcd and other programs read it. The error wraps ErrExists when out is there.
func Unpack(ctx context.Context, path, out string, o dbfile.Options) (err error) {
	src, err := dbfile.Open(ctx, path, o)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	t, err := newTarget(out, false)
	if err != nil {
		return err
	}
	defer t.abandon()
	if err := src.WriteFile(ctx, t.f); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return t.commit()
}
