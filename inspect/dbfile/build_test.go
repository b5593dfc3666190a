package dbfile_test

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// builder makes a database with bbolt, record by record, as etcd lays it out.
type builder struct {
	tb   testing.TB
	path string
	db   *bolt.DB
}

func build(tb testing.TB, pageSize int) *builder {
	tb.Helper()
	b := &builder{tb: tb, path: filepath.Join(tb.TempDir(), "built.db")}
	var err error
	b.db, err = bolt.Open(b.path, 0o600, &bolt.Options{PageSize: pageSize, NoFreelistSync: true, NoSync: true, NoGrowSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	b.update(func(tx *bolt.Tx) error {
		for _, name := range []string{"key", "meta", "lease", "members", "cluster"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	return b
}

func (b *builder) update(fn func(*bolt.Tx) error) {
	b.tb.Helper()
	if err := b.db.Update(fn); err != nil {
		b.tb.Fatal(err)
	}
}

// done closes the database and returns its path.
func (b *builder) done() string {
	b.tb.Helper()
	if err := b.db.Close(); err != nil {
		b.tb.Fatal(err)
	}
	return b.path
}

func revKey(rev keyspace.Revision) []byte {
	k := binary.BigEndian.AppendUint64(nil, uint64(rev.Main))
	k = append(k, '_')
	return binary.BigEndian.AppendUint64(k, uint64(rev.Sub))
}

// events stores what happened.
func (b *builder) events(events []keyspace.Event) {
	b.tb.Helper()
	b.update(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		for _, e := range events {
			k, kv := revKey(e.Rev), &mvccpb.KeyValue{Key: e.Record.Key}
			if e.Type == keyspace.Delete {
				k = append(k, 't')
			} else {
				kv.Value, kv.Lease = e.Record.Value, e.Record.Lease
				kv.CreateRevision, kv.ModRevision, kv.Version = e.Record.CreateRev, e.Record.ModRev, e.Record.Version
			}
			v, err := proto.Marshal(kv)
			if err != nil {
				return err
			}
			if err := bucket.Put(k, v); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *builder) put(bucket, key string, value []byte) {
	b.tb.Helper()
	b.update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), value) })
}

// seal puts a snapshot's trailer behind the file.
func seal(tb testing.TB, path string) {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	sum := sha256.Sum256(b)
	write(tb, path, append(b, sum[:]...))
}

func write(tb testing.TB, path string, b []byte) {
	tb.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		tb.Fatal(err)
	}
}
