package backup_test

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

// F25: a snapshot with authentication on and many leases that are about to expire. What
// was restored from it is equal at once and when they would have been gone.
func TestDrillLeasesAndAuth(t *testing.T) {
	t.Parallel()
	s, c := booted(t)
	for i := range 300 {
		l, err := c.Grant(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), fmt.Sprintf("leased/%03d", i), "v", clientv3.WithLease(l.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.RoleAdd(t.Context(), "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UserAdd(t.Context(), "root", "throw-away"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UserGrantRole(t.Context(), "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AuthEnable(t.Context()); err != nil {
		t.Fatal(err)
	}
	root := s.Config()
	root.Username, root.Password = "root", "throw-away"
	rc, err := clientv3.New(root)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	path := sourcetest.SaveSnapshot(t, rc)
	d, err := backup.Drill(t.Context(), path, backup.DrillOptions{Dir: t.TempDir(), Hold: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Findings) > 0 || d.Keys != 300 || d.HashKV == nil {
		t.Errorf("%+v", d)
	}
}
