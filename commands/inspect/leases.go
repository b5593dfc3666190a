package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type leasesOptions struct {
	env     *cli.Env
	source  cli.SourceFlags
	orphans bool
}

func newLeasesCmd(env *cli.Env) *cobra.Command {
	o := leasesOptions{env: env}
	c := &cobra.Command{
		Use:   "leases",
		Short: "Leases with their TTL and keys, and keys whose lease is gone",
		Long: `Every lease with its TTL and how many keys hang on it, and orphans: keys that name
a lease which does not exist. Such keys never expire; a restored snapshot can have
them. (Kubernetes' own Lease objects are something else: registry get leases.)

Server cost (live): all keys and values are read and sent once, and one small
request is made per lease.`,
		Example: `  etcdctl-plus inspect leases --db snapshot.db
  etcdctl-plus inspect leases --orphans -w wide`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.source.Define(c.Flags())
	c.Flags().BoolVar(&o.orphans, "orphans", false, "only keys whose lease does not exist")
	return c
}

func (o *leasesOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	src, err := o.source.Open(ctx, o.env)
	if err != nil {
		return err
	}
	known, err := o.known(ctx, src)
	if err != nil {
		return err
	}
	uses, err := inspect.Leases(ctx, src, 0, known)
	if err != nil {
		return err
	}
	s := p.Stream(output.Envelope{})
	for _, u := range uses {
		if o.orphans && !u.Orphan {
			continue
		}
		if err := s.Write(newLeaseView(u)); err != nil {
			return err
		}
	}
	switch {
	case !o.orphans:
		return s.Close("no lease")
	case len(uses) == 0:
		return s.Close("no orphan, and no lease")
	}
	return s.Close(fmt.Sprintf("no orphan: every key's lease exists (%d leases)", len(uses)))
}

// known lists the leases that exist.
func (o *leasesOptions) known(ctx context.Context, src keyspace.Source) ([]inspect.LeaseTTL, error) {
	if f, ok := keyspace.Base(src).(*dbfile.Source); ok {
		list, err := f.Leases(ctx)
		var out []inspect.LeaseTTL
		for _, l := range list {
			t := inspect.LeaseTTL{ID: l.ID, Granted: l.TTL, Remaining: -1}
			if l.RemainingTTL > 0 {
				t.Remaining = l.RemainingTTL
			}
			out = append(out, t)
		}
		return out, err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return nil, err
	}
	var list *clientv3.LeaseLeasesResponse
	err = o.small(ctx, client, "list leases", func(ctx context.Context) (err error) {
		list, err = client.Leases(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []inspect.LeaseTTL
	for _, l := range list.Leases {
		var r *clientv3.LeaseTimeToLiveResponse
		err := o.small(ctx, client, "ask for lease "+cli.LeaseID(int64(l.ID)), func(ctx context.Context) (err error) {
			r, err = client.TimeToLive(ctx, l.ID)
			return err
		})
		if err != nil {
			return nil, err
		}
		if r.TTL >= 0 { // else it expired meanwhile
			out = append(out, ttl(l.ID, r))
		}
	}
	return out, nil
}

// small bounds a small request, and says so when it failed for want of a leader: it
// alone knows how long leases have left, whatever --consistency says.
func (o *leasesOptions) small(ctx context.Context, client *clientv3.Client, doing string, f func(context.Context) error) error {
	ctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err = f(ctx); err == nil {
		return nil
	}
	var lost *live.NoLeaderError
	if err = live.NoLeader(ctx, client, err); errors.As(err, &lost) {
		return &cli.Error{Code: cli.Unavailable, Err: fmt.Errorf("%s: %w", doing, err), Endpoint: lost.Endpoint,
			Hint: "only a leader knows how long leases have left; read a copy of a member's data folder with --db"}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func ttl(id clientv3.LeaseID, r *clientv3.LeaseTimeToLiveResponse) inspect.LeaseTTL {
	return inspect.LeaseTTL{ID: int64(id), Granted: r.GrantedTTL, Remaining: r.TTL}
}

type leaseView struct {
	ID        string   `json:"id"` // hex
	Granted   int64    `json:"grantedTtlSeconds,omitempty"`
	Remaining *int64   `json:"remainingTtlSeconds,omitempty"` // left out when not known
	Keys      int64    `json:"keys"`
	Bytes     int64    `json:"bytes"`
	Orphan    bool     `json:"orphan"`
	Sample    []string `json:"firstKeys,omitempty"`
}

func newLeaseView(u inspect.LeaseUse) leaseView {
	v := leaseView{ID: cli.LeaseID(u.ID), Granted: u.GrantedSeconds, Keys: u.Keys, Bytes: u.Bytes, Orphan: u.Orphan, Sample: u.Sample}
	if u.RemainingSeconds >= 0 {
		v.Remaining = &u.RemainingSeconds
	}
	return v
}

func (v leaseView) Table() output.Table {
	granted, left := fmt.Sprintf("%ds", v.Granted), "?"
	if v.Remaining != nil {
		left = fmt.Sprintf("%ds", *v.Remaining)
	}
	if v.Orphan {
		granted, left = "gone", "never expires"
	}
	first := strings.Join(v.Sample, " ")
	if int64(len(v.Sample)) < v.Keys {
		first += " …"
	}
	return output.Table{
		Columns: []output.Column{{Name: "LEASE", Keep: true}, {Name: "TTL", Right: true, Keep: true}, {Name: "LEFT", Right: true, Keep: true},
			{Name: "KEYS", Right: true, Keep: true}, {Name: "BYTES", Right: true, Bytes: true, Wide: true}, {Name: "FIRST KEYS"}},
		Rows: [][]string{{v.ID, granted, left, fmt.Sprint(v.Keys), fmt.Sprint(v.Bytes), first}},
	}
}
