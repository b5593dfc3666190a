package kv

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type watchOptions struct {
	env            *cli.Env
	keys           keyArgs
	rev            int64
	prevKV         bool
	progressNotify bool
}

func newWatchCmd(env *cli.Env) *cobra.Command {
	o := watchOptions{env: env}
	c := &cobra.Command{
		Use:   "watch [options] [key or prefix] [range_end]",
		Short: "Watches events stream on keys or prefixes",
		Long: `Watches events on a key, a range or a prefix until it is interrupted.

Server cost: a watch from now on costs next to nothing. With --rev far in the
past the server reads the whole backlog again, and other clients' writes wait
for it; to look at history use ` + "`inspect history`" + `, which reads a snapshot.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&o.keys.prefix, "prefix", false, "Watch on a prefix if prefix is set")
	f.Int64Var(&o.rev, "rev", 0, "Revision to start watching")
	f.BoolVar(&o.prevKV, "prev-kv", false, "get the previous key-value pair before the event happens")
	f.BoolVar(&o.progressNotify, "progress-notify", false, "get periodic watch progress notification from server")
	return c
}

func (o *watchOptions) complete(args []string) error {
	if key := o.env.Getenv("ETCDCTL_WATCH_KEY"); len(args) == 0 && key != "" {
		args = []string{key}
		if end := o.env.Getenv("ETCDCTL_WATCH_RANGE_END"); end != "" {
			args = append(args, end)
		}
	}
	return o.keys.complete("watch", args)
}

func (o *watchOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	w := watchWriter{p: p, o: o}
	for r := range client.Watch(ctx, string(o.keys.rng.Key), o.ops()...) {
		if err := r.Err(); err != nil {
			return o.canceled(r, err)
		}
		if err := w.write(&r); err != nil {
			return err
		}
		if err := o.env.Flush(); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &cli.Error{Code: cli.Unavailable, Err: errors.New("watch is canceled by the server"), DropIn: 4}
}

func (o *watchOptions) canceled(r clientv3.WatchResponse, err error) error {
	if r.CompactRevision != 0 {
		c := &keyspace.CompactedError{Rev: o.rev, CompactRev: r.CompactRevision}
		return &cli.Error{Code: cli.Compacted, Err: fmt.Errorf("watch %s: %w", &o.keys, c), Revision: r.CompactRevision, DropIn: 5,
			Hint: fmt.Sprintf("the state at the oldest readable revision: get --rev %d; the changes after it: watch --rev %d", r.CompactRevision, r.CompactRevision+1)}
	}
	d := *cli.Describe(fmt.Errorf("watch %s: %w", &o.keys, err))
	d.DropIn = 5
	return &d
}

func (o *watchOptions) ops() []clientv3.OpOption {
	ops := []clientv3.OpOption{clientv3.WithRev(o.rev)}
	if o.keys.rng.End != nil {
		ops = append(ops, clientv3.WithRange(string(o.keys.rng.End)))
	}
	if o.prevKV {
		ops = append(ops, clientv3.WithPrevKV())
	}
	if o.progressNotify {
		ops = append(ops, clientv3.WithProgressNotify())
	}
	return ops
}

// watchWriter prints answers of a watch.
type watchWriter struct {
	p      *reply.Printer
	o      *watchOptions
	stream *output.Stream
}

func (w *watchWriter) write(r *clientv3.WatchResponse) error {
	switch w.p.Format {
	case output.Simple, output.Fields, output.JSON, output.Protobuf:
		return w.p.Print(w.answer(r))
	}
	if w.stream == nil {
		w.stream = w.p.Stream(output.Envelope{})
	}
	if r.IsProgressNotify() {
		return w.stream.Write(eventView{Type: "PROGRESS", Revision: r.Header.GetRevision()})
	}
	for _, e := range r.Events {
		v := eventView{Type: e.GetType().String(), Revision: e.GetKv().GetModRevision(), recordView: newRecordView(reply.Record(e.GetKv()), e.GetType().String() == "DELETE")}
		if e.GetPrevKv() != nil {
			prev := newRecordView(reply.Record(e.GetPrevKv()), false)
			v.Previous = &prev
		}
		if err := w.stream.Write(v); err != nil {
			return err
		}
	}
	return w.stream.Flush()
}

func (w *watchWriter) answer(r *clientv3.WatchResponse) reply.Answer {
	return reply.Answer{
		Header: r.Header, JSON: r,
		Message: &pb.WatchResponse{Header: r.Header, Events: r.Events, CompactRevision: r.CompactRevision, Canceled: r.Canceled, Created: r.Created},
		Simple: func(b []byte) []byte {
			if r.IsProgressNotify() {
				b = fmt.Appendf(b, "progress notify: %d\n", r.Header.GetRevision())
			}
			for _, e := range r.Events {
				b = append(append(b, e.GetType().String()...), '\n')
				if kv := e.GetPrevKv(); kv != nil {
					b = reply.AppendRecord(b, kv.GetKey(), kv.GetValue(), w.p.Hex, false)
				}
				b = reply.AppendRecord(b, e.GetKv().GetKey(), e.GetKv().GetValue(), w.p.Hex, false)
			}
			return b
		},
		Fields: func(b []byte) []byte {
			for _, e := range r.Events {
				b = fmt.Appendln(b, `"Type" :`, e.GetType())
				if e.GetPrevKv() != nil {
					b = reply.AppendFields(b, "Prev", reply.Record(e.GetPrevKv()), w.p.Hex)
				}
				b = reply.AppendFields(b, "", reply.Record(e.GetKv()), w.p.Hex)
			}
			return b
		},
	}
}

// eventView is one event in our own formats.
type eventView struct {
	Type     string `json:"type"`
	Revision int64  `json:"revision"`
	recordView
	Previous *recordView `json:"previous,omitempty"`
}

func (v eventView) Table() output.Table {
	t := v.recordView.Table()
	t.Columns = append([]output.Column{{Name: "TYPE", Keep: true}}, t.Columns...)
	t.Rows[0] = append([]string{v.Type}, t.Rows[0]...)
	return t
}
