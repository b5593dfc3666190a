package lock

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// keyAnswer is the key of a holder or leader, as etcdctl prints a get.
func keyAnswer(p *reply.Printer, r *clientv3.GetResponse) reply.Answer {
	return reply.Answer{
		Header: r.Header, Message: (*pb.RangeResponse)(r), View: newKeyView(r),
		Simple: func(b []byte) []byte {
			for _, kv := range r.Kvs {
				b = reply.AppendRecord(b, kv.GetKey(), kv.GetValue(), p.Hex, false)
			}
			return b
		},
		Fields: func(b []byte) []byte {
			for _, kv := range r.Kvs {
				b = reply.AppendFields(b, "", reply.Record(kv), p.Hex)
			}
			return fmt.Appendf(b, "\"More\" : %t\n\"Count\" : %d\n", r.More, r.Count)
		},
	}
}

// keyView is the key of a holder or leader in our own formats. Bytes that are no UTF-8 come
// as base64.
type keyView struct {
	Key         string `json:"key,omitempty"`
	KeyBase64   []byte `json:"keyBase64,omitempty"`
	Value       string `json:"value,omitempty"`
	ValueBase64 []byte `json:"valueBase64,omitempty"`
	CreateRev   int64  `json:"createRevision"` // the fencing number
	ModRev      int64  `json:"modRevision"`
	Lease       string `json:"lease,omitempty"` // hex
}

func newKeyView(r *clientv3.GetResponse) keyView {
	if len(r.Kvs) == 0 {
		return keyView{}
	}
	kv := r.Kvs[0]
	v := keyView{CreateRev: kv.GetCreateRevision(), ModRev: kv.GetModRevision(), Lease: cli.LeaseID(kv.GetLease())}
	v.Key, v.KeyBase64 = textOrBytes(kv.GetKey())
	v.Value, v.ValueBase64 = textOrBytes(kv.GetValue())
	return v
}

func textOrBytes(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

// Table has the key, whatever its bytes; the value of a lock is for `lock ls`.
func (v keyView) Table() output.Table {
	return output.Table{
		Columns: []output.Column{{Name: "KEY", Keep: true}, {Name: "FENCE", Right: true, Keep: true}, {Name: "LEASE", Keep: true, Wide: true}, {Name: "VALUE"}},
		Rows:    [][]string{{v.Key + string(v.KeyBase64), fmt.Sprint(v.CreateRev), v.Lease, v.Value + string(v.ValueBase64)}},
	}
}

// readMark returns what lock wrote into its key; false: something else did.
func readMark(value []byte) (mark, bool) {
	var m mark
	return m, json.Unmarshal(value, &m) == nil && m.PID != 0 && !m.Since.IsZero()
}
