package lease

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type keepAliveOptions struct {
	env  *cli.Env
	id   clientv3.LeaseID
	once bool
}

func newKeepAliveCmd(env *cli.Env) *cobra.Command {
	o := keepAliveOptions{env: env}
	c := &cobra.Command{
		Use:   "keep-alive [options] <leaseID>",
		Short: "Keeps leases alive (renew)",
		Long: `Renews a lease every third of its time to live, until it is interrupted or the lease
is gone, which ends with exit code 4 (as etcdctl: 0). --command-timeout does not end it.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.id, err = id(env, "keep-alive", args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	c.Flags().BoolVar(&o.once, "once", false, "Resets the keep-alive time to its original value and exits immediately")
	return c
}

func (o *keepAliveOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	if o.once {
		cctx, cancel, err := o.env.CommandContext(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		r, err := client.KeepAliveOnce(cctx, o.id)
		if err != nil {
			return failed("renew", o.id, err, badConnection)
		}
		return o.print(p, r)
	}
	renewals, err := client.KeepAlive(ctx, o.id)
	if err != nil {
		return failed("renew", o.id, err, badConnection)
	}
	for r := range renewals {
		if err := o.print(p, r); err != nil {
			return err
		}
		if err := o.env.Flush(); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !o.env.DropIn():
		return failed("renew", o.id, errNotThere, 0)
	case p.Format == output.Simple:
		_, err := fmt.Fprintf(p.Out, "lease %016x expired or revoked.\n", int64(o.id))
		return err
	}
	return nil
}

func (o *keepAliveOptions) print(p *reply.Printer, r *clientv3.LeaseKeepAliveResponse) error {
	return p.Print(reply.Answer{
		Header: r.ResponseHeader, Message: r.ResponseHeader, JSON: r,
		Simple: func(b []byte) []byte {
			return fmt.Appendf(b, "lease %016x keepalived with TTL(%d)\n", int64(r.ID), r.TTL)
		},
		Fields: func(b []byte) []byte { return appendID(b, r.ID, r.TTL, p.Hex) },
		Table:  func() output.Table { return oneRow(r.ID, "TTL", r.TTL) },
	})
}
