package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/backup/segment"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

// FollowOptions of Follow.
type FollowOptions struct {
	// Run takes the snapshot that a chain begins with; its Dir is where a segment lies until
	// it is sealed.
	Run RunOptions
	// Stream says how the cluster is reached; what it says of keys and beginnings is not used.
	Stream watchtail.Options
	// SealEvery and SealBytes (of the compressed segment) are when a segment is sealed and
	// stored at the latest.
	SealEvery time.Duration
	SealBytes int64
	// Recipients encrypt segments with age, Identities open those that are there.
	Recipients []age.Recipient
	Identities []age.Identity
	// Stored is told of each segment, Began of each chain and why it begins.
	Stored func(Segment)
	Began  func(base *Entry, why string)
}

// Follow appends the revision stream to the repository, behind the last backup of the cluster
// and the segments there, until ctx ends; then what has come is stored, and the error is the
// cause of ctx. Whatever ends it, what is there stays a chain, and the next Follow goes on at
// its end. Where nothing can go on, since there is no backup or the next revision is
// compacted, a backup is taken and a new chain begins.
//
// The error is a *watchtail.DivergedError when the cluster's history is not the one that is
// there: take a backup then, which begins a new chain.
func (r *Repository) Follow(ctx context.Context, client *clientv3.Client, o FollowOptions) error {
	if o.Run.Now == nil {
		o.Run.Now = time.Now
	}
	for why := ""; ; {
		f := &following{r: r, client: client, o: &o}
		if err := f.begin(ctx, why); err != nil {
			return err
		}
		err := f.run(ctx)
		var compacted *keyspace.CompactedError
		if !errors.As(err, &compacted) {
			return err
		}
		why = err.Error()
	}
}

// following is one chain that grows.
type following struct {
	r       *Repository
	client  *clientv3.Client
	o       *FollowOptions
	cluster uint64
	known   watchtail.History
	stream  *watchtail.Stream

	w    *segment.Writer
	file *os.File
	last watchtail.History // of what w has
}

// begin finds the end of the chain, or begins one with a backup.
func (f *following) begin(ctx context.Context, gap string) error {
	id, err := clusterOf(ctx, f.client, f.o.Run.Save.RequestTimeout)
	if err != nil {
		return err
	}
	f.cluster = id
	l, err := f.r.List(ctx)
	if err != nil {
		return err
	}
	cluster := fmt.Sprintf("%x", id)
	c := l.Newest(cluster)
	if c == nil || gap != "" {
		why := "there is no backup of this cluster"
		if gap != "" {
			why = gap
		}
		run, err := f.r.Run(ctx, f.client, f.o.Run)
		if err != nil {
			return err
		}
		c = &Chain{Base: &Entry{Cluster: cluster, Name: run.Manifest.File, Manifest: run.Manifest}}
		if f.o.Began != nil {
			f.o.Began(c.Base, why)
		}
	}
	m := c.Base.Manifest
	f.known = watchtail.History{Cluster: id, Rev: m.Revision, Ahead: int64(m.RaftIndex) - m.Revision} //nolint:gosec // a log has not that many entries
	if n := len(c.Segments); n > 0 {
		info, err := f.r.CheckSegment(ctx, &c.Segments[n-1], f.o.Identities...)
		if errors.Is(err, segment.ErrEncrypted) { // then less is known of the history, and that is enough to go on
			f.known.Rev = c.Last()
			return nil
		}
		if err != nil {
			return err
		}
		f.known = watchtail.History{Cluster: id, Rev: info.Last, Ahead: info.Ahead, Digest: info.Digest}
	}
	return nil
}

func clusterOf(ctx context.Context, client *clientv3.Client, timeout time.Duration) (uint64, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	r, err := client.MemberList(ctx)
	if err != nil {
		return 0, fmt.Errorf("which cluster it is: %w", err)
	}
	return r.Header.GetClusterId(), nil
}

