package maintain

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type moveLeaderOptions struct {
	env    *cli.Env
	target uint64 // 0: whoever is best
	dryRun bool
}

func newMoveLeaderCmd(env *cli.Env) *cobra.Command {
	o := moveLeaderOptions{env: env}
	c := &cobra.Command{
		Use:   "move-leader <transferee-member-id>",
		Short: "Transfers leadership to another etcd cluster member",
		Long: `Transfers the leadership to another member. The leader must be among --endpoints.

Server cost: the leader takes no writes while it hands over, some milliseconds.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	if !env.DropIn() {
		c.Use = "move-leader [member-id]"
		c.Long = `Transfers the leadership to another voting member: the given one, or the one that has
applied the most. The leader is found from any endpoint, by the addresses that members
advertise.

Server cost: the leader takes no writes while it hands over, some milliseconds.`
		c.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing")
	}
	return c
}

func (o *moveLeaderOptions) complete(args []string) error {
	var err error
	switch {
	case o.env.DropIn() && len(args) != 1:
		return cli.Usagef("move-leader command needs 1 argument")
	case len(args) > 1:
		return cli.Usagef("move-leader takes one member at most")
	case len(args) == 1:
		o.target, err = cli.ParseID(o.env, "member", args[0])
	}
	return err
}

func (o *moveLeaderOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Protobuf)
	if err != nil {
		return err
	}
	s, err := o.env.Settings()
	if err != nil {
		return err
	}
	find := o.anywhere
	if o.env.DropIn() {
		find = o.among
	}
	leader, err := find(ctx)
	switch {
	case err != nil:
		return err
	case o.dryRun:
		return p.Would(fmt.Sprintf("move the leadership from %x to %x", leader.GetID(), o.target))
	}
	r := &pb.MoveLeaderResponse{}
	if leader.GetID() != o.target || o.env.DropIn() {
		resp, err := cluster.MoveLeader(ctx, o.env.ClientOf, leader, o.target, s.CommandTimeout)
		if err != nil {
			return cli.UnknownOutcome(err, "`endpoint status --cluster` shows who leads")
		}
		r = (*pb.MoveLeaderResponse)(resp)
	}
	return o.print(p, leader.GetID(), r)
}

// moveView is who leads, in our own formats. The ids are hexadecimal, as they are given.
type moveView struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (v moveView) Table() output.Table {
	return output.Table{Columns: []output.Column{{Name: "FROM"}, {Name: "TO"}}, Rows: [][]string{{v.From, v.To}}}
}

func (o *moveLeaderOptions) print(p *reply.Printer, from uint64, r *pb.MoveLeaderResponse) error {
	v := moveView{strconv.FormatUint(from, 16), strconv.FormatUint(o.target, 16)}
	a := reply.Answer{
		Header: r.GetHeader(), Message: r, View: v,
		Simple: func(b []byte) []byte {
			if from == o.target && !o.env.DropIn() {
				return fmt.Appendf(b, "%x leads already\n", from)
			}
			return fmt.Appendf(b, "Leadership transferred from %x to %x\n", from, o.target)
		},
	}
	if !o.env.DropIn() { // etcd's own answer is empty but for a header
		a.JSON = v
	}
	return p.Print(a)
}

// among finds the leader as etcdctl does: one endpoint after another, and none may fail
// before it is found.
func (o *moveLeaderOptions) among(ctx context.Context) (*cluster.Member, error) {
	s, err := o.env.Settings()
	if err != nil {
		return nil, err
	}
	endpoints, err := o.env.Endpoints(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, ep := range endpoints {
		st := cluster.States(ctx, o.env.ClientOf, []string{ep}, s.CommandTimeout)[0]
		if st.Err != nil {
			return nil, fmt.Errorf("%s: %w", ep, st.Err)
		}
		if st.Leads() {
			return &cluster.Member{Member: &pb.Member{ID: st.MemberID()}, State: st}, nil
		}
	}
	return nil, cli.Usagef("no leader endpoint given at %v", endpoints)
}

// anywhere finds the leader from any endpoint, and the member that is to lead.
func (o *moveLeaderOptions) anywhere(ctx context.Context) (*cluster.Member, error) {
	c, err := o.env.Cluster(ctx)
	if err != nil {
		return nil, fmt.Errorf("move the leadership: %w", err)
	}
	leader := c.Leader()
	if leader == nil {
		return nil, cli.WithHint(cli.Failf(cli.Unavailable, "%s: no member that answers leads (%s)", c, c.Standing()), "name the leader among --endpoints if it cannot be reached at the address that it advertises")
	}
	if o.target == 0 {
		m := c.Successor()
		if m == nil {
			return nil, cli.Failf(cli.Unavailable, "%s: %w", c, cluster.ErrNoSuccessor)
		}
		o.target = m.GetID()
		return leader, nil
	}
	switch m := c.Member(o.target); {
	case m == nil:
		return nil, cli.WithHint(cli.Failf(cli.Negative, "%s has no member %x", c, o.target), "`member list` shows those that are there")
	case !m.Voter():
		return nil, cli.WithHint(cli.Failf(cli.Refused, "%s is a learner, which cannot lead; nothing was changed", m.Label()), "`member promote` makes it a voting member")
	case !m.Alive():
		return nil, cli.Failf(cli.Unavailable, "%s does not answer, so it cannot lead: %w; nothing was changed", m.Label(), m.State.Err)
	}
	return leader, nil
}
