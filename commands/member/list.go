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

type listOptions struct {
	env         *cli.Env
	consistency string
}

func newListCmd(env *cli.Env) *cobra.Command {
	o := listOptions{env: env}
	c := &cobra.Command{
		Use:   "list",
		Short: "Lists all members in the cluster",
		Long: `Lists all members. The items of a line of the simple format are ID, status, name, peer
addresses, client addresses, is learner. Without a quorum --consistency s still answers,
by what the member itself knows.

Server cost: next to nothing.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && !env.DropIn() { // etcdctl ignores them
				return cli.Usagef("member list takes no argument")
			}
			return o.run(c.Context())
		},
	}
	c.Flags().StringVar(&o.consistency, "consistency", "l", "Linearizable(l) or Serializable(s)")
	return c
}

func (o *listOptions) run(ctx context.Context) error {
	var ops []clientv3.OpOption
	switch o.consistency {
	case "s":
		ops = append(ops, clientv3.WithSerializable())
	case "l":
	default:
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("unknown consistency %q: it is l or s", o.consistency), DropIn: 4}
	}
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf|reply.Boxes)
	if err != nil {
		return err
	}
	resp, err := request(ctx, o.env, func(ctx context.Context, c *clientv3.Client) (*clientv3.MemberListResponse, error) {
		return c.MemberList(ctx, ops...)
	})
	if err != nil {
		return cli.WithHint(fmt.Errorf("list members: %w", err), "without a quorum --consistency s answers by what the member itself knows")
	}
	r := (*pb.MemberListResponse)(resp)
	var lines strings.Builder
	for _, m := range r.GetMembers() {
		lines.WriteString(strings.Join(cells(m), ", ") + "\n")
	}
	a := answer(r.GetHeader(), r.GetMembers(), r, lines.String())
	a.Fields = func(b []byte) []byte {
		for _, m := range r.GetMembers() {
			b = appendFields(b, m, p.Hex)
		}
		return b
	}
	a.Boxes = func() ([]string, [][]string) {
		var rows [][]string
		for _, m := range r.GetMembers() {
			rows = append(rows, cells(m))
		}
		return []string{"ID", "Status", "Name", "Peer Addrs", "Client Addrs", "Is Learner"}, rows
	}
	return p.Print(a)
}

func appendFields(b []byte, m *pb.Member, hexed bool) []byte {
	b = fmt.Appendf(reply.AppendID(b, "ID", m.GetID(), hexed), "\"Name\" : %q\n", m.GetName())
	for _, u := range m.GetPeerURLs() {
		b = fmt.Appendf(b, "\"PeerURL\" : %q\n", u)
	}
	for _, u := range m.GetClientURLs() {
		b = fmt.Appendf(b, "\"ClientURL\" : %q\n", u)
	}
	return fmt.Appendf(b, "\"IsLearner\" : %t\n\n", m.GetIsLearner())
}
