package kv

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/registry"
)

// writeGuard stands in front of keys that an API server takes for its own: it does not
// see who writes behind its back. As etcdctl there is none.
type writeGuard struct {
	kubernetes bool
	undo       string // file for what was there before; "": one in the user's state folder
}

func (g *writeGuard) define(f *pflag.FlagSet) {
	f.BoolVar(&g.kubernetes, "kubernetes", false, "also write keys of Kubernetes': only what nobody else changes meanwhile, and what was there is saved first (--undo)")
	f.StringVar(&g.undo, "undo", "", "with --kubernetes: file for what was there, as a transaction for `txn --file` (default: in the user's state folder)")
}

// written is what a request would write: a key, or a range of keys to delete.
type written struct{ key, end string }

// writes lists what requests would write.
func writes(ops ...[]clientv3.Op) []written {
	var w []written
	for _, list := range ops {
		for _, op := range list {
			switch {
			case op.IsPut():
				w = append(w, written{key: string(op.KeyBytes())})
			case op.IsDelete():
				w = append(w, written{string(op.KeyBytes()), string(op.RangeBytes())})
			case op.IsTxn():
				_, then, orEl := op.Txn()
				w = append(w, writes(then, orEl)...)
			}
		}
	}
	return w
}

// owned are those of the writes that touch Kubernetes' keys.
func (g *writeGuard) owned(env *cli.Env, all []written) ([]written, error) {
	if env.DropIn() {
		return nil, nil
	}
	s, err := env.Settings()
	if err != nil {
		return nil, err
	}
	var out []written
	for _, w := range all {
		end := w.end
		switch {
		case end == "\x00" && s.KeyPrefix != "":
			end = string(keyspace.PrefixEnd([]byte(s.KeyPrefix)))
		case end != "" && end != "\x00":
			end = s.KeyPrefix + end
		}
		if registry.MayOwn(s.KeyPrefix+w.key, end) {
			out = append(out, w)
		}
	}
	if len(out) > 0 && !g.kubernetes && g.undo != "" {
		return nil, cli.Usagef("--undo goes with --kubernetes")
	}
	return out, nil
}

// there are records that writes would change, as they are at one revision.
type there struct {
	records []keyspace.Record
	looked  map[string]bool // single keys that were looked for
	rev     int64
}

// look reads what is there, values included. Ranges without any key of Kubernetes' are
// none of the guard's business.
func (g *writeGuard) look(ctx context.Context, env *cli.Env, all []written) (*there, error) {
	owned, err := g.owned(env, all)
	if err != nil || len(owned) == 0 {
		return nil, err
	}
	set, err := env.Settings()
	if err != nil {
		return nil, err
	}
	var flags cli.SourceFlags
	src, err := flags.Live(ctx, env, false)
	if err != nil {
		return nil, err
	}
	info, err := src.Info(ctx)
	if err != nil {
		return nil, err
	}
	t := &there{rev: info.Revision, looked: map[string]bool{}}
	found := false
	for _, w := range owned {
		r := keyspace.Range{Key: []byte(w.key), End: []byte(w.end), Rev: t.rev, KeysOnly: !g.kubernetes}
		for rec, err := range src.Records(ctx, r) {
			if err != nil {
				return nil, fmt.Errorf("look at what is there: %w", err)
			}
			if !registry.Owned(set.KeyPrefix + string(rec.Key)) {
				continue
			}
			found = true
			if !g.kubernetes {
				return nil, g.refuse(string(rec.Key))
			}
			rec.Key, rec.Value = append([]byte(nil), rec.Key...), append([]byte(nil), rec.Value...)
			t.records = append(t.records, rec)
		}
		if w.end == "" { // a key to be created counts as well
			if found = true; !g.kubernetes {
				return nil, g.refuse(w.key)
			}
			t.looked[w.key] = true
		}
	}
	if !found {
		return nil, nil
	}
	return t, nil
}

func (g *writeGuard) refuse(key string) error {
	return &cli.Error{Code: cli.Refused, Err: fmt.Errorf("%q is Kubernetes': the API server does not see who writes behind its back; nothing was changed", key),
		Hint: "use kubectl where the API server answers; --kubernetes writes it all the same, and saves what was there"}
}

// commit sends a transaction. Where it touches Kubernetes' keys, what is there is saved
// first, and the transaction happens only when nobody has changed that meanwhile. The
// answer is that of body.
func (g *writeGuard) commit(ctx context.Context, env *cli.Env, client *clientv3.Client, body *txn) (*clientv3.TxnResponse, error) {
	all := writes(body.then, body.orEl)
	t, err := g.look(ctx, env, all)
	if err != nil {
		return nil, err
	}
	send := body
	if t != nil {
		path, err := g.save(env, t, all)
		if err != nil {
			return nil, err
		}
		env.Warn("what was there is in %s; `%s txn --kubernetes --file FILE` puts it back", path, env.Name)
		send = &txn{cmps: t.unmoved(all), then: body.then}
		if len(body.cmps) > 0 {
			send.then = []clientv3.Op{clientv3.OpTxn(body.cmps, body.then, body.orEl)}
		}
	}
	ctx, cancel, err := env.CommandContext(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	r, err := client.Txn(ctx).If(send.cmps...).Then(send.then...).Else(send.orEl...).Commit()
	switch {
	case err != nil:
		return nil, noLeader(ctx, env, client, err)
	case t == nil:
		return r, nil
	case !r.Succeeded:
		return nil, errMoved("what would be written", t.rev)
	}
	if len(body.cmps) == 0 {
		return r, nil
	}
	inner := (*clientv3.TxnResponse)(r.Responses[0].GetResponseTxn())
	inner.Header = r.Header
	return inner, nil
}

// unmoved holds when what is written is as look saw it.
func (t *there) unmoved(all []written) []clientv3.Cmp {
	var cmps []clientv3.Cmp
	for _, w := range all {
		if w.end != "" {
			cmps = append(cmps, unmoved([]written{w}, t.rev)...)
			continue
		}
		i := slices.IndexFunc(t.records, func(r keyspace.Record) bool { return string(r.Key) == w.key })
		switch {
		case i >= 0:
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(w.key), "=", t.records[i].ModRev))
		case t.looked[w.key]:
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(w.key), "=", 0))
		}
	}
	return cmps
}

// unmoved holds when no key that is written was changed behind a revision. It is bound to
// these keys, not to the store's revision, which never stands still.
func unmoved(all []written, rev int64) []clientv3.Cmp {
	var cmps []clientv3.Cmp
	for _, w := range all {
		c := clientv3.Compare(clientv3.ModRevision(w.key), "<", rev+1)
		if w.end != "" {
			c = c.WithRange(w.end)
		}
		cmps = append(cmps, c)
	}
	return cmps
}

// errMoved says that somebody else was faster.
func errMoved(what string, rev int64) error {
	return cli.WithHint(cli.Failf(cli.Precondition, "%s changed after revision %d, by somebody else; nothing was written", what, rev), "look at it, and run the command again if it is still right")
}
