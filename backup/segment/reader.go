package segment

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// ErrEncrypted says that a segment is encrypted, and no identity opens it.
var ErrEncrypted = errors.New("the segment is encrypted")

// Reader reads one segment. What it gives is only sure when it has come to the end: the
// checksum is compared there.
type Reader struct {
	in   *summed
	zip  *bufio.Reader
	info Info
	done bool
	buf  []byte
	evs  []keyspace.Event
}

// summed computes the checksum of all but the last 32 bytes, which it keeps.
type summed struct {
	r    *bufio.Reader
	sum  interface{ Write([]byte) (int, error) }
	tail []byte
}

func (s *summed) Read(p []byte) (int, error) {
	// What Peek still sees 32 bytes behind is no part of the trailer.
	want := min(len(p), s.r.Size()-sha256.Size)
	b, err := s.r.Peek(want + sha256.Size)
	n := len(b) - sha256.Size
	if n <= 0 {
		s.tail = append(s.tail[:0], b...)
		if err == nil || errors.Is(err, bufio.ErrBufferFull) {
			err = io.ErrNoProgress
		}
		return 0, err
	}
	copy(p, b[:n])
	_, _ = s.sum.Write(b[:n]) // never fails
	_, err = s.r.Discard(n)
	return n, err
}

const ageHeader = "age-encryption.org/"

