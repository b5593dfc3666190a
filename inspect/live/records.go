package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Records yields the live records of r in key order as of r.Rev; 0 or less is the
// newest revision, asked for once at the start.
//
// One chunk of an answer is in memory: about 1.5 MB of a stream, PageBytes of
// a page. A member that goes away is replaced by another one, and the read goes on
// where it was. A consumer that is slower than the cluster's compactions loses its
// revision: the error wraps a *keyspace.CompactedError then, as it does when r.Rev
// was compacted before. To stop early, end the loop: the request is cancelled.
//
// With KeysOnly a server of 3.7 leaves out the lease as well.
func (s *Source) Records(ctx context.Context, r keyspace.Range) iter.Seq2[keyspace.Record, error] {
	return func(yield func(keyspace.Record, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		rd := &reader{s: s, r: r, from: r.Key, left: r.Limit, yield: yield, budget: s.budget()}
		if err := rd.all(ctx); err != nil {
			yield(keyspace.Record{}, err)
		}
	}
}

// errStopped says that the consumer wants no more.
var errStopped = errors.New("stopped")

// reader is one read of a range, over as many requests and members as it takes.
type reader struct {
	s        *Source
	r        keyspace.Range
	rev      int64  // pinned; 0: not yet
	newest   int64  // as last asked for
	from     []byte // first key not read yet
	left     int64  // records still wanted; 0: all, unless r.Limit is reached
	progress Progress
	budget   *budget // for the requests that begin each attempt
	counting bool    // only how many there are is wanted
	counted  int64   // by the server, behind what was yielded
	yield    func(keyspace.Record, error) bool
}

// all reads the range, from one member after the other if need be.
func (rd *reader) all(ctx context.Context) error {
	for a := rd.s.attempts(); ; {
		before := rd.progress.Records
		err := rd.read(ctx)
		if err == nil || errors.Is(err, errStopped) {
			return nil
		}
		if rd.progress.Records > before {
			a, rd.budget = rd.s.attempts(), rd.s.budget() // it came further; that was another failure
		}
		if !a.again(ctx, err) {
			return err
		}
	}
}

// read reads the rest of the range from one member.
func (rd *reader) read(ctx context.Context) error {
	var m *member
	err := rd.budget.spend(ctx, func(ctx context.Context) (err error) {
		if m, err = rd.s.choose(ctx); err != nil {
			return err
		}
		// Asking for the newest revision also makes the member catch up with it, so
		// that it has the pinned one whichever member that was read from.
		rd.newest, err = rd.s.newest(ctx, m, rd.r.Key)
		return err
	})
	if err != nil {
		return err
	}
	if rd.rev == 0 {
		rd.rev = rd.r.Rev
		if rd.rev <= 0 {
			rd.rev = rd.newest
		}
	}
	if rd.rev > rd.newest {
		return fmt.Errorf("read from %s: %w", m.endpoint, &keyspace.FutureError{Rev: rd.rev, Newest: rd.newest})
	}
	if len(rd.r.End) > 0 && !rd.s.noStream.Load() {
		err := rd.stream(ctx, m)
		if refusesSerializable(err) {
			rd.s.partial.Store(true)
			err = rd.stream(ctx, m)
		}
		if code(err) != codes.Unimplemented {
			return rd.explain(ctx, m, err)
		}
		rd.s.noStream.Store(true)
	}
	if rd.counting {
		return rd.explain(ctx, m, rd.ask(ctx, m))
	}
	return rd.explain(ctx, m, rd.pages(ctx, m))
}

// Count returns how many records Records would yield for r.
//
// A server that streams sends its keys, which are counted here: writes go on
// meanwhile, where its own count of a range holds them up, 0.2 s for a million keys.
// A server that does not stream would count the rest of the range for every page, so
// it is asked once.
func (s *Source) Count(ctx context.Context, r keyspace.Range) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := int64(0)
	r.KeysOnly = true
	rd := &reader{s: s, r: r, from: r.Key, left: r.Limit, counting: true, budget: s.budget(), yield: func(keyspace.Record, error) bool {
		n++
		return true
	}}
	err := rd.all(ctx)
	return n + rd.counted, err
}

// ask has the server count.
func (rd *reader) ask(ctx context.Context, m *member) error {
	req := rd.request()
	req.CountOnly, req.Limit = true, 0
	resp, err := rd.s.rangeOnce(ctx, m, req, callOptions...)
	if err != nil {
		return err
	}
	rd.counted = resp.Count
	if rd.r.Limit > 0 {
		rd.counted = min(resp.Count, rd.left)
	}
	return nil
}

