package member

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
)

type removeOptions struct {
	env   *cli.Env
	id    uint64
	guard cli.Guard
	force bool
}

func newRemoveCmd(env *cli.Env) *cobra.Command {
	o := removeOptions{env: env}
	c := &cobra.Command{
		Use:   "remove <memberID>",
		Short: "Removes a member from the cluster",
		Long: `Removes a member. It stops, and cannot come back with the same data.

Server cost: next to nothing.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.id, err = id(env, args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	if !env.DropIn() {
		c.Long = `Removes a member. It stops, and cannot come back with the same data. All members are
asked for their status first; the question says who would be left. What would leave fewer
members than a quorum needs is refused without --force.

Server cost: next to nothing.`
		o.guard.Define(c.Flags())
		c.Flags().BoolVar(&o.force, "force", false, "remove it although fewer members than a quorum needs would be left")
	}
	return c
}

func (o *removeOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Protobuf)
	if err != nil {
		return err
	}
	if !o.env.DropIn() {
		if done, err := o.ask(ctx, p); err != nil || done {
			return err
		}
	}
	resp, err := request(ctx, o.env, func(ctx context.Context, c *clientv3.Client) (*clientv3.MemberRemoveResponse, error) {
		return c.MemberRemove(ctx, o.id)
	})
	if err != nil {
		return failed("remove", o.id, err)
	}
	r := (*pb.MemberRemoveResponse)(resp)
	return p.Print(answer(r.GetHeader(), r.GetMembers(), r, fmt.Sprintf("Member %16x removed from cluster %16x\n", o.id, r.GetHeader().GetClusterId())))
}

// ask says who would be left, and asks. done: it was a dry run.
func (o *removeOptions) ask(ctx context.Context, p *reply.Printer) (done bool, err error) {
	c, err := o.env.Cluster(ctx)
	if err != nil {
		return false, fmt.Errorf("remove member %x: %w", o.id, err)
	}
	m := c.Member(o.id)
	if m == nil {
		return false, cli.WithHint(cli.Failf(cli.Negative, "%s has no member %x", c, o.id), "`member list` shows those that are there")
	}
	what := removal(c, m)
	left := c.Without(o.id)
	if m.Voter() && left.Alive < left.Need && !o.force {
		return false, cli.WithHint(cli.Failf(cli.Refused, "%s: that leaves no quorum; nothing was changed", what), "bring back the members that are down, or remove them first; --force removes it all the same")
	}
	if o.guard.DryRun {
		return true, p.Would(what)
	}
	return false, o.guard.Ask(o.env, what)
}

// removal says what a removal does.
func removal(c *cluster.Cluster, m *cluster.Member) string {
	role := map[string]string{"leader": "the leader", "follower": "a voting member that works", "learner": "a learner", "down": "a member that does not answer"}[m.Role()]
	left := c.Without(m.GetID())
	return fmt.Sprintf("remove %s (%x, %s) from %s, which leaves %d voting members, of which %d answer and %d are needed", m.Label(), m.GetID(), role, c, left.Voters, left.Alive, left.Need)
}
