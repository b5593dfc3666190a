package kv

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/registry"
)

const (
	// askAbove is how many keys are deleted without a question.
	askAbove = 100
	// recounts is how often a delete that nobody was asked about counts again when keys
	// changed between the count and the delete.
	recounts = 5
	// shownKeys bounds the keys in a dry run's document.
	shownKeys = 100
)

// delPlan is what would be deleted, at one revision.
type delPlan struct {
	DryRun   bool     `json:"dryRun"`
	Keys     int64    `json:"wouldDelete"`
	Revision int64    `json:"revision"`
	Shown    []string `json:"keys"` // the first ones
	owned    string   // a key of Kubernetes' among them
}

func (v *delPlan) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "WOULD DELETE"}}, Empty: "no key"}
	for _, k := range v.Shown {
		t.Rows = append(t.Rows, []string{k})
	}
	if more := v.Keys - int64(len(v.Shown)); more > 0 {
		t.Footer = [][]string{{fmt.Sprintf("and %d more", more)}}
	}
	return t
}

// guarded deletes under our own name.
func (o *delOptions) guarded(ctx context.Context, p *reply.Printer) error {
	if o.chunked && (o.prevKV || o.keys.single() || o.chunk < 1) {
		return cli.Usagef("--chunked is for a range, without --prev-kv, and --chunk-size is at least 1")
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	owned, err := o.owned.owned(o.env, []written{{key: string(o.keys.rng.Key), end: string(o.keys.rng.End)}})
	if err != nil {
		return err
	}
	if o.keys.single() && len(owned) == 0 && !o.guard.DryRun {
		return o.direct(ctx, p, client)
	}
	var flags cli.SourceFlags
	src, err := flags.Live(ctx, o.env, false)
	if err != nil {
		return err
	}
	asked := false
	for try := 1; ; try++ {
		plan, err := o.plan(ctx, p, src)
		if err != nil {
			return fmt.Errorf("delete %s: %w", &o.keys, err)
		}
		if o.guard.DryRun {
			return o.dryRun(p, plan)
		}
		if plan.owned != "" && !o.owned.kubernetes {
			return o.owned.refuse(plan.owned)
		}
		if !asked {
			if asked, err = o.ask(ctx, client, plan); err != nil {
				return err
			}
		}
		if o.chunked {
			return o.inChunks(ctx, p, client, src, plan)
		}
		r, err := o.delete(ctx, client, plan)
		switch {
		case err != nil:
			return o.failed(err)
		case r != nil:
			return printDel(p, r)
		case asked || try == recounts:
			return o.moved(plan, "nothing was deleted")
		}
	}
}

func (o *delOptions) moved(plan *delPlan, done string) error {
	return cli.WithHint(cli.Failf(cli.Refused, "delete %s: keys changed after they were counted at revision %d; %s", &o.keys, plan.Revision, done),
		"the same command counts again; --chunked deletes what stands still")
}

// plan counts. A dry run in the simple format prints the keys as it goes.
func (o *delOptions) plan(ctx context.Context, p *reply.Printer, src keyspace.Source) (*delPlan, error) {
	set, err := o.env.Settings()
	if err != nil {
		return nil, err
	}
	info, err := src.Info(ctx)
	if err != nil {
		return nil, err
	}
	plan := &delPlan{DryRun: o.guard.DryRun, Revision: info.Revision, Shown: []string{}}
	r := o.keys.rng
	r.Rev, r.KeysOnly = info.Revision, true
	list := o.guard.DryRun && p.Format == output.Simple
	var line []byte
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			return nil, err
		}
		if plan.Keys++; plan.Keys <= shownKeys {
			plan.Shown = append(plan.Shown, shown(rec.Key))
		}
		if plan.owned == "" && registry.Owned(set.KeyPrefix+string(rec.Key)) {
			plan.owned = string(rec.Key)
		}
		if list {
			line = append(append(line[:0], rec.Key...), '\n')
			if _, err := p.Out.Write(line); err != nil {
				return nil, err
			}
		}
	}
	return plan, nil
}

// shown is a key in a list: bytes that are no UTF-8 as Go writes them.
func shown(key []byte) string {
	if utf8.Valid(key) {
		return string(key)
	}
	return strconv.Quote(string(key))
}