func (rd *reader) explain(ctx context.Context, m *member, err error) error {
	switch {
	case err == nil || errors.Is(err, errStopped):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case isCompacted(err):
		compact, cerr := rd.s.compactRevBelow(ctx, m, rd.r.Key, rd.rev)
		if cerr != nil {
			return errors.Join(m.explain(err, "read the keyspace"), cerr)
		}
		gone := &keyspace.CompactedError{Rev: rd.rev, CompactRev: compact}
		if rd.progress.Records > 0 {
			return fmt.Errorf("read from %s: the cluster compacted after %d records, before the rest was read; read a snapshot instead: %w", m.endpoint, rd.progress.Records, gone)
		}
		return fmt.Errorf("read from %s: %w", m.endpoint, gone)
	case isFuture(err):
		// It answered for a newer revision a moment ago. Behind one endpoint there
		// may be several members, and another one took the request.
		return fmt.Errorf("read from %s: the member is behind: %w", m.endpoint, &keyspace.FutureError{Rev: rd.rev, Newest: rd.newest})
	}
	return m.explain(err, "read the keyspace")
}

func (rd *reader) request() *pb.RangeRequest {
	r := &pb.RangeRequest{
		Key:      rd.from,
		RangeEnd: rd.r.End,
		Revision: rd.rev,
		Limit:    rd.left,
		KeysOnly: rd.r.KeysOnly,
		// At a fixed revision that the member has, its own answer is the cluster's.
		Serializable: !rd.s.partial.Load(),
	}
	if rd.s.partial.Load() && len(r.RangeEnd) == 1 && r.RangeEnd[0] == 0 {
		r.RangeEnd = []byte(LastKey)
	}
	return r
}

// stream reads by one request that the server answers in chunks.
func (rd *reader) stream(ctx context.Context, m *member) error {
	ctx, cancel := context.WithCancel(ctx)
	st, err := m.kv.RangeStream(ctx, rd.request(), callOptions...)
	if err != nil {
		cancel()
		return err
	}
	// Whatever ends the loop, the connection must not keep chunks nobody takes.
	defer func() {
		cancel()
		for {
			if _, err := st.Recv(); err != nil {
				return
			}
		}
	}()
	for {
		chunk, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = rd.deliver(ctx, chunk.GetRangeResponse().GetKvs())
		}
		if err != nil {
			return err
		}
	}
}

const (
	firstPage   = 100    // records, before anything is known about their size
	largestPage = 50_000 // records; a server counts the rest of the range at every page
	// pageGrowth bounds what a page can be if values suddenly become large.
	pageGrowth = 8
)

// pages reads by as many requests as it takes.
func (rd *reader) pages(ctx context.Context, m *member) error {
	size := int64(firstPage)
	for {
		req := rd.request()
		switch {
		case len(req.RangeEnd) == 0:
			req.Limit = 0 // one key; Kine takes no limit with it
		case req.Limit == 0 || req.Limit > size:
			req.Limit = size
		}
		// An answer that is far larger than asked for is refused and asked for in
		// smaller parts. A single record must be taken as it is.
		most := int64(math.MaxInt32)
		if req.Limit > 1 {
			most = min(most, pageGrowth*rd.s.o.PageBytes)
		}
		resp, err := rd.s.rangeOnce(ctx, m, req, grpc.MaxCallRecvMsgSize(int(most)))
		if code(err) == codes.ResourceExhausted && req.Limit > 1 {
			size = max(1, req.Limit/pageGrowth)
			continue
		}
		if err != nil {
			return err
		}
		n, err := rd.deliver(ctx, resp.Kvs)
		if err != nil || !resp.More || len(resp.Kvs) == 0 || rd.done() {
			return err
		}
		mean := max(1, n/int64(len(resp.Kvs)))
		size = min(max(1, rd.s.o.PageBytes/mean), pageGrowth*size, largestPage)
	}
}

func (rd *reader) done() bool { return rd.r.Limit > 0 && rd.left == 0 }

// deliver hands out a chunk and returns how many bytes it was.
func (rd *reader) deliver(ctx context.Context, kvs []*mvccpb.KeyValue) (n int64, err error) {
	for _, kv := range kvs {
		n += int64(len(kv.Key)+len(kv.Value)) + recordOverhead
	}
	if err := rd.s.limit.take(ctx, n); err != nil {
		return n, err
	}
	for _, kv := range kvs {
		rec := keyspace.Record{
			Key: kv.Key, Value: kv.Value,
			CreateRev: kv.CreateRevision, ModRev: kv.ModRevision, Version: kv.Version, Lease: kv.Lease,
		}
		if rd.r.KeysOnly {
			rec.Value = nil
		}
		// Before it is yielded: a read that goes on elsewhere starts behind it.
		rd.from = slices.Concat(kv.Key, []byte{0})
		rd.progress.Records++
		if rd.r.Limit > 0 {
			rd.left--
		}
		if !rd.yield(rec, nil) || rd.done() {
			return n, errStopped
		}
	}
	rd.progress.Bytes += n
	if rd.s.o.Progress != nil && len(kvs) > 0 {
		rd.s.o.Progress(rd.progress)
	}
	return n, nil
}

// recordOverhead is about what a record's numbers take on the wire.
const recordOverhead = 24
