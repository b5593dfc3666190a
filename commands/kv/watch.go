package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

type watchOptions struct {
	env            *cli.Env
	keys           keyArgs
	rev            int64
	prevKV         bool
	progressNotify bool
	interactive    bool
	exec           []string
}

const watchLong = `Watches events on a key, a range or a prefix until it is interrupted. After a lost
connection it goes on behind the last event.

With -- and a command, the command runs for every event, with ETCD_WATCH_REVISION,
ETCD_WATCH_EVENT_TYPE, ETCD_WATCH_KEY and ETCD_WATCH_VALUE in its environment, the last
three in Go's quotes; the first that fails ends the watch.

With -i requests are read from standard input, a line each: watch with its flags,
and progress, which asks the server how far it is.

ETCDCTL_WATCH_KEY and ETCDCTL_WATCH_RANGE_END stand for a key and an end that are not
given.

Server cost: a watch from now on costs next to nothing. With --rev far in the
past the server reads the whole backlog again, and other clients' writes wait
for it; to look at history use ` + "`inspect history`" + `, which reads a snapshot.`

func newWatchCmd(env *cli.Env) *cobra.Command {
	o := watchOptions{env: env}
	c := &cobra.Command{
		Use:   "watch [options] [key or prefix] [range_end] [--] [exec-command arg1 arg2 ...]",
		Short: "Watches events stream on keys or prefixes",
		Long:  watchLong,
		Example: `  etcdctl-plus watch /services/ --prefix
  etcdctl-plus watch foo -- sh -c 'echo $ETCD_WATCH_KEY changed'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if o.interactive {
				return o.runInteractive(c.Context())
			}
			if err := o.complete(args, c.ArgsLenAtDash()); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.interactive, "interactive", "i", false, "Interactive mode")
	o.define(f)
	f.BoolVar(&o.progressNotify, "progress-notify", false, "get periodic watch progress notification from server")
	return c
}

// define adds the flags that a line of an interactive watch has too.
func (o *watchOptions) define(f *pflag.FlagSet) {
	f.BoolVar(&o.keys.prefix, "prefix", false, "Watch on a prefix if prefix is set")
	f.Int64Var(&o.rev, "rev", 0, "Revision to start watching")
	f.BoolVar(&o.prevKV, "prev-kv", false, "get the previous key-value pair before the event happens")
}

// complete takes the arguments; those from dash on are a command, -1: there is none.
func (o *watchOptions) complete(args []string, dash int) error {
	key, end := o.env.Getenv("ETCDCTL_WATCH_KEY"), o.env.Getenv("ETCDCTL_WATCH_RANGE_END")
	if key == "" && end != "" {
		return cli.Usagef("ETCDCTL_WATCH_KEY is empty but got ETCDCTL_WATCH_RANGE_END=%q", end)
	}
	if dash >= 0 {
		if args, o.exec = args[:dash], args[dash:]; len(o.exec) == 0 {
			return cli.Usagef("bad number of arguments (found separator --, but no commands)")
		}
	}
	if key != "" {
		if len(args) > 0 {
			return cli.Usagef("bad number of arguments (found conflicting environment key)")
		}
		args = []string{key}
		if end != "" {
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
	set, err := o.env.Settings()
	if err != nil {
		return err
	}
	w := &watchWriter{p: p, env: o.env, exec: o.exec}
	for m, err := range o.messages(ctx, client, set.KeyPrefix) {
		if m != nil && (err == nil || o.env.DropIn()) {
			r := response(m)
			if err := w.write(ctx, &r); err != nil {
				return err
			}
		}
		if err != nil {
			return o.ended(ctx, err)
		}
	}
	return nil
}

func (o *watchOptions) messages(ctx context.Context, client *clientv3.Client, prefix string) iter.Seq2[*pb.WatchResponse, error] {
	return watchtail.Watch(ctx, client, watchtail.Request{
		Key: o.keys.rng.Key, End: o.keys.rng.End, Rev: max(o.rev, 0), PrevKV: o.prevKV, Progress: o.progressNotify, Prefix: []byte(prefix),
	})
}

// response is a message in the form that etcdctl prints.
func response(m *pb.WatchResponse) clientv3.WatchResponse {
	return clientv3.WatchResponse{Header: m.GetHeader(), Events: m.GetEvents(), CompactRevision: m.GetCompactRevision(),
		Canceled: m.GetCanceled(), Created: m.GetCreated(), CancelReason: m.GetCancelReason()}
}

// ended says why a watch is over; etcdctl then ends with 5, whatever the reason.
func (o *watchOptions) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d := *cli.Describe(fmt.Errorf("watch %s: %w", &o.keys, err))
	var c *keyspace.CompactedError
	if errors.As(err, &c) {
		d.Hint = fmt.Sprintf("the state at the oldest readable revision: get --rev %d; the changes after it: watch --rev %d", c.CompactRev, c.CompactRev+1)
	}
	d.DropIn = 5
	return &d
}

// watchWriter prints answers of a watch, and runs a command for each event.
type watchWriter struct {
	p      *reply.Printer
	env    *cli.Env
	stream *output.Stream
	exec   []string
}

func (w *watchWriter) write(ctx context.Context, r *clientv3.WatchResponse) error {
	if err := w.print(r); err != nil {
		return err
	}
	if err := w.env.Flush(); err != nil {
		return err
	}
	if len(w.exec) == 0 {
		return nil
	}
	for _, e := range r.Events {
		if err := runForEvent(ctx, w.env, w.exec, r.Header.GetRevision(), e); err != nil {
			return err
		}
	}
	return nil
}

func (w *watchWriter) print(r *clientv3.WatchResponse) error {
	switch w.p.Format {
	case output.Simple, output.Fields, output.JSON, output.Protobuf:
		// etcdctl has this line in every format; in ours JSON stays JSON.
		if r.IsProgressNotify() && (w.env.DropIn() || w.p.Format == output.Simple) {
			if _, err := fmt.Fprintf(w.p.Out, "progress notify: %d\n", r.Header.GetRevision()); err != nil {
				return err
			}
		}
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
