package reply

import (
	"encoding/hex"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// AppendRecord appends a record as etcdctl's simple format has it: the key and the
// value, a line each, as they are or escaped.
func AppendRecord(b, key, value []byte, hexed, valueOnly bool) []byte {
	if !valueOnly {
		b = append(appendBytes(b, key, hexed), '\n')
	}
	return append(appendBytes(b, value, hexed), '\n')
}

func appendBytes(b, s []byte, hexed bool) []byte {
	if !hexed {
		return append(b, s...)
	}
	for i := range s {
		b = append(b, `\x`...)
		b = hex.AppendEncode(b, s[i:i+1])
	}
	return b
}

// AppendHeader appends the header of an answer in the fields format.
func AppendHeader(b []byte, h *pb.ResponseHeader, hexed bool) []byte {
	b = AppendID(b, "ClusterID", h.GetClusterId(), hexed)
	b = AppendID(b, "MemberID", h.GetMemberId(), hexed)
	if h.GetRevision() > 0 {
		b = fmt.Appendf(b, "\"Revision\" : %d\n", h.GetRevision())
	}
	return fmt.Appendf(b, "\"RaftTerm\" : %d\n", h.GetRaftTerm())
}

// AppendID appends the id of a cluster or member in the fields format.
func AppendID(b []byte, name string, id uint64, hexed bool) []byte {
	verb := "%d"
	if hexed {
		verb = "%x"
	}
	return fmt.Appendf(b, "%q : "+verb+"\n", name, id)
}

// AppendLeaseID appends the id of a lease in the fields format.
func AppendLeaseID(b []byte, name string, id int64, hexed bool) []byte {
	if hexed {
		return fmt.Appendf(b, "%q : %016x\n", name, id)
	}
	return fmt.Appendf(b, "%q : %d\n", name, id)
}

// AppendFields appends a record in the fields format; prefix stands before each name.
func AppendFields(b []byte, prefix string, r keyspace.Record, hexed bool) []byte {
	b = fmt.Appendf(b, "\"%[1]sKey\" : %[2]q\n\"%[1]sCreateRevision\" : %[3]d\n\"%[1]sModRevision\" : %[4]d\n\"%[1]sVersion\" : %[5]d\n\"%[1]sValue\" : %[6]q\n",
		prefix, string(r.Key), r.CreateRev, r.ModRev, r.Version, string(r.Value))
	return AppendLeaseID(b, prefix+"Lease", r.Lease, hexed)
}

// Record is a record as etcd answered it.
func Record(kv *mvccpb.KeyValue) keyspace.Record {
	return keyspace.Record{Key: kv.GetKey(), Value: kv.GetValue(), CreateRev: kv.GetCreateRevision(), ModRev: kv.GetModRevision(), Version: kv.GetVersion(), Lease: kv.GetLease()}
}
