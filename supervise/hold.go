package supervise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Hold is a lock or leadership that is ours until Lost is closed, or Release is called,
// which must be.
type Hold struct {
	Key       string
	Lease     clientv3.LeaseID
	TTL       time.Duration // as the server granted it
	CreateRev int64         // of Key: grows from holder to holder
	Rev       int64         // of the store when it became ours

	client *clientv3.Client
	margin time.Duration
	lost   chan struct{}
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	expiry  Instant
	why     error
	renewed func() // called after each renewal
}

// Acquire queues for a lock or an election and waits for its turn. When ctx ends it
// returns the cause, and a LostError when the place in the queue is lost. Whatever the
// error, key and lease are gone; when etcd does not answer it is a LeftError.
//
// Server cost: a lease, a transaction, and while it waits one watch on the key before ours.
func Acquire(ctx context.Context, client *clientv3.Client, o Options) (*Hold, error) {
	h, err := grant(ctx, client, o)
	if err != nil {
		return nil, err
	}
	if err := h.queue(ctx, o); err != nil {
		var gone *LostError
		if left := h.Release(); left != nil && !errors.As(left, &gone) {
			return nil, &LeftError{Err: err, Left: left}
		}
		return nil, err
	}
	return h, nil
}

// shortMargin is what short times to live need: a busy machine lets a process wait, however
// short its lease is.
const shortMargin = 1500 * time.Millisecond

// grant gets the lease, under an id of our own: so it can be revoked when the answer does
// not come.
func grant(ctx context.Context, client *clientv3.Client, o Options) (*Hold, error) {
	h := &Hold{client: client, Lease: clientv3.LeaseID(rand.Int64N(1<<63-1) + 1), TTL: time.Duration(o.TTL) * time.Second, lost: make(chan struct{})}
	sent := Now()
	r, err := pb.NewLeaseClient(client.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: o.TTL, ID: int64(h.Lease)})
	if err == nil && r.GetError() != "" {
		err = errors.New(r.GetError())
	}
	if err != nil {
		if ctx.Err() != nil || passing(err) {
			cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
			defer cancel()
			_, _ = client.Revoke(cctx, h.Lease) // it may never have been granted, and nobody renews it
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("get a lease: %w", rpctypes.Error(err))
	}
	h.TTL = time.Duration(r.GetTTL()) * time.Second
	h.Lease = clientv3.LeaseID(r.GetID()) // Kine chooses it itself
	h.margin = o.Margin
	if h.margin == 0 {
		h.margin = min(max(h.TTL/4, shortMargin), h.TTL/2)
	}
	h.expiry = sent.Add(h.TTL)
	bg, stop := context.WithCancel(clientv3.WithRequireLeader(context.WithoutCancel(ctx)))
	h.stop = stop
	h.work.Go(func() { h.keepAlive(bg) })
	h.work.Go(func() { h.watchClock(bg) })
	return h, nil
}

// queue puts our key and waits until it is the oldest.
func (h *Hold) queue(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-h.lost:
			cancel(h.Why())
		case <-ctx.Done():
		}
	}()
	h.Key = leased(o.Name, h.Lease)
	r, err := retry(ctx, func() (*clientv3.TxnResponse, error) {
		first := clientv3.OpGet(Prefix(o.Name), clientv3.WithFirstCreate()...)
		return h.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(h.Key), "=", 0)).
			Then(clientv3.OpPut(h.Key, o.Value, clientv3.WithLease(h.Lease)), first).
			Else(clientv3.OpGet(h.Key), first).Commit()
	})
	if err != nil {
		return fmt.Errorf("queue for %q: %w", o.Name, err)
	}
	h.CreateRev, h.Rev = r.Header.Revision, r.Header.Revision
	if !r.Succeeded { // an earlier attempt had arrived
		own := r.Responses[0].GetResponseRange().GetKvs()
		h.CreateRev = own[0].GetCreateRevision()
	}
	bg, stop := context.WithCancel(clientv3.WithRequireLeader(context.WithoutCancel(ctx)))
	outer := h.stop
	h.stop = func() { outer(); stop() }
	h.work.Go(func() { h.watchKey(bg) })
	first := r.Responses[1].GetResponseRange().GetKvs()
	switch {
	case len(first) == 0 || first[0].GetCreateRevision() == h.CreateRev:
		return nil
	case o.Try:
		return fmt.Errorf("%q is %w: %s has it", o.Name, ErrNotFree, first[0].GetKey())
	}
	if err := h.await(ctx, o.Name); err != nil {
		return fmt.Errorf("wait for %q: %w", o.Name, err)
	}
	return nil
}

