package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type listOptions struct{ env *cli.Env }

func newListCmd(env *cli.Env) *cobra.Command {
	o := listOptions{env: env}
	c := &cobra.Command{
		Use:   "list",
		Short: "List all active leases",
		Args:  cobra.ArbitraryArgs, // etcdctl ignores them
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && !env.DropIn() {
				return cli.Usagef("lease list takes no argument")
			}
			return o.run(c.Context())
		},
	}
	if !env.DropIn() {
		c.Long = `Lists all leases. Every format but simple has their times to live and keys too, for
which the server is asked once a lease. For a file: inspect leases --db FILE.`
	}
	return c
}

// listView are the leases with what the server says of each.
type listView struct {
	Header *pb.ResponseHeader `json:"header,omitempty"`
	Leases []view             `json:"leases"`
}

func (v listView) Table() output.Table { return table(v.Leases) }

func (o *listOptions) run(ctx context.Context) error {
	p, client, cctx, cancel, err := reply.Begin(ctx, o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	defer cancel()
	r, err := client.Leases(cctx)
	if err != nil {
		d := *cli.Describe(fmt.Errorf("list leases: %w", err))
		d.DropIn = badConnection
		return &d
	}
	a := reply.Answer{
		Header: r.ResponseHeader, Message: r.ResponseHeader, JSON: r,
		Simple: func(b []byte) []byte {
			b = fmt.Appendf(b, "found %d leases\n", len(r.Leases))
			for _, l := range r.Leases {
				b = fmt.Appendf(b, "%016x\n", int64(l.ID))
			}
			return b
		},
		Fields: func(b []byte) []byte {
			for _, l := range r.Leases {
				b = reply.AppendLeaseID(b, "ID", int64(l.ID), p.Hex)
			}
			return b
		},
	}
	if !o.env.DropIn() && p.Format != output.Simple && p.Format != output.Fields {
		all, err := o.all(ctx, client, r.Leases)
		if err != nil {
			return err
		}
		v := listView{Header: r.ResponseHeader, Leases: all}
		a.JSON, a.View = v, v
	}
	return p.Print(a)
}

// askers is how many requests are under way at once.
const askers = 8

// all asks for each lease. One that has gone meanwhile is left out.
func (o *listOptions) all(ctx context.Context, client *clientv3.Client, leases []clientv3.LeaseStatus) ([]view, error) {
	views, errs := make([]view, len(leases)), make([]error, len(leases))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(askers, len(leases)) {
		wg.Go(func() {
			for i := range next {
				r, err := timeToLive(ctx, o.env, client, leases[i].ID, true)
				if err != nil {
					errs[i] = failed("look at", leases[i].ID, err, badConnection)
					continue
				}
				views[i] = newView(r)
			}
		})
	}
	for i := range leases {
		next <- i
	}
	close(next)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	there := []view{}
	for _, v := range views {
		if v.TTLSeconds >= 0 {
			there = append(there, v)
		}
	}
	return there, nil
}
