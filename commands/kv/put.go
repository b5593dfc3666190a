package kv

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	valueFile                string
	guard                    writeGuard
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
	o.define(f)
	if !env.DropIn() {
		f.StringVar(&o.valueFile, "value-file", "", "read the value from this file, byte for byte")
		o.guard.define(f)
	}
	return c
}

// define adds etcdctl's flags.
func (o *putOptions) define(f *pflag.FlagSet) {
	f.StringVar(&o.leaseText, "lease", "0", "lease ID (in hexadecimal) to attach to the key")
	f.BoolVar(&o.prevKV, "prev-kv", false, "return the previous key-value pair before modification")
	f.BoolVar(&o.ignoreValue, "ignore-value", false, "updates the key using its current value")
	f.BoolVar(&o.ignoreLease, "ignore-lease", false, "updates the key using its current lease")
}

func (o *putOptions) complete(args []string) error {
	switch {
	case len(args) == 0:
		return cli.Usagef("put command needs 1 argument and input from stdin or 2 arguments")
	case args[0] == "":
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("the key is empty; etcd has no empty key"), DropIn: 1}
	case o.ignoreValue && len(args) > 1:
		return cli.Usagef("put command needs only 1 argument when 'ignore-value' is set")
	case o.valueFile != "" && (len(args) > 1 || o.ignoreValue):
		return cli.Usagef("--value-file takes the place of a value, and excludes --ignore-value")
	case len(args) > 2 && !o.env.DropIn(): // etcdctl ignores what is too many
		return cli.Usagef("put takes one key and one value; there are %d arguments (quote a value with spaces)", len(args))
	}
	o.key = args[0]
	if err := o.parseLease(); err != nil {
		return err
	}
	switch {
	case o.ignoreValue:
	case o.valueFile != "":
		b, err := os.ReadFile(o.valueFile)
		if err != nil {
			return fmt.Errorf("read the value: %w", err)
		}
		o.value = string(b)
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

func (o *putOptions) parseLease() error {
	if o.leaseText == "" || strings.HasPrefix(o.leaseText, "-") && o.env.DropIn() { // as etcdctl reads it
		var err error
		if o.lease, err = strconv.ParseInt(o.leaseText, 16, 64); err != nil {
			return cli.Usagef("bad lease ID %q, expecting ID in Hex", o.leaseText)
		}
		return nil
	}
	id, err := cli.ParseID(o.env, "lease", o.leaseText)
	o.lease = int64(id)
	return err
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
	r, err := o.put(ctx, client)
	if err != nil {
		return cli.UnknownOutcome(fmt.Errorf("put %q: %w", o.key, err), fmt.Sprintf("look with `get %q -w json` before you put again", o.key))
	}
	return printPut(p, r)
}

func (o *putOptions) put(ctx context.Context, client *clientv3.Client) (*pb.PutResponse, error) {
	owned, err := o.guard.owned(o.env, []written{{key: o.key}})
	if err != nil {
		return nil, err
	}
	if len(owned) > 0 {
		r, err := o.guard.commit(ctx, o.env, client, &txn{then: []clientv3.Op{clientv3.OpPut(o.key, o.value, o.ops()...)}})
		if err != nil {
			return nil, err
		}
		put := r.Responses[0].GetResponsePut()
		put.Header = r.Header
		return put, nil
	}
	ctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	r, err := client.Put(ctx, o.key, o.value, o.ops()...)
	return (*pb.PutResponse)(r), noLeader(ctx, o.env, client, err)
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

func newPutView(r *pb.PutResponse) putView {
	v := putView{Revision: r.GetHeader().GetRevision()}
	if kv := r.GetPrevKv(); kv != nil {
		prev := newRecordView(reply.Record(kv), false)
		v.Previous = &prev
	}
	return v
}

func printPut(p *reply.Printer, r *pb.PutResponse) error {
	return p.Print(reply.Answer{
		Header: r.GetHeader(), Message: r, View: newPutView(r),
		Simple: func(b []byte) []byte { return appendPut(b, r, p.Hex) },
		Fields: func(b []byte) []byte { return appendPutFields(b, r, p.Hex) },
	})
}

func appendPut(b []byte, r *pb.PutResponse, hexed bool) []byte {
	b = append(b, "OK\n"...)
	if kv := r.GetPrevKv(); kv != nil {
		b = reply.AppendRecord(b, kv.GetKey(), kv.GetValue(), hexed, false)
	}
	return b
}

func appendPutFields(b []byte, r *pb.PutResponse, hexed bool) []byte {
	if kv := r.GetPrevKv(); kv != nil {
		b = reply.AppendFields(b, "Prev", reply.Record(kv), hexed)
	}
	return b
}
