package restore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/zap"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/backup/restore"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// alone is a cluster of one member.
func alone(dir string) restore.Options {
	return restore.Options{Name: "m", DataDir: dir, InitialCluster: "m=http://127.0.0.1:1", PeerURLs: []string{"http://127.0.0.1:1"}}
}

// run prepares and runs a restore that works.
func run(tb testing.TB, db string, o restore.Options) *restore.Plan {
	tb.Helper()
	p, err := restore.Prepare(tb.Context(), db, o)
	if err != nil {
		tb.Fatal(err)
	}
	defer p.Close()
	if err := p.Run(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	if !p.Done {
		tb.Error("it is not done")
	}
	return p
}

// names are what is in a folder, sorted; a folder that is not there has nothing.
func names(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		tb.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func same(a []string, b ...string) bool { return strings.Join(a, " ") == strings.Join(b, " ") }

// content is every bucket of a database as text.
func content(tb testing.TB, db string) map[string]string {
	tb.Helper()
	b, err := bolt.Open(db, 0o400, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	defer b.Close()
	out := map[string]string{}
	err = b.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
			var s strings.Builder
			err := bucket.ForEach(func(k, v []byte) error {
				fmt.Fprintf(&s, "%q=%x\n", k, v)
				return nil
			})
			out[string(name)] = s.String()
			return err
		})
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// etcdutl restores with the real code.
func etcdutl(tb testing.TB, db string, o restore.Options) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "etcdutl")
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: db, Name: o.Name, OutputDataDir: dir, PeerURLs: o.PeerURLs, InitialCluster: o.InitialCluster, InitialClusterToken: o.Token,
		RevisionBump: o.BumpRevision, MarkCompacted: o.MarkCompacted, SkipHashCheck: o.SkipChecksum,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Every bucket is what etcdutl makes of the same file, and so are names and content of
// log and raft snapshot, as far as they hold no time.
func TestEqualsEtcdutl(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	sourcetest.Untouched(t, filepath.Dir(db))
	for _, bump := range []uint64{0, 1000} {
		o := alone(filepath.Join(t.TempDir(), "data"))
		o.InitialCluster = "m=http://127.0.0.1:1,n=http://127.0.0.1:2,o=http://127.0.0.1:3"
		o.Token, o.BumpRevision, o.MarkCompacted = "a-token", bump, bump > 0
		plan := run(t, db, o)
		want := etcdutl(t, db, o)
		ours, theirs := content(t, filepath.Join(o.DataDir, "member", "snap", "db")), content(t, filepath.Join(want, "member", "snap", "db"))
		for name, w := range theirs {
			if ours[name] != w {
				t.Errorf("bucket %q differs:\n%.300s\n%.300s", name, ours[name], w)
			}
			delete(ours, name)
		}
		if len(ours) > 0 || len(theirs) < 8 {
			t.Errorf("buckets that etcdutl does not make: %v; it makes %d", ours, len(theirs))
		}
		var files [2][]string
		for i, dir := range []string{o.DataDir, want} {
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				rel, err := filepath.Rel(dir, path)
				if err != nil {
					return err
				}
				files[i] = append(files[i], rel)
				st, err := d.Info()
				if err == nil && i == 0 && st.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s has mode %v", rel, st.Mode())
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !same(files[0], files[1]...) {
			t.Errorf("files %v, etcdutl's %v", files[0], files[1])
		}
		var logs [2][]byte
		for i, dir := range []string{o.DataDir, want} {
			b, err := os.ReadFile(filepath.Join(dir, "member", "wal", "0000000000000000-0000000000000000.wal"))
			if err != nil {
				t.Fatal(err)
			}
			logs[i] = b
		}
		if !bytes.Equal(logs[0], logs[1]) {
			t.Error("the logs differ")
		}
		src, err := dbfile.Open(t.Context(), o.DataDir, dbfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		info, err := src.Info(t.Context())
		if err != nil || info.Revision != plan.NewRev || fmt.Sprintf("%x", info.ClusterID) != plan.ClusterID || fmt.Sprintf("%x", info.MemberID) != plan.MemberID {
			t.Errorf("%+v, %v; plan: revision %d, cluster %s, member %s", info, err, plan.NewRev, plan.ClusterID, plan.MemberID)
		}
		src.Close()
	}
}

// The token is one for all hosts of a restore, whatever the order of members; another
// file, cluster or change makes another one; a given one wins.
func TestToken(t *testing.T) {
	t.Parallel()
	db, later := corpus.Snapshot(t), corpus.Later(t)
	token := func(db string, change func(*restore.Options)) string {
		o := alone(filepath.Join(t.TempDir(), "data"))
		o.InitialCluster = "m=http://127.0.0.1:1,n=http://127.0.0.1:2"
		change(&o)
		p, err := restore.Prepare(t.Context(), db, o)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if len(names(t, filepath.Dir(o.DataDir))) > 0 {
			t.Error("Prepare wrote something")
		}
		return p.Token + " " + p.ClusterID
	}
	want := token(db, func(*restore.Options) {})
	for what, change := range map[string]func(*restore.Options){
		"another order": func(o *restore.Options) { o.InitialCluster = "n=http://127.0.0.1:2,m=http://127.0.0.1:1" },
		"the other host": func(o *restore.Options) {
			o.Name, o.PeerURLs = "n", []string{"http://127.0.0.1:2"}
		},
	} {
		if got := token(db, change); got != want {
			t.Errorf("%s: %s, not %s", what, got, want)
		}
	}
	seen := map[string]string{want: "the first"}
	for what, got := range map[string]string{
		"another file":    token(later, func(*restore.Options) {}),
		"another cluster": token(db, func(o *restore.Options) { o.InitialCluster += ",o=http://127.0.0.1:3" }),
		"bumped":          token(db, func(o *restore.Options) { o.BumpRevision, o.MarkCompacted = 1000, true }),
		"bumped more":     token(db, func(o *restore.Options) { o.BumpRevision, o.MarkCompacted = 1001, true }),
		"Kubernetes":      token(db, func(o *restore.Options) { o.Kubernetes = true }),
		"given":           token(db, func(o *restore.Options) { o.Token = "mine" }),
	} {
		if before, there := seen[got]; there {
			t.Errorf("%s has the token of %s: %s", what, before, got)
		}
		seen[got] = what
	}
	if got := token(db, func(o *restore.Options) { o.Token = "mine" }); !strings.HasPrefix(got, "mine ") {
		t.Errorf("a given token: %s", got)
	}
}

// The command runs once for each of three hosts; three etcd processes come up as one
// cluster with every key, on every version that starts on what etcdutl restores.
func TestThreeHosts(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.5", "3.6", "3.7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server.Binary(t, version)
			from := server.Start(t, server.Options{Version: version})
			c := from.Client(t)
			for i := range 200 {
				if _, err := c.Put(t.Context(), fmt.Sprintf("key/%03d", i%150), fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
			db := sourcetest.SaveSnapshot(t, c)
			old, err := c.Get(t.Context(), "key/", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			from.Kill()

			ports := server.Ports(t, 6)
			var cluster []string
			for i := range 3 {
				cluster = append(cluster, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[i]))
			}
			var hosts []*server.Process
			ids := map[string]bool{}
			for i := range 3 {
				dir := filepath.Join(t.TempDir(), "data")
				o := restore.Options{Name: fmt.Sprintf("m%d", i), DataDir: dir, InitialCluster: strings.Join(cluster, ","), PeerURLs: []string{fmt.Sprintf("http://127.0.0.1:%d", ports[i])}}
				if i == 1 {
					o.WALDir = filepath.Join(t.TempDir(), "wal")
				}
				ids[run(t, db, o).ClusterID] = true
				so := server.Options{Version: version, DataDir: dir, Name: o.Name, Peers: o.InitialCluster, ClientPort: ports[3+i], PeerPort: ports[i], NoWait: true}
				if o.WALDir != "" {
					so.Args = []string{"--wal-dir", o.WALDir}
				}
				hosts = append(hosts, server.Start(t, so))
			}
			if len(ids) != 1 {
				t.Errorf("cluster ids %v", ids)
			}
			for i, h := range hosts {
				h.Ready(t)
				c := h.Client(t)
				r, err := c.Get(t.Context(), "key/", clientv3.WithPrefix())
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Kvs) != 150 || r.Header.Revision != old.Header.Revision || fmt.Sprint(r.Kvs) != fmt.Sprint(old.Kvs) {
					t.Errorf("host %d: %d keys at revision %d; before %d at %d", i, len(r.Kvs), r.Header.Revision, len(old.Kvs), old.Header.Revision)
				}
				if r.Header.ClusterId == old.Header.ClusterId {
					t.Error("it has the old cluster's id")
				}
				m, err := c.MemberList(t.Context())
				if err != nil || len(m.Members) != 3 {
					t.Errorf("members: %v, %v", m, err)
				}
			}
			// It takes writes, and one member's loss.
			hosts[0].Kill()
			if _, err := hosts[2].Client(t).Put(t.Context(), "after", "1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A bumped restore: hash, revision and the error of a watcher from before are those
// that etcdutl's restore gives.
func TestBump(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	o := alone(filepath.Join(t.TempDir(), "data"))
	o.BumpRevision, o.MarkCompacted, o.Token = 5000, true, "t"
	plan := run(t, db, o)
	type answer struct {
		Hash              uint32
		Rev, Compact, Old int64
		Watch             string
	}
	ask := func(dir string) (a answer) {
		p := server.Start(t, server.Options{DataDir: dir, Name: "m"})
		c := p.Client(t)
		h, err := c.HashKV(t.Context(), p.Endpoint, 0)
		if err != nil {
			t.Fatal(err)
		}
		a.Hash, a.Rev, a.Compact = h.Hash, h.Header.Revision, h.CompactRevision
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := <-c.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(plan.Revision+1))
		a.Old, a.Watch = r.CompactRevision, fmt.Sprint(r.Err())
		return a
	}
	ours, theirs := ask(o.DataDir), ask(etcdutl(t, db, o))
	if ours != theirs || ours.Rev != plan.Revision+5000 || ours.Watch != rpctypes.ErrCompacted.Error() {
		t.Errorf("ours %+v, etcdutl's %+v", ours, theirs)
	}
}

// With Kubernetes a watcher from before learns that its revision is gone, and the
// entries of API servers are gone; everything else is there.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	for _, k := range []string{"/registry/masterleases/10.0.0.1", "/registry/masterleases/10.0.0.2", "/registry/masterleasesx", "/registry/pods/a/b"} {
		if _, err := c.Put(t.Context(), k, "v"); err != nil {
			t.Fatal(err)
		}
	}
	db := sourcetest.SaveSnapshot(t, c)
	o := alone(filepath.Join(t.TempDir(), "data"))
	o.Kubernetes = true
	plan := run(t, db, o)
	if plan.NewRev != plan.Revision+1+restore.KubernetesBump || len(plan.DroppedKeys) != 2 {
		t.Errorf("%+v", plan)
	}
	p := server.Start(t, server.Options{DataDir: o.DataDir, Name: "m"})
	rc := p.Client(t)
	r, err := rc.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 2 || string(r.Kvs[0].Key) != "/registry/masterleasesx" || r.Header.Revision != plan.NewRev {
		t.Errorf("%v, %v", r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	w := <-rc.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(plan.Revision+100))
	if !errors.Is(w.Err(), rpctypes.ErrCompacted) || w.CompactRevision != plan.NewRev {
		t.Errorf("a watcher from before: %v, compacted at %d", w.Err(), w.CompactRevision)
	}
	put, err := rc.Put(t.Context(), "/registry/pods/a/c", "v")
	if err != nil || put.Header.Revision != plan.NewRev+1 {
		t.Errorf("%v, %v", put, err)
	}
}

// A leased key that is restored expires; so does one whose lease is not in the file, by
// the lease that is made anew or at once.
func TestLeases(t *testing.T) {
	t.Parallel()
	from := server.Start(t, server.Options{})
	c := from.Client(t)
	leased := func(key string, ttl int64) clientv3.LeaseID {
		l, err := c.Grant(t.Context(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), key, "v", clientv3.WithLease(l.ID)); err != nil {
			t.Fatal(err)
		}
		return l.ID
	}
	leased("short", 2)
	lost := leased("lost", 3600)
	leased("long", 3600)
	if _, err := c.Put(t.Context(), "plain", "v"); err != nil {
		t.Fatal(err)
	}
	saved := sourcetest.SaveSnapshot(t, c)
	from.Kill()
	// The same without one lease, as no etcd would write it.
	b, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(t.TempDir(), "lost.db")
	if err := os.WriteFile(db, b[:len(b)-32], 0o600); err != nil {
		t.Fatal(err)
	}
	bdb, err := bolt.Open(db, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = bdb.Update(func(tx *bolt.Tx) error {
		k := []byte{}
		for i := 7; i >= 0; i-- {
			k = append(k, byte(uint64(lost)>>(8*i)))
		}
		if tx.Bucket([]byte("lease")).Get(k) == nil {
			t.Error("the lease is not where it should be")
		}
		return tx.Bucket([]byte("lease")).Delete(k)
	})
	if err := errors.Join(err, bdb.Close()); err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[restore.LeasePolicy]string{restore.Grant: "long plain", restore.Drop: "long plain", restore.Keep: "long lost plain"} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			o := alone(filepath.Join(t.TempDir(), "data"))
			o.SkipChecksum, o.MissingLeases, o.LeaseTTL = true, policy, 2*time.Second
			plan := run(t, db, o)
			if len(plan.MissingLeases) != 1 || plan.MissingLeases[0].ID != fmt.Sprintf("%016x", int64(lost)) || !same(plan.MissingLeases[0].Keys, "lost") {
				t.Errorf("missing: %+v", plan.MissingLeases)
			}
			rc := server.Start(t, server.Options{DataDir: o.DataDir, Name: "m"}).Client(t)
			first := true
			deadline := time.Now().Add(20 * time.Second)
			for {
				r, err := rc.Get(t.Context(), "", clientv3.WithFromKey(), clientv3.WithKeysOnly())
				if err != nil {
					t.Fatal(err)
				}
				var keys []string
				for _, kv := range r.Kvs {
					keys = append(keys, string(kv.Key))
				}
				got := strings.Join(keys, " ")
				if first && (policy == restore.Drop) == strings.Contains(got, "lost") {
					t.Errorf("right after the start there are %s", got)
				}
				first = false
				if got == want {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("after 20 seconds there are %s", got)
				}
				time.Sleep(100 * time.Millisecond)
			}
			ttl, err := rc.Leases(t.Context())
			if err != nil || len(ttl.Leases) != 1 {
				t.Errorf("leases that are left: %v, %v", ttl, err)
			}
		})
	}
}

// Places that are taken, or in use, are refused and left as they are.
func TestOccupied(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	dir := t.TempDir()
	make := func(parts ...string) string {
		path := filepath.Join(append([]string{dir}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	make("full", "file")
	make("file")
	make("stale", "0000000000000000-0000000000000000.wal")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	running := server.Start(t, server.Options{})
	runningLog := server.Start(t, server.Options{Args: []string{"--wal-dir", filepath.Join(dir, "log")}})
	runningLog.Client(t)
	running.Client(t)
	for _, c := range []struct {
		what, data, wal string
		want            error
	}{
		{"a full folder", "full", "", fs.ErrExist},
		{"a file", "file", "", fs.ErrExist},
		{"a link", "link", "", fs.ErrExist},
		{"a stale log folder", "new", "stale", fs.ErrExist},
		{"a log folder that is a file", "new", "file", fs.ErrExist},
		{"a running etcd's folder", running.DataDir, "", keyspace.ErrLocked},
		{"a running etcd's log", "new", "log", keyspace.ErrLocked},
	} {
		o := alone(filepath.Join(dir, c.data))
		if filepath.IsAbs(c.data) {
			o.DataDir = c.data
		}
		if c.wal != "" {
			o.WALDir = filepath.Join(dir, c.wal)
		}
		before := names(t, dir)
		if _, err := restore.Prepare(t.Context(), db, o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
		if after := names(t, dir); !same(after, before...) {
			t.Errorf("%s: %v became %v", c.what, before, after)
		}
	}
	for _, wrong := range []func(*restore.Options){
		func(o *restore.Options) { o.Name = "x" },
		func(o *restore.Options) { o.InitialCluster = "m=nonsense" },
		func(o *restore.Options) { o.PeerURLs = []string{"http://127.0.0.1:7"} },
		func(o *restore.Options) { o.BumpRevision = 1 },
		func(o *restore.Options) { o.MarkCompacted = true },
		func(o *restore.Options) { o.BumpRevision, o.MarkCompacted = 1<<63, true },
		func(o *restore.Options) { o.WALDir = filepath.Join(o.DataDir, "log") },
		func(o *restore.Options) { o.MissingLeases = "x" },
	} {
		o := alone(filepath.Join(dir, "new"))
		wrong(&o)
		var settings *restore.SettingsError
		if _, err := restore.Prepare(t.Context(), db, o); !errors.As(err, &settings) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// An empty folder stays the folder it is; so do those above that are missing.
func TestPlaces(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	dir := t.TempDir()
	for _, c := range []struct {
		what, wal     string
		empty, logDir bool
	}{
		{what: "beside"}, {what: "inside", empty: true}, {what: "beside with a log", wal: "log1"},
		{what: "inside with a log", wal: "log2", empty: true}, {what: "inside with an empty log", wal: "log3", empty: true, logDir: true}, {what: "deep/er/new", wal: "deep/log"},
	} {
		o := alone(filepath.Join(dir, c.what))
		if c.empty {
			if err := os.MkdirAll(o.DataDir, 0o750); err != nil {
				t.Fatal(err)
			}
		}
		wal := filepath.Join(o.DataDir, "member", "wal")
		if c.wal != "" {
			o.WALDir = filepath.Join(dir, c.wal)
			wal = o.WALDir
			if c.logDir {
				if err := os.MkdirAll(wal, 0o700); err != nil {
					t.Fatal(err)
				}
			}
		}
		run(t, db, o)
		if got := names(t, o.DataDir); !same(got, "member") {
			t.Errorf("%s: %v", c.what, got)
		}
		if got := names(t, wal); !same(got, "0000000000000000-0000000000000000.wal") {
			t.Errorf("%s: log %v", c.what, got)
		}
		if st, err := os.Stat(o.DataDir); err != nil || c.empty == (st.Mode().Perm() == 0o700) {
			t.Errorf("%s: %v, %v", c.what, st.Mode(), err)
		}
		for _, n := range names(t, filepath.Dir(o.DataDir)) {
			if strings.HasPrefix(n, ".") {
				t.Errorf("%s: %s is left", c.what, n)
			}
		}
		args := []string{}
		if c.wal != "" {
			args = []string{"--wal-dir", o.WALDir}
		}
		p := server.Start(t, server.Options{DataDir: o.DataDir, Name: "m", Args: args})
		if r, err := p.Client(t).Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || r.Count == 0 {
			t.Errorf("%s: %v, %v", c.what, r, err)
		}
		p.Kill()
	}
}

// Damage is refused with all findings. Accepted, what is left is restored and etcd
// starts on it.
func TestFindings(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	leaf := 0 // a page of records
	for at := 4096 * 2; at < len(whole)-32; at += 4096 {
		if whole[at+8] == 2 && bytes.Contains(whole[at:at+4096], []byte("/registry/")) {
			leaf = at
		}
	}
	dir := t.TempDir()
	for what, damage := range map[string]func(b []byte) []byte{
		"one bit of a value": func(b []byte) []byte { b[leaf+4000] ^= 1; return b },
		"a page":             func(b []byte) []byte { copy(b[leaf:], bytes.Repeat([]byte{0xa5}, 4096)); return b },
		"cut short":          func(b []byte) []byte { return b[:len(b)/4096*4096-4096*8] },
		"both meta pages":    func(b []byte) []byte { clear(b[:8192]); return b },
	} {
		path := filepath.Join(dir, strings.ReplaceAll(what, " ", "-")+".db")
		if err := os.WriteFile(path, damage(bytes.Clone(whole)), 0o600); err != nil {
			t.Fatal(err)
		}
		o := alone(filepath.Join(dir, "data-"+strings.ReplaceAll(what, " ", "-")))
		var findings []backup.Finding
		o.Report = func(f backup.Finding) { findings = append(findings, f) }
		_, err := restore.Prepare(t.Context(), path, o)
		var wrong *restore.FindingsError
		if !errors.As(err, &wrong) || len(findings) == 0 || !errors.Is(err, keyspace.ErrCorrupt) {
			t.Errorf("%s: %v, %v", what, err, findings)
			continue
		}
		if got := names(t, o.DataDir); got != nil {
			t.Errorf("%s: %v was written", what, got)
		}
		o.AcceptFindings = true
		if !wrong.Readable {
			if _, err := restore.Prepare(t.Context(), path, o); !errors.As(err, &wrong) {
				t.Errorf("%s, accepted: %v", what, err)
			}
			if what != "both meta pages" {
				t.Errorf("%s: nothing can be restored", what)
			}
			continue
		}
		plan := run(t, path, o)
		c := server.Start(t, server.Options{DataDir: o.DataDir, Name: "m"}).Client(t)
		r, err := c.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || r.Count == 0 || r.Header.Revision != plan.NewRev {
			t.Errorf("%s: %v, %v; plan %d", what, r, err, plan.NewRev)
		}
	}
}

// A member's own file needs the flag, a packed snapshot nothing.
func TestKinds(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	dir := t.TempDir()
	packed := filepath.Join(corpus.Dir(), "snapshot.db.gz")
	o := alone(filepath.Join(dir, "packed"))
	plan := run(t, packed, o)
	p := server.Start(t, server.Options{DataDir: o.DataDir, Name: "m"})
	if r, err := p.Client(t).Get(t.Context(), "x"); err != nil || r.Header.Revision != plan.Revision {
		t.Errorf("%v, %v", r, err)
	}
	p.Kill()
	member := filepath.Join(o.DataDir, "member", "snap", "db")
	o = alone(filepath.Join(dir, "again"))
	if _, err := restore.Prepare(t.Context(), member, o); !errors.Is(err, restore.ErrUnsealed) {
		t.Errorf("a member's file: %v", err)
	}
	o.SkipChecksum = true
	if again := run(t, member, o); again.Revision != plan.Revision {
		t.Errorf("revision %d, not %d", again.Revision, plan.Revision)
	}
	if _, err := restore.Prepare(t.Context(), filepath.Join(dir, "packed"), alone(filepath.Join(dir, "x"))); !errors.Is(err, keyspace.ErrNotDatabase) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := restore.Prepare(t.Context(), db+"x", alone(filepath.Join(dir, "x"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	// Two at once: one wins, and nothing of the other is left.
	both := alone(filepath.Join(dir, "both"))
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			p, err := restore.Prepare(context.Background(), db, both)
			if err == nil {
				err = errors.Join(p.Run(context.Background()), p.Close())
			}
			errs <- err
		}()
	}
	first, second := <-errs, <-errs
	if (first == nil) == (second == nil) {
		t.Errorf("%v, %v", first, second)
	}
	if lost := errors.Join(first, second); !errors.Is(lost, fs.ErrExist) && !errors.Is(lost, keyspace.ErrLocked) {
		t.Errorf("the loser says %v", lost)
	}
	for _, n := range names(t, dir) {
		if strings.HasPrefix(n, ".") {
			t.Errorf("%s is left", n)
		}
	}
}
