package watchtail

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// codec decodes the messages of one watch stream, each into the memory of the one before:
// a backlog comes as messages with a hundred thousand events, and decoding these one by one
// is most of a client's work.
type codec struct{ decoder }

var _ encoding.CodecV2 = (*codec)(nil)

// Name is that of the wire format.
func (*codec) Name() string { return "proto" }

// Marshal encodes a message as protobuf does.
func (*codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode %T: not a message", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal decodes a WatchResponse, which is valid until the next one.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*pb.WatchResponse)
	if !ok {
		return fmt.Errorf("decode %T: not a watch response", v)
	}
	return c.decode(c.copy(data), m)
}

// decoder keeps the memory of the last message.
type decoder struct {
	buf    []byte
	events []mvccpb.Event
	list   []*mvccpb.Event
	kvs    []mvccpb.KeyValue
}

// keptBytes is up to where memory is kept although the next message needs much less.
const keptBytes = 8 << 20

func (d *decoder) copy(data mem.BufferSlice) []byte {
	n := data.Len()
	if cap(d.buf) < n || cap(d.buf) > keptBytes && cap(d.buf)/4 > n {
		d.buf = make([]byte, n)
	}
	d.buf = d.buf[:n]
	data.CopyTo(d.buf)
	return d.buf
}

// The numbers of the fields, in rpc.proto and kv.proto of etcd's API. What an event lacks,
// such as a key's lease, has the zero value.
const (
	fieldEvents = 11

	fieldType   = 1
	fieldKV     = 2
	fieldPrevKV = 3

	fieldKey       = 1
	fieldCreateRev = 2
	fieldModRev    = 3
	fieldVersion   = 4
	fieldValue     = 5
	fieldLease     = 6
)

var errWire = errors.New("the message is no protobuf")

// decode decodes b into m, which then points into b and into d. Fields that this code does
// not know, also by their wire type, are left out in events, and are protobuf's in all else.
func (d *decoder) decode(b []byte, m *pb.WatchResponse) error {
	rest, events, kvs, err := count(b)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(rest, m); err != nil {
		return err
	}
	d.grow(events, kvs)
	for next, kv := 0, 0; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b) // count has been here
		b = b[n:]
		if num != fieldEvents || typ != protowire.BytesType {
			b = b[protowire.ConsumeFieldValue(num, typ, b):]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		b = b[n:]
		e := &d.events[next]
		next++
		if kv, err = d.event(v, e, kv); err != nil {
			return err
		}
	}
	if events > 0 {
		m.Events = d.list[:events]
	}
	return nil
}

// count returns how many events and records there are, and what of the message is no event.
func count(b []byte) (rest []byte, events, kvs int, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, 0, 0, errWire
		}
		l := protowire.ConsumeFieldValue(num, typ, b[n:])
		if l < 0 {
			return nil, 0, 0, errWire
		}
		if num != fieldEvents || typ != protowire.BytesType {
			rest = append(rest, b[:n+l]...)
			b = b[n+l:]
			continue
		}
		v, _ := protowire.ConsumeBytes(b[n:])
		b = b[n+l:]
		events++
		for len(v) > 0 {
			num, typ, n := protowire.ConsumeTag(v)
			if n < 0 {
				return nil, 0, 0, errWire
			}
			if (num == fieldKV || num == fieldPrevKV) && typ == protowire.BytesType {
				kvs++
			}
			l := protowire.ConsumeFieldValue(num, typ, v[n:])
			if l < 0 {
				return nil, 0, 0, errWire
			}
			v = v[n+l:]
		}
	}
	return rest, events, kvs, nil
}

// grow has room for a message.
func (d *decoder) grow(events, kvs int) {
	const eventBytes, kvBytes = 64, 128
	if cap(d.events) < events || cap(d.events)*eventBytes > keptBytes && cap(d.events)/4 > events {
		d.events, d.list = make([]mvccpb.Event, events), make([]*mvccpb.Event, events)
		for i := range d.events {
			d.list[i] = &d.events[i]
		}
	}
	if cap(d.kvs) < kvs || cap(d.kvs)*kvBytes > keptBytes && cap(d.kvs)/4 > kvs {
		d.kvs = make([]mvccpb.KeyValue, kvs)
	}
}

func (d *decoder) event(b []byte, e *mvccpb.Event, kv int) (int, error) {
	e.Type, e.Kv, e.PrevKv = mvccpb.Event_PUT, nil, nil
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		b = b[n:]
		switch {
		case num == fieldType && typ == protowire.VarintType:
			x, n := protowire.ConsumeVarint(b)
			e.Type, b = mvccpb.Event_EventType(x), b[n:] //nolint:gosec // an enum is 32 bits of it
		case (num == fieldKV || num == fieldPrevKV) && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			b = b[n:]
			to := &e.Kv
			if num == fieldPrevKV {
				to = &e.PrevKv
			}
			if *to == nil { // a second one is merged into the first, as protobuf does
				*to = &d.kvs[kv]
				kv++
				clearRecord(*to)
			}
			if err := record(v, *to); err != nil {
				return kv, err
			}
		default:
			b = b[protowire.ConsumeFieldValue(num, typ, b):]
		}
	}
	return kv, nil
}

func clearRecord(r *mvccpb.KeyValue) {
	r.Key, r.Value, r.CreateRevision, r.ModRevision, r.Version, r.Lease = nil, nil, 0, 0, 0, 0
}

func record(b []byte, r *mvccpb.KeyValue) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		switch {
		case (num == fieldKey || num == fieldValue) && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return errWire
			}
			b = b[n:]
			v = v[:len(v):len(v)]
			if num == fieldKey {
				r.Key = v
			} else {
				r.Value = v
			}
		case num <= fieldLease && typ == protowire.VarintType && num != fieldKey && num != fieldValue:
			x, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return errWire
			}
			b = b[n:]
			switch x := int64(x); num { //nolint:gosec // protobuf's int64
			case fieldCreateRev:
				r.CreateRevision = x
			case fieldModRev:
				r.ModRevision = x
			case fieldVersion:
				r.Version = x
			case fieldLease:
				r.Lease = x
			}
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return errWire
			}
			b = b[n:]
		}
	}
	return nil
}
