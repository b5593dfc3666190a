package endpoint

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type hashKVOptions struct {
	*options
	rev   int64
	guard cli.Guard
}

func newHashKVCmd(shared *options) *cobra.Command {
	o := hashKVOptions{options: shared}
	c := &cobra.Command{
		Use:   "hashkv",
		Short: "Prints the KV history hash for each endpoint in --endpoints",
		Long: `Prints every member's hash of its keys and their history. Members agree when their
hashes are equal at one revision, with history from one compaction on.

Server cost: a member takes no writes while it computes, 0.6 s for 500 MB.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	c.PersistentFlags().Int64Var(&o.rev, "rev", 0, "maximum revision to hash (default: latest revision)")
	if !shared.env.DropIn() {
		c.Long += `

All members are asked for one revision, the smallest that all have, followers first, one
after another. Hashes of different stretches of history are not compared. A difference
ends with exit code 10. Since it stops writes it asks, or wants --yes.`
		c.Flags().BoolVar(&o.guard.Yes, "yes", false, "do not ask")
	}
	return c
}

// hashJSON is a line of etcdctl's document.
type hashJSON struct {
	Endpoint string                   `json:"Endpoint"`
	HashKV   *clientv3.HashKVResponse `json:"HashKV"`
	Error    string                   `json:"Error,omitempty"` // not etcdctl's, which leaves the line out
}

func (o *hashKVOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Boxes|reply.Lines)
	if err != nil {
		return err
	}
	endpoints, dial, timeout, err := o.ask(ctx)
	if err != nil {
		return err
	}
	var states []cluster.State
	order := endpoints
	if !o.env.DropIn() {
		states = cluster.States(ctx, dial, endpoints, timeout)
		if order, err = o.plan(states); err != nil {
			return err
		}
	}
	hashes := cluster.Hashes(ctx, dial, order, o.rev, timeout)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rows, answered, failed := o.rows(hashes)
	if o.env.DropIn() {
		rows = answered
	}
	if err := p.Print(reply.Answer{
		JSON: rows,
		Simple: func(b []byte) []byte {
			for _, r := range answered {
				b = append(append(b, strings.Join(hashCells(r), ", ")...), '\n')
			}
			return b
		},
		Fields: func(b []byte) []byte {
			for _, r := range answered {
				h := (*pb.HashKVResponse)(r.HashKV)
				b = fmt.Appendf(reply.AppendHeader(b, h.GetHeader(), p.Hex), "\"Endpoint\" : %q\n\"Hash\" : %d\n\"HashRevision\" : %d\n\n", r.Endpoint, h.GetHash(), h.GetHashRevision())
			}
			return b
		},
		Boxes: func() ([]string, [][]string) {
			var all [][]string
			for _, r := range answered {
				all = append(all, hashCells(r))
			}
			return []string{"endpoint", "hash", "hash_revision"}, all
		},
		Table: func() output.Table { return hashTable(rows) },
	}); err != nil {
		return err
	}
	if o.env.DropIn() {
		if len(failed) > 0 {
			return &cli.Error{Code: cli.Failure, Err: failed[len(failed)-1], DropIn: 1}
		}
		return nil
	}
	return o.verdict(ctx, states, hashes, failed)
}

// plan orders the endpoints, fixes the revision, and asks.
func (o *hashKVOptions) plan(states []cluster.State) ([]string, error) {
	var order []string
	for _, s := range cluster.Order(states) {
		order = append(order, s.Endpoint)
		if rev := s.Status.Header.GetRevision(); o.rev == 0 || rev < o.rev {
			o.rev = rev
		}
	}
	for _, s := range states {
		if s.Status == nil {
			order = append(order, s.Endpoint) // its row says why
		}
	}
	return order, o.guard.Ask(o.env, fmt.Sprintf("hash the history of %d members at revision %d, each of which takes no writes meanwhile (%s)", len(order), o.rev, strings.Join(order, ", ")))
}

func (o *hashKVOptions) rows(hashes []cluster.Hash) (rows, answered []hashJSON, failed []error) {
	for _, h := range hashes {
		row := hashJSON{Endpoint: h.Endpoint, HashKV: h.Hash}
		if h.Err == nil {
			answered = append(answered, row)
		} else {
			row.Error = reply.Reason(h.Err)
			failed = append(failed, fmt.Errorf("%s: %w", h.Endpoint, h.Err))
			o.env.Say("Failed to get the hash of endpoint %s (%s)", h.Endpoint, row.Error)
		}
		rows = append(rows, row)
	}
	return rows, answered, failed
}

func (o *hashKVOptions) verdict(ctx context.Context, states []cluster.State, hashes []cluster.Hash, failed []error) error {
	v := cluster.Compare(hashes)
	for _, n := range v.NotCompared {
		o.env.Warn("%s", n)
	}
	damaged := o.standing(ctx, states)
	if len(v.Differences) > 0 || damaged {
		return cli.WithHint(cli.Failf(cli.Integrity, "members differ: %s", strings.Join(v.Differences, "; ")), "save a snapshot of each, and compare them with `inspect diff`")
	}
	return o.outcome(len(hashes), failed)
}

func hashCells(r hashJSON) []string {
	h := (*pb.HashKVResponse)(r.HashKV)
	return []string{r.Endpoint, fmt.Sprint(h.GetHash()), fmt.Sprint(h.GetHashRevision())}
}

func hashTable(rows []hashJSON) output.Table {
	t := output.Table{Columns: []output.Column{{Name: "ENDPOINT", Keep: true}, {Name: "HASH", Right: true}, {Name: "HASH REVISION", Right: true}, {Name: "COMPACTED", Right: true}, {Name: "ERROR", Wrap: true}}}
	for _, r := range rows {
		row := []string{r.Endpoint, "", "", "", r.Error}
		if h := (*pb.HashKVResponse)(r.HashKV); r.HashKV != nil {
			row = []string{r.Endpoint, fmt.Sprint(h.GetHash()), fmt.Sprint(h.GetHashRevision()), fmt.Sprint(h.GetCompactRevision()), ""}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
