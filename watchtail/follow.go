package watchtail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Step is what a stream gives: the events of one revision, or how far it is.
type Step struct {
	// Rev: everything up to this revision, this one included, has been given.
	Rev int64
	// Events are all selected changes of Rev in the order in which they were made, or none.
	// They are valid until the next step.
	Events []keyspace.Event
	// Idle says that nothing has come for a moment: whoever holds something back lets it go.
	// Rev is that of the step before.
	Idle bool
	// More says that the next step is there already.
	More bool
	// List says that the events are keys as they stood at Rev, in key order and in parts:
	// together with the steps from its begin to its end they are one thing.
	List   ListPlace
	Origin Origin // of the events
}

// ListPlace is the place of a step in a list.
type ListPlace uint8

// The places in a list; the first and the last one have no events.
const (
	NoList ListPlace = iota
	ListBegin
	ListPart
	ListEnd
)

// Options say what to follow and how.
type Options struct {
	// Endpoints are the members to choose from, each asked through Dial; whoever calls
	// Follow is not asked to close what it returned.
	Endpoints []string
	Dial      func(ctx context.Context, endpoint string) (*clientv3.Client, error)
	// Ranges select keys; Prefix stands before every key: keys are given and yielded
	// without it.
	Ranges []keyspace.Range
	Prefix []byte
	// From is the first revision to give; 0: the one after the newest.
	From   int64
	PrevKV bool
	// Backlog opens the history up to about now, which is read up to its end before anything
	// is watched: a watch from far back holds up all writes. nil: everything is watched. With
	// Oldest it begins with the oldest revision there is, whatever From says.
	// BacklogRevs is from how many revisions on that is done for another beginning.
	Backlog     func(ctx context.Context) (keyspace.HistorySource, error)
	BacklogRevs int64
	Oldest      bool
	// List opens the cluster to list what there is, before anything is watched where Listed
	// says so; ResyncCompacted and ResyncDiverged list when the next revision is gone, or the
	// history is another one, in place of ending with that error.
	List                            func(ctx context.Context) (keyspace.Source, error)
	Listed                          bool
	ResyncCompacted, ResyncDiverged bool
	// Known is what was known of the history before, of its revision From-1; zero: nothing.
	Known History
	// Progress is how often the server is asked how far it is; 0: every 10 s.
	Progress time.Duration
	// MaxSilence is how long no member may be heard of; 0: without end.
	MaxSilence time.Duration
	// Trouble is told of each stream that ended and of what else is worth knowing, and that
	// another one has begun (nil); nil: nobody.
	Trouble func(endpoint string, err error)
}

const (
	progressEvery = 10 * time.Second
	// idleAfter is how long nothing has come when the first idle step is given, and
	// idleEvery how long until the next ones.
	idleAfter = 100 * time.Millisecond
	idleEvery = time.Second
	// quiet streams are given up after so many requests for progress without an answer.
	lostProgress = 3
)

// SilenceError says that no member was heard of for a while.
type SilenceError struct {
	For  time.Duration
	Last error // what the last attempt said; nil: the server went silent
}

func (e *SilenceError) Error() string {
	if e.Last == nil {
		return fmt.Sprintf("nothing was heard from the cluster for %s", e.For)
	}
	return fmt.Sprintf("nothing was heard from the cluster for %s: %v", e.For, e.Last)
}

// Unwrap returns what the last attempt said.
func (e *SilenceError) Unwrap() error { return e.Last }

// Stream follows one cluster over all its connections.
type Stream struct {
	o     Options
	key   []byte // hull of the ranges
	end   []byte
	next  int64   // the first revision that was not given; 0: not known yet
	known History // its Digest is that of revision next-1
	heard time.Time
	pause time.Duration
	avoid string // the endpoint of the stream that ended
	err   error  // why it ended

	seeking  bool  // the oldest revision is looked for
	replayed bool  // revision next-1 has come again, or is not expected to
	step     *Step // what is being given, unless it is idle
	buf      []keyspace.Event
	prev     []keyspace.Record
}

// Follow makes a stream. It connects when its steps are asked for.
func Follow(o Options) *Stream {
	if o.Progress == 0 {
		o.Progress = progressEvery
	}
	t := &Stream{o: o, next: o.From, known: o.Known, pause: minPause}
	t.key, t.end = hull(o.Ranges)
	return t
}

