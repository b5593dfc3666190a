package sourcetest_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

// The suite is held against a source of our own that shares no code with the
// files' reader. It mirrors the server by its watch.
func TestMemory(t *testing.T) {
	t.Parallel()
	type mirror struct {
		m    *sourcetest.Memory
		next int64
	}
	mirrors := map[*clientv3.Client]*mirror{}
	lock := make(chan struct{}, 1)
	sourcetest.Run(t, sourcetest.Options{Servers: 1, Histories: 20, BeforeCompaction: func(tb testing.TB, c *clientv3.Client) {
		lock <- struct{}{}
		defer func() { <-lock }()
		mi := mirrors[c]
		if mi == nil {
			mi = &mirror{m: &sourcetest.Memory{}, next: 1}
			mirrors[c] = mi
		}
		mi.next = follow(tb, c, mi.m, mi.next)
	}}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
		lock <- struct{}{}
		defer func() { <-lock }()
		m := mirrors[c].m
		// A watch from a revision that is gone is told so; any other would wait.
		if _, err := c.Get(tb.Context(), "x", clientv3.WithRev(1)); errors.Is(err, rpctypes.ErrCompacted) {
			resp := <-c.Watch(tb.Context(), "x", clientv3.WithRev(1))
			m.Compact(resp.CompactRevision)
		}
		return m
	})
}

// follow applies the server's events from next on and returns what comes after.
func follow(tb testing.TB, c *clientv3.Client, m *sourcetest.Memory, next int64) int64 {
	now, err := c.Get(tb.Context(), "x", clientv3.WithCountOnly())
	if err != nil {
		tb.Fatal(err)
	}
	if now.Header.Revision < next || now.Header.Revision == 1 {
		return next
	}
	for resp := range c.Watch(tb.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(next)) {
		if err := resp.Err(); err != nil {
			tb.Fatal(err)
		}
		var changes []sourcetest.Change
		for i, e := range resp.Events {
			changes = append(changes, sourcetest.Change{Key: e.Kv.Key, Value: e.Kv.Value, Lease: e.Kv.Lease, Delete: e.Type == clientv3.EventTypeDelete})
			if i+1 == len(resp.Events) || resp.Events[i+1].Kv.ModRevision != e.Kv.ModRevision {
				if rev := m.Apply(changes...); rev != e.Kv.ModRevision {
					tb.Fatalf("the mirror is at %d, the server at %d", rev, e.Kv.ModRevision)
				}
				changes = changes[:0]
			}
		}
		if last := resp.Events[len(resp.Events)-1].Kv.ModRevision; last == now.Header.Revision {
			return last + 1
		}
	}
	tb.Fatal("the watch ended early")
	return 0
}
