package dbfile

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Tags of mvccpb.KeyValue (etcd's api/mvccpb/kv.proto): field number and wire
// type in one byte, as every writer encodes them.
const (
	tagKey       = 1<<3 | 2
	tagCreateRev = 2 << 3 // a varint, wire type 0
	tagModRev    = 3 << 3
	tagVersion   = 4 << 3
	tagValue     = 5<<3 | 2
	tagLease     = 6 << 3
)

// decodeRecord decodes an mvccpb.KeyValue without copying: key and value point
// into b. Unknown fields are skipped, and of a field given twice the last counts,
// as protobuf wants it.
func decodeRecord(b []byte) (r keyspace.Record, ok bool) {
	for len(b) > 0 {
		tag := b[0]
		switch tag {
		case tagKey, tagValue:
			x, n := binary.Uvarint(b[1:])
			if n <= 0 || x > uint64(len(b)-1-n) {
				return keyspace.Record{}, false
			}
			end := 1 + n + int(x)
			field := b[1+n : end : end]
			if tag == tagKey {
				r.Key = field
			} else {
				r.Value = field
			}
			b = b[end:]
		case tagCreateRev, tagModRev, tagVersion, tagLease:
			x, n := binary.Uvarint(b[1:])
			if n <= 0 {
				return keyspace.Record{}, false
			}
			switch tag {
			case tagCreateRev:
				r.CreateRev = int64(x)
			case tagModRev:
				r.ModRev = int64(x)
			case tagVersion:
				r.Version = int64(x)
			case tagLease:
				r.Lease = int64(x)
			}
			b = b[1+n:]
		default:
			num, typ, n := protowire.ConsumeTag(b)
			if n < 0 {
				return keyspace.Record{}, false
			}
			if num > protowire.MaxValidNumber || num <= 6 && knownType(num) == typ {
				// No field at all, or one of those above behind a tag of more bytes than it
				// needs. Nothing that writes etcd files does that.
				return keyspace.Record{}, false
			}
			m := protowire.ConsumeFieldValue(num, typ, b[n:])
			if m < 0 {
				return keyspace.Record{}, false
			}
			b = b[n+m:]
		}
	}
	return r, true
}

func knownType(num protowire.Number) protowire.Type {
	if num == 1 || num == 5 {
		return protowire.BytesType
	}
	return protowire.VarintType
}

// keyOf returns the key of an encoded record; nil when it has none. It reads
// only the front of b, because it runs once for every record of a file.
func keyOf(b []byte) []byte {
	if len(b) < 2 || b[0] != tagKey {
		r, _ := decodeRecord(b)
		return r.Key
	}
	if n := int(b[1]); n < 0x80 {
		if n > len(b)-2 {
			return nil
		}
		return b[2 : 2+n : 2+n]
	}
	x, n := binary.Uvarint(b[1:])
	if n <= 0 || x > uint64(len(b)-1-n) {
		return nil
	}
	end := 1 + n + int(x)
	return b[1+n : end : end]
}
