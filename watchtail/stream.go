// Package watchtail follows the revision stream of a cluster.
//
// It speaks etcd's Watch API itself: clientv3 takes from the network whatever comes and
// keeps it until it is asked for, so that a slow reader of a long backlog holds all of it
// in memory. Here a message is taken from the stream when the last one has been used, and
// the server waits.
package watchtail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Request is what to follow.
type Request struct {
	// Key and End are a range as keyspace has it: an empty End is one key, "\x00" the end of
	// the keyspace.
	Key, End []byte
	// Rev is the first revision of interest; 0: what comes after now.
	Rev    int64
	PrevKV bool
	// Progress asks the server to tell now and then how far it is when nothing happens.
	Progress bool
	// Prefix stands before every key: keys are given and yielded without it.
	Prefix []byte
}

// CanceledError says that the server ended a watch, for a reason that is no compaction.
type CanceledError struct{ Reason string }

func (e *CanceledError) Error() string { return "the server canceled the watch: " + e.Reason }

// Unwrap gives etcd's own error where the reason is one. It comes as gRPC prints it.
func (e *CanceledError) Unwrap() error {
	reason := e.Reason
	if _, desc, ok := strings.Cut(reason, " desc = "); ok && strings.HasPrefix(reason, "rpc error: ") {
		reason = desc
	}
	return rpctypes.Error(status.Error(codes.FailedPrecondition, reason))
}

// The pauses between attempts to connect again.
const (
	minPause = 50 * time.Millisecond
	maxPause = 3 * time.Second
)

// Watch yields what the server sends: events, whole revisions in order, and progress
// notices, which have none. After a lost connection it goes on where it was, on
// whatever endpoint the client then has. At most one message is in memory; it is valid until
// the next one.
//
// The error ends it: keyspace.CompactedError when the server no longer has the next
// revision, CanceledError, what the server answered when no attempt makes sense, and the
// cause of ctx. The message that canceled the watch comes with the error; with any other
// error the message is nil.
func Watch(ctx context.Context, client *clientv3.Client, r Request) iter.Seq2[*pb.WatchResponse, error] {
	return func(yield func(*pb.WatchResponse, error) bool) {
		f := follower{client: client, r: r, next: r.Rev, pause: minPause}
		for {
			err := f.follow(ctx, yield)
			switch {
			case errors.Is(err, errEnough):
				return
			case ctx.Err() != nil:
				yield(nil, context.Cause(ctx))
				return
			case !transient(err):
				yield(nil, err)
				return
			}
			select {
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			case <-time.After(f.pause):
			}
			f.pause = min(2*f.pause, maxPause)
		}
	}
}

// errEnough says that the consumer has ended the iteration, or was told the end.
var errEnough = errors.New("enough")

// transient tells whether the same request can succeed on another attempt. Without a
// leader the members know no more than we do.
func transient(err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	var etcd rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &etcd) && errors.Is(etcd, rpctypes.ErrNoLeader) {
		return false
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.Internal:
		return true
	}
	return false
}

type follower struct {
	client *clientv3.Client
	r      Request
	next   int64 // the first revision that has not been yielded; 0: not known yet
	pause  time.Duration
}

// follow is one stream.
func (f *follower) follow(ctx context.Context, yield func(*pb.WatchResponse, error) bool) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	s, err := pb.NewWatchClient(f.client.ActiveConnection()).Watch(ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.ForceCodecV2(&codec{}))
	if err != nil {
		return err
	}
	create := &pb.WatchCreateRequest{StartRevision: f.next, PrevKv: f.r.PrevKV, ProgressNotify: f.r.Progress}
	create.Key, create.RangeEnd = keyspace.Within(f.r.Prefix, f.r.Key, f.r.End)
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		m, err := s.Recv() // has the reason of a Send that failed, too
		if err != nil {
			return err
		}
		if err := f.take(m, yield); err != nil {
			return err
		}
	}
}

func (f *follower) take(m *pb.WatchResponse, yield func(*pb.WatchResponse, error) bool) error {
	if m.GetCanceled() {
		yield(m, f.canceled(m))
		return errEnough
	}
	f.pause = minPause
	if m.GetCreated() {
		if f.next == 0 {
			f.next = m.GetHeader().GetRevision() + 1
		}
		return nil
	}
	if n := len(m.GetEvents()); n > 0 {
		f.next = m.GetEvents()[n-1].GetKv().GetModRevision() + 1
	} else {
		f.next = max(f.next, m.GetHeader().GetRevision()+1)
	}
	if len(f.r.Prefix) > 0 {
		for _, e := range m.GetEvents() {
			e.Kv.Key = bytes.TrimPrefix(e.GetKv().GetKey(), f.r.Prefix)
			if e.GetPrevKv() != nil {
				e.PrevKv.Key = bytes.TrimPrefix(e.GetPrevKv().GetKey(), f.r.Prefix)
			}
		}
	}
	if !yield(m, nil) {
		return errEnough
	}
	return nil
}

func (f *follower) canceled(m *pb.WatchResponse) error {
	if m.GetCompactRevision() != 0 {
		return &keyspace.CompactedError{Rev: f.next, CompactRev: m.GetCompactRevision()}
	}
	if m.GetCancelReason() == "" {
		return fmt.Errorf("watch from revision %d: %w", f.next, rpctypes.ErrFutureRev)
	}
	return &CanceledError{m.GetCancelReason()}
}
