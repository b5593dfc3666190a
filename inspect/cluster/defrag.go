package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// DefragOptions bound a rolling defragmentation.
type DefragOptions struct {
	// Endpoints are those whose members are wanted; none: all members.
	Endpoints []string
	// MinFree is the share of a file that must be free for it to be worth it: 0.1 is a
	// tenth. With All every member is defragmented.
	MinFree float64
	All     bool
	// MoveLeader hands the leadership over before the leader's turn.
	MoveLeader bool
	Timeout    time.Duration // of one member's defragmentation; 0: no bound
	Ask        time.Duration // of every other request; 0: no bound
	Wait       time.Duration // until a member is healthy again; 0: no bound
}

// DefragStep is one member's turn.
type DefragStep struct {
	Member
	DBBytes, InUseBytes int64
	Skip                string // why the member is left out; "": it is not
	Last                bool   // it leads
}

// PlanDefrag orders the members: followers and learners first, the leader last.
func PlanDefrag(c *Cluster, o DefragOptions) []DefragStep {
	wanted := map[uint64]bool{}
	for _, ep := range o.Endpoints {
		for i := range c.Members {
			if c.Members[i].State.Endpoint == ep {
				wanted[c.Members[i].GetID()] = true
			}
		}
	}
	var steps []DefragStep
	for _, s := range Order(c.States()) {
		m := c.Member(s.MemberID())
		if m == nil || len(o.Endpoints) > 0 && !wanted[m.GetID()] {
			continue
		}
		step := DefragStep{Member: *m, DBBytes: s.Status.DbSize, InUseBytes: s.Status.DbSizeInUse, Last: s.Leads()}
		if free := step.Free(); !o.All && free < o.MinFree {
			step.Skip = fmt.Sprintf("%.0f %% of its file is free, less than %.0f %%", free*100, o.MinFree*100)
		}
		steps = append(steps, step)
	}
	return steps
}

// Free is the share of the file that is free.
func (s *DefragStep) Free() float64 {
	if s.DBBytes <= 0 {
		return 0
	}
	return float64(s.DBBytes-s.InUseBytes) / float64(s.DBBytes)
}

// Unfit says which members keep a defragmentation from starting: a member takes no
// requests meanwhile, so all others have to be well. A learner that does not answer is
// told too, as it costs nothing but is forgotten easily.
func Unfit(ctx context.Context, dial Dialer, c *Cluster, timeout time.Duration) []string {
	var endpoints []string
	for i := range c.Members {
		endpoints = append(endpoints, c.Members[i].State.Endpoint)
	}
	errs := each(ctx, endpoints, func(ctx context.Context, i int, ep string) error {
		if m := &c.Members[i]; !m.Alive() {
			return m.State.Err
		}
		return well(ctx, dial, ep, timeout)
	})
	var out []string
	for i, err := range errs {
		if err != nil {
			out = append(out, fmt.Sprintf("%s: %v", c.Members[i].Label(), err))
		}
	}
	return append(out, c.Standing().Damage...)
}

// DefragResult is how one member's turn went.
type DefragResult struct {
	DefragStep
	Took       time.Duration
	AfterBytes int64  // of the file; 0: not known
	MovedTo    string // the member that leads since
	Err        error
}

// Defrag goes through the steps, one after another, and tells of each. It waits after
// each until the member is well and has applied what the leader had, and ends at the first
// that fails: a second member must not be out of work at the same time. The error is that
// of the member where it ended.
func Defrag(ctx context.Context, dial Dialer, c *Cluster, steps []DefragStep, o DefragOptions, tell func(DefragResult)) error {
	for _, s := range steps {
		r := DefragResult{DefragStep: s}
		if s.Skip == "" {
			r.Err = r.run(ctx, dial, c, o)
		}
		tell(r)
		if r.Err != nil {
			return fmt.Errorf("defragment %s at %s: %w", r.Label(), r.State.Endpoint, r.Err)
		}
	}
	return nil
}

func (r *DefragResult) run(ctx context.Context, dial Dialer, c *Cluster, o DefragOptions) error {
	if r.Last && o.MoveLeader {
		if err := r.handOver(ctx, dial, c, o); err != nil {
			return err
		}
	}
	start := time.Now()
	_, err := DefragOne(ctx, dial, r.State.Endpoint, o.Timeout)
	r.Took = time.Since(start)
	if err != nil {
		return err
	}
	return r.recovered(ctx, dial, c, o)
}

func (r *DefragResult) handOver(ctx context.Context, dial Dialer, c *Cluster, o DefragOptions) error {
	now, err := Look(ctx, dial, c.Endpoints(), o.Ask)
	if err != nil {
		return err
	}
	leader, to := now.Leader(), now.Successor()
	if leader == nil || leader.GetID() != r.GetID() {
		return nil // it lost the leadership by itself
	}
	if to == nil {
		return ErrNoSuccessor
	}
	if _, err := MoveLeader(ctx, dial, leader, to.GetID(), o.Ask); err != nil {
		return err
	}
	r.MovedTo = to.Label()
	return nil
}

// recovered waits until the member is well again and has applied what the others have.
func (r *DefragResult) recovered(ctx context.Context, dial Dialer, c *Cluster, o DefragOptions) error {
	if o.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Wait)
		defer cancel()
	}
	var goal uint64
	for {
		err := well(ctx, dial, r.State.Endpoint, o.Ask)
		var applied uint64
		for _, s := range States(ctx, dial, c.Endpoints(), o.Ask) {
			switch {
			case s.Status == nil:
			case s.MemberID() == r.GetID():
				applied, r.AfterBytes = s.Status.RaftAppliedIndex, s.Status.DbSize
			case goal == 0 && s.Leads():
				goal = s.Status.RaftAppliedIndex
			}
		}
		if err == nil && applied >= goal && applied > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("it has applied %d of %d entries of the log", applied, goal)
			}
			return fmt.Errorf("it was defragmented, and is not healthy again: %w: %w", err, context.Cause(ctx))
		case <-time.After(lookEvery):
		}
	}
}

// DefragOne defragments one member, which takes no requests meanwhile, and returns when it
// has. A member goes on when nobody waits for it any more.
func DefragOne(ctx context.Context, dial Dialer, endpoint string, timeout time.Duration) (*clientv3.DefragmentResponse, error) {
	return with(ctx, dial, endpoint, timeout, func(ctx context.Context, c *clientv3.Client) (*clientv3.DefragmentResponse, error) {
		return c.Defragment(ctx, endpoint)
	})
}

// FollowersFirst orders endpoints for work that disturbs a member: the leader comes last.
// Those that do not answer keep their place.
func FollowersFirst(states []State) []string {
	var rest, leaders []string
	for i := range states {
		if s := &states[i]; s.Leads() {
			leaders = append(leaders, s.Endpoint)
		} else {
			rest = append(rest, s.Endpoint)
		}
	}
	return append(rest, leaders...)
}

// Describe is a plan in one line for a question.
func Describe(steps []DefragStep) string {
	var names []string
	for i := range steps {
		if steps[i].Skip != "" {
			continue
		}
		name := steps[i].Label()
		if steps[i].Last {
			name += " (the leader)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", then ")
}
