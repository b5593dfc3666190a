package dbfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"

	bolt "go.etcd.io/bbolt"
)

// What protobuf decodes is decoded to the same, and what etcd writes is never
// refused.
func FuzzRecord(f *testing.F) {
	for _, kv := range []*mvccpb.KeyValue{
		{},
		{Key: []byte("k")},
		{Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 300), CreateRevision: 1, ModRevision: 1 << 40, Version: 3, Lease: -5},
	} {
		b, err := proto.Marshal(kv)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, 0x3a, 1, 'x'))       // a field of a later version
		f.Add(append(b, 0x08, 1))            // field 1 as a number
		f.Add(append(b, 0x8a, 0x00, 1, 'y')) // field 1 behind a longer tag
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := decodeRecord(b)
		var kv mvccpb.KeyValue
		err := proto.Unmarshal(b, &kv)
		if ok && err != nil {
			t.Fatalf("decoded %+v, protobuf says %v", r, err)
		}
		if !ok {
			if err != nil {
				return
			}
			// Refused, and rightly so unless a writer would write it like that.
			if again, err := proto.Marshal(&kv); err == nil && bytes.Equal(again, b) {
				t.Fatalf("refused %x, which is %v", b, &kv)
			}
			return
		}
		if !bytes.Equal(r.Key, kv.Key) || !bytes.Equal(r.Value, kv.Value) || r.CreateRev != kv.CreateRevision || r.ModRev != kv.ModRevision || r.Version != kv.Version || r.Lease != kv.Lease {
			t.Fatalf("decoded %+v, protobuf has %v", r, &kv)
		}
		keyOf(b)
	})
}

func FuzzRevision(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendRevision(nil, keyspace.Revision{Main: 5, Sub: 7}))
	f.Add(append(appendRevision(nil, keyspace.Revision{Main: 1 << 62}), 't'))
	f.Add(append(appendRevision(nil, keyspace.Revision{Main: 1}), 'x'))
	f.Fuzz(func(t *testing.T, b []byte) {
		rev, tombstone, reason := parseRevision(b)
		if reason != "" {
			if rev != (keyspace.Revision{}) && len(b) < revisionLen {
				t.Fatalf("a revision %v and a reason %q", rev, reason)
			}
			return
		}
		again := appendRevision(nil, rev)
		if tombstone {
			again = append(again, 't')
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

// fuzzPages fuzzes the bytes of a small file, which do is given the path of.
func fuzzPages(f *testing.F, do func(t *testing.T, path string, b []byte)) {
	f.Helper()
	seed := filepath.Join(f.TempDir(), "seed.db")
	db, err := bolt.Open(seed, 0o600, &bolt.Options{PageSize: 1024, NoFreelistSync: true})
	if err != nil {
		f.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error {
		key, err := tx.CreateBucket([]byte(bucketKey))
		if err != nil {
			return err
		}
		if _, err := tx.CreateBucket([]byte(bucketMeta)); err != nil {
			return err
		}
		for rev := int64(2); rev < 60; rev++ {
			v, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte{'k', byte(rev)}, Value: make([]byte, 50), CreateRevision: rev, ModRevision: rev, Version: 1})
			if err != nil {
				return err
			}
			if err := key.Put(appendRevision(nil, keyspace.Revision{Main: rev}), v); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		f.Fatal(err)
	}
	if err := db.Close(); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:3000])
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := os.CreateTemp(dir, "*.db")
		if err != nil {
			t.Fatal(err)
		}
		path := file.Name()
		defer os.Remove(path)
		file.Close()
		// The checksums of the meta pages are made right, or nothing behind them is
		// ever reached.
		fixMeta(b, 0)
		fixMeta(b, 1024)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		do(t, path, b)
	})
}

// Any bytes as a file: an error or an end, in time and memory that the file's size
// bounds.
func FuzzPages(f *testing.F) {
	fuzzPages(f, func(t *testing.T, path string, b []byte) {
		s, err := Open(t.Context(), path, Options{IgnoreChecksum: true})
		if err != nil {
			return
		}
		defer s.Close()
		n := 0
		for _, err := range s.Records(t.Context(), keyspace.All()) {
			if err == nil {
				n++
			}
		}
		for _, err := range s.Events(t.Context(), keyspace.EventRange{Key: []byte{0}, End: []byte{0}, Prev: true}) {
			if err == nil {
				n++
			}
		}
		_ = s.Check(t.Context())
		if n > len(b) {
			t.Fatalf("%d records and events from %d bytes", n, len(b))
		}
	})
}

// Whatever is wrong with a file: what is salvaged of it is no more than it has, and what
// is examined ends.
func FuzzSalvage(f *testing.F) {
	fuzzPages(f, func(t *testing.T, path string, b []byte) {
		s, err := Open(t.Context(), path, Options{Damaged: true})
		if err != nil {
			return
		}
		defer s.Close()
		bytes := 0
		sum, err := s.Salvage(t.Context(), func(_ string, k, v []byte) error { bytes += len(k) + len(v); return nil }, func(f Finding) { _ = f.String() })
		if err != nil {
			t.Fatal(err)
		}
		if bytes > len(b) || sum.Records > int64(len(b)) {
			t.Fatalf("%d bytes and %+v from %d bytes", bytes, sum, len(b))
		}
		_, _ = s.HashKV(t.Context(), 0)
	})
}

func fixMeta(b []byte, at int) {
	if len(b) < at+pageHeaderLen+metaLen {
		return
	}
	m := b[at+pageHeaderLen:]
	le.PutUint64(m[metaLen-8:], metaSum(m))
}
