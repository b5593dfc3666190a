package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/lease/leasepb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// frozenTTL is the time to live of every lease in a sandbox, in seconds.
const frozenTTL = 100 * 365 * 24 * 60 * 60

// populate makes the data folder of a one-member cluster from a file, and returns
// the file's revision and what is to be known about it.
func populate(ctx context.Context, o Options, dir, data string) (rev int64, note string, err error) {
	copied := filepath.Join(dir, "copy.db")
	rev, note, err = checkedCopy(ctx, o, copied)
	if err != nil {
		return 0, "", err
	}
	if err := restore(copied, data); err != nil {
		return 0, "", fmt.Errorf("make a data folder: %w", err)
	}
	if err := os.Remove(copied); err != nil {
		return 0, "", err
	}
	if err := makeHarmless(filepath.Join(data, "member", "snap", "db")); err != nil {
		return 0, "", fmt.Errorf("lift leases: %w", err)
	}
	return rev, note, ctx.Err()
}

// checkedCopy copies the file after it has read all of it: bbolt and etcd end the
// process when they meet damage.
func checkedCopy(ctx context.Context, o Options, to string) (rev int64, note string, err error) {
	src, err := dbfile.Open(ctx, o.From, o.File)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if err := src.Check(ctx); err != nil {
		return 0, "", err
	}
	if err := checkAuth(ctx, src); err != nil {
		return 0, "", err
	}
	info, err := src.Info(ctx)
	if err != nil {
		return 0, "", err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, "", err
	}
	if err := errors.Join(src.WritePages(ctx, f), f.Close()); err != nil {
		return 0, "", err
	}
	if src.FromLog() {
		if err := addTail(ctx, src, info, to); err != nil {
			return 0, "", fmt.Errorf("add what the write-ahead log has: %w", err)
		}
	}
	return info.Revision, info.Note, nil
}

// addTail writes into the copy what only the write-ahead log has.
func addTail(ctx context.Context, src *dbfile.Source, info keyspace.Info, db string) error {
	leases, err := src.Leases(ctx)
	if err != nil {
		return err
	}
	b, err := bolt.Open(db, 0o600, boltOptions())
	if err != nil {
		return err
	}
	err = b.Update(func(tx *bolt.Tx) error {
		if err := putAll(tx, "key", src.Tail()); err != nil {
			return err
		}
		if info.CompactScheduled > 0 {
			mark := make([]byte, 17)
			binary.BigEndian.PutUint64(mark, uint64(info.CompactScheduled))
			mark[8] = '_'
			if err := putAll(tx, "meta", maps.All(map[string][]byte{"scheduledCompactRev": mark})); err != nil {
				return err
			}
		}
		if tx.Bucket([]byte("lease")) != nil {
			if err := tx.DeleteBucket([]byte("lease")); err != nil {
				return err
			}
		}
		stored := map[string][]byte{}
		for _, l := range leases {
			v, err := proto.Marshal(&leasepb.Lease{ID: l.ID, TTL: l.TTL, RemainingTTL: l.RemainingTTL})
			if err != nil {
				return err
			}
			stored[string(binary.BigEndian.AppendUint64(nil, uint64(l.ID)))] = v
		}
		return putAll(tx, "lease", maps.All(stored))
	})
	return errors.Join(err, b.Close())
}

func putAll[K string | []byte](tx *bolt.Tx, bucket string, all iter.Seq2[K, []byte]) error {
	b, err := tx.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	for k, v := range all {
		if err := b.Put([]byte(k), v); err != nil {
			return err
		}
	}
	return nil
}

// boltOptions are for copies that nobody else has. The lock is ours unless a restore
// left it behind; then waiting is no use.
func boltOptions() *bolt.Options {
	return &bolt.Options{Timeout: 10 * time.Second, NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType}
}

// checkAuth decodes users and roles. The server reads them even when
// authentication is off, and panics when it cannot.
func checkAuth(ctx context.Context, src *dbfile.Source) error {
	for bucket, m := range map[string]proto.Message{"authUsers": &authpb.User{}, "authRoles": &authpb.Role{}} {
		err := src.Each(ctx, bucket, func(k, v []byte) error {
			if err := proto.Unmarshal(v, m); err != nil {
				return &dbfile.CorruptError{Path: src.Path(), Page: -1, Reason: fmt.Sprintf("%s %q does not decode", bucket, k)}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// restore makes a data folder around a copy. It replaces what the file knows of
// its cluster's members and leaves the records as they are.
func restore(db, data string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file was refused: %v", p)
		}
	}()
	return snapshot.NewV3(quiet()).Restore(snapshot.RestoreConfig{
		SnapshotPath:   db,
		Name:           memberName,
		OutputDataDir:  data,
		PeerURLs:       []string{peerURL},
		InitialCluster: memberName + "=" + peerURL,
		SkipHashCheck:  true, // Check has compared it; the copy has none
	})
}

// makeHarmless changes the private copy so that nothing in it acts by itself.
func makeHarmless(db string) error {
	b, err := bolt.Open(db, 0o600, boltOptions())
	if err != nil {
		return err
	}
	err = b.Update(func(tx *bolt.Tx) error {
		if err := liftLeases(tx.Bucket([]byte("lease"))); err != nil {
			return err
		}
		if auth := tx.Bucket([]byte("auth")); auth != nil {
			if err := auth.Put([]byte("authEnabled"), []byte{0}); err != nil {
				return err
			}
		}
		if tx.Bucket([]byte("alarm")) == nil {
			return nil
		}
		if err := tx.DeleteBucket([]byte("alarm")); err != nil {
			return err
		}
		_, err := tx.CreateBucket([]byte("alarm"))
		return err
	})
	return errors.Join(err, b.Close())
}

func liftLeases(b *bolt.Bucket) error {
	if b == nil {
		return nil
	}
	lifted := map[string][]byte{}
	err := b.ForEach(func(k, v []byte) error {
		var l leasepb.Lease
		if err := proto.Unmarshal(v, &l); err != nil {
			return fmt.Errorf("lease %x: %w", k, err)
		}
		// A noted rest would count instead of the time to live.
		l.TTL, l.RemainingTTL = frozenTTL, 0
		v, err := proto.Marshal(&l)
		lifted[string(k)] = v
		return err
	})
	if err != nil {
		return err
	}
	for k, v := range lifted {
		if err := b.Put([]byte(k), v); err != nil {
			return err
		}
	}
	return nil
}
