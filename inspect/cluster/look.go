package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Member is one member of a cluster, with what it says of itself.
type Member struct {
	*pb.Member
	// State is of the address that it answered at; of the first one when it did not.
	State State
}

// Label names a member for people: its name, or its id while it has not told one.
func (m *Member) Label() string {
	if name := m.GetName(); name != "" {
		return name
	}
	return fmt.Sprintf("%x", m.GetID())
}

// Alive tells whether the member answers.
func (m *Member) Alive() bool { return m.State.Status != nil }

// Voter tells whether the member counts for a quorum.
func (m *Member) Voter() bool { return !m.GetIsLearner() }

// Role is leader, follower, learner, or down.
func (m *Member) Role() string {
	switch {
	case !m.Alive():
		return "down"
	case m.GetIsLearner():
		return "learner"
	case m.State.Leads():
		return "leader"
	}
	return "follower"
}

// Cluster is what the members of a cluster say at about one time.
type Cluster struct {
	ID      uint64
	Members []Member // in the order of etcd's list
	// Unreached are the endpoints asked for that did not answer, whosever they are.
	Unreached []State
}

// Look finds the members through the endpoints, and asks each for its status: at the
// endpoint that reached it, or at the addresses that it advertises. The error is that of
// an endpoint when none can tell the members.
func Look(ctx context.Context, dial Dialer, endpoints []string, timeout time.Duration) (*Cluster, error) {
	states := States(ctx, dial, endpoints, timeout)
	list, err := list(ctx, dial, states, timeout)
	if err != nil {
		return nil, err
	}
	c := &Cluster{ID: list.Header.GetClusterId()}
	for _, m := range list.Members {
		c.Members = append(c.Members, Member{Member: m, State: State{Err: errors.New("it advertises no client address: it has not started")}})
	}
	for _, s := range states {
		if s.Status == nil {
			c.Unreached = append(c.Unreached, s)
		}
	}
	var unseen []*Member
	for i := range c.Members {
		m := &c.Members[i]
		at := slices.IndexFunc(states, func(s State) bool { return s.Status != nil && s.MemberID() == m.GetID() })
		switch {
		case at >= 0:
			m.State = states[at]
		case len(m.GetClientURLs()) > 0:
			unseen = append(unseen, m)
		}
	}
	addresses := make([]string, len(unseen))
	for i, m := range unseen {
		addresses[i] = m.Label()
	}
	found := each(ctx, addresses, func(ctx context.Context, i int, _ string) State { return ask(ctx, dial, unseen[i].Member, timeout) })
	for i, m := range unseen {
		m.State = found[i]
	}
	return c, ctx.Err()
}

// ask looks for a member at the addresses that it advertises.
func ask(ctx context.Context, dial Dialer, m *pb.Member, timeout time.Duration) State {
	states := States(ctx, dial, m.GetClientURLs(), timeout)
	for _, s := range states {
		if s.Status != nil && s.MemberID() == m.GetID() {
			return s
		}
	}
	first := states[0]
	if first.Status != nil {
		first.Err, first.Status = fmt.Errorf("member %x answers there instead of %x", first.MemberID(), m.GetID()), nil
	}
	return first
}

// list asks those that answered for the members, the furthest first. That needs no quorum.
func list(ctx context.Context, dial Dialer, states []State, timeout time.Duration) (*clientv3.MemberListResponse, error) {
	err := errors.New("there is no endpoint to ask")
	answered := Order(states)
	slices.SortStableFunc(answered, func(a, b State) int { return cmp.Compare(b.Status.RaftAppliedIndex, a.Status.RaftAppliedIndex) })
	for _, s := range answered {
		var r *clientv3.MemberListResponse
		r, err = with(ctx, dial, s.Endpoint, timeout, func(ctx context.Context, c *clientv3.Client) (*clientv3.MemberListResponse, error) {
			return c.MemberList(ctx, clientv3.WithSerializable())
		})
		if err == nil {
			return r, nil
		}
		err = fmt.Errorf("ask %s for the members: %w", s.Endpoint, err)
	}
	if len(answered) == 0 && len(states) > 0 {
		err = fmt.Errorf("%s: %w", states[0].Endpoint, states[0].Err)
	}
	return nil, err
}

// States are those of all members.
func (c *Cluster) States() []State {
	var out []State
	for i := range c.Members {
		out = append(out, c.Members[i].State)
	}
	return out
}

// Standing is how the voting members stand.
func (c *Cluster) Standing() Quorum { return c.Without(0) }

// Without is how they would stand without one member.
func (c *Cluster) Without(id uint64) Quorum {
	var members []*pb.Member
	for i := range c.Members {
		if c.Members[i].GetID() != id {
			members = append(members, c.Members[i].Member)
		}
	}
	return Standing(members, c.States())
}

// Member finds a member by its id; nil: there is none.
func (c *Cluster) Member(id uint64) *Member {
	if i := slices.IndexFunc(c.Members, func(m Member) bool { return m.GetID() == id }); i >= 0 {
		return &c.Members[i]
	}
	return nil
}

// Leader is the member that says it leads, in the newest term; nil: none does. A leader
// that was cut off may not know yet that there is another.
func (c *Cluster) Leader() *Member {
	var leader *Member
	for i := range c.Members {
		m := &c.Members[i]
		if m.State.Leads() && (leader == nil || m.State.Status.RaftTerm > leader.State.Status.RaftTerm) {
			leader = m
		}
	}
	return leader
}

// Successor is the follower that answers and has applied the most; nil: there is none.
func (c *Cluster) Successor() *Member {
	leader := c.Leader()
	var best *Member
	for i := range c.Members {
		m := &c.Members[i]
		switch {
		case m == leader || !m.Alive() || !m.Voter() || len(m.State.Status.Errors) > 0:
		case best == nil || m.State.Status.RaftAppliedIndex > best.State.Status.RaftAppliedIndex:
			best = m
		}
	}
	return best
}

// String names the cluster for a question: its id, and where it was reached.
func (c *Cluster) String() string {
	return fmt.Sprintf("cluster %x at %s", c.ID, strings.Join(c.Endpoints(), ","))
}

// Endpoints are where the members that answer were reached.
func (c *Cluster) Endpoints() []string {
	var out []string
	for i := range c.Members {
		if c.Members[i].Alive() {
			out = append(out, c.Members[i].State.Endpoint)
		}
	}
	return out
}

// well reads through one member, as Healths does, but an alarm of the cluster is none of
// its own faults.
func well(ctx context.Context, dial Dialer, endpoint string, timeout time.Duration) error {
	_, err := with(ctx, dial, endpoint, timeout, func(ctx context.Context, c *clientv3.Client) (struct{}, error) {
		_, err := c.Get(ctx, "health")
		if errors.Is(err, errLearner) {
			_, err = c.Get(ctx, "health", clientv3.WithSerializable())
		}
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}
