// Package supervise holds locks and leaderships in etcd, and runs commands under them
// that do not outlive what they run under.
//
// A place in the queue for a lock or an election is a key, NAME/ and the hexadecimal id of
// a lease; whose key was created first has the lock. etcdctl and etcd's own package
// concurrency do the same, so all of them can wait for each other.
//
// How long a lock is ours is reckoned from the moment at which the last renewal that etcd
// answered was sent, so that we never believe longer in it than etcd does; on a clock that
// goes on while the machine sleeps (see Instant).
package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Options of Acquire.
type Options struct {
	Name  string // of the lock or election
	Value string // of our key; an election's proposal
	TTL   int64  // of the lease, seconds; the server may give more
	Try   bool   // do not wait
	// Margin is how long before the lease ends it counts as lost, when no renewal was
	// answered; 0: a quarter of the time to live, or 1.5 seconds if that is more and not more
	// than half of that. Half of the margin is left to a command that is told to end; in the
	// other half nothing of it runs any more.
	Margin time.Duration
}

// ErrNotFree says that somebody else has what Options.Try asked for.
var ErrNotFree = errors.New("not free")

// LostError says that a place in the queue, or the first one, is no longer ours.
type LostError struct{ Reason string }

func (e *LostError) Error() string { return e.Reason }

// LeftError says that Acquire failed, and what of it is left in etcd.
type LeftError struct{ Err, Left error }

func (e *LeftError) Error() string { return e.Err.Error() + "; " + e.Left.Error() }
func (e *LeftError) Unwrap() error { return e.Err }

// Prefix is what the keys of a lock or election have in common.
func Prefix(name string) string { return name + "/" }

// releaseBound is how long giving back may take when etcd does not answer.
const releaseBound = 3 * time.Second

// retryDelay is the pause before a request is repeated that failed for a moment.
const retryDelay = 200 * time.Millisecond

// retry repeats a request that may be repeated until ctx ends. It returns the cause of that,
// or the first error that will not go away by itself.
func retry[T any](ctx context.Context, f func() (T, error)) (T, error) {
	for {
		r, err := f()
		if ctx.Err() != nil && err != nil {
			return r, context.Cause(ctx)
		}
		if err == nil || !passing(err) {
			return r, err
		}
		if err := sleep(ctx, retryDelay); err != nil {
			return r, err
		}
	}
}

// passing tells whether an error may go away by itself.
func passing(err error) bool {
	var e rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &e) {
		code = e.Code()
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	}
	return false
}

// sleep returns the cause of ctx's end if that comes first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lost makes the error for a place that is gone.
func lost(format string, a ...any) *LostError { return &LostError{fmt.Sprintf(format, a...)} }

// leased is the key of a place.
func leased(name string, id clientv3.LeaseID) string {
	return fmt.Sprintf("%s%x", Prefix(name), int64(id))
}
