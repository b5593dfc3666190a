// Package live reads a keyspace from a running cluster.
//
// Every read is pinned to one revision, so that it is consistent however long it
// takes and however many requests it needs. Where the server streams ranges (etcd
// 3.7) one request is enough; else pages of about equal bytes are asked for. With
// several endpoints a follower is read from, because the leader has enough to do.
// History comes out of a snapshot that the server streams into a private file: a
// watch from far back would make the server read its whole backlog while it holds
// the lock that writers need.
//
// The package sends requests that read and no others: Status, Range, RangeStream,
// Snapshot, and a watch that the server refuses at once, which is the only way to
// ask how far it is compacted.
package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Options of New. The zero value reads what is true, as fast as it comes.
type Options struct {
	// MaxRate bounds what is read from the server, in bytes a second; 0: no bound.
	// It holds on average: one page, or what the connection buffers, comes at once.
	MaxRate int64
	// Serializable takes a member's own word for what the newest revision is. It
	// needs no quorum, and may be behind.
	Serializable bool
	// RequestTimeout bounds the small requests that begin a read (which member, the
	// newest revision, the state), all together; 0: no bound. What follows them, a
	// stream or pages, takes the time it takes.
	RequestTimeout time.Duration
	// TempDir is where Events keeps a snapshot while the source is open; empty:
	// the system's folder for temporary files. It needs room for the database.
	TempDir string
	// PageBytes is the size that pages aim at; 0: 8 MB. A page may be several
	// times larger when values grow from one page to the next.
	PageBytes int64
	// Progress is told now and then how far a read has come. It is called by the
	// goroutine that reads, and must not block.
	Progress func(Progress)
	// NoStream reads by pages even from a server that streams.
	NoStream bool
}

// Progress is how far a read has come.
type Progress struct {
	// Snapshot tells that Bytes are those of a snapshot on its way here, before
	// the first event; else they are keys and values of records.
	Snapshot bool
	Records  int64
	Bytes    int64
	Total    int64 // bytes to come in all; 0: unknown
}

// Source is a running cluster. It implements keyspace.HistorySource, and its
// methods may be called by several goroutines at once.
type Source struct {
	client   *clientv3.Client
	o        Options
	limit    limiter
	noStream atomic.Bool // this cluster has answered that it cannot
	// partial: the server is no etcd but speaks part of its API, as Kine does. It
	// takes linearizable reads only, and finds nothing in a range without an end.
	partial atomic.Bool

	mu     sync.Mutex
	member *member   // where reads go; nil: not chosen yet
	failed []*member // dropped; others may still be reading from them
	spools []*spool
	closed bool

	spooling sync.Mutex // one snapshot at a time
}

var _ keyspace.HistorySource = (*Source)(nil)

// ErrClosed is returned by reads of a source that was closed.
var ErrClosed = errors.New("source is closed")

// New returns a source that reads from the endpoints of client. It connects when
// it is first read. The client stays the caller's, to be closed after the source;
// wrappers put into its fields, such as a namespace, are not used.
func New(client *clientv3.Client, o Options) *Source {
	if o.PageBytes <= 0 {
		o.PageBytes = 8 << 20
	}
	s := &Source{client: client, o: o, limit: limiter{rate: o.MaxRate}}
	s.noStream.Store(o.NoStream)
	return s
}

// Close ends the source's own connection and removes its snapshot of the history.
// The client stays open. Events that were yielded become invalid.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.member != nil {
		errs = append(errs, s.member.close())
		s.member = nil
	}
	for _, m := range s.failed {
		errs = append(errs, m.close())
	}
	for _, sp := range s.spools {
		errs = append(errs, sp.src.Close())
	}
	s.spools = nil
	return errors.Join(errs...)
}

// Info asks one member for its state. CompactRev takes two requests more; it is 0,
// with a Note, where permissions do not allow them.
func (s *Source) Info(ctx context.Context) (info keyspace.Info, err error) {
	err = s.budget().spend(ctx, func(ctx context.Context) error {
		for a := s.attempts(); ; {
			if info, err = s.info(ctx); err == nil || !a.again(ctx, err) {
				return err
			}
		}
	})
	return info, err
}

