package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	guard   cli.Guard
	owned   writeGuard
	chunked bool
	chunk   int
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
	o.define(f)
	if !env.DropIn() {
		c.Long += delOwnHelp
		o.guard.Define(f)
		o.owned.define(f)
		f.BoolVar(&o.chunked, "chunked", false, "delete a range in many small transactions, which lets other writers in between; not atomic")
		f.IntVar(&o.chunk, "chunk-size", 1000, "with --chunked: keys a transaction")
	}
	return c
}

const delOwnHelp = `

Of a range the keys are counted first. More than 100 keys, or all there are, want an
answer on a terminal or --yes. What is deleted is what was counted: if one of the keys
changed meanwhile, or another came, nothing is, and the exit code is 40. --dry-run shows
the keys.

Server cost: the count streams the keys, as get --keys-only does. Deleting a million
keys in one transaction lets no other write in for 3 s; --chunked for some milliseconds at
a time.`

// define adds etcdctl's flags.
func (o *delOptions) define(f *pflag.FlagSet) {
	f.BoolVar(&o.keys.prefix, "prefix", false, "delete keys with matching prefix")
	f.BoolVar(&o.prevKV, "prev-kv", false, "return deleted key-value pairs")
	f.BoolVar(&o.keys.fromKey, "from-key", false, "delete keys that are greater than or equal to the given key using byte compare")
	f.BoolVar(&o.isRange, "range", false, "delete range of keys")
}

func (o *delOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	if !o.env.DropIn() {
		return o.guarded(ctx, p)
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
	return o.direct(ctx, p, client)
}

// direct is etcd's own request, as it is.
func (o *delOptions) direct(ctx context.Context, p *reply.Printer, client *clientv3.Client) error {
	ctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	r, err := client.Delete(ctx, string(o.keys.rng.Key), o.ops()...)
	if err != nil {
		return o.failed(noLeader(ctx, o.env, client, err))
	}
	return printDel(p, (*pb.DeleteRangeResponse)(r))
}

func (o *delOptions) failed(err error) error {
	return cli.UnknownOutcome(fmt.Errorf("delete %s: %w", &o.keys, err), "count what is left with `get --count-only`")
}

func (o *delOptions) ops() []clientv3.OpOption {
	var ops []clientv3.OpOption
	if o.keys.rng.End != nil {
		ops = append(ops, clientv3.WithRange(string(o.keys.rng.End)))
	}
	if o.prevKV {
		ops = append(ops, clientv3.WithPrevKV())
	}
	return ops
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

func newDelView(r *pb.DeleteRangeResponse) delView {
	v := delView{Deleted: r.GetDeleted(), Revision: r.GetHeader().GetRevision()}
	for _, kv := range r.GetPrevKvs() {
		v.Previous = append(v.Previous, newRecordView(reply.Record(kv), false))
	}
	return v
}

func printDel(p *reply.Printer, r *pb.DeleteRangeResponse) error {
	return p.Print(reply.Answer{
		Header: r.GetHeader(), Message: r, View: newDelView(r),
		Simple: func(b []byte) []byte { return appendDeleted(b, r, p.Hex) },
		Fields: func(b []byte) []byte { return appendDeletedFields(b, r, p.Hex) },
	})
}

func appendDeletedFields(b []byte, r *pb.DeleteRangeResponse, hexed bool) []byte {
	b = fmt.Appendf(b, "\"Deleted\" : %d\n", r.GetDeleted())
	for _, kv := range r.GetPrevKvs() {
		b = reply.AppendFields(b, "Prev", reply.Record(kv), hexed)
	}
	return b
}

func appendDeleted(b []byte, r *pb.DeleteRangeResponse, hexed bool) []byte {
	b = fmt.Appendln(b, r.GetDeleted())
	for _, kv := range r.GetPrevKvs() {
		b = reply.AppendRecord(b, kv.GetKey(), kv.GetValue(), hexed, false)
	}
	return b
}
