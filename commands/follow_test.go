//go:build unix

package commands_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// moment is the whole state of a cluster at one revision.
type moment struct {
	rev     int64
	at      time.Time
	keys    []string
	hash    uint32
	compact int64
	leases  map[int64]bool // that keys have
}

func describe(key, value []byte, created, modified, version, lease int64) string {
	return fmt.Sprintf("%q=%q %d %d %d %x", key, value, created, modified, version, lease)
}

// momentOf records the state now.
func momentOf(t *testing.T, c *clientv3.Client) moment {
	t.Helper()
	r, err := c.Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	m := moment{rev: r.Header.GetRevision(), at: time.Now(), leases: map[int64]bool{}}
	for _, kv := range r.Kvs {
		m.keys = append(m.keys, describe(kv.GetKey(), kv.GetValue(), kv.GetCreateRevision(), kv.GetModRevision(), kv.GetVersion(), kv.GetLease()))
		if kv.GetLease() != 0 {
			m.leases[kv.GetLease()] = true
		}
	}
	h, err := c.HashKV(t.Context(), c.Endpoints()[0], m.rev)
	if err != nil {
		t.Fatal(err)
	}
	m.hash, m.compact = h.Hash, h.CompactRevision
	return m
}

// lives makes random changes until ctx ends: keys with and without leases, transactions of
// several keys and nested ones, deletions of ranges, compactions.
func lives(ctx context.Context, t *testing.T, c *clientv3.Client) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	key := func() string { return fmt.Sprintf("k/%d", rng.IntN(30)) }
	var leases []clientv3.LeaseID
	for ctx.Err() == nil {
		var err error
		switch rng.IntN(12) {
		case 0:
			_, err = c.Delete(ctx, "k/1", clientv3.WithRange("k/2"))
		case 1:
			_, err = c.Delete(ctx, key())
		case 2:
			l, lerr := c.Grant(ctx, int64(300+rng.IntN(300)))
			if err = lerr; err == nil {
				leases = append(leases, l.ID)
			}
		case 3, 4:
			if len(leases) > 0 {
				_, err = c.Put(ctx, key(), "leased", clientv3.WithLease(leases[len(leases)-1]))
			}
		case 5:
			_, err = c.Txn(ctx).Then(clientv3.OpPut("t/a", fmt.Sprint(rng.Int())), clientv3.OpPut("t/b", ""), clientv3.OpDelete("k/3", clientv3.WithRange("k/4")),
				clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("t/nested", fmt.Sprint(rng.Int()))}, nil)).Commit()
		case 6:
			if rng.IntN(12) == 0 {
				r, gerr := c.Get(ctx, "k")
				if err = gerr; err == nil && r.Header.GetRevision() > 400 {
					_, err = c.Compact(ctx, r.Header.GetRevision()-400)
				}
			}
		default:
			_, err = c.Put(ctx, key(), strings.Repeat("v", rng.IntN(500)))
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, rpctypes.ErrCompacted) { // which says that it was done already
			t.Error(err)
			return
		}
		time.Sleep(3 * time.Millisecond)
	}
}

// Every revision between the first backup and the end can be restored as it was, while the
// program that follows is killed at any moment; what is restored to it expires as it should.
func TestBackupFollow(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("3.7")})
	c := p.Client(t)
	if _, err := c.Put(t.Context(), "k/0", "first"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := ours(t, "etcdctl-plus")
	var errs bytes.Buffer
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), program, "backup", "follow", "--store", dir, "--seal-every", "200ms", "--endpoints", p.Endpoint, "-w", "jsonl")
		errs.Reset()
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	cmd := start()
	st, err := store.Open(dir, store.Options{})
	for begin := time.Now(); err != nil; st, err = store.Open(dir, store.Options{}) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal(err, &errs)
		}
		time.Sleep(20 * time.Millisecond)
	}
	defer st.Close()
	repo := &backup.Repository{Store: st}
	last := func() int64 {
		l, err := repo.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, cluster := range l.Clusters() {
			return l.Newest(cluster).Last()
		}
		return 0
	}
	for begin := time.Now(); last() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("no backup comes: %s", &errs)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() { defer close(done); lives(ctx, t, c) }()
	samples := 12
	if s := os.Getenv("FOLLOW_SAMPLES"); s != "" {
		if _, err := fmt.Sscan(s, &samples); err != nil {
			t.Fatal(err)
		}
	}
	var moments []moment
	for i := range samples {
		time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond)
		moments = append(moments, momentOf(t, c))
		if i%3 == 1 {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			cmd = start()
		}
	}
	stop()
	<-done
	moments = append(moments, momentOf(t, c))
	for begin := time.Now(); last() < moments[len(moments)-1].rev; time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("the chain ends with %d, want %d: %s", last(), moments[len(moments)-1].rev, &errs)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after TERM: %v: %s", err, &errs)
	}
	if r := run(t, nil, "backup", "verify", "--store", dir); r.code != 0 {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	l, err := repo.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cluster := l.Clusters()[0]
	for i, m := range moments {
		at := backup.Moment{Rev: m.rev}
		chain, err := l.At(cluster, at)
		if err != nil {
			t.Fatal(err)
		}
		b, err := repo.Build(t.Context(), chain, at, t.TempDir(), dbfile.Options{})
		if err != nil {
			t.Fatalf("revision %d: %v", m.rev, err)
		}
		same(t, b.Path, m)
		if i%4 == 3 && !b.Time.IsZero() { // by the time when it came
			at := backup.Moment{Time: b.Time}
			chain, err := l.At(cluster, at)
			if err != nil {
				t.Fatal(err)
			}
			if b, err = repo.Build(t.Context(), chain, at, t.TempDir(), dbfile.Options{}); err != nil {
				t.Fatal(err)
			}
			same(t, b.Path, m)
		}
		if i == len(moments)/2 || i == len(moments)-1 {
			boots(t, dir, m)
		}
	}
	if _, err := l.At(cluster, backup.Moment{Rev: moments[len(moments)-1].rev + 100}); !errors.As(err, new(*backup.GapError)) {
		t.Errorf("a revision that has not come: %v", err)
	}
	if _, err := l.At(cluster, backup.Moment{Time: time.Now().Add(time.Hour)}); !errors.As(err, new(*backup.GapError)) {
		t.Errorf("a time that has not come: %v", err)
	}
}

