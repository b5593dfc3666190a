package restore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
)

// Buckets of an etcd database (etcd's server/storage/schema).
const (
	bucketKey     = "key"
	bucketMeta    = "meta"
	bucketLease   = "lease"
	bucketMembers = "members"
	bucketRemoved = "members_removed"
	bucketCluster = "cluster"
)

// firstTerm is the raft term of a cluster's beginning.
const firstTerm = 1

// writeDatabase copies the snapshot's pages, or what is sound of a damaged one, and
// makes the copy part of the new cluster.
func (p *Plan) writeDatabase(ctx context.Context, db string) error {
	if p.Rebuilt {
		if err := p.rebuild(ctx, db); err != nil {
			return fmt.Errorf("make the database anew: %w", err)
		}
	} else {
		f, err := os.OpenFile(db, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(p.src.WritePages(ctx, f), f.Close()); err != nil {
			return err
		}
	}
	if err := p.edit(db); err != nil {
		return fmt.Errorf("change the database: %w", err)
	}
	return nil
}

// options open a database that nobody else has. What is written is synced at the end,
// once.
func (p *Plan) options() *bolt.Options {
	o := &bolt.Options{Timeout: 10 * time.Second, NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType}
	if n := p.o.InitialMmapSize; n <= math.MaxInt/2 {
		o.InitialMmapSize = int(n)
	}
	return o
}

// rebuild writes a new database of what can be read of a damaged one, and plans anew by
// what came of it. bbolt would not survive the damaged one itself.
func (p *Plan) rebuild(ctx context.Context, db string) (err error) {
	if err := p.salvage(ctx, db); err != nil {
		return err
	}
	src, err := dbfile.Open(ctx, db, dbfile.Options{})
	if err != nil {
		return err
	}
	return errors.Join(p.content(ctx, src), src.Close())
}

func (p *Plan) salvage(ctx context.Context, db string) (err error) {
	b, err := bolt.Open(db, 0o600, p.options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	tx, err := b.Begin(true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreClosed(tx.Rollback())) }()
	for _, name := range []string{bucketKey, bucketMeta} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	const batch = 20_000 // what one transaction holds in memory
	n := 0
	sum, err := p.src.Salvage(ctx, func(bucket string, key, value []byte) error {
		if n++; n%batch == 0 {
			if err := tx.Commit(); err != nil {
				return err
			}
			if tx, err = b.Begin(true); err != nil {
				return err
			}
		}
		to, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		to.FillPercent = 0.9 // keys come in order
		return to.Put(key, value)
	}, func(dbfile.Finding) {}) // Verify has told them
	if err != nil {
		return err
	}
	if sum.Records == 0 {
		return &FindingsError{Report: p.Verified} // an empty etcd is no restore
	}
	return tx.Commit()
}

func ignoreClosed(err error) error {
	if errors.Is(err, bolt.ErrTxClosed) { //nolint:staticcheck // the error that bbolt returns
		return nil
	}
	return err
}

// edit makes a copied database the one of a new cluster's member, in one transaction:
// members, raft's position, and what the plan says of keys, leases and revisions.
func (p *Plan) edit(db string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the file was refused: %v", r)
		}
	}()
	b, err := bolt.Open(db, 0o600, p.options())
	if err != nil {
		return err
	}
	return errors.Join(b.Update(p.editIn), b.Close())
}

func (p *Plan) editIn(tx *bolt.Tx) error {
	buckets := map[string]*bolt.Bucket{}
	for _, name := range []string{bucketKey, bucketMeta, bucketLease, bucketMembers, bucketRemoved, bucketCluster} {
		b, err := tx.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return err
		}
		buckets[name] = b
	}
	for _, name := range []string{bucketMembers, bucketRemoved} {
		if err := empty(buckets[name]); err != nil {
			return err
		}
	}
	for _, m := range p.cluster.Members() {
		v, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if err := buckets[bucketMembers].Put([]byte(m.ID.String()), v); err != nil {
			return err
		}
	}
	meta := buckets[bucketMeta]
	commit := uint64(len(p.cluster.MemberIDs()))
	if err := meta.Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, commit)); err != nil {
		return err
	}
	if err := meta.Put([]byte("term"), binary.BigEndian.AppendUint64(nil, firstTerm)); err != nil {
		return err
	}
	if err := p.grantLeases(buckets[bucketLease]); err != nil {
		return err
	}
	if err := p.dropKeys(buckets[bucketKey]); err != nil {
		return err
	}
	if p.Bump == 0 {
		return nil
	}
	// A revision without a record, which etcd takes for the newest one, and
	// a compaction up to it, which etcd finishes when it starts.
	if err := buckets[bucketKey].Put(revision(p.NewRev, 0), []byte{}); err != nil {
		return err
	}
	return meta.Put([]byte("scheduledCompactRev"), revision(p.NewRev, 0))
}

