package dbfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/walfile"
)

// tail is what the write-ahead log adds to bucket "key": records behind the file's
// last one, in memory, in the form in which etcd would have stored them.
//
// A record has a place, as those in the file have. Places of the tail begin where
// no file ends, so that everything that works on places works on both.
type tail struct {
	items []tailItem
	bytes int64
}

type tailItem struct{ key, value []byte }

// tailBase is the place of the first record of a tail; it fits into placeBits.
const tailBase = 1 << 46

// add appends a record and returns its place.
func (t *tail) add(key, value []byte) uint64 {
	t.items = append(t.items, tailItem{key, value})
	t.bytes += int64(len(key)+len(value)) + tailItemBytes
	return tailBase + uint64(len(t.items)-1)
}

// tailItemBytes is what a record of a tail takes beside its bytes.
const tailItemBytes = 48

// at returns the record at a place; ok is false when there is none.
func (t *tail) at(place uint64) (key, value []byte, ok bool) {
	if t == nil || place < tailBase || place-tailBase >= uint64(len(t.items)) {
		return nil, nil, false
	}
	it := t.items[place-tailBase]
	return it.key, it.value, true
}

// from returns the number of the first record that is not before key.
func (t *tail) from(key []byte) int {
	if t == nil {
		return 0
	}
	return sort.Search(len(t.items), func(i int) bool { return bytes.Compare(t.items[i].key, key) >= 0 })
}

// recordCursor walks the records of the file, then those of the tail.
type recordCursor struct {
	file *cursor // nil: done
	tail *tail
	next int
}

// records returns a cursor from a revision key on; nil is the first one.
func (s *Source) records(from []byte) *recordCursor {
	return &recordCursor{file: s.pager.cursor(s.key, from, nil), tail: s.tail, next: s.tail.from(from)}
}

// step returns the next record, errEnd behind the last one.
func (c *recordCursor) step() (item, error) {
	if c.file != nil {
		it, err := c.file.next()
		if !errors.Is(err, errEnd) {
			return it, err
		}
		c.file = nil
	}
	if c.tail == nil || c.next >= len(c.tail.items) {
		return item{}, errEnd
	}
	it := c.tail.items[c.next]
	c.next++
	return item{offset: tailBase + uint64(c.next-1), key: it.key, value: it.value}, nil
}

// FromLog tells whether the source holds anything that only the write-ahead log has.
// WritePages and Buckets, Each, Members, AuthEnabled and Alarms are of the database
// alone; Tail, Leases and Info have the rest.
func (s *Source) FromLog() bool { return s.leases != nil }

// Tail yields what the write-ahead log adds to bucket "key", as etcd would have
// stored it. Keys and values are read-only.
func (s *Source) Tail() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if s.tail == nil {
			return
		}
		for _, it := range s.tail.items {
			if !yield(it.key, it.value) {
				return
			}
		}
	}
}

// appendRecord encodes a record as an mvccpb.KeyValue; see decodeRecord.
func appendRecord(b []byte, r keyspace.Record) []byte {
	bytesField := func(num protowire.Number, v []byte) {
		if len(v) > 0 {
			b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
		}
	}
	number := func(num protowire.Number, v int64) {
		if v != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(v))
		}
	}
	bytesField(1, r.Key)
	number(2, r.CreateRev)
	number(3, r.ModRev)
	number(4, r.Version)
	bytesField(5, r.Value)
	number(6, r.Lease)
	return b
}

// eachRecord calls fn with the place and the value of every record of the file
// alone, in revision order. Records without a key are left out.
func (s *Source) eachRecord(ctx context.Context, fn func(place uint64, tombstone bool, key, value []byte) error) error {
	return pipeline.Guard(func() error {
		c := s.pager.cursor(s.key, nil, nil)
		for n := 1; ; n++ {
			it, err := c.next()
			if errors.Is(err, errEnd) {
				return nil
			}
			if err == nil && n%8192 == 0 {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			rk, err := s.revisionOf(it)
			if err != nil {
				return err
			}
			key := keyOf(it.value)
			if len(key) == 0 {
				continue
			}
			if err := fn(it.offset, rk.tombstone, key, it.value); err != nil {
				return err
			}
		}
	})
}

// tailNote says what the log gave, in one line; empty when there is nothing to say.
type tailNote struct {
	revisions         int64 // that are in the log alone
	first, last       int64
	waiting           int    // entries that are not known to be committed
	index             uint64 // last raft index that was taken
	gapFrom, gapTo    uint64
	stopped           error // why the rest was not taken
	missing, mismatch error // why none was
	torn              *walfile.TornEnd
	ends              error // the log does not even reach what the database has
}

// lacks tells whether something is missing that somebody may have been promised: not
// what is only not known to be committed, and not the torn end that a crash leaves.
func (n tailNote) lacks() bool {
	return n.stopped != nil || n.mismatch != nil || n.ends != nil || n.gapTo > 0 || n.torn != nil && n.torn.More
}

func (n tailNote) String() string {
	var b bytes.Buffer
	say := func(format string, a ...any) {
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, format, a...)
	}
	switch {
	case n.missing != nil:
		say("the database alone was read, up to raft index %d, and the newest writes may be missing: %v", n.index, n.missing)
	case n.mismatch != nil:
		say("the database alone was read, up to raft index %d: the write-ahead log is not that of this database: %v", n.index, n.mismatch)
	case n.revisions == 1:
		say("revision %d is in the write-ahead log only, and was read from there", n.last)
	case n.revisions > 0:
		say("revisions %d to %d are in the write-ahead log only, and were read from there", n.first, n.last)
	}
	if n.gapTo > 0 {
		say("what was written between raft index %d and %d is neither in the database nor in the write-ahead log, so the log was not used", n.gapFrom, n.gapTo)
	}
	if n.stopped != nil {
		say("the write-ahead log was read up to raft index %d: %v", n.index, n.stopped)
	}
	if n.ends != nil {
		say("%v: it was cut, and the newest writes may be missing", n.ends)
	}
	switch {
	case n.torn != nil && n.torn.More:
		say("%s breaks off in a record at byte %d, and goes on behind it: writes are missing, unless the host crashed and nobody was told of them", n.torn.Path, n.torn.Offset)
	case n.torn != nil:
		say("%s ends in the middle of a record at byte %d, as after a crash of the host; if the file was cut, the newest writes are missing", n.torn.Path, n.torn.Offset)
	}
	if n.waiting > 0 {
		say("%s in the write-ahead log behind raft index %d not known to be committed, and not shown", plural(n.waiting, "request is", "requests are"), n.index)
	}
	return b.String()
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
