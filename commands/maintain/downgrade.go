package maintain

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type downgradeOptions struct {
	env    *cli.Env
	action clientv3.DowngradeAction
	verb   string
	target string
	guard  cli.Guard
}

func newDowngradeCmd(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "downgrade <TARGET_VERSION>",
		Short: "Downgrade related commands",
		Long: `Prepares the members' data for an older minor version. After enable the members are
exchanged one by one for the older program; cancel ends it before that.

Server cost: next to nothing; enable makes every member rewrite its schema.`,
	}
	for _, v := range []struct {
		action           clientv3.DowngradeAction
		verb, use, short string
	}{
		{clientv3.DowngradeValidate, "validate", "validate <TARGET_VERSION>", "Validate downgrade capability before starting downgrade"},
		{clientv3.DowngradeEnable, "enable", "enable <TARGET_VERSION>", "Start a downgrade action to cluster"},
		{clientv3.DowngradeCancel, "cancel", "cancel", "Cancel the ongoing downgrade action to cluster"},
	} {
		o := &downgradeOptions{env: env, action: v.action, verb: v.verb}
		sub := &cobra.Command{
			Use: v.use, Short: v.short,
			Long: v.short + ".\n\nServer cost: next to nothing.",
			Args: cobra.ArbitraryArgs,
			RunE: func(c *cobra.Command, args []string) error {
				if err := o.complete(args); err != nil {
					return err
				}
				return o.run(c.Context())
			},
		}
		if v.action == clientv3.DowngradeEnable && !env.DropIn() {
			sub.Long = v.short + `. The servers are asked first whether it is possible; then it asks, or wants --yes.

Server cost: every member rewrites its schema, once.`
			o.guard.Define(sub.Flags())
		}
		c.AddCommand(sub)
	}
	return c
}

func (o *downgradeOptions) complete(args []string) error {
	if o.action == clientv3.DowngradeCancel {
		if len(args) > 0 && !o.env.DropIn() { // etcdctl ignores them
			return cli.Usagef("downgrade cancel takes no argument")
		}
		return nil
	}
	switch {
	case len(args) == 0:
		return cli.Usagef("TARGET_VERSION not provided")
	case len(args) > 1:
		return cli.Usagef("too many arguments")
	case args[0] == "":
		return cli.Usagef("target version not provided")
	}
	o.target = args[0]
	return nil
}

func (o *downgradeOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Protobuf)
	if err != nil {
		return err
	}
	if o.action == clientv3.DowngradeEnable && !o.env.DropIn() {
		if done, err := o.ask(ctx, p); err != nil || done {
			return err
		}
	}
	r, err := o.send(ctx, o.action)
	if err != nil {
		if o.action != clientv3.DowngradeValidate {
			err = cli.UnknownOutcome(err, "`endpoint status` has the version that is downgraded to")
		}
		return err
	}
	return p.Print(reply.Answer{
		Header: r.GetHeader(), Message: r,
		Simple: func(b []byte) []byte {
			return fmt.Appendf(b, "Downgrade %s success, cluster version %s\n", o.verb, r.GetVersion())
		},
		Table: func() output.Table {
			return output.Table{Columns: []output.Column{{Name: "DOWNGRADE"}, {Name: "CLUSTER VERSION"}, {Name: "TARGET VERSION"}}, Rows: [][]string{{o.verb, r.GetVersion(), o.target}}}
		},
	})
}

func (o *downgradeOptions) send(ctx context.Context, action clientv3.DowngradeAction) (*pb.DowngradeResponse, error) {
	r, err := request(ctx, o.env, func(ctx context.Context, c *clientv3.Client) (*clientv3.DowngradeResponse, error) {
		return c.Downgrade(ctx, action, o.target)
	})
	if err != nil {
		if o.target == "" {
			return nil, fmt.Errorf("downgrade %s: %w", o.verb, err)
		}
		return nil, fmt.Errorf("downgrade %s %s: %w", o.verb, o.target, err)
	}
	return (*pb.DowngradeResponse)(r), nil
}

// ask lets the servers judge, and asks. done: it was a dry run.
func (o *downgradeOptions) ask(ctx context.Context, p *reply.Printer) (done bool, err error) {
	r, err := o.send(ctx, clientv3.DowngradeValidate)
	if err != nil {
		return false, err
	}
	c, err := o.env.Cluster(ctx)
	if err != nil {
		return false, fmt.Errorf("downgrade: %w", err)
	}
	what := fmt.Sprintf("start the downgrade of %s from version %s to %s, after which members of %s lose what only the newer version has", c, r.GetVersion(), o.target, o.target)
	if o.guard.DryRun {
		return true, p.Would(what)
	}
	return false, cli.Instead(o.guard.Ask(o.env, what), "save a snapshot first; --dry-run shows what would be done")
}
