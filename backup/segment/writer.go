package segment

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Writer writes one segment. What it wrote is none before Seal.
type Writer struct {
	out  io.WriteCloser // age, or nothing
	sum  hash.Hash
	zip  *zstd.Encoder
	info Info
	n    int64 // bytes that came out of the compression
	seen map[int64]bool
	buf  []byte
	sub  []byte
}

// Write implements io.Writer for what comes out of the compression.
func (w *Writer) Write(b []byte) (int, error) {
	w.sum.Write(b)
	n, err := w.out.Write(b)
	w.n += int64(n)
	return n, err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// NewWriter begins a segment of the revisions from first on, which it writes to dst as they
// come, a block of the compression at a time. With recipients it is encrypted to them.
func NewWriter(dst io.Writer, first int64, cluster uint64, begun time.Time, recipients ...age.Recipient) (*Writer, error) {
	w := &Writer{out: nopCloser{dst}, sum: sha256.New(), info: Info{First: first, Last: first - 1, Cluster: cluster, Begun: begun}, seen: map[int64]bool{}}
	if len(recipients) > 0 {
		enc, err := age.Encrypt(dst, recipients...)
		if err != nil {
			return nil, fmt.Errorf("encrypt a segment: %w", err)
		}
		w.out = enc
	}
	var err error
	if w.zip, err = zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true)); err != nil {
		return nil, fmt.Errorf("compress a segment: %w", err)
	}
	if _, err := io.WriteString(w.zip, magic); err != nil {
		return nil, err
	}
	var b []byte
	b = varint(b, 1, first)
	b = fixed(b, 2, cluster)
	b = varint(b, 3, begun.UnixNano())
	return w, w.record(kindHead, b)
}

// Bytes is how much of it was written, in bytes, and Revisions how many revisions it has.
func (w *Writer) Bytes() int64 { return w.n }

// Last is the last revision that it has; the one before the first while it is empty.
func (w *Writer) Last() int64 { return w.info.Last }

// Begun is when it was begun.
func (w *Writer) Begun() time.Time { return w.info.Begun }

// Append adds the next revision. ttl gives the granted time to live of a lease that has not
// come before, in seconds; 0: it is not known. The error is ErrGap when the revision does not
// follow.
func (w *Writer) Append(rev int64, came time.Time, events []keyspace.Event, ttl func(lease int64) (int64, error)) error {
	if rev != w.info.Last+1 || len(events) == 0 {
		return fmt.Errorf("%w between %d and %d", ErrGap, w.info.Last, rev)
	}
	for i := range events {
		id := events[i].Record.Lease
		if id == 0 || w.seen[id] {
			continue
		}
		w.seen[id] = true
		secs, err := ttl(id)
		if err != nil {
			return err
		}
		if secs > 0 {
			if err := w.record(kindLease, varint(varint(nil, 1, id), 2, secs)); err != nil {
				return err
			}
		}
	}
	b := varint(varint(w.buf[:0], 1, rev), 2, came.UnixNano())
	for i := range events {
		w.sub = change(w.sub[:0], &events[i])
		b = protowire.AppendTag(b, 3, protowire.BytesType)
		b = protowire.AppendBytes(b, w.sub)
	}
	w.buf = b
	if err := w.record(kindRevision, b); err != nil {
		return err
	}
	w.info.Last = rev
	w.info.Revisions++
	w.info.Changes += int64(len(events))
	return nil
}

func change(b []byte, e *keyspace.Event) []byte {
	r := &e.Record
	b = varint(b, 1, int64(e.Type))
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendBytes(b, r.Key)
	if e.Type == keyspace.Delete {
		return b
	}
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	b = protowire.AppendBytes(b, r.Value)
	return varint(varint(varint(b, 4, r.CreateRev), 5, r.Version), 6, r.Lease)
}

func varint(b []byte, num protowire.Number, n int64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(n)) //nolint:gosec // as protobuf's int64
}

func fixed(b []byte, num protowire.Number, n uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), n)
}

func (w *Writer) record(kind byte, b []byte) error {
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = kind
	n := binary.PutUvarint(head[1:], uint64(len(b)))
	if _, err := w.zip.Write(head[:1+n]); err != nil {
		return err
	}
	_, err := w.zip.Write(b)
	return err
}

// Seal ends the segment: from then on it is one. ahead and digest are of the history at its
// last revision.
func (w *Writer) Seal(ahead int64, digest uint64) (Info, error) {
	w.info.Ahead, w.info.Digest = ahead, digest
	b := varint(varint(varint(nil, 1, w.info.Last), 2, w.info.Revisions), 3, w.info.Changes)
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), protowire.EncodeZigZag(ahead))
	b = fixed(b, 5, digest)
	if err := w.record(kindEnd, b); err != nil {
		return Info{}, err
	}
	if err := w.zip.Close(); err != nil {
		return Info{}, err
	}
	if _, err := w.out.Write(w.sum.Sum(nil)); err != nil {
		return Info{}, err
	}
	return w.info, w.out.Close()
}
