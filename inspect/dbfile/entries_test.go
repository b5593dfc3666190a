package dbfile_test

import (
	"errors"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Case 15: an entry of bucket "key" that is no revision, and a bucket that is not
// there, are errors that name the place.
func TestShortRevisionsAndMissingBuckets(t *testing.T) {
	t.Parallel()
	record := func(rev int64) keyspace.Event {
		return keyspace.Event{Rev: keyspace.Revision{Main: rev}, Record: keyspace.Record{Key: []byte("k"), Value: []byte("v"), CreateRev: rev, ModRev: rev, Version: 1}}
	}
	for name, key := range map[string]string{
		"first":        "\x00",
		"in between":   "\x00\x00\x00\x00\x00\x00\x00\x02",
		"last":         "\xff\xff",
		"16 bytes":     string(revKey(keyspace.Revision{Main: 3}))[:16],
		"19 bytes":     string(revKey(keyspace.Revision{Main: 3})) + "tt",
		"no separator": strings.Repeat("\x00", 17),
	} {
		t.Run(name, func(t *testing.T) {
			b := build(t, 4096)
			b.events([]keyspace.Event{record(2), record(4)})
			b.put("key", key, []byte("x"))
			path := b.done()
			s, err := dbfile.Open(t.Context(), path, dbfile.Options{})
			if err == nil {
				defer s.Close()
				if checked := s.Check(t.Context()); !errors.Is(checked, keyspace.ErrCorrupt) {
					t.Errorf("Check: %v", checked)
				}
				for _, err = range s.Records(t.Context(), keyspace.All()) {
					if err == nil {
						t.Error("a record of a damaged file")
					}
				}
			}
			var damage *dbfile.CorruptError
			if !errors.As(err, &damage) || damage.Page < 2 || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "revision") {
				t.Errorf("%v", err)
			}
		})
	}
	for _, bucket := range []string{"key", "meta"} {
		t.Run("no "+bucket, func(t *testing.T) {
			b := build(t, 4096)
			b.events([]keyspace.Event{record(2)})
			b.update(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucket)) })
			path := b.done()
			_, err := dbfile.Open(t.Context(), path, dbfile.Options{})
			var damage *dbfile.CorruptError
			if !errors.As(err, &damage) || damage.Page < 2 || !strings.Contains(err.Error(), `"`+bucket+`" is missing`) {
				t.Errorf("%v", err)
			}
		})
	}
}
