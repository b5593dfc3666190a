package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// SaveOptions of Save.
type SaveOptions struct {
	// Force replaces a file that is there.
	Force bool
	// NoManifest leaves the manifest away.
	NoManifest bool
	// AllowStale saves from a member without a leader, AllowLearner from a learner,
	// AllowCorrupt in spite of the alarm CORRUPT.
	AllowStale, AllowLearner, AllowCorrupt bool
	// Stall is how long no byte may come before it is given up; 0: for ever.
	Stall time.Duration
	// RequestTimeout bounds the small requests before the stream; 0: no bound.
	RequestTimeout time.Duration
	// Compress packs the file with zstd, Recipients encrypt it with age.
	Compress   bool
	Recipients []age.Recipient
	// HashKV also asks the member for its hash, and compares. It stops all writes of
	// that member meanwhile.
	HashKV bool
	// TempDir is where SaveTo keeps the snapshot until it is verified; empty: the
	// system's folder for temporary files.
	TempDir string
	// Progress is told how many bytes of how many (0: unknown) have come.
	Progress func(done, total int64)
	// Warn is told what an operator should know of a snapshot that is good.
	Warn func(string)
	// Host, Tool and Sequence go into the manifest.
	Host, Tool string
	Sequence   int64
	Now        func() time.Time
}

func (o *SaveOptions) request(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.RequestTimeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, o.RequestTimeout)
}

// StallError says that a stream went quiet.
type StallError struct {
	Endpoint string
	Quiet    time.Duration
	Bytes    int64 // that came before
}

func (e *StallError) Error() string {
	return fmt.Sprintf("stream a snapshot from %s: nothing came for %v, after %d bytes", e.Endpoint, e.Quiet, e.Bytes)
}

// Timeout marks it as one.
func (e *StallError) Timeout() bool { return true }

// DamagedError says that what was saved is not whole. It wraps keyspace.ErrCorrupt.
type DamagedError struct {
	Endpoint string
	Reason   string
	Findings []Finding
}

func (e *DamagedError) Error() string {
	s := fmt.Sprintf("the snapshot of %s is damaged", e.Endpoint) // or the file
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	for i, f := range e.Findings {
		if i == 10 {
			s += fmt.Sprintf("\nand %d findings more", len(e.Findings)-i)
			break
		}
		s += "\n" + f.String()
	}
	return s
}

// Unwrap makes errors.Is(err, keyspace.ErrCorrupt) true.
func (e *DamagedError) Unwrap() error { return keyspace.ErrCorrupt }

// Save saves a snapshot of one member into a file, and verifies it down to every record
// before it gets its name. Until then nothing is there that was not there before, and
// whatever ends the work leaves nothing behind; docs/backup.md has the promises. The
// manifest comes last.
//
// Errors wrap ErrExists, place.ErrBusy (somebody else saves to the same name),
// ErrNoQuorum, ErrLearner, ErrCorruptAlarm, keyspace.ErrCorrupt, a *StallError, or are
// those of gRPC and package io/fs.
func Save(ctx context.Context, client *clientv3.Client, path string, o SaveOptions) (*Manifest, error) {
	t, err := newTarget(path, o.Force)
	if err != nil {
		return nil, err
	}
	defer t.abandon()
	m, err := save(ctx, client, t.f, &o)
	if err != nil {
		return nil, err
	}
	if o.Compress || len(o.Recipients) > 0 {
		if err := t.pack(ctx, m, &o); err != nil {
			return nil, err
		}
	}
	m.File = filepath.Base(path)
	if err := t.commit(); err != nil {
		return nil, err
	}
	if o.NoManifest {
		return m, nil
	}
	return m, WriteManifest(path+ManifestSuffix, m)
}

// WriteManifest puts a manifest under its name, in place of one that was there.
func WriteManifest(path string, m *Manifest) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	place.Sweep(path)
	f, err := place.Temp(path)
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	t := target{path: path, force: true, f: f}
	defer t.abandon()
	if _, err := f.Write(b); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return t.commit()
}

