package dbfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// lived fills a server with a small life: keys that come, change, go and come back.
// It returns the revision of a deletion in the middle of it, and the last one.
func lived(tb testing.TB, c *clientv3.Client) (tombstone, last int64) {
	tb.Helper()
	do := func(op clientv3.Op) int64 {
		r, err := c.Do(tb.Context(), op)
		if err != nil {
			tb.Fatal(err)
		}
		if p := r.Put(); p != nil {
			return p.Header.Revision
		}
		return r.Del().Header.Revision
	}
	for round := range 4 {
		for i := range 60 {
			do(clientv3.OpPut(fmt.Sprintf("k%02d", i), strings.Repeat(fmt.Sprint(round), 10+200*(i%3))))
		}
		if round == 1 {
			do(clientv3.OpDelete("k10", clientv3.WithRange("k20")))
			tombstone = do(clientv3.OpDelete("k30"))
		}
	}
	return tombstone, do(clientv3.OpDelete("k59"))
}

// asServed compares records of every revision of a file with what a server answers.
func asServed(tb testing.TB, s *dbfile.Source, c *clientv3.Client, from, to int64) {
	tb.Helper()
	if err := s.Check(tb.Context()); err != nil {
		tb.Errorf("a finding on a healthy file: %v", err)
	}
	for rev := from; rev <= to; rev++ {
		want, err := c.Get(tb.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(rev))
		if err != nil {
			tb.Fatal(err)
		}
		r := keyspace.All()
		r.Rev = rev
		got := records(tb, s, r)
		if len(got) != len(want.Kvs) {
			tb.Fatalf("revision %d: %d records, want %d", rev, len(got), len(want.Kvs))
		}
		for i, kv := range want.Kvs {
			g := got[i]
			if !bytes.Equal(g.Key, kv.Key) || !bytes.Equal(g.Value, kv.Value) || g.ModRev != kv.ModRevision || g.CreateRev != kv.CreateRevision || g.Version != kv.Version {
				tb.Fatalf("revision %d: %+v, want %v", rev, g, kv)
			}
		}
	}
}

// gone checks that a revision cannot be read.
func gone(tb testing.TB, s *dbfile.Source, rev, oldest int64) {
	tb.Helper()
	r := keyspace.All()
	r.Rev = rev
	var compacted *keyspace.CompactedError
	for _, err := range s.Records(tb.Context(), r) {
		if !errors.As(err, &compacted) || compacted.CompactRev != oldest {
			tb.Errorf("revision %d: %v, want that the oldest is %d", rev, err, oldest)
		}
		return
	}
	tb.Errorf("revision %d can be read", rev)
}

// What happens to files in the field, to files of every etcd.
func TestFilesOfVersions(t *testing.T) {
	t.Parallel()
	for _, version := range server.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := server.Start(t, server.Options{Version: version}).Client(t)
			tombstone, last := lived(t, c)
			full := sourcetest.SaveSnapshot(t, c)
			if _, err := c.Compact(t.Context(), tombstone, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			t.Run("compacted at a tombstone", func(t *testing.T) {
				s := open(t, sourcetest.SaveSnapshot(t, c), dbfile.Options{})
				asServed(t, s, c, tombstone, last)
				gone(t, s, tombstone-1, tombstone)
			})
			t.Run("half compacted", func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "half.db")
				stripTrailer(t, full, path)
				halfCompact(t, path, tombstone)
				s := open(t, path, dbfile.Options{})
				asServed(t, s, c, tombstone, last)
				gone(t, s, tombstone-1, tombstone)
				info, err := s.Info(t.Context())
				if err != nil || info.CompactScheduled != tombstone || info.OldestRev() != tombstone {
					t.Errorf("%+v, %v", info, err)
				}
			})
			t.Run("page sizes", func(t *testing.T) {
				for _, size := range []int{1024, 8192, 65536} {
					s := open(t, repaged(t, full, size), dbfile.Options{})
					asServed(t, s, c, tombstone, last)
				}
			})
			t.Run("bumped", func(t *testing.T) {
				for _, tool := range []string{"3.6", "3.7"} {
					if version > tool {
						continue // an older tool refuses the file
					}
					bumped(t, full, tool, version, last)
				}
			})
		})
	}
}

