package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

func start(t *testing.T, o sandbox.Options) (*sandbox.Sandbox, *clientv3.Client) {
	t.Helper()
	s, err := sandbox.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return s, c
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, c := start(t, sandbox.Options{Dir: dir})
	put, err := c.Put(t.Context(), "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	if put.Header.Revision != 2 {
		t.Errorf("first put is at revision %d, want 2", put.Header.Revision)
	}
	// What "endpoint status --cluster" would dial.
	members, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := members.Members[0].ClientURLs; len(got) != 1 || got[0] != "http://"+s.Endpoint() {
		t.Errorf("the member names itself %v, it listens on %s", got, s.Endpoint())
	}
	// An open watch must not hold up the end.
	watch := c.Watch(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	begin := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("Close took %v", took)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	wantEmpty(t, dir)
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		t.Errorf("%s was left behind", e.Name())
	}
}

func TestFromSnapshot(t *testing.T) {
	for _, c := range []struct {
		name         string
		path         func(testing.TB) string
		rev, compact int64
	}{
		{"snapshot", corpus.Snapshot, 1491, 0},
		{"later", corpus.Later, 1652, 1590},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := c.path(t)
			sourcetest.Untouched(t, path)
			file, err := dbfile.Open(t.Context(), path, dbfile.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			leases, err := file.Leases(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, client := start(t, sandbox.Options{From: path})
			all, err := client.Get(t.Context(), "\x00", clientv3.WithFromKey())
			if err != nil {
				t.Fatal(err)
			}
			if all.Header.Revision != c.rev {
				t.Errorf("revision %d, want %d", all.Header.Revision, c.rev)
			}
			n := 0
			for rec, err := range file.Records(t.Context(), keyspace.All()) {
				if err != nil {
					t.Fatal(err)
				}
				if n < len(all.Kvs) {
					kv := all.Kvs[n]
					if string(kv.Key) != string(rec.Key) || string(kv.Value) != string(rec.Value) || kv.ModRevision != rec.ModRev ||
						kv.CreateRevision != rec.CreateRev || kv.Version != rec.Version || kv.Lease != rec.Lease {
						t.Errorf("server has %q at %d, file has %q at %d", kv.Key, kv.ModRevision, rec.Key, rec.ModRev)
					}
				}
				n++
			}
			if n != len(all.Kvs) {
				t.Errorf("server has %d keys, file has %d", len(all.Kvs), n)
			}
			if _, err := client.Get(t.Context(), "a", clientv3.WithRev(max(c.compact, 1))); err != nil {
				t.Errorf("oldest readable revision: %v", err)
			}
			frozen, err := client.Leases(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(frozen.Leases) != len(leases) || len(leases) == 0 {
				t.Errorf("%d leases, the file has %d", len(frozen.Leases), len(leases))
			}
			for _, l := range leases {
				ttl, err := client.TimeToLive(t.Context(), clientv3.LeaseID(l.ID))
				if err != nil {
					t.Fatal(err)
				}
				if ttl.TTL < 365*24*60*60 {
					t.Errorf("lease %x ends in %d s", l.ID, ttl.TTL)
				}
			}
		})
	}
}

// A file from a cluster with authentication and an alarm is read without a
// password, and can be written to.
func TestFromGuardedCluster(t *testing.T) {
	t.Parallel()
	s, c := start(t, sandbox.Options{})
	ctx := t.Context()
	for _, err := range []error{
		second(c.Put(ctx, "k", "v")),
		second(c.UserAdd(ctx, "root", "secret")),
		second(c.UserGrantRole(ctx, "root", "root")),
		second(c.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	db := snapshotOf(t, s, "root", "secret")
	file, err := dbfile.Open(ctx, db, dbfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if enabled, err := file.AuthEnabled(ctx); err != nil || !enabled {
		t.Fatalf("the snapshot has authentication %v (%v); the test would show nothing", enabled, err)
	}
	file.Close()
	_, open := start(t, sandbox.Options{From: db})
	got, err := open.Get(ctx, "k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" {
		t.Fatalf("Get = %v, %v", got, err)
	}
	if _, err := open.Put(ctx, "k", "w"); err != nil {
		t.Error(err)
	}
	users, err := open.UserList(ctx)
	if err != nil || len(users.Users) != 1 {
		t.Errorf("users = %v, %v; they should still be there to look at", users, err)
	}
}

func second[T any](_ T, err error) error { return err }

// snapshotOf saves a snapshot, trailer and all.
func snapshotOf(t *testing.T, s *sandbox.Sandbox, user, password string) string {
	t.Helper()
	cfg := s.Config()
	cfg.Username, cfg.Password = user, password
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return sourcetest.SaveSnapshot(t, c)
}

func TestAlarmIsCleared(t *testing.T) {
	t.Parallel()
	s, c := start(t, sandbox.Options{})
	members, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Only the server raises alarms; ask it the way it asks itself.
	_, err = pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: members.Members[0].ID, Alarm: pb.AlarmType_NOSPACE,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "k", "v"); err == nil {
		t.Fatal("the alarm was not raised; the test would show nothing")
	}
	_, open := start(t, sandbox.Options{From: snapshotOf(t, s, "", "")})
	if _, err := open.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
}

func TestContextEndsSandbox(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := sandbox.Start(ctx, sandbox.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("still running")
	}
	wantEmpty(t, dir)
	if _, err := sandbox.Start(ctx, sandbox.Options{Dir: dir, From: corpus.Snapshot(t)}); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with a done context: %v", err)
	}
	wantEmpty(t, dir)
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	dir, path := t.TempDir(), corpus.Snapshot(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func([]byte) []byte
		want   error
	}{
		"flipped": {func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, keyspace.ErrCorrupt},
		"cut":     {func(b []byte) []byte { return b[:len(b)/2] }, keyspace.ErrCorrupt},
		"text":    {func([]byte) []byte { return []byte("hello\n") }, keyspace.ErrNotDatabase},
		"empty":   {func([]byte) []byte { return nil }, keyspace.ErrNotDatabase},
	} {
		damaged := filepath.Join(t.TempDir(), name+".db")
		if err := os.WriteFile(damaged, c.change(append([]byte(nil), b...)), 0o600); err != nil {
			t.Fatal(err)
		}
		sourcetest.Untouched(t, damaged)
		if _, err := sandbox.Start(t.Context(), sandbox.Options{From: damaged, Dir: dir}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	wantEmpty(t, dir)
}
