package supervise

import (
	"context"
	"fmt"
	"iter"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Place is one key in the queue for a lock or an election.
type Place struct {
	Key       string
	Value     []byte
	Lease     clientv3.LeaseID // 0: none, so it stays until it is deleted
	CreateRev int64
	TTL       int64 // seconds left; -1: the lease has just ended
	Granted   int64 // seconds
}

// askers is how many requests are under way at once.
const askers = 8

// Queue returns who has a lock or leadership, first, and who waits for it, in order.
//
// Server cost: one read, and one request for each lease.
func Queue(ctx context.Context, client *clientv3.Client, name string) ([]Place, error) {
	r, err := client.Get(ctx, Prefix(name), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, fmt.Errorf("look at the queue for %q: %w", name, err)
	}
	places, errs := make([]Place, len(r.Kvs)), make([]error, len(r.Kvs))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(askers, len(places)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = places[i].ask(ctx, client)
			}
		})
	}
	for i, kv := range r.Kvs {
		places[i] = Place{Key: string(kv.GetKey()), Value: kv.GetValue(), Lease: clientv3.LeaseID(kv.GetLease()), CreateRev: kv.GetCreateRevision()}
		next <- i
	}
	close(next)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("look at the lease of %q: %w", places[i].Key, err)
		}
	}
	return places, nil
}

func (p *Place) ask(ctx context.Context, client *clientv3.Client) error {
	if p.Lease == 0 {
		return nil
	}
	r, err := client.TimeToLive(ctx, p.Lease)
	if err == nil {
		p.TTL, p.Granted = r.TTL, r.GrantedTTL
	}
	return err
}

// Leaders yields who leads, and again whenever that or its proposal changes, until ctx
// ends. A lost connection is made anew; the error is one that does not go away.
//
// Server cost: one watch, and one read a change.
func Leaders(ctx context.Context, client *clientv3.Client, name string) iter.Seq2[*clientv3.GetResponse, error] {
	return func(yield func(*clientv3.GetResponse, error) bool) {
		seen := int64(0) // the revision of what was yielded last
		for {
			r, err := retry(ctx, func() (*clientv3.GetResponse, error) {
				return client.Get(ctx, Prefix(name), clientv3.WithFirstCreate()...)
			})
			if err != nil {
				yield(nil, err)
				return
			}
			rev := r.Header.Revision
			if len(r.Kvs) > 0 {
				if kv := r.Kvs[0]; kv.GetModRevision() != seen {
					seen = kv.GetModRevision()
					if !yield(leaderAt(r.Header, kv), nil) {
						return
					}
				}
				if !follow(ctx, client, string(r.Kvs[0].GetKey()), rev+1, func(h *pb.ResponseHeader, e *clientv3.Event) (more, ok bool) {
					if e.Type == clientv3.EventTypeDelete {
						return false, true
					}
					seen = e.Kv.GetModRevision()
					return true, yield(leaderAt(h, e.Kv), nil)
				}) {
					return
				}
			} else if !follow(ctx, client, Prefix(name), rev+1, func(_ *pb.ResponseHeader, e *clientv3.Event) (more, ok bool) {
				return e.Type == clientv3.EventTypeDelete, true
			}, clientv3.WithPrefix()) {
				return
			}
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

func leaderAt(h *pb.ResponseHeader, kv *mvccpb.KeyValue) *clientv3.GetResponse {
	return &clientv3.GetResponse{Header: h, Kvs: []*mvccpb.KeyValue{kv}}
}

// follow hands on events until one wants no more of them, or the watch breaks, after which
// it pauses. It returns false when the consumer wants to stop.
func follow(ctx context.Context, client *clientv3.Client, key string, rev int64, event func(*pb.ResponseHeader, *clientv3.Event) (more, ok bool), opts ...clientv3.OpOption) bool {
	wctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range client.Watch(wctx, key, append(opts, clientv3.WithRev(rev))...) {
		for _, e := range r.Events {
			if more, ok := event(r.Header, e); !more || !ok {
				return ok
			}
		}
	}
	_ = sleep(ctx, retryDelay) // the caller looks at ctx
	return true
}
