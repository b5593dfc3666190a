package kv

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type compactionOptions struct {
	env      *cli.Env
	physical bool
	rev      int64
	guard    cli.Guard
}

func newCompactionCmd(env *cli.Env) *cobra.Command {
	o := compactionOptions{env: env}
	c := &cobra.Command{
		Use:   "compaction [options] <revision>",
		Short: "Compacts the event history in etcd",
		Long: `Compacts the history: what was there before the given revision can no longer be read,
and watches from before it end. Keys keep what they have.

Server cost: the server goes through its whole history in the background, in small
pieces; --physical waits for the end of it.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("compaction command needs 1 argument")
			}
			var err error
			if o.rev, err = strconv.ParseInt(args[0], 10, 64); err != nil {
				return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("%q is no revision", args[0]), DropIn: 1}
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&o.physical, "physical", false, "'true' to wait for compaction to physically remove all old revisions")
	if !env.DropIn() {
		o.guard.Define(f)
	}
	return c
}

// compactionView is what was, or would be, compacted.
type compactionView struct {
	Compacted int64 `json:"compactRevision"`
	Revision  int64 `json:"revision"`
	DryRun    bool  `json:"dryRun,omitempty"`
}

func (o *compactionOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, 0)
	if o.env.DropIn() {
		err = nil // etcdctl has one form whatever -w says
		p = &reply.Printer{Printer: &output.Printer{Out: o.env.Stdout, Format: output.Simple}}
	}
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	v := compactionView{Compacted: o.rev, DryRun: o.guard.DryRun}
	if !o.env.DropIn() {
		if v.Revision, err = o.ask(ctx, client); err != nil {
			return err
		}
	}
	if !o.guard.DryRun {
		if err := o.compact(ctx, client); err != nil {
			return err
		}
	}
	return p.Print(reply.Answer{
		JSON: v, View: v,
		Simple: func(b []byte) []byte {
			if v.DryRun {
				return fmt.Appendf(b, "would compact revision %d\n", o.rev)
			}
			return fmt.Appendf(b, "compacted revision %d\n", o.rev)
		},
		Table: func() output.Table {
			return output.Table{Columns: []output.Column{{Name: "COMPACTED", Right: true}, {Name: "REVISION", Right: true}}, Rows: [][]string{{fmt.Sprint(o.rev), fmt.Sprint(v.Revision)}}}
		},
	})
}

// ask tells what is about to go, and asks; it returns the cluster's revision.
func (o *compactionOptions) ask(ctx context.Context, client *clientv3.Client) (int64, error) {
	cctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return 0, err
	}
	defer cancel()
	r, err := client.Get(cctx, "\x00", clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("compact: %w", noLeader(ctx, o.env, client, err))
	}
	newest := (*pb.RangeResponse)(r).GetHeader().GetRevision()
	if o.rev > newest || o.rev <= 0 {
		return newest, cli.Usagef("revision %d is not between 1 and %d, the newest", o.rev, newest)
	}
	if o.guard.DryRun {
		return newest, nil
	}
	name, err := cli.ClusterName(ctx, o.env, client)
	if err != nil {
		return newest, err
	}
	return newest, o.guard.Ask(o.env, fmt.Sprintf("drop all history before revision %d (the newest is %d) of %s", o.rev, newest, name))
}

func (o *compactionOptions) compact(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	var ops []clientv3.CompactOption
	if o.physical {
		ops = append(ops, clientv3.WithCompactPhysical())
	}
	if _, err := client.Compact(ctx, o.rev, ops...); err != nil {
		err = noLeader(ctx, o.env, client, err)
		return cli.UnknownOutcome(fmt.Errorf("compact at revision %d: %w", o.rev, err), fmt.Sprintf("`get x --rev %d` tells whether it was compacted", max(o.rev-1, 1)))
	}
	return nil
}
