package dbfile

import (
	"bytes"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	bolt "go.etcd.io/bbolt"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// FuzzRequest takes two entries of a log on top of a small file. Whatever they hold,
// revisions rise by one at a time, what is made of them decodes, and what was refused
// has left nothing behind.
func FuzzRequest(f *testing.F) {
	path := filepath.Join(f.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		f.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucket([]byte(bucketMeta)); err != nil {
			return err
		}
		b, err := tx.CreateBucket([]byte(bucketKey))
		if err != nil {
			return err
		}
		for i, key := range []string{"a", "b", "c"} {
			rev := keyspace.Revision{Main: int64(i) + 2}
			rec := keyspace.Record{Key: []byte(key), Value: []byte("v"), CreateRev: rev.Main, ModRev: rev.Main, Version: 1, Lease: 7}
			if err := b.Put(appendRevision(nil, rev), appendRecord(nil, rec)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	if err := db.Close(); err != nil {
		f.Fatal(err)
	}
	op := func(p *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	}
	var seeds [][]byte
	for _, r := range []*pb.InternalRaftRequest{
		{ID: 1, Put: &pb.PutRequest{Key: []byte("a"), Value: []byte("2")}},
		{Put: &pb.PutRequest{Key: []byte("b"), IgnoreValue: true, IgnoreLease: true}},
		{DeleteRange: &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}},
		{Compaction: &pb.CompactionRequest{Revision: 3}},
		{LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 5}},
		{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 7}},
		{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}},
		{Header: &pb.RequestHeader{Username: "u"}, Txn: &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("a"), RangeEnd: []byte{0}, Target: pb.Compare_MOD, Result: pb.Compare_LESS, TargetUnion: &pb.Compare_ModRevision{ModRevision: 9}}},
			Success: []*pb.RequestOp{op(&pb.PutRequest{Key: []byte("x")}), op(&pb.PutRequest{Key: []byte("y"), Lease: 7})},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{op(&pb.PutRequest{Key: []byte("z")})}}}}},
		}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, b)
	}
	for i, s := range seeds {
		f.Add(s, seeds[(i+1)%len(seeds)])
		f.Add(seeds[4], s)
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		s, err := Open(t.Context(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var requests []*pb.InternalRaftRequest
		for _, b := range [][]byte{one, two} {
			r, err := decodeRequest(b)
			if err == nil && r != nil {
				requests = append(requests, r)
			}
		}
		s.tail = &tail{}
		a, err := newApplier(t.Context(), s, requests)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			rev, n := a.rev, len(s.tail.items)
			err := a.apply(r)
			made := s.tail.items[n:]
			if err != nil && len(made) > 0 || a.rev != rev && len(made) == 0 || a.rev > rev+1 || a.rev == rev && len(made) > 0 {
				t.Fatalf("from revision %d to %d with %d records, %v", rev, a.rev, len(made), err)
			}
		}
		s.newest = a.rev
		var last []byte
		for _, it := range s.tail.items {
			rev, tombstone, reason := parseRevision(it.key)
			if reason != "" || bytes.Compare(last, it.key) >= 0 {
				t.Fatalf("%x behind %x: %s", it.key, last, reason)
			}
			last = it.key
			// A key may be empty in a log that nobody checked; etcd has none.
			if rec, ok := decodeRecord(it.value); !ok || !tombstone && (rec.ModRev != rev.Main || rec.Version < 1) {
				t.Fatalf("record %v does not decode: %+v", rev, rec)
			}
		}
	})
}