func (s *Source) info(ctx context.Context) (keyspace.Info, error) {
	m, err := s.choose(ctx)
	if err != nil {
		return keyspace.Info{}, err
	}
	// The revision first, so that the member has caught up with it.
	rev, err := s.newest(ctx, m, everything.Key)
	if err != nil && !denied(err) {
		return keyspace.Info{}, err
	}
	st, err := m.maintenance.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return keyspace.Info{}, m.explain(err, "read the state")
	}
	info := keyspace.Info{
		Kind:       keyspace.Live,
		Location:   m.endpoint,
		Revision:   max(rev, st.Header.GetRevision()),
		ClusterID:  st.Header.GetClusterId(),
		MemberID:   st.Header.GetMemberId(),
		Bytes:      st.DbSize,
		BytesInUse: st.DbSizeInUse,
		Version:    st.Version,
	}
	if len(st.Errors) > 0 {
		info.Note = "the member reports: " + st.Errors[0]
	} else if st.IsLearner {
		info.Note = "the member is a learner and may be behind"
	}
	info.CompactRev, err = s.compactRev(ctx, m, everything.Key)
	if denied(err) {
		info.Note, err = "how far the cluster is compacted is not known: permission denied", nil
	}
	if err != nil {
		return keyspace.Info{}, err
	}
	return info, nil
}

var everything = keyspace.All()

// newest returns the newest revision. A read of one key that returns no key costs
// the server nothing; the same with a range would count the range.
func (s *Source) newest(ctx context.Context, m *member, key []byte) (int64, error) {
	r, err := s.rangeOnce(ctx, m, &pb.RangeRequest{Key: keyOrFirst(key), CountOnly: true, Serializable: s.o.Serializable}, callOptions...)
	if err != nil {
		err = m.explain(err, "read the newest revision")
		if !s.o.Serializable {
			err = m.noLeader(ctx, err)
		}
		return 0, err
	}
	if IsPartial(r.Header) {
		s.partial.Store(true)
	}
	return r.Header.GetRevision(), nil
}

// IsPartial tells by the header of any answer whether a server is none of etcd's: an
// etcd always says which cluster it is of.
func IsPartial(h *pb.ResponseHeader) bool { return h.GetClusterId() == 0 && h.GetMemberId() == 0 }

// LastKey ends a range for a server that wants an end. Kine's keys are text, in
// which this byte cannot stand.
const LastKey = "\xff"

// compactRev returns the revision the cluster is compacted at, 0 when it is not. A
// proxy would answer a serializable read from before the compaction.
func (s *Source) compactRev(ctx context.Context, m *member, key []byte) (int64, error) {
	_, err := s.rangeOnce(ctx, m, &pb.RangeRequest{Key: keyOrFirst(key), Revision: 1, CountOnly: true, Serializable: s.o.Serializable}, callOptions...)
	switch {
	case err == nil:
		return 0, nil
	case isCompacted(err):
		return s.compactRevBelow(ctx, m, key, 1)
	}
	return 0, m.explain(err, "read the compact revision")
}

// compactRevBelow returns the compact revision when rev is known to lie below it:
// a watch from there is refused with that number, and has nothing to read back.
func (s *Source) compactRevBelow(ctx context.Context, m *member, key []byte, rev int64) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("no answer within %v", requestTimeout))
	defer cancel()
	w, err := m.watch.Watch(ctx, callOptions...)
	if err == nil {
		err = w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: keyOrFirst(key), StartRevision: max(rev, 1)},
		}})
	}
	for err == nil {
		var r *pb.WatchResponse
		if r, err = w.Recv(); err != nil {
			break
		}
		if r.CompactRevision != 0 {
			return r.CompactRevision, nil
		}
		if r.Canceled {
			return 0, fmt.Errorf("ask %s for the compact revision: %s", m.endpoint, r.CancelReason)
		}
		if len(r.Events) > 0 {
			return 0, fmt.Errorf("ask %s for the compact revision: it has revision %d after all", m.endpoint, rev)
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return 0, m.explain(err, "read the compact revision")
}

// rangeOnce sends one Range. A server that does not know serializable reads is asked
// again without, and from then on.
func (s *Source) rangeOnce(ctx context.Context, m *member, r *pb.RangeRequest, o ...grpc.CallOption) (*pb.RangeResponse, error) {
	r.Serializable = r.Serializable && !s.partial.Load()
	resp, err := m.kv.Range(ctx, r, o...)
	if r.Serializable && refusesSerializable(err) {
		s.partial.Store(true)
		r.Serializable = false
		resp, err = m.kv.Range(ctx, r, o...)
	}
	return resp, err
}

// requestTimeout bounds the small requests that answer at once or never.
const requestTimeout = 5 * time.Second

// keyOrFirst replaces the key that no request may have.
func keyOrFirst(key []byte) []byte {
	if len(key) == 0 {
		return everything.Key
	}
	return key
}
