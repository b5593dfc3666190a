package dbfile_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// commit makes a lazy server write to its database.
func commit(tb testing.TB, c *clientv3.Client) {
	tb.Helper()
	r, err := c.Snapshot(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		tb.Fatal(err)
	}
}

// likeServer compares the newest state of a folder with the server's.
func likeServer(tb testing.TB, dir string, c *clientv3.Client) keyspace.Info {
	tb.Helper()
	s := open(tb, dir, dbfile.Options{Copy: true})
	info, err := s.Info(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	want, err := c.Get(tb.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		tb.Fatal(err)
	}
	if info.Revision != want.Header.Revision {
		tb.Errorf("revision %d, want %d (%s)", info.Revision, want.Header.Revision, info.Note)
	}
	got := records(tb, s, keyspace.All())
	if len(got) != len(want.Kvs) {
		tb.Fatalf("%d records, want %d (%s)", len(got), len(want.Kvs), info.Note)
	}
	for i, kv := range want.Kvs {
		if g := got[i]; string(g.Key) != string(kv.Key) || string(g.Value) != string(kv.Value) || g.ModRev != kv.ModRevision || g.Version != kv.Version || g.Lease != kv.Lease {
			tb.Errorf("%+v, want %v", g, kv)
		}
	}
	return info
}

func clientOf(tb testing.TB, c *clientv3.Client, user, password string) *clientv3.Client {
	tb.Helper()
	out, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: user, Password: password, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { out.Close() })
	return out
}

// Requests that a user had no permission for stand in the log like all others. They
// changed nothing, and change nothing here.
func TestRefusedRequests(t *testing.T) {
	// The first has a range that ends before it starts, which etcd allowed.
	for _, seed := range []uint64{1796124663236380700, uint64(time.Now().UnixNano())} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { refusedRequests(t, seed) })
	}
}

func refusedRequests(t *testing.T, seed uint64) {
	t.Parallel()
	open, dir := lazyServer(t)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(open.UserAdd(ctx, "root", "pw"))
	must(open.RoleAdd(ctx, "root"))
	must(open.UserGrantRole(ctx, "root", "root"))
	must(open.UserAdd(ctx, "app", "pw"))
	must(open.RoleAdd(ctx, "app"))
	for _, p := range []struct {
		key, end string
		perm     clientv3.PermissionType
	}{{"a/", "a0", clientv3.PermissionType(clientv3.PermReadWrite)}, {"a0", "b", clientv3.PermissionType(clientv3.PermWrite)}, {"r/", "r0", clientv3.PermissionType(clientv3.PermRead)}, {"one", "", clientv3.PermissionType(clientv3.PermReadWrite)}} {
		must(open.RoleGrantPermission(ctx, "app", p.key, p.end, p.perm))
	}
	must(open.UserGrantRole(ctx, "app", "app"))
	must(open.AuthEnable(ctx))
	root, app := clientOf(t, open, "root", "pw"), clientOf(t, open, "app", "pw")
	var leases []clientv3.LeaseID
	for _, key := range []string{"a/leased", "x/leased"} {
		l, err := root.Grant(ctx, 3600)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l.ID)
		must(root.Put(ctx, key, "1", clientv3.WithLease(l.ID)))
	}
	commit(t, root)

	rng := rand.New(rand.NewPCG(seed, 1))
	keys := []string{"a/1", "a/2", "a/leased", "a0x", "b/1", "one", "one/", "r/1", "x/1", "x/leased"}
	key := func() string { return keys[rng.IntN(len(keys))] }
	op := func() clientv3.Op {
		switch rng.IntN(5) {
		case 0:
			return clientv3.OpDelete(key(), clientv3.WithRange(key()+"~"))
		case 1:
			return clientv3.OpPut(key(), "leased", clientv3.WithLease(leases[rng.IntN(2)]))
		case 2:
			return clientv3.OpPut(key(), "prev", clientv3.WithPrevKV())
		case 3:
			return clientv3.OpGet(key())
		default:
			return clientv3.OpPut(key(), fmt.Sprint(rng.IntN(1000)))
		}
	}
	// All keys of a lease must be allowed to whoever revokes it.
	if _, err := app.Revoke(ctx, leases[1]); err == nil {
		t.Error("a lease with a key of others was revoked")
	}
	done, refused := 0, 0
	for range 300 {
		c := app
		if rng.IntN(4) == 0 {
			c = root
		}
		o := op()
		if rng.IntN(3) == 0 {
			o = clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version(key()), ">", 0)}, []clientv3.Op{op()}, []clientv3.Op{op()})
		}
		if _, err := c.Do(ctx, o); err == nil {
			done++
		} else if refused++; !strings.Contains(err.Error(), "permission denied") {
			t.Fatal(err)
		}
	}
	if done < 50 || refused < 50 {
		t.Errorf("%d requests were taken, %d refused", done, refused)
	}
	if info := likeServer(t, dir, root); !strings.Contains(info.Note, "in the write-ahead log only") || strings.Contains(info.Note, "raft index") {
		t.Errorf("%q", info.Note)
	}

	// A change of permissions makes etcd write to its database; what comes behind it
	// is checked by the new ones.
	must(root.RoleGrantPermission(ctx, "app", "x/", "x0", clientv3.PermissionType(clientv3.PermReadWrite)))
	must(app.Put(ctx, "x/1", "now allowed"))
	if _, err := app.Put(ctx, "b/1", "still not"); err == nil {
		t.Error("put without permission")
	}
	likeServer(t, dir, root)
}

// While an alarm is raised etcd refuses writes that come through the log.
func TestAlarms(t *testing.T) {
	t.Parallel()
	c, dir := lazyServer(t)
	alarm := func(a pb.AlarmType, action pb.AlarmRequest_AlarmAction) {
		t.Helper()
		r := &pb.AlarmRequest{Action: action, MemberID: 7, Alarm: a}
		if _, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	try := func(tag string) {
		t.Helper()
		// What is refused is refused when it is applied; deletions go through while
		// there is no space.
		_, _ = c.Put(t.Context(), "k/"+tag, "v")
		_, _ = c.Txn(t.Context()).Then(clientv3.OpPut("t/"+tag, "v")).Commit()
		_, _ = c.Txn(t.Context()).Then(clientv3.OpDelete("k/first")).Commit()
		_, _ = c.Grant(t.Context(), 100)
	}
	try("first")
	alarm(pb.AlarmType_NOSPACE, pb.AlarmRequest_ACTIVATE)
	try("full")
	if info := likeServer(t, dir, c); info.Revision < 3 {
		t.Errorf("%+v", info)
	}
	commit(t, c) // the alarm is in the database now
	try("still")
	likeServer(t, dir, c)
	alarm(pb.AlarmType_NOSPACE, pb.AlarmRequest_DEACTIVATE)
	try("again")
	likeServer(t, dir, c)
	alarm(pb.AlarmType_CORRUPT, pb.AlarmRequest_ACTIVATE)
	_, _ = c.Put(t.Context(), "k/corrupt", "v")
	alarm(pb.AlarmType_CORRUPT, pb.AlarmRequest_DEACTIVATE)
	try("healed")
	likeServer(t, dir, c)
}