// Steps gives every selected change from Options.From on, whole revisions in order, each
// once, and in between how far the stream is. It goes on at another member when one is lost,
// followers first, and makes sure that the history there is the one that was followed. One
// message of the server is in memory: who takes the next step late makes the server wait.
//
// The error ends it: a *keyspace.CompactedError, a *DivergedError, a *SilenceError, what the
// server refuses for good, and the cause of ctx.
func (t *Stream) Steps(ctx context.Context) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		t.heard = time.Now()
		give := func(s Step) error {
			if !s.Idle && s.List == NoList {
				t.step = &s
				defer func() { t.step = nil }()
			}
			if !yield(s, nil) {
				return errEnough
			}
			return nil
		}
		for begin := t.begin; ; {
			err := begin(ctx, give)
			if err == nil {
				begin = t.connected
				continue
			}
			err = t.resync(ctx, err, give)
			switch {
			case err == nil:
				continue
			case errors.Is(err, errEnough):
				return
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case t.known.Cluster != 0 && !fatal(err): // somebody has answered before
				err = t.rest(ctx, err, give)
			}
			if errors.Is(err, errEnough) {
				return
			}
			if err != nil {
				yield(Step{}, err)
				return
			}
		}
	}
}

// rest waits before the next attempt.
func (t *Stream) rest(ctx context.Context, why error, give func(Step) error) error {
	t.err = why
	t.trouble(t.avoid, why)
	if t.o.MaxSilence > 0 && time.Since(t.heard) > t.o.MaxSilence {
		return &SilenceError{For: time.Since(t.heard).Round(time.Second), Last: why}
	}
	if t.next > 0 && !t.o.Listed {
		if err := give(Step{Rev: t.next - 1, Idle: true}); err != nil { // what is held back can go
			return err
		}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(t.pause):
	}
	t.pause = min(2*t.pause, maxPause)
	return nil
}

func (t *Stream) trouble(endpoint string, err error) {
	if t.o.Trouble != nil {
		t.o.Trouble(endpoint, err)
	}
}

// hull returns the range that holds all ranges.
func hull(ranges []keyspace.Range) (key, end []byte) {
	open := func(end []byte) bool { return len(end) == 1 && end[0] == 0 }
	for i, r := range ranges {
		e := r.End
		if len(e) == 0 && len(ranges) > 1 {
			e = append(bytes.Clone(r.Key), 0)
		}
		if i == 0 {
			key, end = r.Key, e
			continue
		}
		if bytes.Compare(r.Key, key) < 0 {
			key = r.Key
		}
		if open(e) || !open(end) && bytes.Compare(e, end) > 0 {
			end = e
		}
	}
	return key, end
}

// selected tells whether a key lies in one of the ranges.
func (t *Stream) selected(key []byte) bool {
	return len(t.o.Ranges) == 1 || slices.ContainsFunc(t.o.Ranges, func(r keyspace.Range) bool { return keyspace.Contains(r.Key, r.End, key) })
}

// fatal tells whether no member and no later attempt would help.
func fatal(err error) bool {
	var compacted *keyspace.CompactedError
	var diverged *DivergedError
	if errors.As(err, &compacted) || errors.As(err, &diverged) {
		return true
	}
	var etcd rpctypes.EtcdError
	if !errors.As(rpctypes.Error(err), &etcd) && !errors.As(err, &etcd) {
		return false
	}
	return slices.ContainsFunc([]error{rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrRoleNotFound}, func(e error) bool { return errors.Is(etcd, e) })
}

// connected follows over one connection.
func (t *Stream) connected(ctx context.Context, give func(Step) error) error {
	m, err := t.choose(ctx)
	if err != nil {
		return err
	}
	defer m.client.Close()
	t.met(m)
	return t.stream(ctx, m, give)
}

// met notes what a member says of the history.
func (t *Stream) met(m *member) {
	t.avoid, t.heard = m.endpoint, time.Now()
	if t.next == 0 && !t.o.Oldest {
		t.next = m.rev + 1
	}
	if t.known.Cluster == 0 {
		t.known.Ahead = m.low
	}
	t.known.Cluster, t.known.Ahead = m.cluster, max(t.known.Ahead, m.low)
	if t.err != nil {
		t.trouble(m.endpoint, nil)
		t.err = nil
	}
}

// received is what one Recv gave.
type received struct {
	m   *pb.WatchResponse
	err error
}

// errQuiet says that a server has not told for long how far it is.
var errQuiet = errors.New("the server has gone silent")

