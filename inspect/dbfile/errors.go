package dbfile

import (
	"errors"
	"fmt"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// ErrClosed is returned by reads of a source that was closed.
var ErrClosed = errors.New("source is closed")

// ErrSealed is wrapped when a write-ahead log is to be read with a snapshot, which
// belongs to no member any more.
var ErrSealed = errors.New("a snapshot is complete in itself; a write-ahead log goes with a member's own database")

// CorruptError says where a file is damaged. It wraps keyspace.ErrCorrupt.
type CorruptError struct {
	Path string
	// Page is the page at fault, -1 when the damage is not about one page.
	Page int64
	// Rev is the record at fault; the zero Revision when none is.
	Rev    keyspace.Revision
	Reason string
}

func (e *CorruptError) Error() string {
	where := ""
	if e.Page >= 0 {
		where += fmt.Sprintf(", page %d", e.Page)
	}
	if e.Rev != (keyspace.Revision{}) {
		where += fmt.Sprintf(", revision %v", e.Rev)
	}
	return fmt.Sprintf("read %s%s: %s: %v", e.Path, where, e.Reason, keyspace.ErrCorrupt)
}

// Unwrap makes errors.Is(err, keyspace.ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return keyspace.ErrCorrupt }

// TruncatedError says that a file is shorter than its own bookkeeping. It wraps
// keyspace.ErrCorrupt.
type TruncatedError struct {
	Path       string
	Have, Want int64 // bytes
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("read %s: the file has %d bytes, its pages need %d: cut short: %v", e.Path, e.Have, e.Want, keyspace.ErrCorrupt)
}

// Unwrap makes errors.Is(err, keyspace.ErrCorrupt) true.
func (e *TruncatedError) Unwrap() error { return keyspace.ErrCorrupt }

// ChecksumError says that the bytes of a snapshot are not those that were saved.
// It wraps keyspace.ErrCorrupt.
type ChecksumError struct {
	Path      string
	Want, Got [32]byte // SHA-256: as stored behind the pages, and as computed
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("read %s: SHA-256 is %x, the trailer says %x: the file changed after it was saved: %v", e.Path, e.Got, e.Want, keyspace.ErrCorrupt)
}

// Unwrap makes errors.Is(err, keyspace.ErrCorrupt) true.
func (e *ChecksumError) Unwrap() error { return keyspace.ErrCorrupt }

// StrippedError says that a snapshot's checksum was cut off, so that nothing tells whether
// its records are those that were saved. It wraps keyspace.ErrCorrupt.
type StrippedError struct{ Path string }

func (e *StrippedError) Error() string {
	return fmt.Sprintf("read %s: it looks like a snapshot whose checksum, its last %d bytes, was cut off: %v", e.Path, trailerLen, keyspace.ErrCorrupt)
}

// Unwrap makes errors.Is(err, keyspace.ErrCorrupt) true.
func (e *StrippedError) Unwrap() error { return keyspace.ErrCorrupt }

// NotDatabaseError says that a path holds something else than an etcd database.
// It wraps keyspace.ErrNotDatabase.
type NotDatabaseError struct {
	Path string
	What string // what it looks like, such as "a gzip archive"
	Hint string // what to do about it; may be empty
}

func (e *NotDatabaseError) Error() string {
	return fmt.Sprintf("open %s: %s", e.Path, e.Reason())
}

// Reason is the message without the path.
func (e *NotDatabaseError) Reason() string {
	s := fmt.Sprintf("%v: it is %s", keyspace.ErrNotDatabase, e.What)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap makes errors.Is(err, keyspace.ErrNotDatabase) true.
func (e *NotDatabaseError) Unwrap() error { return keyspace.ErrNotDatabase }

// LockedError says that another process, as a rule a running etcd, has the file
// open for writing. Options.Copy reads it all the same. It wraps
// keyspace.ErrLocked.
type LockedError struct{ Path string }

func (e *LockedError) Error() string {
	return fmt.Sprintf("open %s: %v, probably a running etcd", e.Path, keyspace.ErrLocked)
}

// Unwrap makes errors.Is(err, keyspace.ErrLocked) true.
func (e *LockedError) Unwrap() error { return keyspace.ErrLocked }

// ChangedError says that another process wrote to the file while it was read,
// as an etcd does that starts on it; what was read until then was from before.
// It wraps keyspace.ErrLocked, since the file is now in use.
type ChangedError struct {
	Path string
	How  string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("read %s: the file changed while it was read (%s)", e.Path, e.How)
}

// Unwrap makes errors.Is(err, keyspace.ErrLocked) true.
func (e *ChangedError) Unwrap() error { return keyspace.ErrLocked }
