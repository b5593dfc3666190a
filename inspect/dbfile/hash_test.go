package dbfile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// hashed is a source whose hashes are held against the server's whenever the suite
// opens one: after each random history.
func hashed(tb testing.TB, c *clientv3.Client, s *dbfile.Source) keyspace.Source {
	tb.Helper()
	ctx := tb.Context()
	info, err := s.Info(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	ask := func(rev int64) (*clientv3.HashKVResponse, error) { return c.HashKV(ctx, c.Endpoints()[0], rev) }
	oldest := max(1, info.OldestRev())
	revs := []int64{0, oldest, info.Revision}
	for range 5 {
		revs = append(revs, oldest+rand.Int64N(info.Revision-oldest+1))
	}
	compared := 0
	for _, rev := range revs {
		want, err := ask(rev)
		if err != nil {
			tb.Fatal(err)
		}
		got, err := s.HashKV(ctx, rev)
		if got.Rev == oldest && want.CompactRevision < got.CompactRev {
			continue // a server keeps the hash it computed while it compacted
		}
		compared++
		if err != nil || got.Hash != want.Hash || got.CompactRev != want.CompactRevision || rev > 0 && got.Rev != rev {
			tb.Errorf("HashKV at %d (compacted at %d, newest %d): %+v, %v; etcd: %d, compacted at %d", rev, info.OldestRev(), info.Revision, got, err, want.Hash, want.CompactRevision)
		}
	}
	if compared == 0 && info.Revision > oldest {
		tb.Error("nothing was compared")
	}
	if _, err := ask(info.Revision + 1); err == nil {
		tb.Error("etcd hashes the future")
	}
	if _, err := s.HashKV(ctx, info.Revision+1); !errors.Is(err, keyspace.ErrFutureRev) {
		tb.Errorf("the revision behind the newest: %v", err)
	}
	if oldest > 1 {
		if _, err := s.HashKV(ctx, oldest-1); !errors.Is(err, keyspace.ErrCompacted) {
			tb.Errorf("the revision before the compact revision: %v", err)
		}
	}
	return s
}

func TestHashKV(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, sourcetest.Options{Servers: 2, Histories: 25}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
		path := sourcetest.SaveSnapshot(tb, c)
		sourcetest.Untouched(tb, path)
		s, err := dbfile.Open(tb.Context(), path, dbfile.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		return hashed(tb, c, s)
	})
}

// With what only the write-ahead log has, compactions among it.
func TestHashKVWriteAheadLog(t *testing.T) {
	t.Parallel()
	var folders sync.Map
	start := func(tb testing.TB) *clientv3.Client {
		c, dir := lazyServer(tb)
		folders.Store(c, dir)
		return c
	}
	sourcetest.Run(t, sourcetest.Options{Servers: 2, Histories: 15, Start: start}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
		dir, _ := folders.Load(c)
		s, err := dbfile.Open(tb.Context(), dir.(string), dbfile.Options{Copy: true, TempDir: tb.TempDir()})
		if err != nil {
			tb.Fatal(err)
		}
		return hashed(tb, c, s)
	})
}

// Servers of 3.5 to 3.7 and their files.
func TestHashKVVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.5", "3.6", "3.7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server.Binary(t, version)
			start := func(tb testing.TB) *clientv3.Client {
				return server.Start(tb, server.Options{Version: version}).Client(tb)
			}
			sourcetest.Run(t, sourcetest.Options{Servers: 1, Histories: 8, Start: start}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
				s, err := dbfile.Open(tb.Context(), sourcetest.SaveSnapshot(tb, c), dbfile.Options{})
				if err != nil {
					tb.Fatal(err)
				}
				return hashed(tb, c, s)
			})
		})
	}
}

