package inspect

import (
	"context"
	"iter"
	"sync"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
	"github.com/etcdctl-plus/etcdctl-plus/registry"
)

// Object is a record of Kubernetes and what it decodes to.
type Object struct {
	Record keyspace.Record
	registry.Result
}

// Objects yields the records of a range decoded, in key order, decoding on all
// cores. keep, when not nil, chooses by record before anything is decoded. The
// objects stay valid as long as records of src do. It holds a few batches of
// records at a time.
func Objects(ctx context.Context, src keyspace.Source, r keyspace.Range, keep func(keyspace.Record) bool, newDecoder func() *registry.Decoder) iter.Seq2[Object, error] {
	pool := sync.Pool{New: func() any { return newDecoder() }}
	in := func(yield func(keyspace.Record, error) bool) {
		for rec, err := range src.Records(ctx, r) {
			if err == nil && keep != nil && !keep(rec) {
				continue
			}
			if !yield(rec, err) {
				return
			}
		}
	}
	batches := pipeline.Map(ctx, in, pipeline.Options{}, func(_ context.Context, recs []keyspace.Record) ([]Object, error) {
		d := pool.Get().(*registry.Decoder)
		defer pool.Put(d)
		out := make([]Object, len(recs))
		for i, rec := range recs {
			out[i] = Object{rec, d.Decode(rec.Key, rec.Value, rec.ModRev)}
		}
		return out, nil
	})
	return func(yield func(Object, error) bool) {
		for objs, err := range batches {
			if err != nil {
				yield(Object{}, err)
				return
			}
			for _, o := range objs {
				if !yield(o, nil) {
					return
				}
			}
		}
	}
}
