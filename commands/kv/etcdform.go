package kv

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// answer receives the result of a get record by record, so that a large one is
// never held in memory.
type answer interface {
	begin(h *pb.ResponseHeader) error
	record(r keyspace.Record) error
	end(more bool, count int64) error
}

// newAnswer writes etcd's own forms byte for byte as etcdctl does.
func newAnswer(p *reply.Printer, o getOptions) answer {
	switch p.Format {
	case output.Simple:
		if o.raw {
			return rawAnswer{p.Out}
		}
	case output.Fields:
		return &fieldsAnswer{w: p.Out, hexed: p.Hex}
	case output.JSON:
		return &jsonAnswer{p: p}
	case output.Protobuf:
		return &protoAnswer{w: p.Out}
	}
	return &simpleAnswer{w: p.Out, hexed: p.Hex, valueOnly: o.valueOnly, countOnly: o.countOnly}
}

// rawAnswer writes a value and nothing else.
type rawAnswer struct{ w io.Writer }

func (a rawAnswer) begin(*pb.ResponseHeader) error { return nil }

func (a rawAnswer) record(r keyspace.Record) error {
	_, err := a.w.Write(r.Value)
	return err
}

func (a rawAnswer) end(bool, int64) error { return nil }

type simpleAnswer struct {
	w                           io.Writer
	hexed, valueOnly, countOnly bool
	buf                         []byte
}

func (a *simpleAnswer) begin(*pb.ResponseHeader) error { return nil }

func (a *simpleAnswer) record(r keyspace.Record) error {
	a.buf = reply.AppendRecord(a.buf[:0], r.Key, r.Value, a.hexed, a.valueOnly)
	_, err := a.w.Write(a.buf)
	return err
}

func (a *simpleAnswer) end(_ bool, count int64) error {
	if !a.countOnly {
		return nil
	}
	_, err := fmt.Fprintln(a.w, count)
	return err
}

type fieldsAnswer struct {
	w     io.Writer
	hexed bool
	buf   []byte
}

func (a *fieldsAnswer) begin(h *pb.ResponseHeader) error {
	_, err := a.w.Write(reply.AppendHeader(nil, h, a.hexed))
	return err
}

func (a *fieldsAnswer) record(r keyspace.Record) error {
	a.buf = reply.AppendFields(a.buf[:0], "", r, a.hexed)
	_, err := a.w.Write(a.buf)
	return err
}

func (a *fieldsAnswer) end(more bool, count int64) error {
	_, err := fmt.Fprintf(a.w, "\"More\" : %t\n\"Count\" : %d\n", more, count)
	return err
}

type jsonAnswer struct {
	p   *reply.Printer
	n   int
	buf []byte
}

func (a *jsonAnswer) begin(h *pb.ResponseHeader) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.p.Out, `{"header":%s`, a.p.IDs(b, false))
	return err
}

func (a *jsonAnswer) record(r keyspace.Record) error {
	b := a.buf[:0]
	if a.n == 0 {
		b = append(b, `,"kvs":[`...)
	} else {
		b = append(b, ',')
	}
	a.n++
	a.buf = appendKV(b, r)
	if r.Lease != 0 {
		a.buf = a.p.IDs(a.buf, false)
	}
	_, err := a.p.Out.Write(a.buf)
	return err
}

func (a *jsonAnswer) end(more bool, count int64) error {
	tail := ""
	if a.n > 0 {
		tail = "]"
	}
	if more {
		tail += `,"more":true`
	}
	if count > 0 {
		tail += `,"count":` + strconv.FormatInt(count, 10)
	}
	_, err := io.WriteString(a.p.Out, tail+"}\n")
	return err
}

// appendKV writes a record as encoding/json writes an mvccpb.KeyValue.
func appendKV(b []byte, r keyspace.Record) []byte {
	b = append(b, '{')
	sep := func(name string) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":`...)
	}
	text := func(name string, v []byte) {
		if len(v) > 0 {
			sep(name)
			b = append(base64.StdEncoding.AppendEncode(append(b, '"'), v), '"')
		}
	}
	num := func(name string, v int64) {
		if v != 0 {
			sep(name)
			b = strconv.AppendInt(b, v, 10)
		}
	}
	text("key", r.Key)
	num("create_revision", r.CreateRev)
	num("mod_revision", r.ModRev)
	num("version", r.Version)
	text("value", r.Value)
	num("lease", r.Lease)
	return append(b, '}')
}

// protoAnswer writes a RangeResponse piece by piece: a protobuf message may be
// cut between its fields, and the pieces joined are the message.
type protoAnswer struct{ w io.Writer }

func (a *protoAnswer) piece(m *pb.RangeResponse) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = a.w.Write(b)
	return err
}

func (a *protoAnswer) begin(h *pb.ResponseHeader) error { return a.piece(&pb.RangeResponse{Header: h}) }

func (a *protoAnswer) record(r keyspace.Record) error {
	return a.piece(&pb.RangeResponse{Kvs: []*mvccpb.KeyValue{toKV(r)}})
}

func (a *protoAnswer) end(more bool, count int64) error {
	return a.piece(&pb.RangeResponse{More: more, Count: count})
}

func toKV(r keyspace.Record) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: r.Key, Value: r.Value, CreateRevision: r.CreateRev, ModRevision: r.ModRev, Version: r.Version, Lease: r.Lease}
}
