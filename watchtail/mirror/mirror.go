// Package mirror copies the keys of one cluster into another, and then every change, in
// order, as long as it runs.
package mirror

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

// Options say what to mirror and where to.
type Options struct {
	// Prefix is what keys begin with at the source, and DestPrefix what stands in its place
	// at the destination. Both may be empty.
	Prefix, DestPrefix string
	// Rev is the first revision to mirror; 0: all keys that there are, and what comes then.
	Rev int64
	// MaxTxnOps bounds one transaction at the destination; a revision with more is split.
	MaxTxnOps int
	// Leases keeps a key's lease: the destination gets one of the same time to live, which is
	// kept alive as long as we run and some key has it. Without it keys have none there, and
	// stay until their deletion is mirrored.
	Leases bool
	// Timeout bounds one write to the destination; 0: no bound.
	Timeout time.Duration
	// KeyPrefix is the part of the source that counts; keys are without it.
	KeyPrefix []byte
}

// Mirror is one that runs.
type Mirror struct {
	o        Options
	from, to *clientv3.Client
	src      keyspace.Source
	leases   *leases

	total  atomic.Int64
	leased atomic.Int64
}

// New makes a mirror; src is the same cluster as from.
func New(from, to *clientv3.Client, src keyspace.Source, o Options) *Mirror {
	return &Mirror{o: o, from: from, to: to, src: src, leases: newLeases(from, to)}
}

// Total is how many keys and changes have been written. It may be asked at any time.
func (m *Mirror) Total() int64 { return m.total.Load() }

// Leased is how many of them had a lease at the source. It may be asked at any time.
func (m *Mirror) Leased() int64 { return m.leased.Load() }

// baseBytes bounds the values in one transaction of the first copy.
const baseBytes = 512 << 10

// Run copies and follows until ctx ends, or something fails; it never returns nil. What
// was written until then is written. A keyspace.CompactedError says that the source no
// longer has what comes next.
func (m *Mirror) Run(ctx context.Context) error {
	next := m.o.Rev
	if next <= 1 {
		rev, err := m.copy(ctx)
		if err != nil {
			return err
		}
		next = rev + 1
	}
	r := keyspace.Prefix([]byte(m.o.Prefix))
	for msg, err := range watchtail.Watch(ctx, m.from, watchtail.Request{Key: r.Key, End: r.End, Rev: next, Prefix: m.o.KeyPrefix}) {
		if err != nil {
			return fmt.Errorf("follow the source from revision %d: %w", next, err)
		}
		if err := m.apply(ctx, msg); err != nil {
			return err
		}
		next = max(next, msg.GetHeader().GetRevision()+1)
	}
	return context.Cause(ctx)
}

// copy writes all keys as they are at one revision, which it returns.
func (m *Mirror) copy(ctx context.Context) (int64, error) {
	r := keyspace.Prefix([]byte(m.o.Prefix))
	pin, err := m.from.Get(ctx, string(r.Key), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("read the source: %w", err)
	}
	r.Rev = (*pb.RangeResponse)(pin).GetHeader().GetRevision()
	var ops []clientv3.Op
	size := 0
	for rec, err := range m.src.Records(ctx, r) {
		if err != nil {
			return 0, fmt.Errorf("read the source at revision %d: %w", r.Rev, err)
		}
		if len(ops) == m.o.MaxTxnOps || size > 0 && size+len(rec.Value) > baseBytes {
			if err := m.send(ctx, ops); err != nil {
				return 0, err
			}
			ops, size = nil, 0
		}
		op, err := m.put(ctx, rec)
		if err != nil {
			return 0, err
		}
		ops, size = append(ops, op), size+len(rec.Value)
	}
	return r.Rev, m.send(ctx, ops)
}

// put is the request for one record.
func (m *Mirror) put(ctx context.Context, rec keyspace.Record) (clientv3.Op, error) {
	key := m.destination(rec.Key)
	if rec.Lease != 0 {
		m.leased.Add(1)
	}
	if !m.o.Leases {
		return clientv3.OpPut(key, string(rec.Value)), nil
	}
	id, err := m.leases.attach(ctx, key, rec.Lease)
	if err != nil {
		return clientv3.Op{}, err
	}
	return clientv3.OpPut(key, string(rec.Value), clientv3.WithLease(id)), nil
}

// destination is the name a key has there.
func (m *Mirror) destination(key []byte) string {
	return m.o.DestPrefix + strings.TrimPrefix(string(key), m.o.Prefix)
}

// apply writes what one message has, a revision in one transaction unless it is too large.
func (m *Mirror) apply(ctx context.Context, msg *pb.WatchResponse) error {
	var ops []clientv3.Op
	last := int64(0)
	for _, e := range msg.GetEvents() {
		rev := e.GetKv().GetModRevision()
		if len(ops) > 0 && (rev != last || len(ops) == m.o.MaxTxnOps) {
			if err := m.send(ctx, ops); err != nil {
				return err
			}
			ops = nil
		}
		last = rev
		if e.GetType() == mvccpb.Event_DELETE {
			key := m.destination(e.GetKv().GetKey())
			if m.o.Leases {
				m.leases.detach(key)
			}
			ops = append(ops, clientv3.OpDelete(key))
			continue
		}
		kv := e.GetKv()
		op, err := m.put(ctx, keyspace.Record{Key: bytes.Clone(kv.GetKey()), Value: kv.GetValue(), Lease: kv.GetLease()})
		if err != nil {
			return err
		}
		ops = append(ops, op)
	}
	return m.send(ctx, ops)
}

func (m *Mirror) send(ctx context.Context, ops []clientv3.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if m.o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.o.Timeout)
		defer cancel()
	}
	if _, err := m.to.Txn(ctx).Then(ops...).Commit(); err != nil {
		return fmt.Errorf("write %d keys to the destination, from %q on: %w", len(ops), ops[0].KeyBytes(), err)
	}
	m.total.Add(int64(len(ops)))
	return nil
}

// Close gives up what is kept alive. Keys with a lease then expire at the destination.
func (m *Mirror) Close() { m.leases.close() }
