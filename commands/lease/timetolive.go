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

type timeToLiveOptions struct {
	env  *cli.Env
	id   clientv3.LeaseID
	keys bool
}

func newTimeToLiveCmd(env *cli.Env) *cobra.Command {
	o := timeToLiveOptions{env: env}
	c := &cobra.Command{
		Use:   "timetolive <leaseID> [options]",
		Short: "Get lease information",
		Long: `Tells how long a lease was granted for and how much of that is left, in seconds.
A lease that is not there ends with exit code 4 (as etcdctl: 0).`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.id, err = id(env, "timetolive", args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	c.Flags().BoolVar(&o.keys, "keys", false, "Get keys attached to this lease")
	return c
}

func (o *timeToLiveOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	r, err := timeToLive(ctx, o.env, client, o.id, o.keys)
	if err != nil {
		return failed("look at", o.id, err, badConnection)
	}
	if err := p.Print(reply.Answer{
		Header: r.ResponseHeader, Message: r.ResponseHeader, JSON: r, View: newView(r),
		Simple: func(b []byte) []byte { return o.simple(b, r) },
		Fields: func(b []byte) []byte {
			b = fmt.Appendf(appendID(b, r.ID, r.TTL, p.Hex), "\"GrantedTTL\" : %d\n", r.GrantedTTL)
			for _, k := range r.Keys {
				b = fmt.Appendf(b, "\"Key\" : %q\n", string(k))
			}
			return b
		},
	}); err != nil {
		return err
	}
	if r.TTL < 0 && !o.env.DropIn() {
		return failed("look at", o.id, errNotThere, 0)
	}
	return nil
}

func (o *timeToLiveOptions) simple(b []byte, r *clientv3.LeaseTimeToLiveResponse) []byte {
	if r.GrantedTTL == 0 && r.TTL == -1 {
		return fmt.Appendf(b, "lease %016x already expired\n", int64(r.ID))
	}
	b = fmt.Appendf(b, "lease %016x granted with TTL(%ds), remaining(%ds)", int64(r.ID), r.GrantedTTL, r.TTL)
	if o.keys {
		keys := make([]string, len(r.Keys))
		for i, k := range r.Keys {
			keys[i] = string(k)
		}
		b = fmt.Appendf(b, ", attached keys(%v)", keys)
	}
	return append(b, '\n')
}

// view is a lease in our own formats.
type view struct {
	Lease             string   `json:"lease"` // hex
	GrantedTTLSeconds int64    `json:"grantedTTLSeconds"`
	TTLSeconds        int64    `json:"ttlSeconds"` // -1: not there
	Keys              []string `json:"keys,omitempty"`
}

func newView(r *clientv3.LeaseTimeToLiveResponse) view {
	v := view{Lease: cli.LeaseID(int64(r.ID)), GrantedTTLSeconds: r.GrantedTTL, TTLSeconds: r.TTL}
	for _, k := range r.Keys {
		v.Keys = append(v.Keys, string(k))
	}
	return v
}

func (v view) Table() output.Table { return table([]view{v}) }

func table(all []view) output.Table {
	t := output.Table{
		Columns: []output.Column{{Name: "LEASE", Keep: true}, {Name: "GRANTED", Right: true}, {Name: "TTL", Right: true}, {Name: "KEYS", Right: true}, {Name: "FIRST KEY"}},
		Empty:   "no lease",
	}
	for _, v := range all {
		first := ""
		if len(v.Keys) > 0 {
			first = v.Keys[0]
		}
		t.Rows = append(t.Rows, []string{v.Lease, fmt.Sprintf("%ds", v.GrantedTTLSeconds), fmt.Sprintf("%ds", v.TTLSeconds), fmt.Sprint(len(v.Keys)), first})
	}
	return t
}