// await waits until all keys before ours are gone, always for the one just before it, so
// that each end wakes one waiter.
func (h *Hold) await(ctx context.Context, name string) error {
	before := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(h.CreateRev-1))
	for {
		r, err := retry(ctx, func() (*clientv3.GetResponse, error) { return h.client.Get(ctx, Prefix(name), before...) })
		if err != nil {
			return err
		}
		if len(r.Kvs) == 0 {
			break
		}
		err = awaitDelete(ctx, h.client, string(r.Kvs[0].GetKey()), r.Header.Revision+1)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil { // the watch broke: look again
			if err := sleep(ctx, retryDelay); err != nil {
				return err
			}
		}
	}
	// Still there, and ours? A lease that ended meanwhile has taken the key with it.
	r, err := retry(ctx, func() (*clientv3.GetResponse, error) { return h.client.Get(ctx, h.Key) })
	if err != nil {
		return err
	}
	if len(r.Kvs) == 0 || r.Kvs[0].GetCreateRevision() != h.CreateRev {
		err := lost("the key %q is gone", h.Key)
		h.lose(err)
		return err
	}
	h.Rev = r.Header.Revision
	return nil
}

// awaitDelete watches a key from rev on until it is deleted. Any error means to look again.
func awaitDelete(ctx context.Context, client *clientv3.Client, key string, rev int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range client.Watch(ctx, key, clientv3.WithRev(rev), clientv3.WithFilterPut()) {
		if err := r.Err(); err != nil {
			return err
		}
		if len(r.Events) > 0 {
			return nil
		}
	}
	return errors.New("the watch ended")
}

// Lost is closed when what was held is no longer ours, or will soon not be: Why tells.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// Why returns the LostError behind Lost; nil: it is ours.
func (h *Hold) Why() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why
}

// Expiry is when the lease ends at the earliest, if it is not renewed.
func (h *Hold) Expiry() Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.expiry
}

// lastMoment is until when a command may run.
func (h *Hold) lastMoment() Instant { return h.Expiry().Add(-h.margin / 2) }

func (h *Hold) lose(why *LostError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why == nil {
		h.why = why
		close(h.lost)
	}
}

// onRenewal has f called now and after each renewal; nil: no longer.
func (h *Hold) onRenewal(f func()) {
	h.mu.Lock()
	h.renewed = f
	h.mu.Unlock()
	if f != nil {
		f()
	}
}

// watchClock counts the hold as lost when its margin begins.
func (h *Hold) watchClock(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.lost:
			return
		case <-t.C:
			h.checkClock()
		}
	}
}

// checkClock counts the hold as lost when its margin has begun.
func (h *Hold) checkClock() {
	if Now() >= h.Expiry().Add(-h.margin) {
		h.lose(lost("etcd has not answered for %s: the lease %x ends within %s", (h.TTL - h.margin).Round(time.Millisecond), int64(h.Lease), h.margin.Round(time.Millisecond)))
	}
}

// watchKey counts the hold as lost when its key is deleted.
func (h *Hold) watchKey(ctx context.Context) {
	for rev := h.CreateRev + 1; ctx.Err() == nil; {
		if err := awaitDelete(ctx, h.client, h.Key, rev); err == nil {
			h.lose(lost("the key %q was deleted, or its lease ended or was revoked", h.Key))
			return
		}
		if sleep(ctx, retryDelay) != nil {
			return
		}
		// What the watch may have missed shows in the key itself.
		r, err := h.client.Get(ctx, h.Key)
		if err != nil {
			continue
		}
		if len(r.Kvs) == 0 || r.Kvs[0].GetCreateRevision() != h.CreateRev {
			h.lose(lost("the key %q was deleted", h.Key))
			return
		}
		rev = r.Header.Revision + 1
	}
}

