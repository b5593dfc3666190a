package lease

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type grantOptions struct {
	env *cli.Env
	ttl int64
}

func newGrantCmd(env *cli.Env) *cobra.Command {
	o := grantOptions{env: env}
	return &cobra.Command{
		Use:     "grant <ttl>",
		Short:   "Creates leases",
		Long:    "Creates a lease with a time to live in seconds. A server raises one that is too short for it.",
		Example: "  LEASE=$(etcdctl-plus lease grant 30 | awk '{print $2}')",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("lease grant command needs TTL argument")
			}
			var err error
			if o.ttl, err = strconv.ParseInt(args[0], 10, 64); err != nil {
				return cli.Usagef("bad TTL %q: it is a number of seconds", args[0])
			}
			return o.run(c.Context())
		},
	}
}

func (o *grantOptions) run(ctx context.Context) error {
	p, client, ctx, cancel, err := reply.Begin(ctx, o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	defer cancel()
	r, err := client.Grant(ctx, o.ttl)
	if err != nil {
		return cli.UnknownOutcome(fmt.Errorf("failed to grant lease (%w)", err), "a lease that nobody uses goes by itself when its time is over")
	}
	return p.Print(reply.Answer{
		Header: r.ResponseHeader, Message: r.ResponseHeader, JSON: r,
		Simple: func(b []byte) []byte {
			return fmt.Appendf(b, "lease %016x granted with TTL(%ds)\n", int64(r.ID), r.TTL)
		},
		Fields: func(b []byte) []byte { return appendID(b, r.ID, r.TTL, p.Hex) },
		Table:  func() output.Table { return oneRow(r.ID, "TTL", r.TTL) },
	})
}

// oneRow is the table of an answer about one lease.
func oneRow(id clientv3.LeaseID, name string, n int64) output.Table {
	return output.Table{
		Columns: []output.Column{{Name: "LEASE", Keep: true}, {Name: name, Right: true}},
		Rows:    [][]string{{cli.LeaseID(int64(id)), fmt.Sprint(n)}},
	}
}
