// Package cluster looks at the members of a cluster: who is there, how each is, whether
// a quorum stands, and in which order to go through them.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Dialer connects to one endpoint. Whoever calls it closes the client.
type Dialer func(ctx context.Context, endpoint string) (*clientv3.Client, error)

// State is what one endpoint says of itself. Exactly one of Status and Err is there.
type State struct {
	Endpoint string
	Status   *clientv3.StatusResponse
	Err      error
}

// MemberID is 0 when the endpoint does not answer.
func (s *State) MemberID() uint64 { return header(s.Status).GetMemberId() }

// Leads tells whether the member is the leader.
func (s *State) Leads() bool { return s.Status != nil && s.Status.Leader == s.MemberID() }

func header(s *clientv3.StatusResponse) *pb.ResponseHeader {
	if s == nil {
		return nil
	}
	return s.Header
}

// each calls f for every endpoint at once; the results are in the endpoints' order.
func each[T any](ctx context.Context, endpoints []string, f func(ctx context.Context, i int, endpoint string) T) []T {
	out := make([]T, len(endpoints))
	var wg sync.WaitGroup
	for i, ep := range endpoints {
		wg.Go(func() { out[i] = f(ctx, i, ep) })
	}
	wg.Wait()
	return out
}

// with connects, and bounds the work by timeout; 0: no bound.
func with[T any](ctx context.Context, dial Dialer, endpoint string, timeout time.Duration, f func(context.Context, *clientv3.Client) (T, error)) (T, error) {
	var none T
	c, err := dial(ctx, endpoint)
	if err != nil {
		return none, err
	}
	defer c.Close()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return f(ctx, c)
}

// States asks every endpoint for its status.
func States(ctx context.Context, dial Dialer, endpoints []string, timeout time.Duration) []State {
	return each(ctx, endpoints, func(ctx context.Context, _ int, ep string) State {
		st, err := with(ctx, dial, ep, timeout, func(ctx context.Context, c *clientv3.Client) (*clientv3.StatusResponse, error) {
			return c.Status(ctx, ep)
		})
		if err == nil && st.Header.GetMemberId() == 0 {
			err = errors.New("the server does not say which member it is")
		}
		if err != nil {
			return State{Endpoint: ep, Err: err}
		}
		return State{Endpoint: ep, Status: st}
	})
}

// Health is how one endpoint is.
type Health struct {
	Endpoint string
	OK       bool
	Learner  bool
	Took     time.Duration // of the read
	// Alarms are the names of alarms that are raised in the cluster.
	Alarms []string
	Err    error // why it is not
}

// Healths reads a key through every endpoint, which takes a quorum, and asks for alarms.
// A learner answers only serializable reads and is not unhealthy for that. To be denied
// the key is an answer: the read went through the quorum.
func Healths(ctx context.Context, dial Dialer, endpoints []string, timeout time.Duration) []Health {
	return each(ctx, endpoints, func(ctx context.Context, _ int, ep string) Health {
		h := Health{Endpoint: ep}
		_, h.Err = with(ctx, dial, ep, timeout, func(ctx context.Context, c *clientv3.Client) (struct{}, error) {
			return struct{}{}, h.ask(ctx, c)
		})
		h.OK = h.Err == nil
		return h
	})
}

func (h *Health) ask(ctx context.Context, c *clientv3.Client) error {
	start := time.Now()
	_, err := c.Get(ctx, "health")
	h.Took = time.Since(start)
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
	case errors.Is(err, errLearner):
		h.Learner = true
		start = time.Now()
		_, err = c.Get(ctx, "health", clientv3.WithSerializable())
		h.Took = time.Since(start)
		return err // a learner does not answer for alarms
	case err != nil:
		return err
	}
	r, err := c.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoAlarms, err)
	}
	for _, a := range r.Alarms {
		if name := a.GetAlarm().String(); !slices.Contains(h.Alarms, name) {
			h.Alarms = append(h.Alarms, name)
		}
	}
	if len(h.Alarms) > 0 {
		return &AlarmError{h.Alarms}
	}
	return nil
}

// errLearner is what a learner answers to most requests.
var errLearner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// ErrNoAlarms says that the alarms could not be asked for.
var ErrNoAlarms = errors.New("the alarms cannot be fetched")

// AlarmError says that alarms are raised.
type AlarmError struct{ Alarms []string }

func (e *AlarmError) Error() string { return "alarms: " + strings.Join(e.Alarms, ", ") }

// Quorum is how the voting members stand.
type Quorum struct {
	Voters  int
	Alive   int // voters that answer
	Need    int // for a quorum
	Leader  uint64
	Learner int
	// Damage are members whose store differs although they have applied the same.
	Damage []string
}

// Standing counts. Members that no state is of are counted as down.
func Standing(members []*pb.Member, states []State) Quorum {
	var q Quorum
	alive := map[uint64]*State{}
	for i := range states {
		if s := &states[i]; s.Status != nil {
			alive[s.MemberID()] = s
			if s.Status.Leader != 0 {
				q.Leader = s.Status.Leader
			}
		}
	}
	for _, m := range members {
		if m.GetIsLearner() {
			q.Learner++
			continue
		}
		q.Voters++
		if alive[m.GetID()] != nil {
			q.Alive++
		}
	}
	q.Need = q.Voters/2 + 1
	q.Damage = differing(states)
	return q
}

// differing names members at one applied index with different revisions: every member
// applies the same entries in the same order, so that is damage by itself.
func differing(states []State) []string {
	var out []string
	at := map[uint64]*State{}
	for i := range states {
		s := &states[i]
		if s.Status == nil || s.Status.IsLearner {
			continue
		}
		first := at[s.Status.RaftAppliedIndex]
		switch {
		case first == nil:
			at[s.Status.RaftAppliedIndex] = s
		case first.Status.Header.GetRevision() != s.Status.Header.GetRevision():
			out = append(out, fmt.Sprintf("%s is at revision %d and %s at %d, both with index %d applied", first.Endpoint, first.Status.Header.GetRevision(),
				s.Endpoint, s.Status.Header.GetRevision(), s.Status.RaftAppliedIndex))
		}
	}
	return out
}

// String is one line for an operator.
func (q Quorum) String() string {
	s := fmt.Sprintf("%d of %d voting members answer, %d are needed", q.Alive, q.Voters, q.Need)
	switch {
	case q.Alive < q.Need:
		return "no quorum: " + s
	case q.Alive < q.Voters:
		return fmt.Sprintf("degraded but working: %s; %d more may fail", s, q.Alive-q.Need)
	}
	return s
}

// Order sorts states for work that disturbs a member: followers first, in the order given,
// then the leader. Those that do not answer are left out.
func Order(states []State) []State {
	out := slices.DeleteFunc(slices.Clone(states), func(s State) bool { return s.Status == nil })
	slices.SortStableFunc(out, func(a, b State) int {
		rank := func(s State) int {
			if s.Leads() {
				return 1
			}
			return 0
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return out
}
