// Package member holds the commands on a cluster's members: add, remove, update, list and
// promote.
package member

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// New returns the noun.
func New(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "member <subcommand>",
		Short: "Membership related commands",
		Long: `Members vote, or learn: a learner is a copy that counts for no quorum. Of n voting members
more than half must answer for the cluster to work.

Server cost: next to nothing; a new member is sent the whole database.`,
	}
	c.AddCommand(newAddCmd(env), newRemoveCmd(env), newUpdateCmd(env), newListCmd(env), newPromoteCmd(env))
	return c
}

// id reads the one argument, a member.
func id(env *cli.Env, args []string) (uint64, error) {
	if len(args) != 1 {
		return 0, cli.Usagef("member ID is not provided")
	}
	return cli.ParseID(env, "member", args[0])
}

// request sends one request, bounded by the command timeout.
func request[T any](ctx context.Context, env *cli.Env, f func(context.Context, *clientv3.Client) (T, error)) (T, error) {
	var none T
	client, err := env.Client(ctx)
	if err != nil {
		return none, err
	}
	ctx, cancel, err := env.CommandContext(ctx)
	if err != nil {
		return none, err
	}
	defer cancel()
	return f(ctx, client)
}

const look = "`member list` tells"

// failed describes the error of a request that changes the members.
func failed(what string, id uint64, err error) error {
	err = cli.UnknownOutcome(fmt.Errorf("%s member %x: %w", what, id, err), look)
	d := *cli.Describe(err)
	switch {
	case errors.Is(err, rpctypes.ErrMemberNotFound):
		d.Code, d.Hint = cli.Negative, "`member list` shows those that are there"
	case errors.Is(err, rpctypes.ErrMemberNotEnoughStarted), errors.Is(err, rpctypes.ErrUnhealthy):
		d.Code, d.Hint = cli.Refused, "the servers refuse what would leave fewer members than a quorum needs: `endpoint status --cluster` shows who is down"
	case errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
		d.Code, d.Hint = cli.Unavailable, "the learner has not caught up with the leader: try again, or let `member add --learner --promote` wait for it"
		d.Retryable = true
	case errors.Is(err, rpctypes.ErrMemberNotLearner):
		d.Code, d.Hint = cli.Negative, "it votes already"
	}
	return &d
}

// answer is what etcd answers to all of these: the members as they now are.
func answer(header *pb.ResponseHeader, members []*pb.Member, m proto.Message, simple string) reply.Answer {
	return reply.Answer{
		Header: header, Message: m, HexJSON: true,
		Simple: func(b []byte) []byte { return append(b, simple...) },
		Table:  func() output.Table { return table(members) },
	}
}

// cells are the columns of etcdctl's table.
func cells(m *pb.Member) []string {
	status := "started"
	if m.GetName() == "" {
		status = "unstarted"
	}
	return []string{
		fmt.Sprintf("%x", m.GetID()), status, m.GetName(), strings.Join(m.GetPeerURLs(), ","), strings.Join(m.GetClientURLs(), ","), fmt.Sprint(m.GetIsLearner()),
	}
}

func table(members []*pb.Member) output.Table {
	t := output.Table{Columns: []output.Column{
		{Name: "ID", Keep: true}, {Name: "STATUS", Keep: true}, {Name: "NAME", Keep: true}, {Name: "PEER ADDRESSES"}, {Name: "CLIENT ADDRESSES"}, {Name: "LEARNER"},
	}}
	for _, m := range members {
		t.Rows = append(t.Rows, cells(m))
	}
	return t
}