// NewReader begins to read a segment. A file that is encrypted needs one of the identities.
func NewReader(src io.Reader, identities ...age.Identity) (*Reader, error) {
	in := bufio.NewReaderSize(src, 256<<10)
	if b, _ := in.Peek(len(ageHeader)); string(b) == ageHeader {
		if len(identities) == 0 {
			return nil, ErrEncrypted
		}
		plain, err := age.Decrypt(in, identities...)
		if err != nil {
			var none *age.NoIdentityMatchError
			if errors.As(err, &none) {
				return nil, fmt.Errorf("%w: %w", ErrEncrypted, err)
			}
			return nil, damaged("decrypt: %v", err)
		}
		in = bufio.NewReaderSize(plain, 256<<10)
	}
	h := sha256.New()
	r := &Reader{in: &summed{r: in, sum: h}}
	zip, err := zstd.NewReader(r.in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, damaged("%v", err)
	}
	r.zip = bufio.NewReaderSize(zip.IOReadCloser(), 256<<10)
	line := make([]byte, len(magic))
	if _, err := io.ReadFull(r.zip, line); err != nil {
		return nil, damaged("%v", err)
	}
	if string(line) != magic {
		return nil, damaged("it begins with %q", line)
	}
	kind, b, err := r.record()
	if err != nil {
		return nil, err
	}
	if kind != kindHead {
		return nil, damaged("it has no head")
	}
	if err := fields(b, func(f field) error {
		switch f.num {
		case 1:
			r.info.First = f.int()
		case 2:
			r.info.Cluster = f.n
		case 3:
			r.info.Begun = time.Unix(0, f.int())
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if r.info.First < 1 {
		return nil, damaged("its first revision is %d", r.info.First)
	}
	r.info.Last = r.info.First - 1
	return r, nil
}

// Info is what is known of it: all of it behind the last revision.
func (r *Reader) Info() Info { return r.info }

// record reads one record. Its bytes are valid until the next one.
func (r *Reader) record() (kind byte, b []byte, err error) {
	if kind, err = r.zip.ReadByte(); err != nil {
		return 0, nil, damaged("it has no end: %v", err)
	}
	n, err := binary.ReadUvarint(r.zip)
	if err != nil || n > maxRecord {
		return 0, nil, damaged("behind revision %d a record of %d bytes: %v", r.info.Last, n, err)
	}
	// Memory grows with what is there, not with what a length says.
	out := bytes.NewBuffer(r.buf[:0])
	if _, err := io.CopyN(out, r.zip, int64(n)); err != nil { //nolint:gosec // bounded above
		return 0, nil, damaged("it is cut short behind revision %d: %v", r.info.Last, err)
	}
	r.buf = out.Bytes()
	return kind, r.buf, nil
}

// Revisions gives all revisions in order. An error ends it; it wraps ErrDamaged when the
// bytes are wrong. Only when it has ended without one is what it gave what was written.
func (r *Reader) Revisions() iter.Seq2[Revision, error] {
	return func(yield func(Revision, error) bool) {
		var leases map[int64]int64
		for !r.done {
			kind, b, err := r.record()
			if err != nil {
				yield(Revision{}, err)
				return
			}
			switch kind {
			case kindLease:
				if leases == nil {
					leases = map[int64]int64{}
				}
				err = lease(b, leases)
			case kindRevision:
				var rev Revision
				if rev, err = r.revision(b); err == nil {
					rev.Leases, leases = leases, nil
					if !yield(rev, nil) {
						return
					}
				}
			case kindEnd:
				err = r.end(b)
			default:
				err = damaged("behind revision %d is a record of kind %q", r.info.Last, kind)
			}
			if err != nil {
				yield(Revision{}, err)
				return
			}
		}
	}
}

func lease(b []byte, into map[int64]int64) error {
	var id, ttl int64
	if err := fields(b, func(f field) error {
		switch f.num {
		case 1:
			id = f.int()
		case 2:
			ttl = f.int()
		}
		return nil
	}); err != nil {
		return err
	}
	if id == 0 || ttl < 1 {
		return damaged("lease %x has %d seconds", id, ttl)
	}
	into[id] = ttl
	return nil
}

func (r *Reader) revision(b []byte) (Revision, error) {
	var rev Revision
	r.evs = r.evs[:0]
	if err := fields(b, func(f field) error {
		switch f.num {
		case 1:
			rev.Rev = f.int()
		case 2:
			rev.Time = time.Unix(0, f.int())
		case 3:
			e, err := event(f.b)
			r.evs = append(r.evs, e)
			return err
		}
		return nil
	}); err != nil {
		return rev, err
	}
	if rev.Rev != r.info.Last+1 || len(r.evs) == 0 {
		return rev, damaged("revision %d with %d changes follows revision %d", rev.Rev, len(r.evs), r.info.Last)
	}
	for i := range r.evs {
		e := &r.evs[i]
		e.Rev = keyspace.Revision{Main: rev.Rev, Sub: int64(i)}
		e.Record.ModRev = rev.Rev
		if len(e.Record.Key) == 0 || e.Type == keyspace.Put && (e.Record.Version < 1 || e.Record.CreateRev < 1 || e.Record.CreateRev > rev.Rev) {
			return rev, damaged("a change of revision %d cannot be", rev.Rev)
		}
	}
	rev.Events = r.evs
	r.info.Last = rev.Rev
	r.info.Revisions++
	r.info.Changes += int64(len(r.evs))
	return rev, nil
}

func event(b []byte) (keyspace.Event, error) {
	var e keyspace.Event
	err := fields(b, func(f field) error {
		r := &e.Record
		switch f.num {
		case 1:
			if f.n > uint64(keyspace.Delete) {
				return damaged("a change has type %d", f.n)
			}
			e.Type = keyspace.EventType(f.n) //nolint:gosec // 0 or 1
		case 2:
			r.Key = f.b
		case 3:
			r.Value = f.b
		case 4:
			r.CreateRev = f.int()
		case 5:
			r.Version = f.int()
		case 6:
			r.Lease = f.int()
		}
		return nil
	})
	return e, err
}

// end compares what it says with what came, and the checksum.
func (r *Reader) end(b []byte) error {
	said := r.info
	said.Last, said.Revisions, said.Changes = 0, 0, 0
	if err := fields(b, func(f field) error {
		switch f.num {
		case 1:
			said.Last = f.int()
		case 2:
			said.Revisions = f.int()
		case 3:
			said.Changes = f.int()
		case 4:
			said.Ahead = protowire.DecodeZigZag(f.n)
		case 5:
			said.Digest = f.n
		}
		return nil
	}); err != nil {
		return err
	}
	if said.Last != r.info.Last || said.Revisions != r.info.Revisions || said.Changes != r.info.Changes {
		return damaged("it has revisions up to %d, %d with %d changes, and says %d, %d, %d", r.info.Last, r.info.Revisions, r.info.Changes, said.Last, said.Revisions, said.Changes)
	}
	if n, err := io.Copy(io.Discard, r.zip); err != nil || n > 0 {
		return damaged("%d bytes stand behind its end: %v", n, err)
	}
	if _, err := io.Copy(io.Discard, r.in); err != nil {
		return damaged("%v", err)
	}
	sum := r.in.sum.(interface{ Sum([]byte) []byte }).Sum(nil) //nolint:forcetypeassert // it is a hash
	if !bytes.Equal(sum, r.in.tail) {
		return damaged("its SHA-256 is %x, the trailer says %x", sum, r.in.tail)
	}
	r.info, r.done = said, true
	return nil
}

// field is one field of a message.
type field struct {
	num protowire.Number
	n   uint64
	b   []byte
}

func (f field) int() int64 { return int64(f.n) } //nolint:gosec // as protobuf's int64

// fields calls take for each field of a message.
func fields(b []byte, take func(field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return damaged("a record is no protobuf: %v", protowire.ParseError(n))
		}
		b = b[n:]
		f := field{num: num}
		switch typ {
		case protowire.VarintType:
			f.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.n, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.b, n = protowire.ConsumeBytes(b)
		default:
			return damaged("a record has a field of wire type %d", typ)
		}
		if n < 0 {
			return damaged("a record is no protobuf: %v", protowire.ParseError(n))
		}
		b = b[n:]
		if err := take(f); err != nil {
			return err
		}
	}
	return nil
}

// Check reads a whole segment and tells what it is.
func Check(src io.Reader, identities ...age.Identity) (Info, error) {
	r, err := NewReader(src, identities...)
	if err != nil {
		return Info{}, err
	}
	for _, err := range r.Revisions() {
		if err != nil {
			return Info{}, err
		}
	}
	return r.Info(), nil
}
