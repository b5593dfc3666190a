// Package segment is the file format of a stretch of the revision stream: all changes of the
// whole keyspace from one revision to another, as they came, and what they do not say: when
// each revision came, and for how long each lease was granted.
//
// Together with a snapshot that ends at or behind the revision before its first one, segments
// give the state at every revision that they hold.
//
// # Format
//
// A segment is a zstd frame and the SHA-256 (32 bytes) of that frame. In the frame is the line
// "etcdctl-plus segment v1" and then records, each of a byte that says of what kind it is, the
// length of the rest as a varint, and a protobuf message:
//
//	'H' head      1 first revision · 2 cluster id (fixed64) · 3 the time when it was begun
//	'L' lease     1 id · 2 granted time to live in seconds; before the first change that names it
//	'R' revision  1 revision · 2 the time when it came · 3 changes, in the order of their
//	              sub-revisions: 1 type (0 put, 1 delete) · 2 key · 3 value · 4 create revision
//	              5 version · 6 lease
//	'E' end       1 last revision · 2 number of revisions · 3 number of changes
//	              4 raft log ahead of the revision, at least (zigzag) · 5 digest of the changes of
//	              the last revision (fixed64)
//
// Times are nanoseconds since 1970. Numbers without a type are varints; what is zero may be
// left out. Revisions follow one another without a gap: each revision of a keyspace has at
// least one change. Nothing stands behind the end. A file without its end, or with anything
// that does not fit, is damaged.
//
// Where it is encrypted, an age file (age-encryption.org/v1) holds all of that.
package segment

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

const magic = "etcdctl-plus segment v1\n"

// Kinds of records.
const (
	kindHead     = 'H'
	kindLease    = 'L'
	kindRevision = 'R'
	kindEnd      = 'E'
)

// maxRecord bounds one record, in bytes: a revision is one request, which a server takes up
// to what its configuration says.
const maxRecord = 1 << 30

// Info is what a segment says of itself.
type Info struct {
	First, Last int64
	Cluster     uint64
	Begun       time.Time
	Revisions   int64
	Changes     int64
	// Ahead and Digest are of the history at Last, by which it is known again.
	Ahead  int64
	Digest uint64
}

// Revision is one revision of a segment. Its bytes are valid until the next one.
type Revision struct {
	Rev    int64
	Time   time.Time
	Events []keyspace.Event
	// Leases are those that come for the first time, with their granted time to live in
	// seconds.
	Leases map[int64]int64
}

// ErrDamaged is wrapped by everything that is wrong with a segment's bytes.
var ErrDamaged = fmt.Errorf("segment is damaged: %w", keyspace.ErrCorrupt)

func damaged(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, a...)...)
}

// ErrGap says that a revision does not follow the one before.
var ErrGap = errors.New("revisions are missing")
