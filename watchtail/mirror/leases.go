package mirror

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases maps those of the source to those of the destination.
type leases struct {
	from, to *clientv3.Client
	twins    map[int64]*twin  // by the source's id
	of       map[string]*twin // by the destination's key
	ended    context.Context  //nolint:containedctx // of what is kept alive, which outlives every call
	end      context.CancelFunc
}

type twin struct {
	source int64
	id     clientv3.LeaseID
	keys   int
	stop   context.CancelFunc
}

func newLeases(from, to *clientv3.Client) *leases {
	l := &leases{from: from, to: to, twins: map[int64]*twin{}, of: map[string]*twin{}}
	l.ended, l.end = context.WithCancel(context.Background())
	return l
}

// attach returns the lease for a key that has the given one at the source; 0 for none.
func (l *leases) attach(ctx context.Context, key string, source int64) (clientv3.LeaseID, error) {
	if t := l.of[key]; t != nil && t.source == source {
		return t.id, nil
	}
	l.detach(key)
	if source == 0 {
		return 0, nil
	}
	t := l.twins[source]
	if t == nil {
		var err error
		if t, err = l.grant(ctx, source); err != nil {
			return 0, err
		}
		l.twins[source] = t
	}
	t.keys++
	l.of[key] = t
	return t.id, nil
}

// grant makes a lease for as long as the source's was granted. One that is gone already
// takes its keys with it, in an event that is still to come; until then its keys get a
// short one.
func (l *leases) grant(ctx context.Context, source int64) (*twin, error) {
	r, err := l.from.TimeToLive(ctx, clientv3.LeaseID(source))
	if err != nil {
		return nil, fmt.Errorf("ask the source for lease %016x: %w", source, err)
	}
	g, err := l.to.Grant(ctx, max(r.GrantedTTL, goneTTL))
	if err != nil {
		return nil, fmt.Errorf("grant a lease at the destination: %w", err)
	}
	t := &twin{source: source, id: g.ID}
	var alive context.Context
	alive, t.stop = context.WithCancel(l.ended)
	renewals, err := l.to.KeepAlive(alive, g.ID)
	if err != nil {
		t.stop()
		return nil, fmt.Errorf("keep lease %016x of the destination alive: %w", int64(g.ID), err)
	}
	go func() {
		for range renewals { // a lease that is lost all the same shows when the next key wants it
		}
	}()
	return t, nil
}

// goneTTL is for a lease that the source no longer has, in seconds.
const goneTTL = 10

// detach forgets a key's lease. With its last key it is no longer kept alive, and
// expires; a transaction under way may still need it.
func (l *leases) detach(key string) {
	t := l.of[key]
	if t == nil {
		return
	}
	delete(l.of, key)
	if t.keys--; t.keys > 0 {
		return
	}
	delete(l.twins, t.source)
	t.stop()
}

func (l *leases) close() { l.end() }
