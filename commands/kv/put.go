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

type putOptions struct {
	env                      *cli.Env
	key, value               string
	leaseText                string
	lease                    int64
	prevKV                   bool
	ignoreValue, ignoreLease bool
}

func newPutCmd(env *cli.Env) *cobra.Command {
	o := putOptions{env: env}
	c := &cobra.Command{
		Use:   "put [options] <key> <value> (<value> can also be given from stdin)",
		Short: "Puts the given key into the store",
		Long: `Puts the given key into the store.

Without a value on the command line the value is read from standard input, byte
for byte. A value that begins with '-' would be read as a flag; put -- before it:

  put <key> -- <value>
  put -- <key> <value>`,
		Example: "  cat file | etcdctl-plus put config/file",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&o.leaseText, "lease", "0", "lease ID (in hexadecimal) to attach to the key")
	f.BoolVar(&o.prevKV, "prev-kv", false, "return the previous key-value pair before modification")
	f.BoolVar(&o.ignoreValue, "ignore-value", false, "updates the key using its current value")
	f.BoolVar(&o.ignoreLease, "ignore-lease", false, "updates the key using its current lease")
	return c
}

func (o *putOptions) complete(args []string) error {
	switch {
	case len(args) == 0:
		return cli.Usagef("put command needs 1 argument and input from stdin or 2 arguments")
	case args[0] == "":
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("the key is empty; etcd has no empty key"), DropIn: 1}
	case o.ignoreValue && len(args) > 1:
		return cli.Usagef("put command needs only 1 argument when 'ignore-value' is set")
	case len(args) > 2 && !o.env.DropIn(): // etcdctl ignores what is too many
		return cli.Usagef("put takes one key and one value; there are %d arguments (quote a value with spaces)", len(args))
	}
	o.key = args[0]
	var err error
	if o.lease, err = strconv.ParseInt(o.leaseText, 16, 64); err != nil {
		return cli.Usagef("bad lease ID %q, expecting ID in Hex", o.leaseText)
	}
	switch {
	case o.ignoreValue:
	case len(args) >= 2:
		o.value = args[1]
	default:
		b, err := o.env.ReadStdin("the value")
		if err != nil {
			return err
		}
		o.value = string(b)
	}
	return nil
}

func (o *putOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
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
	r, err := client.Put(ctx, o.key, o.value, o.ops()...)
	if err != nil {
		err = noLeader(ctx, o.env, client, err)
		return cli.UnknownOutcome(fmt.Errorf("put %q: %w", o.key, err), fmt.Sprintf("look with `get %q -w json` before you put again", o.key))
	}
	return o.print(p, (*pb.PutResponse)(r))
}

func (o *putOptions) ops() []clientv3.OpOption {
	var ops []clientv3.OpOption
	if o.lease != 0 {
		ops = append(ops, clientv3.WithLease(clientv3.LeaseID(o.lease)))
	}
	if o.prevKV {
		ops = append(ops, clientv3.WithPrevKV())
	}
	if o.ignoreValue {
		ops = append(ops, clientv3.WithIgnoreValue())
	}
	if o.ignoreLease {
		ops = append(ops, clientv3.WithIgnoreLease())
	}
	return ops
}

type putView struct {
	Revision int64       `json:"revision"`
	Previous *recordView `json:"previous,omitempty"`
}

func (v putView) Table() output.Table {
	return output.Table{Columns: []output.Column{{Name: "REVISION", Right: true}}, Rows: [][]string{{fmt.Sprint(v.Revision)}}}
}

func (o *putOptions) print(p *reply.Printer, r *pb.PutResponse) error {
	v := putView{Revision: r.GetHeader().GetRevision()}
	kv := r.GetPrevKv()
	if kv != nil {
		prev := newRecordView(reply.Record(kv), false)
		v.Previous = &prev
	}
	return p.Print(reply.Answer{
		Header: r.GetHeader(), Message: r, View: v,
		Simple: func(b []byte) []byte {
			b = append(b, "OK\n"...)
			if kv != nil {
				b = reply.AppendRecord(b, kv.GetKey(), kv.GetValue(), p.Hex, false)
			}
			return b
		},
		Fields: func(b []byte) []byte {
			if kv != nil {
				b = reply.AppendFields(b, "Prev", reply.Record(kv), p.Hex)
			}
			return b
		},
	})
}
