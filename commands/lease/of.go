package lease

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type ofOptions struct{ env *cli.Env }

func newOfCmd(env *cli.Env) *cobra.Command {
	o := ofOptions{env: env}
	return &cobra.Command{
		Use:   "of KEY",
		Short: "The lease of a key",
		Long: `Tells which lease a key has and how much of it is left. A key that has none, or is not
there, ends with exit code 4.`,
		Example: "  etcdctl-plus lease of /services/order/instance-1",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0]) },
	}
}

func (o *ofOptions) run(ctx context.Context, key string) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	cctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	r, err := client.Get(cctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("get %q: %w", key, err)
	case len(r.Kvs) == 0:
		return cli.Failf(cli.Negative, "key %q not found", key)
	case r.Kvs[0].GetLease() == 0:
		return cli.Failf(cli.Negative, "key %q has no lease: it stays until somebody deletes it", key)
	}
	lease, err := timeToLive(ctx, o.env, client, clientv3.LeaseID(r.Kvs[0].GetLease()), true)
	if err != nil {
		return failed("look at", clientv3.LeaseID(r.Kvs[0].GetLease()), err, badConnection)
	}
	return p.Print(newView(lease))
}
