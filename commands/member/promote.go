package member

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
)

func newPromoteCmd(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "promote <memberID>",
		Short: "Promotes a non-voting member in the cluster",
		Long: `Makes a learner a voting member. The leader refuses while the learner is far behind.

Server cost: next to nothing.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := id(env, args)
			if err != nil {
				return err
			}
			return promote(c.Context(), env, id)
		},
	}
}

func promote(ctx context.Context, env *cli.Env, id uint64) error {
	p, err := reply.New(env, reply.Protobuf)
	if err != nil {
		return err
	}
	resp, err := request(ctx, env, func(ctx context.Context, c *clientv3.Client) (*clientv3.MemberPromoteResponse, error) {
		return c.MemberPromote(ctx, id)
	})
	if err != nil {
		return failed("promote", id, err)
	}
	r := (*pb.MemberPromoteResponse)(resp)
	return p.Print(answer(r.GetHeader(), r.GetMembers(), r, promoted(id, r)))
}

func promoted(id uint64, r *pb.MemberPromoteResponse) string {
	return fmt.Sprintf("Member %16x promoted in cluster %16x\n", id, r.GetHeader().GetClusterId())
}
