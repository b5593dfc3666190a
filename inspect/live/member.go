package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// callOptions lift gRPC's own limit of 4 MB an answer, which a few values exceed.
var callOptions = []grpc.CallOption{grpc.MaxCallRecvMsgSize(math.MaxInt32)}

// member is the endpoint that reads go to.
type member struct {
	endpoint    string
	kv          pb.KVClient
	watch       pb.WatchClient
	maintenance pb.MaintenanceClient
	conn        *grpc.ClientConn // nil: the client's own
}

func newMember(endpoint string, conn *grpc.ClientConn) *member {
	return &member{
		endpoint:    endpoint,
		kv:          pb.NewKVClient(conn),
		watch:       pb.NewWatchClient(conn),
		maintenance: pb.NewMaintenanceClient(conn),
		conn:        conn,
	}
}

func (m *member) close() error {
	if m.conn == nil {
		return nil
	}
	return m.conn.Close()
}

// choose returns the member to read from. With one endpoint that is the client's
// connection. With several, every endpoint is asked once who it is: the first
// follower in the operator's order is taken, else the leader; never a learner,
// which answers half of the requests, and never one that does not answer. If none
// does, the client's connection is tried, whose error says more.
func (s *Source) choose(ctx context.Context) (*member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("read the cluster: %w", ErrClosed)
	}
	if s.member != nil {
		return s.member, nil
	}
	endpoints := s.client.Endpoints()
	if len(endpoints) > 1 {
		if s.member = s.best(ctx, endpoints); s.member != nil {
			return s.member, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("choose a member of %s: %w", strings.Join(endpoints, ","), err)
		}
	}
	s.member = newMember(strings.Join(endpoints, ","), s.client.ActiveConnection())
	s.member.conn = nil // not ours to close
	return s.member, nil
}

// drop forgets a member that failed, so that the next read chooses again.
func (s *Source) drop(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.member == m {
		s.member = nil
		s.failed = append(s.failed, m)
	}
}

// patience is how long members that do not answer are waited for when others have.
const (
	patience = 500 * time.Millisecond
	// longPatience is for when those that answered cannot be read from.
	longPatience = 4 * patience
)

type answer struct {
	at     int // in the order of endpoints
	member *member
	status *pb.StatusResponse // nil: none
}

// best connects to the endpoint to read from; nil when none can be. Answers are
// not tried again, and stragglers not waited for: an endpoint that is away is what
// the others are for.
func (s *Source) best(ctx context.Context, endpoints []string) *member {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answers := make(chan answer, len(endpoints))
	for i, ep := range endpoints {
		go func() {
			conn, err := s.client.Dial(ep)
			if err != nil {
				answers <- answer{at: i}
				return
			}
			a := answer{at: i, member: newMember(ep, conn)}
			a.status, _ = a.member.maintenance.Status(ctx, &pb.StatusRequest{})
			answers <- a
		}()
	}
	all := make([]answer, len(endpoints))
	waiting := len(endpoints)
	var late <-chan time.Time
	found := false
collect:
	for ; waiting > 0; waiting-- {
		select {
		case a := <-answers:
			all[a.at] = a
			switch {
			case a.status == nil || found:
			case s.usable(a):
				found, late = true, time.After(patience)
			case late == nil:
				late = time.After(longPatience)
			}
		case <-late:
			break collect
		}
	}
	// The rest is to be closed whenever it comes; cancel sees to it that it does.
	go func() {
		for range waiting {
			if a := <-answers; a.member != nil {
				_ = a.member.close()
			}
		}
	}()
	var best *member
	for _, is := range []func(answer) bool{answer.follows, answer.leads, answer.answers} {
		for _, a := range all {
			if best == nil && s.usable(a) && is(a) {
				best = a.member
			}
		}
	}
	for _, a := range all {
		if a.member != nil && a.member != best {
			_ = a.member.close()
		}
	}
	return best
}

// usable tells whether reads can go to the member: it answers, knows a leader
// unless its own word is enough, and is no learner.
func (s *Source) usable(a answer) bool {
	return a.answers() && !a.status.IsLearner && (a.status.Leader != 0 || s.o.Serializable)
}

func (a answer) answers() bool { return a.status != nil }
func (a answer) leads() bool {
	return a.answers() && a.status.Leader != 0 && a.status.Header.GetMemberId() == a.status.Leader
}
func (a answer) follows() bool { return a.answers() && a.status.Leader != 0 && !a.leads() }

// explain says what failed where, and keeps etcd's error for errors.Is and As. The
// end of a context is the context's own error again, which gRPC hides.
func (m *member) explain(err error, doing string) error {
	switch code(err) {
	case codes.OK:
		return nil
	case codes.Canceled:
		return fmt.Errorf("%s from %s: %w", doing, m.endpoint, context.Canceled)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s from %s: %w", doing, m.endpoint, context.DeadlineExceeded)
	}
	return fmt.Errorf("%s from %s: %w", doing, m.endpoint, rpctypes.Error(err))
}

func isCompacted(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) }
func isFuture(err error) bool    { return errors.Is(rpctypes.Error(err), rpctypes.ErrFutureRev) }

// refusesSerializable tells a server without serializable reads from one without
// the call.
func refusesSerializable(err error) bool {
	return code(err) == codes.Unimplemented && strings.Contains(err.Error(), "serializable")
}

func denied(err error) bool {
	return err != nil && (code(err) == codes.PermissionDenied || errors.Is(err, rpctypes.ErrPermissionDenied))
}

// code returns the gRPC code of an error, also of one that etcd's client has
// wrapped.
func code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	var ee rpctypes.EtcdError
	if errors.As(err, &ee) {
		return ee.Code()
	}
	var gs interface{ GRPCStatus() *status.Status }
	if errors.As(err, &gs) {
		return gs.GRPCStatus().Code()
	}
	return codes.Unknown
}

// attempts counts how often a read is tried again after its member went away.
type attempts struct {
	s    *Source
	left int
}

func (s *Source) attempts() *attempts { return &attempts{s: s, left: 3} }

// again tells whether to try once more after err, with a member chosen anew.
func (a *attempts) again(ctx context.Context, err error) bool {
	var lost *NoLeaderError
	if ctx.Err() != nil || a.left == 0 || code(err) != codes.Unavailable || errors.As(err, &lost) {
		return false
	}
	a.left--
	a.s.mu.Lock()
	m := a.s.member
	a.s.mu.Unlock()
	if m != nil {
		a.s.drop(m)
	}
	// A leader is elected, a connection made: not at once.
	t := time.NewTimer(200 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
