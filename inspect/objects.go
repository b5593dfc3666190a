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
// cores. keep, when not nil, chooses by record before anything is decoded; then,
// which runs on all cores too, makes what is wanted of an object, or says that it is
// not. What it keeps of an object stays valid as long as records of src do. A few
// batches of records are held at a time.
func Objects[T any](ctx context.Context, src keyspace.Source, r keyspace.Range, keep func(keyspace.Record) bool, newDecoder func() *registry.Decoder, then func(Object) (T, bool)) iter.Seq2[T, error] {
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
	batches := pipeline.Map(ctx, in, pipeline.Options{}, func(_ context.Context, recs []keyspace.Record) ([]T, error) {
		d := pool.Get().(*registry.Decoder)
		defer pool.Put(d)
		out := make([]T, 0, len(recs))
		for _, rec := range recs {
			if x, ok := then(Object{rec, d.Decode(rec.Key, rec.Value, rec.ModRev)}); ok {
				out = append(out, x)
			}
		}
		return out, nil
	})
	return func(yield func(T, error) bool) {
		for batch, err := range batches {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, x := range batch {
				if !yield(x, nil) {
					return
				}
			}
		}
	}
}