// SaveTo is Save to a stream. The snapshot goes through a private file first: a reader
// that is slow would have the server keep its read transaction open, and its file grow;
// and nothing is written before it is verified.
func SaveTo(ctx context.Context, client *clientv3.Client, w io.Writer, o SaveOptions) (_ *Manifest, err error) {
	f, err := os.CreateTemp(o.TempDir, "etcdctl-plus-*.db")
	if err != nil {
		return nil, fmt.Errorf("save a snapshot: %w", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	m, err := save(ctx, client, f, &o)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("save a snapshot: %w", err)
	}
	if err := packTo(ctx, m, w, f, &o); err != nil {
		return nil, err
	}
	return m, nil
}

// save streams into f and verifies. A member that became another one under the same
// endpoint starts over.
func save(ctx context.Context, client *clientv3.Client, f *os.File, o *SaveOptions) (*Manifest, error) {
	for tries := 0; ; tries++ {
		m, again, err := saveOnce(ctx, client, f, o)
		if !again || tries == 2 {
			return m, err
		}
		o.warn(err.Error() + "; starting over")
		if err := f.Truncate(0); err != nil {
			return nil, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
	}
}

func (o *SaveOptions) warn(s string) {
	if o.Warn != nil {
		o.Warn(s)
	}
}

func saveOnce(ctx context.Context, client *clientv3.Client, f *os.File, o *SaveOptions) (_ *Manifest, again bool, err error) {
	m := &Manifest{Started: o.Now().UTC(), Host: o.Host, Tool: o.Tool, Sequence: o.Sequence}
	mb, err := choose(ctx, client, o)
	if err != nil {
		return nil, false, err
	}
	defer mb.close()
	m.Endpoint, m.EtcdVersion, m.Learner = mb.endpoint, mb.status.Version, mb.status.IsLearner
	m.ClusterID, m.MemberID = fmt.Sprintf("%x", mb.status.Header.ClusterId), fmt.Sprintf("%x", mb.status.Header.MemberId)
	if m.FloorRevision, m.Stale, err = mb.floor(ctx, o); err != nil {
		return nil, false, err
	}
	warnings, err := mb.alarms(ctx, m.Stale, o)
	if err != nil {
		return nil, false, err
	}
	if m.Stale {
		warnings = append(warnings, "the snapshot is of one member without a quorum: writes that were acknowledged may be missing")
	}
	for _, w := range warnings {
		o.warn(w)
	}
	if err := mb.stream(ctx, f, m, o); err != nil {
		return nil, false, err
	}
	if now, err := mb.whoNow(ctx, o); err == nil && now != mb.status.Header.MemberId {
		return nil, true, fmt.Errorf("%s was member %s, and became %x meanwhile", mb.endpoint, m.MemberID, now)
	}
	if err := mb.verify(ctx, f.Name(), m, o); err != nil {
		return nil, false, err
	}
	m.Finished = o.Now().UTC()
	m.DurationSeconds = m.Finished.Sub(m.Started).Seconds()
	return m, false, nil
}

// whoNow asks the same connection for its member again.
func (m *member) whoNow(ctx context.Context, o *SaveOptions) (uint64, error) {
	ctx, cancel := o.request(ctx)
	defer cancel()
	st, err := m.maintenance.Status(ctx, &pb.StatusRequest{}, callOptions...)
	if err != nil {
		return 0, err
	}
	return st.Header.GetMemberId(), nil
}

// stream writes the snapshot to f, and compares it with the checksum behind it.
func (m *member) stream(ctx context.Context, f *os.File, out *Manifest, o *SaveOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var s sealer
	quiet := time.AfterFunc(time.Hour, func() {})
	if o.Stall > 0 {
		quiet.Stop()
		quiet = time.AfterFunc(o.Stall, func() { cancel(errStalled) })
	}
	defer quiet.Stop()
	st, err := m.maintenance.Snapshot(ctx, &pb.SnapshotRequest{}, callOptions...)
	s.h = sha256.New()
	var promised uint64
	for err == nil {
		var part *pb.SnapshotResponse
		if part, err = st.Recv(); err != nil {
			break
		}
		if len(part.Blob) > 0 && o.Stall > 0 {
			quiet.Reset(o.Stall) // an empty part is no progress
		}
		if part.Version != "" {
			out.StorageVersion = part.Version
		}
		promised = max(promised, s.bytes()+uint64(len(part.Blob))+part.RemainingBytes)
		if err = s.write(f, part.Blob); err != nil {
			return fmt.Errorf("write the snapshot: %w", err)
		}
		if o.Progress != nil {
			o.Progress(int64(s.bytes()), int64(s.bytes()+part.RemainingBytes))
		}
	}
	switch {
	case errors.Is(context.Cause(ctx), errStalled):
		return &StallError{Endpoint: m.endpoint, Quiet: o.Stall, Bytes: int64(s.bytes())}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("stream a snapshot from %s, %d bytes came: %w", m.endpoint, s.bytes(), rpctypes.Error(err))
	}
	return s.finish(m.endpoint, promised, out)
}

var errStalled = errors.New("stalled")

// sealer hashes a snapshot as it comes, all but its last 32 bytes, which are the hash.
type sealer struct {
	h    hash.Hash
	n    uint64 // hashed
	tail []byte
}

func (s *sealer) bytes() uint64 { return s.n + uint64(len(s.tail)) }

func (s *sealer) write(w io.Writer, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	if cut := len(s.tail) + len(b) - sha256.Size; cut > 0 {
		old := min(cut, len(s.tail))
		s.h.Write(s.tail[:old])
		s.h.Write(b[:cut-old])
		s.n += uint64(cut)
		s.tail = append(s.tail[:0], append(s.tail[old:], b[cut-old:]...)...)
		return nil
	}
	s.tail = append(s.tail, b...)
	return nil
}

// finish compares. The hash of the whole file goes on from that of the pages.
func (s *sealer) finish(endpoint string, promised uint64, m *Manifest) error {
	pages := s.h.Sum(nil)
	s.h.Write(s.tail)
	m.SHA256, m.Bytes = hex.EncodeToString(s.h.Sum(nil)), int64(s.bytes())
	m.DatabaseSHA256, m.DatabaseBytes = hex.EncodeToString(pages), int64(s.n)
	switch {
	case s.n%512 != 0 || s.n == 0:
		return &DamagedError{Endpoint: endpoint, Reason: fmt.Sprintf("it ended after %d bytes, of about %d that the server had announced, without a checksum", s.bytes(), promised)}
	case string(pages) != string(s.tail):
		return &DamagedError{Endpoint: endpoint, Reason: fmt.Sprintf("its SHA-256 is %x, the server says %x: it changed on its way, or was cut short", pages, s.tail)}
	}
	return nil
}

// verify looks at what came, levels 2 to 4; level 1 was compared on the way.
func (m *member) verify(ctx context.Context, path string, out *Manifest, o *SaveOptions) error {
	var found []Finding
	r, err := Verify(ctx, path, VerifyOptions{Level: LevelHash, SkipChecksum: true, Report: func(f Finding) { found = append(found, f) }})
	if err != nil {
		return err
	}
	if r.Damage > 0 {
		return &DamagedError{Endpoint: m.endpoint, Findings: found}
	}
	for _, f := range found {
		if f.Level != LevelFile {
			o.warn(f.String())
		}
	}
	out.Revision, out.CompactRev, out.HashKV = r.Revision, max(r.CompactRev, r.CompactScheduled), r.HashKV
	out.Keys, out.Records, out.Leases, out.Encryption, out.Verified = r.Keys, r.Records, r.Leases, r.Encryption, LevelHash
	out.RaftIndex, out.RaftTerm = r.RaftIndex, r.RaftTerm
	if out.Revision < out.FloorRevision {
		return &DamagedError{Endpoint: m.endpoint, Reason: fmt.Sprintf("it is at revision %d, and the cluster had revision %d before it was asked for", out.Revision, out.FloorRevision)}
	}
	if !o.HashKV {
		return nil
	}
	return m.compareHash(ctx, path, out, o)
}

// compareHash asks the member for its hash and computes that of the file at the same
// compact revision. The member may have compacted since; then there is nothing to
// compare.
func (m *member) compareHash(ctx context.Context, path string, out *Manifest, o *SaveOptions) error {
	theirs, err := m.maintenance.HashKV(ctx, &pb.HashKVRequest{Revision: out.Revision}, callOptions...)
	if err != nil {
		if errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) || errors.Is(rpctypes.Error(err), rpctypes.ErrFutureRev) {
			o.warn("the member's hash was not compared: it has compacted meanwhile, or does not have the revision")
			return nil
		}
		return fmt.Errorf("ask %s for its hash: %w", m.endpoint, rpctypes.Error(err))
	}
	src, err := dbfile.Open(ctx, path, dbfile.Options{IgnoreChecksum: true})
	if err != nil {
		return err
	}
	defer src.Close()
	ours, err := src.HashKV(ctx, out.Revision)
	switch {
	case err != nil:
		return err
	case ours.CompactRev != theirs.CompactRevision:
		o.warn(fmt.Sprintf("the member's hash was not compared: it is compacted at revision %d, the snapshot at %d", theirs.CompactRevision, ours.CompactRev))
		return nil
	case ours.Hash != theirs.Hash:
		return &DamagedError{Endpoint: m.endpoint, Reason: fmt.Sprintf("its hash at revision %d is %08x, the member says %08x", out.Revision, ours.Hash, theirs.Hash)}
	}
	out.HashCompared = true
	return nil
}

func isUnavailable(err error) bool {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code() == codes.Unavailable || e.Code() == codes.DeadlineExceeded
	}
	c := status.Code(err)
	return c == codes.Unavailable || c == codes.DeadlineExceeded || strings.Contains(err.Error(), "etcdserver: request timed out")
}
