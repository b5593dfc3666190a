package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Waiting is what a learner lacks before it can be promoted.
type Waiting struct {
	Started         bool
	Applied, Leader uint64 // indexes in the log; Applied 0: not known
	Err             error  // why the learner or the leader could not be asked
}

func (w Waiting) String() string {
	switch {
	case w.Err != nil:
		return w.Err.Error()
	case !w.Started:
		return "it has not started yet"
	default:
		return fmt.Sprintf("it has applied %d of %d entries of the log", w.Applied, w.Leader)
	}
}

// ready tells whether it has applied what the leader had at the look before. A learner that
// cannot be reached from here is the leader's to judge.
func (w Waiting) ready(goal uint64) bool {
	return w.Started && (w.Err != nil || goal > 0 && w.Applied >= goal)
}

// WaitLearner waits until a learner has started and has applied all that the leader had
// when it was last asked but one. tell hears of every look. A learner whose addresses
// cannot be reached from here is left to the leader to judge, which refuses to promote it
// before its time. The error is that of ctx, with the last look.
func WaitLearner(ctx context.Context, dial Dialer, endpoints []string, id uint64, timeout time.Duration, tell func(Waiting)) error {
	var goal uint64
	for {
		w := lacks(ctx, dial, endpoints, id, timeout)
		if errors.Is(w.Err, ErrGone) {
			return ErrGone
		}
		if ctx.Err() == nil {
			tell(w)
		}
		if w.ready(goal) {
			return nil
		}
		goal = w.Leader
		select {
		case <-ctx.Done():
			return fmt.Errorf("the learner is not ready: %s: %w", w, context.Cause(ctx))
		case <-time.After(lookEvery):
		}
	}
}

const lookEvery = 200 * time.Millisecond

// ErrGone says that a member is not there any more.
var ErrGone = errors.New("it is no longer a member of the cluster")

func lacks(ctx context.Context, dial Dialer, endpoints []string, id uint64, timeout time.Duration) Waiting {
	c, err := Look(ctx, dial, endpoints, timeout)
	if err != nil {
		return Waiting{Err: err}
	}
	m := c.Member(id)
	if m == nil {
		return Waiting{Err: ErrGone}
	}
	w := Waiting{Started: m.GetName() != ""}
	if l := c.Leader(); l != nil {
		w.Leader = l.State.Status.RaftAppliedIndex
	}
	if w.Started {
		w.Err = m.State.Err
	}
	if m.Alive() {
		w.Applied = m.State.Status.RaftAppliedIndex
	}
	return w
}

// Promote promotes a learner, as often as it takes until the leader finds it ready.
func Promote(ctx context.Context, c *clientv3.Client, id uint64, timeout time.Duration) (*clientv3.MemberPromoteResponse, error) {
	for {
		r, err := promote(ctx, c, id, timeout)
		if !errors.Is(err, rpctypes.ErrMemberLearnerNotReady) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(lookEvery):
		}
	}
}

func promote(ctx context.Context, c *clientv3.Client, id uint64, timeout time.Duration) (*clientv3.MemberPromoteResponse, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return c.MemberPromote(ctx, id)
}
