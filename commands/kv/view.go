package kv

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// recordView is a record in our own formats. Bytes that are no UTF-8 come as
// base64 in keyBase64 and valueBase64 instead; with --decode a value that
// decodes comes as object.
type recordView struct {
	Key         string          `json:"key,omitempty"`
	KeyBase64   []byte          `json:"keyBase64,omitempty"`
	CreateRev   int64           `json:"createRevision,omitempty"`
	ModRev      int64           `json:"modRevision"`
	Version     int64           `json:"version,omitempty"`
	Lease       string          `json:"lease,omitempty"` // hex
	Encoding    string          `json:"encoding,omitempty"`
	Encryption  string          `json:"encryption,omitempty"`
	Value       *string         `json:"value,omitempty"`
	ValueBase64 []byte          `json:"valueBase64,omitempty"`
	Object      json.RawMessage `json:"object,omitempty"`
	Problem     string          `json:"problem,omitempty"` // why the value was not decoded

	size int
}

func newRecordView(r keyspace.Record, keysOnly bool) recordView {
	v := recordView{CreateRev: r.CreateRev, ModRev: r.ModRev, Version: r.Version, Lease: cli.LeaseID(r.Lease), size: len(r.Value)}
	v.Key, v.KeyBase64 = textOrBytes(r.Key)
	if !keysOnly {
		v.setValue(r.Value)
	}
	return v
}

func (v *recordView) setValue(b []byte) {
	s, raw := textOrBytes(b)
	v.ValueBase64 = raw
	if raw == nil {
		v.Value = &s
	}
}

func textOrBytes(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

// cell is what a table shows of the value.
func (v recordView) cell() string {
	switch {
	case v.Object != nil:
		return string(v.Object)
	case v.Value != nil:
		return *v.Value
	case v.ValueBase64 != nil:
		return fmt.Sprintf("(%d bytes)", v.size)
	}
	return ""
}

func (v recordView) Table() output.Table {
	key := v.Key
	if v.KeyBase64 != nil {
		key = string(v.KeyBase64)
	}
	return output.Table{
		Columns: []output.Column{
			{Name: "KEY"}, {Name: "CREATE REV", Right: true, Keep: true, Wide: true}, {Name: "MOD REV", Right: true, Keep: true},
			{Name: "VERSION", Right: true, Keep: true}, {Name: "LEASE", Keep: true, Wide: true}, {Name: "ENCODING", Wide: true}, {Name: "VALUE"},
		},
		Rows: [][]string{{key, fmt.Sprint(v.CreateRev), fmt.Sprint(v.ModRev), fmt.Sprint(v.Version), v.Lease, v.Encoding, v.cell()}},
	}
}

// viewAnswer writes records in our own formats.
type viewAnswer struct {
	p        *output.Printer
	s        *output.Stream
	keysOnly bool
	count    bool
	single   bool // one key: the error says that it is not there
	decode   func(keyspace.Record, *recordView)
}

func (a *viewAnswer) begin(*pb.ResponseHeader) error {
	a.s = a.p.Stream(output.Envelope{})
	return nil
}

func (a *viewAnswer) record(r keyspace.Record) error {
	v := newRecordView(r, a.keysOnly)
	if a.decode != nil && !a.keysOnly {
		a.decode(r, &v)
	}
	return a.s.Write(v)
}

type countView struct {
	Count int64 `json:"count"`
}

func (v countView) Table() output.Table {
	return output.Table{Columns: []output.Column{{Name: "COUNT", Right: true}}, Rows: [][]string{{fmt.Sprint(v.Count)}}}
}

func (a *viewAnswer) end(_ bool, count int64) error {
	if a.count {
		return a.p.Print(countView{count})
	}
	if a.single {
		return a.s.Close("")
	}
	return a.s.Close("no key found")
}