func (o *delOptions) dryRun(p *reply.Printer, plan *delPlan) error {
	if plan.owned != "" && !o.owned.kubernetes {
		o.env.Warn("this would be refused without --kubernetes: %q is Kubernetes'", plan.owned)
	}
	if p.Format == output.Simple {
		o.env.Say("%d keys would be deleted, as of revision %d", plan.Keys, plan.Revision)
		return nil
	}
	if p.Format == output.Protobuf {
		return cli.Usagef("--dry-run has no protobuf")
	}
	return p.Printer.Print(plan)
}

// ask tells whether somebody was asked, or said --yes.
func (o *delOptions) ask(ctx context.Context, client *clientv3.Client, plan *delPlan) (bool, error) {
	all := string(o.keys.rng.End) == "\x00" && bytes.Compare(o.keys.rng.Key, []byte{0}) <= 0
	if plan.Keys <= askAbove && (!all || plan.Keys == 0) {
		return false, nil
	}
	name, err := cli.ClusterName(ctx, o.env, client)
	if err != nil {
		return false, err
	}
	what := fmt.Sprintf("%d keys", plan.Keys)
	if all {
		what = fmt.Sprintf("all %d keys", plan.Keys)
	}
	return true, o.guard.Ask(o.env, fmt.Sprintf("delete %s (%s) of %s", what, &o.keys, name))
}

// delete sends one transaction; nil: keys have changed since they were counted.
func (o *delOptions) delete(ctx context.Context, client *clientv3.Client, plan *delPlan) (*pb.DeleteRangeResponse, error) {
	body := &txn{then: []clientv3.Op{clientv3.OpDelete(string(o.keys.rng.Key), o.ops()...)}}
	if plan.owned != "" {
		r, err := o.owned.commit(ctx, o.env, client, body)
		if err != nil {
			return nil, err
		}
		return deleted(r), nil
	}
	cctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	r, err := client.Txn(cctx).If(unmoved(writes(body.then), plan.Revision)...).Then(body.then...).Commit()
	if err != nil {
		return nil, noLeader(ctx, o.env, client, err)
	}
	if !r.Succeeded {
		return nil, nil
	}
	return deleted(r), nil
}

// deleted is the answer to the one delete of a transaction.
func deleted(r *clientv3.TxnResponse) *pb.DeleteRangeResponse {
	d := r.Responses[0].GetResponseDeleteRange()
	d.Header = r.Header
	return d
}

// inChunks deletes in transactions of some keys each, and leaves the server as much time
// between them as they take.
func (o *delOptions) inChunks(ctx context.Context, p *reply.Printer, client *clientv3.Client, src keyspace.Source, plan *delPlan) error {
	if plan.owned != "" {
		return cli.Usagef("--chunked is not for keys of Kubernetes': what is there is saved as a whole")
	}
	progress := o.env.Progress("keys deleted")
	defer progress.Done()
	sum := &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{Revision: plan.Revision}}
	var keys [][]byte
	send := func() error {
		if len(keys) == 0 {
			return nil
		}
		start := time.Now()
		first, end := string(keys[0]), string(keys[len(keys)-1])+"\x00"
		cctx, cancel, err := o.env.CommandContext(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		w := []written{{first, end}}
		r, err := client.Txn(cctx).If(unmoved(w, plan.Revision)...).Then(clientv3.OpDelete(first, clientv3.WithRange(end))).Commit()
		if err != nil {
			return o.failed(fmt.Errorf("after %d keys were deleted: %w", sum.Deleted, noLeader(ctx, o.env, client, err)))
		}
		if !r.Succeeded {
			return o.moved(plan, fmt.Sprintf("%d keys before %q were deleted", sum.Deleted, first))
		}
		sum.Header, sum.Deleted = r.Header, sum.Deleted+deleted(r).GetDeleted()
		progress.Set(sum.Deleted, plan.Keys)
		keys = keys[:0]
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Since(start)):
			return nil
		}
	}
	r := o.keys.rng
	r.Rev, r.KeysOnly = plan.Revision, true
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			return o.failed(fmt.Errorf("after %d keys were deleted: %w", sum.Deleted, err))
		}
		if keys = append(keys, bytes.Clone(rec.Key)); len(keys) == o.chunk {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if err := send(); err != nil {
		return err
	}
	return printDel(p, sum)
}