func empty(b *bolt.Bucket) error {
	var keys [][]byte
	err := b.ForEach(func(k, _ []byte) error {
		keys = append(keys, append([]byte{}, k...))
		return nil
	})
	for _, k := range keys {
		if err == nil {
			err = b.Delete(k)
		}
	}
	return err
}

func (p *Plan) grantLeases(b *bolt.Bucket) error {
	for _, id := range p.grant {
		v, err := proto.Marshal(&leasepb.Lease{ID: id, TTL: p.LeaseTTL})
		if err != nil {
			return err
		}
		if err := b.Put(binary.BigEndian.AppendUint64(nil, uint64(id)), v); err != nil {
			return err
		}
	}
	return nil
}

// dropKeys deletes keys as etcd does, all at one revision behind the newest.
func (p *Plan) dropKeys(b *bolt.Bucket) error {
	for i, key := range p.drop {
		v, err := proto.Marshal(&mvccpb.KeyValue{Key: key})
		if err != nil {
			return err
		}
		if err := b.Put(append(revision(p.Revision+1, int64(i)), 't'), v); err != nil {
			return err
		}
	}
	return nil
}

// revision encodes a key of bucket "key".
func revision(main, sub int64) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(main))
	return binary.BigEndian.AppendUint64(append(b, '_'), uint64(sub))
}

// writeLog makes the write-ahead log and the raft snapshot of a member whose cluster
// has just begun: one committed entry for each member, and a snapshot behind them.
func (p *Plan) writeLog(walDir, snapDir string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("make a write-ahead log: %v", r)
		}
	}()
	ids := p.cluster.MemberIDs()
	voters := make([]uint64, len(ids))
	entries := make([]*raftpb.Entry, len(ids))
	for i, id := range ids {
		voters[i] = uint64(id)
		member, err := json.Marshal(p.cluster.Member(id))
		if err != nil {
			return err
		}
		change, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(id)), Context: member})
		if err != nil {
			return err
		}
		entries[i] = &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Term: new(uint64(firstTerm)), Index: new(uint64(i + 1)), Data: change}
	}
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: new(uint64(p.self.ID)), ClusterID: new(uint64(p.cluster.ID()))})
	if err != nil {
		return err
	}
	w, err := wal.Create(quiet(), walDir, metadata)
	if err != nil {
		return fmt.Errorf("make a write-ahead log: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	commit := uint64(len(entries))
	err = w.Save(&raftpb.HardState{Term: new(uint64(firstTerm)), Vote: new(voters[0]), Commit: new(commit)}, entries)
	if err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	state := &raftpb.ConfState{Voters: voters}
	err = snap.New(quiet(), snapDir).SaveSnap(&raftpb.Snapshot{
		Data:     etcdserver.GetMembershipInfoInV2Format(quiet(), p.cluster),
		Metadata: &raftpb.SnapshotMetadata{Index: new(commit), Term: new(uint64(firstTerm)), ConfState: state},
	})
	if err != nil {
		return fmt.Errorf("write the raft snapshot: %w", err)
	}
	snaps, err := filepath.Glob(filepath.Join(snapDir, "*.snap"))
	if err != nil || len(snaps) != 1 {
		return fmt.Errorf("%d raft snapshots were written, %w", len(snaps), err)
	}
	if err := os.Chmod(snaps[0], 0o600); err != nil {
		return err
	}
	return w.SaveSnapshot(&walpb.Snapshot{Index: new(commit), Term: new(uint64(firstTerm)), ConfState: state})
}