// stream follows over one stream. It begins at the revision before the one that is wanted:
// what came last is to come again, as it was, and a compaction at or above the next one does
// not pass unnoticed.
func (t *Stream) stream(ctx context.Context, m *member, give func(Step) error) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	s, err := pb.NewWatchClient(m.client.ActiveConnection()).Watch(ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.ForceCodecV2(&codec{}))
	if err != nil {
		return err
	}
	t.replayed = t.known.Digest == 0
	create := &pb.WatchCreateRequest{StartRevision: max(t.next-1, 1), PrevKv: t.o.PrevKV, ProgressNotify: m.progress}
	create.Key, create.RangeEnd = keyspace.Within(t.o.Prefix, t.key, t.end)
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	// One goroutine receives, one message each time it is asked: nothing is read ahead. One
	// sends, since that can wait for a server that reads no more.
	ask, got, wanted := make(chan struct{}, 1), make(chan received, 1), make(chan struct{}, 1)
	defer close(ask)
	defer close(wanted)
	go func() {
		for range ask {
			m, err := s.Recv()
			got <- received{m, err}
		}
	}()
	go func() {
		for range wanted {
			_ = s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}) // Recv has its error
		}
	}()
	progress, idle := time.NewTicker(t.o.Progress), time.NewTimer(idleAfter)
	defer progress.Stop()
	defer idle.Stop()
	unanswered := 0
	ask <- struct{}{}
	if m.progress {
		wanted <- struct{}{}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-got:
			if r.err != nil {
				return r.err
			}
			t.heard, unanswered, t.pause = time.Now(), 0, minPause
			if err := t.take(ctx, m, r.m, give); err != nil {
				return err
			}
			ask <- struct{}{}
			idle.Reset(idleAfter)
		case <-idle.C:
			if err := give(Step{Rev: t.next - 1, Idle: true}); err != nil {
				return err
			}
			idle.Reset(idleEvery)
		case <-progress.C:
			if t.o.MaxSilence > 0 && time.Since(t.heard) > t.o.MaxSilence || unanswered >= lostProgress {
				return errQuiet
			}
			if !m.progress {
				continue
			}
			unanswered++
			select {
			case wanted <- struct{}{}:
			default: // the one before is still on its way
			}
		}
	}
}

// take gives what one message has.
func (t *Stream) take(ctx context.Context, m *member, msg *pb.WatchResponse, give func(Step) error) error {
	switch {
	case msg.GetCanceled() && msg.GetCompactRevision() != 0:
		return &keyspace.CompactedError{Rev: t.next, CompactRev: msg.GetCompactRevision()}
	case msg.GetCanceled():
		return canceled(msg.GetCancelReason())
	case msg.GetCreated():
		return nil
	case len(msg.GetEvents()) > 0:
		return t.revisions(ctx, m, msg.GetEvents(), give)
	}
	rev := msg.GetHeader().GetRevision()
	if !m.progress || rev < t.next-1 {
		return nil // it may say more than was sent, or what is known
	}
	if err := t.missed(ctx, m); err != nil {
		return err
	}
	if rev < t.next {
		return nil
	}
	t.next, t.known.Digest = rev+1, 0
	return give(Step{Rev: rev})
}

func canceled(reason string) error {
	if reason == "" {
		return errors.New("the server canceled the watch")
	}
	return &CanceledError{reason}
}

// revisions gives the events of a message, a revision at a time.
func (t *Stream) revisions(ctx context.Context, m *member, events []*mvccpb.Event, give func(Step) error) error {
	for len(events) > 0 {
		rev, n := events[0].GetKv().GetModRevision(), 1
		for n < len(events) && events[n].GetKv().GetModRevision() == rev {
			n++
		}
		step := t.convert(rev, events[:n])
		events = events[n:]
		if rev < t.next {
			if err := t.compare(ctx, m, rev, step); err != nil {
				return err
			}
			continue
		}
		if err := t.missed(ctx, m); err != nil {
			return err
		}
		t.next, t.seeking = rev+1, false
		if len(events) == 0 { // its memory is the next message's soon
			t.known.Digest = Digest(step)
		}
		if err := give(Step{Rev: rev, Events: step, More: len(events) > 0}); err != nil {
			return err
		}
	}
	return nil
}

// convert turns the events of one revision into ours, in memory of its own.
func (t *Stream) convert(rev int64, events []*mvccpb.Event) []keyspace.Event {
	if cap(t.buf) < len(events) {
		t.buf, t.prev = make([]keyspace.Event, len(events)), make([]keyspace.Record, len(events))
	}
	out := t.buf[:0]
	for _, e := range events {
		kv := e.GetKv()
		key := bytes.TrimPrefix(kv.GetKey(), t.o.Prefix)
		if !t.selected(key) {
			continue
		}
		i := len(out)
		ev := keyspace.Event{Rev: keyspace.Revision{Main: rev, Sub: int64(i)}, Record: recordOf(key, kv)}
		if e.GetType() == mvccpb.Event_DELETE {
			ev.Type, ev.Record = keyspace.Delete, keyspace.Record{Key: key, ModRev: rev}
		}
		if p := e.GetPrevKv(); p != nil {
			t.prev[i] = recordOf(key, p)
			ev.Prev = &t.prev[i]
		}
		out = append(out, ev)
	}
	return out
}

func recordOf(key []byte, kv *mvccpb.KeyValue) keyspace.Record {
	return keyspace.Record{Key: key, Value: kv.GetValue(), CreateRev: kv.GetCreateRevision(), ModRev: kv.GetModRevision(), Version: kv.GetVersion(), Lease: kv.GetLease()}
}
