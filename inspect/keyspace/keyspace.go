// Package keyspace is the vocabulary of every other package: what a record, an
// event and a source of both are. It imports nothing of this module.
//
// A keyspace is etcd's: every write raises one cluster-wide revision, old
// versions of a key stay readable until a compaction, and a deletion is an
// event of its own (a tombstone).
package keyspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
)

// Record is one key as it stood at some revision.
//
// Key and Value are read-only: they may point into a mapped file or a shared
// buffer. They stay valid until the iteration that yielded them ends; of a
// file, until the source is closed.
type Record struct {
	Key, Value []byte
	CreateRev  int64 // revision of the key's last creation
	ModRev     int64 // revision of its last change
	Version    int64 // number of changes since its creation; 1 after it
	Lease      int64 // id of the attached lease; 0: none
}

// EventType tells a write from a deletion.
type EventType uint8

// The types of event.
const (
	Put    EventType = iota // a key was written
	Delete                  // a key was deleted
)

// String returns "PUT" or "DELETE", as etcd names them.
func (t EventType) String() string {
	if t == Delete {
		return "DELETE"
	}
	return "PUT"
}

// Revision is a point in the history: Main is the cluster-wide revision, Sub
// counts the changes inside one transaction from 0.
type Revision struct{ Main, Sub int64 }

// Less orders revisions as they happened.
func (r Revision) Less(o Revision) bool {
	return r.Main < o.Main || r.Main == o.Main && r.Sub < o.Sub
}

// String returns "main" or "main/sub" when sub is not 0.
func (r Revision) String() string {
	if r.Sub == 0 {
		return fmt.Sprint(r.Main)
	}
	return fmt.Sprintf("%d/%d", r.Main, r.Sub)
}

// Event is one change of one key. Of a deletion the Record holds only Key and
// ModRev. Prev is the record before the change; nil when there was none, when
// it was compacted away, or when EventRange.Prev was not set.
type Event struct {
	Type   EventType
	Rev    Revision
	Record Record
	Prev   *Record
}

// Range selects keys at one revision.
//
// Key alone selects that key. Key and End select [Key, End). End "\x00" means
// every key from Key on; Key "\x00" with End "\x00" is the whole keyspace.
// These are etcd's own rules; see Prefix, From and All.
type Range struct {
	Key, End []byte
	Rev      int64 // 0: the newest revision when the iteration starts
	Limit    int64 // 0: no limit
	KeysOnly bool  // leave Value nil (a live 3.7 server then leaves Lease 0 too)
}

// EventRange selects a stretch of history. Zero MinRev means from the oldest
// surviving revision, zero MaxRev until the newest. Both ends are included.
type EventRange struct {
	Key, End       []byte
	MinRev, MaxRev int64
	Prev           bool // fill Event.Prev where the record survives
	KeysOnly       bool
}

// Prefix selects all keys that start with p; the empty prefix is everything.
func Prefix(p []byte) Range {
	if len(p) == 0 {
		return All()
	}
	return Range{Key: p, End: PrefixEnd(p)}
}

// From selects all keys that are equal to or greater than key.
func From(key []byte) Range {
	if len(key) == 0 {
		return All()
	}
	return Range{Key: key, End: []byte{0}}
}

// All selects the whole keyspace.
func All() Range { return Range{Key: []byte{0}, End: []byte{0}} }

// One selects a single key.
func One(key []byte) Range { return Range{Key: key} }

// PrefixEnd returns the first key after every key that starts with p. For a
// prefix without an end (empty, or all bytes 0xff) it returns "\x00": no end.
func PrefixEnd(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] < 0xff {
			end := bytes.Clone(p[:i+1])
			end[i]++
			return end
		}
	}
	return []byte{0}
}

// Contains tells whether key lies in [start, end) by the rules of Range.
func Contains(start, end, key []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(start, key)
	case len(end) == 1 && end[0] == 0:
		return bytes.Compare(key, start) >= 0
	default:
		return bytes.Compare(key, start) >= 0 && bytes.Compare(key, end) < 0
	}
}