func (f *following) run(ctx context.Context) (err error) {
	defer func() {
		// What has come is stored, also when we are told to end.
		err = errors.Join(err, f.seal(context.WithoutCancel(ctx)))
	}()
	so := f.o.Stream
	so.Ranges, so.Prefix, so.From, so.Known, so.PrevKV = []keyspace.Range{keyspace.All()}, nil, f.known.Rev+1, f.known, false
	f.stream = watchtail.Follow(so)
	for s, err := range f.stream.Steps(ctx) {
		if err != nil {
			return err
		}
		if len(s.Events) > 0 {
			if err := f.take(ctx, &s); err != nil {
				return err
			}
		}
		if f.due() {
			if err := f.seal(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// due tells whether it is time to seal.
func (f *following) due() bool {
	return f.w != nil && (f.o.Run.Now().Sub(f.w.Begun()) >= f.o.SealEvery || f.o.SealBytes > 0 && f.w.Bytes() >= f.o.SealBytes)
}

func (f *following) take(ctx context.Context, s *watchtail.Step) error {
	now := f.o.Run.Now()
	if f.w == nil {
		if err := f.open(s.Rev, now); err != nil {
			return err
		}
	}
	if err := f.w.Append(s.Rev, now, s.Events, func(id int64) (int64, error) { return f.granted(ctx, id) }); err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	f.last = f.stream.History()
	return nil
}

// granted asks for how long a lease was granted, in seconds; 0: it is gone already, or nobody
// says. Then it gets a time to live when it is restored.
func (f *following) granted(ctx context.Context, id int64) (int64, error) {
	for range 5 {
		tctx, cancel := context.WithTimeout(ctx, max(f.o.Run.Save.RequestTimeout, time.Second))
		r, err := f.client.TimeToLive(tctx, clientv3.LeaseID(id))
		cancel()
		if err == nil {
			return max(r.GrantedTTL, 0), nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return 0, nil
}

// open begins a segment in a private file. One that a killed run left is replaced.
func (f *following) open(first int64, now time.Time) error {
	dir, err := place.PrivateDir(f.o.Run.Dir)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	if f.file, err = os.CreateTemp(dir, "segment-*"); err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	if f.w, err = segment.NewWriter(f.file, first, f.cluster, now, f.o.Recipients...); err != nil {
		return errors.Join(err, f.drop())
	}
	return nil
}

// drop removes the file of a segment.
func (f *following) drop() error {
	err := errors.Join(f.file.Close(), os.Remove(f.file.Name()))
	f.file, f.w = nil, nil
	return err
}

// seal ends the segment that is written, stores it, and compares what arrived.
func (f *following) seal(ctx context.Context) (err error) {
	if f.w == nil {
		return nil
	}
	defer func() { err = errors.Join(err, f.drop()) }()
	if f.w.Last() < f.known.Rev+1 { // nothing whole has come
		return nil
	}
	info, err := f.w.Seal(f.last.Ahead, f.last.Digest)
	if err != nil {
		return fmt.Errorf("seal a segment: %w", err)
	}
	h := sha256.New()
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("seal a segment: %w", err)
	}
	size, err := io.Copy(h, f.file)
	if err != nil {
		return fmt.Errorf("seal a segment: %w", err)
	}
	sealed := f.o.Run.Now()
	s := Segment{Cluster: fmt.Sprintf("%x", f.cluster), Name: segmentName(info.First, info.Last, sealed, len(f.o.Recipients) > 0), First: info.First, Last: info.Last, Sealed: sealed, Bytes: size}
	if err := f.r.Store.Put(ctx, s.object(), f.file, size, [sha256.Size]byte(h.Sum(nil)), store.PutOptions{}); err != nil {
		return fmt.Errorf("store segment %s: %w", s.ID(), err)
	}
	f.known.Rev = info.Last
	if f.o.Stored != nil {
		f.o.Stored(s)
	}
	return nil
}

// SweepSegments removes what a killed Follow left in dir that is older than a day.
func SweepSegments(dir string, now time.Time) error {
	parent, err := place.PrivateDir(dir)
	if err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(parent, "segment-*"))
	if err != nil {
		return err
	}
	for _, name := range left {
		if st, err := os.Lstat(name); err == nil && st.Mode().IsRegular() && now.Sub(st.ModTime()) > 24*time.Hour {
			_ = os.Remove(name) // the next one tries again
		}
	}
	return nil
}