// halfCompact notes a compaction in a file and does the first half of it.
func halfCompact(tb testing.TB, path string, rev int64) {
	tb.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	s := open(tb, path, dbfile.Options{NoWAL: true, Copy: true, IgnoreChecksum: true})
	newest := map[string]keyspace.Revision{}
	var old []keyspace.Event
	for e, err := range s.Events(tb.Context(), keyspace.EventRange{Key: []byte{0}, End: []byte{0}, MaxRev: rev}) {
		if err != nil {
			tb.Fatal(err)
		}
		newest[string(e.Record.Key)] = e.Rev
		e.Record.Key = bytes.Clone(e.Record.Key)
		old = append(old, e)
	}
	removed := 0
	err = db.Update(func(tx *bolt.Tx) error {
		for _, e := range old[:len(old)/2] {
			if newest[string(e.Record.Key)] == e.Rev {
				continue
			}
			k := revKey(e.Rev)
			if e.Type == keyspace.Delete {
				k = append(k, 't')
			}
			removed++
			if err := tx.Bucket([]byte("key")).Delete(k); err != nil {
				return err
			}
		}
		mark := binary.BigEndian.AppendUint64(nil, uint64(rev))
		mark = append(mark, '_', 0, 0, 0, 0, 0, 0, 0, 0)
		return tx.Bucket([]byte("meta")).Put([]byte("scheduledCompactRev"), mark)
	})
	if err != nil || removed == 0 {
		tb.Fatal(removed, err)
	}
}

// repaged writes a snapshot anew with pages of another size.
func repaged(tb testing.TB, from string, size int) string {
	tb.Helper()
	plain := filepath.Join(tb.TempDir(), "plain.db")
	stripTrailer(tb, from, plain)
	src, err := bolt.Open(plain, 0o600, nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer src.Close()
	path := filepath.Join(tb.TempDir(), "repaged.db")
	dst, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: size, NoFreelistSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(bolt.Compact(dst, src, 0), dst.Close()); err != nil {
		tb.Fatal(err)
	}
	if size < 4096 {
		return path // bbolt's last page may be half; etcd's own files never have such pages
	}
	seal(tb, path)
	return path
}

// bumped restores a snapshot with its revisions raised, as one does under
// Kubernetes, starts the etcd that wrote it, and compares.
func bumped(t *testing.T, from, tool, version string, last int64) {
	t.Helper()
	const by = 1_000_000
	dir := filepath.Join(t.TempDir(), "restored")
	port := server.Ports(t, 1)[0]
	peer := fmt.Sprintf("http://127.0.0.1:%d", port)
	if tool == "3.7" {
		err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{SnapshotPath: from, Name: "m", OutputDataDir: dir, PeerURLs: []string{peer}, InitialCluster: "m=" + peer, RevisionBump: by, MarkCompacted: true})
		if err != nil {
			t.Fatal(err)
		}
	} else {
		out, err := exec.Command(server.Binary(t, "utl"), "snapshot", "restore", from, "--data-dir", dir, "--name", "m", "--initial-cluster", "m="+peer,
			"--initial-advertise-peer-urls", peer, "--bump-revision", fmt.Sprint(by), "--mark-compacted").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// As it is before any etcd has started on it.
	fresh := open(t, dir, dbfile.Options{})
	if info, err := fresh.Info(t.Context()); err != nil || info.Revision != last+by || info.Note != "" || info.MemberID == 0 {
		t.Errorf("restored by %s: %+v, %v", tool, info, err)
	}
	p := server.Start(t, server.Options{Version: version, DataDir: dir, PeerPort: port, Args: []string{"--initial-cluster-state", "existing"}})
	c := p.Client(t)
	r, err := c.Put(t.Context(), "after", "the bump")
	if err != nil {
		t.Fatal(err)
	}
	if r.Header.Revision != last+by+1 {
		t.Fatalf("etcd is at %d", r.Header.Revision)
	}
	for name, s := range map[string]*dbfile.Source{
		"snapshot": open(t, sourcetest.SaveSnapshot(t, c), dbfile.Options{}),
		"folder":   open(t, dir, dbfile.Options{Copy: true}),
	} {
		info, err := s.Info(t.Context())
		if err != nil || info.Revision != last+by+1 || info.OldestRev() != last+by {
			t.Errorf("%s, bumped by %s: %+v, %v", name, tool, info, err)
			continue
		}
		asServed(t, s, c, last+by, last+by+1)
		gone(t, s, last, last+by)
	}
	p.Kill()
}