// storeHash is what etcd's own store, opened on a copy of a file, says.
func storeHash(tb testing.TB, path string, rev int64) mvcc.KeyValueHash {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if len(b)%512 == 32 {
		b = b[:len(b)-32]
	}
	dup := filepath.Join(tb.TempDir(), "copy.db")
	write(tb, dup, b)
	be := backend.NewDefaultBackend(zap.NewNop(), dup)
	defer be.Close()
	st := mvcc.NewStore(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer st.Close()
	// It goes on with a compaction that was cut off. While that runs the hash of a store
	// in which nothing is live may be any.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		tx := be.ReadTx()
		tx.RLock()
		scheduled, _ := mvcc.UnsafeReadScheduledCompact(tx)
		finished, _ := mvcc.UnsafeReadFinishedCompact(tx)
		tx.RUnlock()
		if scheduled <= finished {
			break
		}
		if time.Now().After(deadline) {
			tb.Fatal("etcd does not end its compaction")
		}
	}
	h, _, err := st.HashStorage().HashByRev(rev)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// Compactions that were begun and cut off at any point, revisions that a restore
// bumped once and twice, and stores in which nothing is live: etcd's own store is the
// oracle.
func TestHashKVOddFiles(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		b := build(t, 4096)
		live := map[string]keyspace.Record{}
		var revs []keyspace.Event
		last := int64(1)
		for range 1 + rng.IntN(60) {
			last += 1 + rng.Int64N(2)
			key := fmt.Sprintf("k%d", rng.IntN(6))
			ev := keyspace.Event{Rev: keyspace.Revision{Main: last}, Record: keyspace.Record{Key: []byte(key)}}
			have, there := live[key]
			if there && (rng.IntN(3) == 0 || seed%5 == 0) {
				ev.Type = keyspace.Delete
				delete(live, key)
			} else {
				have.Key, have.ModRev, have.Version, have.Value = []byte(key), last, have.Version+1, bytes.Repeat([]byte("v"), rng.IntN(2000))
				if !there {
					have.CreateRev, have.Version = last, 1
				}
				ev.Record, live[key] = have, have
			}
			revs = append(revs, ev)
		}
		if seed%5 == 0 { // nothing stays alive
			for key := range live {
				last++
				revs = append(revs, keyspace.Event{Type: keyspace.Delete, Rev: keyspace.Revision{Main: last}, Record: keyspace.Record{Key: []byte(key)}})
			}
		}
		b.events(revs)
		compact := rng.Int64N(last + 1)
		if compact > 0 {
			b.put("meta", "scheduledCompactRev", revKey(keyspace.Revision{Main: compact}))
		}
		for range seed % 3 { // as "snapshot restore --bump-revision --mark-compacted" does
			last += 1 + rng.Int64N(100)
			b.put("key", string(revKey(keyspace.Revision{Main: last})), nil)
			compact = last
			b.put("meta", "scheduledCompactRev", revKey(keyspace.Revision{Main: compact}))
		}
		if seed%3 == 0 && compact > 1 { // an earlier one was finished
			b.put("meta", "finishedCompactRev", revKey(keyspace.Revision{Main: 1}))
		}
		path := b.done()
		s, err := dbfile.Open(t.Context(), path, dbfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, rev := range []int64{0, max(compact, 1), max(compact, 1) + rng.Int64N(last-max(compact, 1)+1)} {
			want := storeHash(t, path, rev)
			got, err := s.HashKV(t.Context(), rev)
			if err != nil || got.Hash != want.Hash || got.Rev != want.Revision || got.CompactRev != want.CompactRevision {
				t.Errorf("seed %d, revision %d, compacted at %d: %+v, %v; etcd: %+v", seed, rev, compact, got, err, want)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A bumped restore, as etcd has it after it finished the compaction.
func TestHashKVBumped(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	dir := filepath.Join(t.TempDir(), "data")
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: db, Name: "m", OutputDataDir: dir, PeerURLs: []string{"http://127.0.0.1:1"}, InitialCluster: "m=http://127.0.0.1:1", InitialClusterToken: "t",
		RevisionBump: 1000, MarkCompacted: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "member", "snap", "db")
	want := storeHash(t, path, 0)
	s, err := dbfile.Open(t.Context(), path, dbfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.HashKV(t.Context(), 0)
	if err != nil || got.Hash != want.Hash || got.CompactRev != want.CompactRevision || got.Rev != got.CompactRev {
		t.Errorf("%+v, %v; etcd: %+v", got, err, want)
	}
}

// Contents and Keys against etcdutl's status, on files of all kinds.
func TestContents(t *testing.T) {
	t.Parallel()
	paths := []string{corpus.Snapshot(t)}
	c := sourcetest.Sandboxed(t, nil)
	paths = append(paths, sourcetest.SaveSnapshot(t, c)) // empty
	for i := range 300 {
		key := fmt.Sprintf("k%d", i%70)
		if i%3 == 0 {
			if _, err := c.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := c.Put(t.Context(), key, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	paths = append(paths, sourcetest.SaveSnapshot(t, c))
	dir := filepath.Join(t.TempDir(), "data")
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: paths[2], Name: "m", OutputDataDir: dir, PeerURLs: []string{"http://127.0.0.1:1"}, InitialCluster: "m=http://127.0.0.1:1", InitialClusterToken: "t",
		RevisionBump: 1000, MarkCompacted: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, filepath.Join(dir, "member", "snap", "db"))
	b := build(t, 4096) // a bucket in a bucket, and one that etcd does not know
	b.update(func(tx *bolt.Tx) error {
		other, err := tx.CreateBucket([]byte("other"))
		if err != nil {
			return err
		}
		if err := other.Put([]byte("a"), []byte("1")); err != nil {
			return err
		}
		_, err = other.CreateBucket([]byte("inner"))
		return err
	})
	paths = append(paths, b.done())
	for _, path := range paths {
		want, err := snapshot.NewV3(zap.NewNop()).Status(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := dbfile.Open(t.Context(), path, dbfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		got, err := s.Contents(t.Context())
		if err != nil || got.Hash != want.Hash || got.LastRev != want.Revision {
			t.Errorf("%s: %+v, %v; etcdutl: %+v", path, got, err, want)
		}
		keys, err := s.Keys(t.Context())
		if err != nil || keys+min(got.Bumps, 1) != int64(want.TotalKey) {
			t.Errorf("%s: %d keys, %v; etcdutl: %+v", path, keys, err, want)
		}
	}
}

// The sum of a snapshot is its trailer; one that does not fit is an error with any
// options.
func TestSum(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	b, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	open := func(path string) *dbfile.Source {
		s, err := dbfile.Open(t.Context(), path, dbfile.Options{IgnoreChecksum: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	sum, err := open(db).Sum(t.Context())
	if err != nil || !bytes.Equal(sum[:], b[len(b)-32:]) {
		t.Errorf("%x, %v", sum, err)
	}
	bare := filepath.Join(t.TempDir(), "db")
	write(t, bare, b[:len(b)-32])
	s := open(bare)
	if plain, err := s.Sum(t.Context()); err != nil || plain != sum || s.HasTrailer() {
		t.Errorf("without its trailer: %x, %v, trailer %v", plain, err, s.HasTrailer())
	}
	b[len(b)/2] ^= 1
	write(t, bare, b)
	var wrong *dbfile.ChecksumError
	if other, err := open(bare).Sum(t.Context()); !errors.As(err, &wrong) || other == sum || other != wrong.Got {
		t.Errorf("one bit flipped: %x, %v", other, err)
	}
}

// What is cancelled says so, and damage is found.
func TestHashKVErrors(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	s, err := dbfile.Open(t.Context(), db, dbfile.Options{IgnoreChecksum: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.HashKV(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.HashKV(t.Context(), 0); !errors.Is(err, dbfile.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	b, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	// A leaf page of records that claims a wrong kind.
	for at := 4096 * 2; at < len(b)-32; at += 4096 {
		if binary.LittleEndian.Uint16(b[at+8:]) == 2 && bytes.Contains(b[at:at+4096], []byte("/registry/")) {
			b[at+8] = 0x40
			break
		}
	}
	bad := filepath.Join(t.TempDir(), "bad.db")
	write(t, bad, b)
	for _, ignore := range []bool{true, false} {
		s, err := dbfile.Open(t.Context(), bad, dbfile.Options{IgnoreChecksum: ignore})
		if err != nil {
			t.Fatal(err)
		}
		if h, err := s.HashKV(t.Context(), 0); !errors.Is(err, keyspace.ErrCorrupt) {
			t.Errorf("ignore %v: %+v, %v", ignore, h, err)
		}
		s.Close()
	}
}