// keepAlive renews the lease three times in its life, or more often when the margin is
// wide. A stream that does not answer is given up for another one, at another endpoint
// where there is one.
func (h *Hold) keepAlive(ctx context.Context) {
	for ctx.Err() == nil && h.Why() == nil {
		if err := h.renewals(ctx); errors.Is(err, rpctypes.ErrLeaseNotFound) {
			h.lose(lost("the lease %x has ended or was revoked", int64(h.Lease)))
		}
		_ = sleep(ctx, retryDelay) // the loop looks at ctx
	}
}

// renewals renews on one stream until it breaks. ErrLeaseNotFound: the lease is gone.
func (h *Hold) renewals(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	every := min(h.TTL/3, (h.TTL-h.margin)/2)
	left := h.Expiry().Add(-h.TTL + every).Sub(Now()) // until the next is due
	if left > 0 {
		if err := sleep(ctx, left); err != nil {
			return err
		}
	}
	silent := time.AfterFunc(h.patience(), cancel)
	defer silent.Stop()
	stream, err := pb.NewLeaseClient(h.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	type answer struct {
		ttl int64
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		for {
			r, err := stream.Recv()
			select {
			case answers <- answer{r.GetTTL(), err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		sent := Now()
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(h.Lease)}); err != nil {
			return err
		}
		select {
		case a := <-answers:
			if a.err != nil {
				return a.err
			}
			if a.ttl <= 0 {
				return rpctypes.ErrLeaseNotFound
			}
			silent.Stop()
			h.renew(sent.Add(time.Duration(a.ttl) * time.Second))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause := time.NewTimer(max(0, sent.Add(every).Sub(Now())))
		select {
		case <-pause.C:
		case a := <-answers: // nothing was asked: the stream broke
			pause.Stop()
			return errors.Join(a.err, errors.New("the stream of renewals ended"))
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
		silent.Reset(h.patience())
	}
}

// patience is how long one stream may take to answer: half of the time that is left.
func (h *Hold) patience() time.Duration {
	return max(h.Expiry().Add(-h.margin).Sub(Now())/2, tick*10)
}

func (h *Hold) renew(expiry Instant) {
	h.mu.Lock()
	f := h.renewed
	if h.why != nil { // too late: what was lost is not found again
		f = nil
	} else if expiry > h.expiry {
		h.expiry = expiry
	}
	h.mu.Unlock()
	if f != nil {
		f()
	}
}

// Release gives back what is held: the key, if it is still ours, and the lease. It takes
// at most a few seconds. The error is a LostError when the key was no longer ours;
// otherwise etcd did not answer, and the lease ends by itself.
func (h *Hold) Release() error {
	h.stop()
	h.work.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.client.Ctx()), releaseBound)
	defer cancel()
	var gone, failed error
	if h.CreateRev != 0 {
		r, err := retry(ctx, func() (*clientv3.TxnResponse, error) {
			return h.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(h.Key), "=", h.CreateRev)).Then(clientv3.OpDelete(h.Key)).Commit()
		})
		switch {
		case err != nil:
			failed = err
		case !r.Succeeded:
			gone = lost("the key %q was gone before it was given back", h.Key)
		}
	}
	if failed == nil {
		if _, err := retry(ctx, func() (*clientv3.LeaseRevokeResponse, error) { return h.client.Revoke(ctx, h.Lease) }); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			failed = err
		}
	}
	if failed != nil {
		return fmt.Errorf("key and lease %x could not be given back and end by themselves within %s: %w", int64(h.Lease), max(0, h.Expiry().Sub(Now())).Round(time.Second), failed)
	}
	return gone
}