// Contains tells whether key is selected by r.
func (r Range) Contains(key []byte) bool { return Contains(r.Key, r.End, key) }

// Kind names the world a source reads.
type Kind string

// The worlds.
const (
	Live     Kind = "live"     // a running cluster
	Snapshot Kind = "snapshot" // a saved file with etcd's checksum trailer
	Member   Kind = "member"   // a member's own database file
)

// Info describes a source. Zero values mean "unknown".
type Info struct {
	Kind       Kind
	Location   string // endpoint or path, for people
	Revision   int64  // newest revision
	CompactRev int64  // oldest revisions up to here are gone, this one itself is still readable; 0: never compacted
	ClusterID  uint64
	MemberID   uint64
	Bytes      int64  // size of the database file
	BytesInUse int64  // thereof not in free pages
	Version    string // server version, or storage version of a file ("3.7.3", "3.7")
	// CompactScheduled is above CompactRev when a compaction was under way:
	// history up to it may be gone in parts.
	CompactScheduled int64
	// Note is one line an operator should know about this source, such as how
	// far a member's file can lag behind its write-ahead log.
	Note string
}

// OldestRev returns the oldest revision at which the keyspace can be read.
func (i Info) OldestRev() int64 { return max(i.CompactRev, i.CompactScheduled, 1) }

// Source is a keyspace one can read: a live cluster, a snapshot, a member's
// file, or a slice in a test.
type Source interface {
	Info(ctx context.Context) (Info, error)
	// Records yields live records in key order, all as of one revision
	// (Range.Rev; 0: the newest). An error ends the iteration; it is
	// a *CompactedError when Rev lies below the compact revision and
	// a *FutureError when it lies above the newest one.
	Records(ctx context.Context, r Range) iter.Seq2[Record, error]
	Close() error
}

// Counter is a Source that can count without reading, or reads less for it.
type Counter interface {
	// Count returns how many records Records would yield for r.
	Count(ctx context.Context, r Range) (int64, error)
}

// HistorySource also yields events. Callers learn by a type assertion whether
// a source has them.
type HistorySource interface {
	Source
	// Events yields every surviving event in revision order. It returns
	// a *CompactedError only when MinRev is set and not above the compact
	// revision; with MinRev 0 it starts at the oldest surviving event. Events
	// at or below the compact revision that survived the compaction (the newest
	// put of each key) are yielded only when MinRev is 0.
	Events(ctx context.Context, r EventRange) iter.Seq2[Event, error]
}

// Sentinels for errors.Is; the errors themselves carry the revisions.
var (
	ErrCompacted = errors.New("revision has been compacted")
	ErrFutureRev = errors.New("revision is in the future")
	// ErrCorrupt is wrapped by every error that means "this file is damaged".
	ErrCorrupt = errors.New("database is damaged")
	// ErrNotDatabase is wrapped when a file is no etcd database at all.
	ErrNotDatabase = errors.New("not an etcd database")
	// ErrLocked is wrapped when another process holds the file.
	ErrLocked = errors.New("database is in use by another process")
)

// CompactedError says that Rev is no longer readable.
type CompactedError struct{ Rev, CompactRev int64 }

func (e *CompactedError) Error() string {
	return fmt.Sprintf("revision %d has been compacted; the oldest readable revision is %d", e.Rev, e.CompactRev)
}

// Is makes errors.Is(err, ErrCompacted) true.
func (e *CompactedError) Is(target error) bool { return target == ErrCompacted }

// FutureError says that Rev does not exist yet.
type FutureError struct{ Rev, Newest int64 }

func (e *FutureError) Error() string {
	return fmt.Sprintf("revision %d does not exist yet; the newest revision is %d", e.Rev, e.Newest)
}

// Is makes errors.Is(err, ErrFutureRev) true.
func (e *FutureError) Is(target error) bool { return target == ErrFutureRev }
