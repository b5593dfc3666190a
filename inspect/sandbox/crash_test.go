package sandbox_test

import (
	"fmt"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// A sandbox from the folder of a member that was killed has what only the member's
// write-ahead log had, leases and all.
func TestFromCrashedMember(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{})
	c := p.Client(t)
	lease, err := c.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for i := range 200 {
		r, err := c.Put(t.Context(), fmt.Sprintf("k%03d", i%150), fmt.Sprint(i), clientv3.WithLease(lease.ID))
		if err != nil {
			t.Fatal(err)
		}
		last = r.Header.Revision
	}
	if _, err := c.Compact(t.Context(), last-20); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	sourcetest.Untouched(t, filepath.Join(p.DataDir, "member", "snap"))
	s, err := sandbox.Start(t.Context(), sandbox.Options{From: p.DataDir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Revision() != last {
		t.Errorf("revision %d, want %d", s.Revision(), last)
	}
	b, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r, err := b.Get(t.Context(), "k", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) != 150 || string(r.Kvs[49].Value) != "199" || r.Kvs[49].Version != 2 || r.Kvs[0].Lease != int64(lease.ID) {
		t.Errorf("%d keys, %v", len(r.Kvs), r.Kvs[49])
	}
	if ls, err := b.Leases(t.Context()); err != nil || len(ls.Leases) != 1 || ls.Leases[0].ID != lease.ID {
		t.Errorf("leases %v, %v", ls, err)
	}
	if _, err := b.Get(t.Context(), "k", clientv3.WithRev(last-21)); err == nil {
		t.Error("the compaction is not in it")
	}
	_, err = sandbox.Start(t.Context(), sandbox.Options{From: p.DataDir, File: dbfile.Options{NoWAL: true}})
	if err != nil {
		t.Errorf("without its log: %v", err)
	}
}
