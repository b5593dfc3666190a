package backup_test

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

// Keys that had a lease get one again, and expire; what somebody else changes between plan
// and writing stays.
func TestApply(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	put := func(key, value string, o ...clientv3.OpOption) {
		t.Helper()
		if _, err := c.Put(t.Context(), key, value, o...); err != nil {
			t.Fatal(err)
		}
	}
	lease, err := c.Grant(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	put("p/leased", "v", clientv3.WithLease(lease.ID))
	for i := range 300 {
		put(fmt.Sprintf("p/%03d", i), "v")
	}
	put("p/large", string(make([]byte, 1<<20)))
	put("other", "v")
	file, err := dbfile.Open(t.Context(), sourcetest.SaveSnapshot(t, c), dbfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := c.Delete(t.Context(), "p/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	put("p/005", "mine")
	put("p/006", "mine")
	ranges := []keyspace.Range{keyspace.Prefix([]byte("p/"))}
	plan, err := backup.NewPlan(t.Context(), file, nil, liveSource(t, c), ranges, backup.PlanOptions{Overwrite: true})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Count(backup.Create) != 300 || plan.Count(backup.Replace) != 2 {
		t.Errorf("%d, %d", plan.Count(backup.Create), plan.Count(backup.Replace))
	}
	put("p/006", "mine again")
	put("p/100", "mine")
	a, err := plan.Apply(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Created != 299 || a.Replaced != 1 || fmt.Sprint(a.Lost) != "[p/006 p/100]" || a.Leases != 1 {
		t.Errorf("%+v", a)
	}
	for key, want := range map[string]string{"p/005": "v", "p/006": "mine again", "p/100": "mine", "p/099": "v"} {
		r, err := c.Get(t.Context(), key)
		if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != want {
			t.Errorf("%s: %v, %v", key, r, err)
		}
	}
	if r, err := c.Get(t.Context(), "other"); err != nil || len(r.Kvs) != 0 {
		t.Errorf("another key came back: %v, %v", r, err)
	}
	r, err := c.Get(t.Context(), "p/leased")
	if err != nil || len(r.Kvs) != 1 || r.Kvs[0].Lease == 0 || r.Kvs[0].Lease == int64(lease.ID) {
		t.Fatalf("the leased key: %v, %v", r, err)
	}
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		r, err := c.Get(t.Context(), "p/leased")
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Kvs) == 0 {
			break
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the key never expires")
		}
	}
}

// A key whose lease is not in the file would never expire: it is left out, unless told.
func TestApplyMissingLease(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	lease, err := c.Grant(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "k", "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	file, err := dbfile.Open(t.Context(), withoutLeases(t, sourcetest.SaveSnapshot(t, c)), dbfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := c.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for _, drop := range []bool{false, true} {
		plan, err := backup.NewPlan(t.Context(), file, nil, liveSource(t, c), []keyspace.Range{keyspace.All()}, backup.PlanOptions{DropLeases: drop})
		if err != nil {
			t.Fatal(err)
		}
		if drop != (plan.Count(backup.Create) == 1) || drop == (plan.Count(backup.Skip) == 1) {
			t.Errorf("drop %v: %+v", drop, plan.Steps)
		}
	}
}
