package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type delOptions struct {
	env     *cli.Env
	keys    keyArgs
	isRange bool
	prevKV  bool
}

func newDelCmd(env *cli.Env) *cobra.Command {
	o := delOptions{env: env}
	c := &cobra.Command{
		Use:   "del [options] <key> [range_end]",
		Short: "Removes the specified key or range of keys [key, range_end)",
		Long: `Removes the specified key or range of keys [key, range_end), and prints how many
there were. A range is deleted in one transaction: of very many keys it holds up
other writers while it runs.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.keys.complete("del", args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&o.keys.prefix, "prefix", false, "delete keys with matching prefix")
	f.BoolVar(&o.prevKV, "prev-kv", false, "return deleted key-value pairs")
	f.BoolVar(&o.keys.fromKey, "from-key", false, "delete keys that are greater than or equal to the given key using byte compare")
	f.BoolVar(&o.isRange, "range", false, "delete range of keys")
	return c
}

func (o *delOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	if o.keys.explicitEnd && !o.isRange {
		if err := o.pause(ctx); err != nil {
			return err
		}
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	var ops []clientv3.OpOption
	if o.keys.rng.End != nil {
		ops = append(ops, clientv3.WithRange(string(o.keys.rng.End)))
	}
	if o.prevKV {
		ops = append(ops, clientv3.WithPrevKV())
	}
	r, err := client.Delete(ctx, string(o.keys.rng.Key), ops...)
	if err != nil {
		err = noLeader(ctx, o.env, client, err)
		return cli.UnknownOutcome(fmt.Errorf("delete %s: %w", &o.keys, err), "count what is left with `get --count-only`")
	}
	return o.print(p, (*pb.DeleteRangeResponse)(r))
}

// pause gives etcdctl's two seconds to think before a range without --range.
func (o *delOptions) pause(ctx context.Context) error {
	fmt.Fprintf(o.env.Stderr, "Warning: Keys between %q and %q will be deleted. Please interrupt the command within next 2 seconds to cancel. You can provide `--range` flag to avoid the delay.\n",
		o.keys.rng.Key, o.keys.rng.End)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(2 * time.Second):
		return nil
	}
}

type delView struct {
	Deleted  int64        `json:"deleted"`
	Revision int64        `json:"revision"`
	Previous []recordView `json:"previous,omitempty"`
}

func (v delView) Table() output.Table {
	return output.Table{
		Columns: []output.Column{{Name: "DELETED", Right: true}, {Name: "REVISION", Right: true}},
		Rows:    [][]string{{fmt.Sprint(v.Deleted), fmt.Sprint(v.Revision)}},
	}
}

func (o *delOptions) print(p *reply.Printer, r *pb.DeleteRangeResponse) error {
	v := delView{Deleted: r.GetDeleted(), Revision: r.GetHeader().GetRevision()}
	for _, kv := range r.GetPrevKvs() {
		v.Previous = append(v.Previous, newRecordView(reply.Record(kv), false))
	}
	return p.Print(reply.Answer{
		Header: r.GetHeader(), Message: r, View: v,
		Simple: func(b []byte) []byte { return appendDeleted(b, r, p.Hex) },
		Fields: func(b []byte) []byte {
			b = fmt.Appendf(b, "\"Deleted\" : %d\n", r.GetDeleted())
			for _, kv := range r.GetPrevKvs() {
				b = reply.AppendFields(b, "Prev", reply.Record(kv), p.Hex)
			}
			return b
		},
	})
}

func appendDeleted(b []byte, r *pb.DeleteRangeResponse, hexed bool) []byte {
	b = fmt.Appendln(b, r.GetDeleted())
	for _, kv := range r.GetPrevKvs() {
		b = reply.AppendRecord(b, kv.GetKey(), kv.GetValue(), hexed, false)
	}
	return b
}