// same compares a file with a moment, key for key.
func same(t *testing.T, path string, m moment) {
	t.Helper()
	s, err := dbfile.Open(t.Context(), path, dbfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var keys []string
	for r, err := range s.Records(t.Context(), keyspace.All()) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, describe(r.Key, r.Value, r.CreateRev, r.ModRev, r.Version, r.Lease))
	}
	if !slices.Equal(keys, m.keys) {
		t.Errorf("revision %d: %d keys, want %d", m.rev, len(keys), len(m.keys))
	}
	info, err := s.Info(t.Context())
	if err != nil || info.Revision != m.rev {
		t.Errorf("it is at revision %d, want %d, %v", info.Revision, m.rev, err)
	}
	if max(info.CompactRev, 0) == max(m.compact, 0) {
		if h, err := s.HashKV(t.Context(), m.rev); err != nil || h.Hash != m.hash {
			t.Errorf("revision %d: hash %08x, want %08x, %v", m.rev, h.Hash, m.hash, err)
		}
	}
	if r := run(t, nil, "snapshot", "verify", path); r.code != 0 {
		t.Errorf("revision %d: exit code %d: %s%s", m.rev, r.code, r.stdout, r.stderr)
	}
}

// boots restores a moment, starts etcd on it, and compares its hash when it is compacted where
// the cluster was; its keys still have their leases.
func boots(t *testing.T, repo string, m moment) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	port := server.Ports(t, 2)
	peer := fmt.Sprintf("http://127.0.0.1:%d", port[1])
	if r := run(t, nil, "backup", "restore", "latest", "--store", repo, "--to-revision", fmt.Sprint(m.rev), "--data-dir", data, "--name", "m0", "--initial-cluster", "m0="+peer, "--initial-advertise-peer-urls", peer); r.code != 0 {
		t.Fatalf("revision %d: exit code %d: %s%s", m.rev, r.code, r.stdout, r.stderr)
	}
	p := server.Start(t, server.Options{DataDir: data, Name: "m0", Peers: "m0=" + peer, ClientPort: port[0], PeerPort: port[1], Args: fast("3.7")})
	c := p.Client(t)
	if m.compact > 0 {
		if _, err := c.Compact(t.Context(), m.compact, clientv3.WithCompactPhysical()); err != nil {
			t.Logf("compaction at %d: %v", m.compact, err) // the backup was compacted there already
		}
	}
	h, err := c.HashKV(t.Context(), p.Endpoint, m.rev)
	if err != nil || h.CompactRevision != m.compact || h.Hash != m.hash {
		t.Errorf("revision %d: %+v, want hash %d, compacted at %d, %v", m.rev, h, m.hash, m.compact, err)
	}
	for id := range m.leases {
		l, err := c.TimeToLive(t.Context(), clientv3.LeaseID(id))
		if err != nil || l.TTL <= 0 || l.GrantedTTL < 300 || l.GrantedTTL >= 600 {
			t.Errorf("revision %d: lease %x: %+v, %v", m.rev, id, l, err)
		}
		if _, err := c.Revoke(t.Context(), clientv3.LeaseID(id)); err != nil {
			t.Error(err)
		}
	}
	left, err := c.Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range left.Kvs {
		if kv.GetLease() != 0 {
			t.Errorf("revision %d: %q has outlived its lease", m.rev, kv.GetKey())
		}
	}
	if len(m.leases) == 0 {
		t.Logf("revision %d: no key has a lease", m.rev)
	}
}
