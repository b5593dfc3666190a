package dbfile

import (
	"encoding/binary"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// The keys of bucket "key" are revisions: eight bytes main and eight bytes sub,
// both big-endian, with '_' between; a tombstone has a 't' behind (etcd's
// server/storage/mvcc).
const (
	revisionLen  = 17
	tombstoneLen = 18
)

// parseRevision decodes a key of bucket "key". reason is empty on success.
func parseRevision(k []byte) (rev keyspace.Revision, tombstone bool, reason string) {
	switch len(k) {
	case revisionLen:
	case tombstoneLen:
		if k[17] != 't' {
			return rev, false, "a revision ends in an unknown mark"
		}
		tombstone = true
	default:
		return rev, false, "a key of bucket \"key\" has the wrong length for a revision"
	}
	if k[8] != '_' {
		return rev, false, "a revision has no separator"
	}
	rev.Main = int64(binary.BigEndian.Uint64(k))
	rev.Sub = int64(binary.BigEndian.Uint64(k[9:]))
	if rev.Main < 0 || rev.Sub < 0 {
		return keyspace.Revision{}, false, "a revision is negative"
	}
	return rev, tombstone, ""
}

// appendRevision encodes rev as a bucket key without a tombstone's mark.
func appendRevision(b []byte, rev keyspace.Revision) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(rev.Main))
	b = append(b, '_')
	return binary.BigEndian.AppendUint64(b, uint64(rev.Sub))
}
