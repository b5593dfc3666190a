package member

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
)

type updateOptions struct {
	env   *cli.Env
	id    uint64
	peers string
}

func newUpdateCmd(env *cli.Env) *cobra.Command {
	o := updateOptions{env: env}
	c := &cobra.Command{
		Use:   "update <memberID> [options]",
		Short: "Updates a member in the cluster",
		Long: `Tells the cluster other peer addresses of a member. The member itself listens where its
own settings say.

Server cost: next to nothing.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.id, err = id(env, args); err != nil {
				return err
			}
			if o.peers == "" {
				return cli.Usagef("member peer urls not provided")
			}
			return o.run(c.Context())
		},
	}
	c.Flags().StringVar(&o.peers, "peer-urls", "", "comma separated peer URLs for the updated member")
	return c
}

func (o *updateOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Protobuf)
	if err != nil {
		return err
	}
	urls, err := peerURLs(o.env, o.peers)
	if err != nil {
		return err
	}
	resp, err := request(ctx, o.env, func(ctx context.Context, c *clientv3.Client) (*clientv3.MemberUpdateResponse, error) {
		return c.MemberUpdate(ctx, o.id, urls)
	})
	if err != nil {
		return failed("update", o.id, err)
	}
	r := (*pb.MemberUpdateResponse)(resp)
	return p.Print(answer(r.GetHeader(), r.GetMembers(), r, fmt.Sprintf("Member %16x updated in cluster %16x\n", o.id, r.GetHeader().GetClusterId())))
}

// peerURLs reads --peer-urls.
func peerURLs(env *cli.Env, text string) ([]string, error) {
	urls := strings.Split(text, ",")
	if err := checkURLs(urls); err != nil {
		return nil, &cli.Error{Code: cli.Usage, Err: fmt.Errorf("--peer-urls: %w", err), DropIn: 1, Hint: "for example --peer-urls http://10.0.0.4:2380"}
	}
	return urls, nil
}
