package live

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// NoLeaderError says that a request failed because the member that got it knows no
// leader.
type NoLeaderError struct {
	Endpoint string
	Err      error // how the request ended
	what     string
}

func (e *NoLeaderError) Error() string {
	return e.what + "the cluster has no leader, so it has lost its quorum or is electing"
}

func (e *NoLeaderError) Unwrap() error { return e.Err }

// NoLeader returns a *NoLeaderError if err is a request that client sent and that
// was not answered for want of a leader, else err. It may ask for the state, for a
// second at most.
func NoLeader(ctx context.Context, client *clientv3.Client, err error) error {
	if err == nil {
		return nil
	}
	return newMember(strings.Join(client.Endpoints(), ","), client.ActiveConnection()).noLeader(ctx, err)
}

// noLeader does not count on the deadline of ctx, which may be what ended the
// request.
func (m *member) noLeader(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) || !m.leaderless(ctx, err) {
		return err
	}
	// What was being done stands in front of how it ended.
	what := ""
	if i := strings.LastIndex(err.Error(), m.endpoint+": "); i >= 0 {
		what = err.Error()[:i] + m.endpoint + ": "
	}
	return &NoLeaderError{Endpoint: m.endpoint, Err: err, what: what}
}

// stateTimeout bounds the question why something else was not answered.
const stateTimeout = time.Second

func (m *member) leaderless(ctx context.Context, err error) bool {
	if errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) {
		return true
	}
	if c := code(err); c != codes.Unavailable && c != codes.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateTimeout)
	defer cancel()
	st, serr := m.maintenance.Status(ctx, &pb.StatusRequest{})
	// A server that is no etcd names no leader either.
	return serr == nil && st.Leader == 0 && !IsPartial(st.Header)
}

// budget is the time that is left for the small requests of one read.
type budget struct {
	bounded bool
	left    time.Duration
}

func (s *Source) budget() *budget {
	return &budget{bounded: s.o.RequestTimeout > 0, left: s.o.RequestTimeout}
}

// spend calls f with a context that ends when the budget does.
func (b *budget) spend(ctx context.Context, f func(context.Context) error) error {
	if !b.bounded {
		return f(ctx)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, b.left)
	defer cancel()
	err := f(ctx)
	b.left -= time.Since(begin)
	return err
}
