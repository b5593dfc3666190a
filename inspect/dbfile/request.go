package dbfile

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// v2Methods are the verbs of etcd's first API. Up to 3.5 a member's name and
// addresses were written through it; none of that is in the keyspace.
var v2Methods = map[string]bool{"PUT": true, "POST": true, "DELETE": true, "GET": true, "QGET": true, "HEAD": true, "SYNC": true}

// decodeRequest decodes the data of a raft entry. It returns nil for what never
// touches the keyspace, and an error for what it does not understand: to go on
// behind that would be a guess.
func decodeRequest(data []byte) (*pb.InternalRaftRequest, error) {
	for b := data; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, errors.New("it does not decode")
		}
		// The first API's requests stand here bare, or wrapped as field 2.
		if num == 2 && typ == protowire.BytesType {
			v, m := protowire.ConsumeBytes(b[n:])
			if m < 0 {
				return nil, errors.New("it does not decode")
			}
			if v2Methods[string(v)] || wrapsV2(v) {
				return nil, nil
			}
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return nil, errors.New("it does not decode")
		}
		b = b[n:]
	}
	r := &pb.InternalRaftRequest{}
	if err := proto.Unmarshal(data, r); err != nil {
		return nil, errors.New("it does not decode")
	}
	if f := firstUnknown(r.ProtoReflect()); f != "" {
		return nil, fmt.Errorf("it has %s that this program does not know; it is of a newer etcd", f)
	}
	return r, nil
}

// wrapsV2 tells whether a message is a request of the first API: an id, then
// a verb.
func wrapsV2(b []byte) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		if num == 2 && typ == protowire.BytesType {
			v, m := protowire.ConsumeBytes(b[n:])
			return m >= 0 && v2Methods[string(v)]
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return false
		}
		b = b[n+m:]
	}
	return false
}

// firstUnknown names a field somewhere in m that the schema lacks; empty: none.
func firstUnknown(m protoreflect.Message) string {
	if u := m.GetUnknown(); len(u) > 0 {
		num, _, n := protowire.ConsumeTag(u)
		if n < 0 {
			num = 0
		}
		return fmt.Sprintf("a field %d of %s", num, m.Descriptor().Name())
	}
	found := ""
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Message() == nil || fd.IsMap() {
			return true
		}
		if !fd.IsList() {
			found = firstUnknown(v.Message())
			return found == ""
		}
		for i := 0; i < v.List().Len() && found == ""; i++ {
			found = firstUnknown(v.List().Get(i).Message())
		}
		return found == ""
	})
	return found
}

// touches calls fn with every key or range whose state a request depends on.
func touches(r *pb.InternalRaftRequest, fn func(key, end []byte)) {
	if p := r.GetPut(); p != nil {
		fn(p.Key, nil)
	}
	if d := r.GetDeleteRange(); d != nil {
		fn(d.Key, d.RangeEnd)
	}
	if t := r.GetTxn(); t != nil {
		txnTouches(t, fn)
	}
}

func txnTouches(t *pb.TxnRequest, fn func(key, end []byte)) {
	for _, c := range t.Compare {
		fn(c.Key, c.RangeEnd)
	}
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			switch {
			case op.GetRequestPut() != nil:
				fn(op.GetRequestPut().Key, nil)
			case op.GetRequestDeleteRange() != nil:
				fn(op.GetRequestDeleteRange().Key, op.GetRequestDeleteRange().RangeEnd)
			case op.GetRequestTxn() != nil:
				txnTouches(op.GetRequestTxn(), fn)
			}
		}
	}
}

// puts calls fn with every put of a request, also those on branches not taken.
func puts(r *pb.InternalRaftRequest, fn func(*pb.PutRequest)) {
	if p := r.GetPut(); p != nil {
		fn(p)
	}
	if t := r.GetTxn(); t != nil {
		txnPuts(t, fn)
	}
}

func txnPuts(t *pb.TxnRequest, fn func(*pb.PutRequest)) {
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			if p := op.GetRequestPut(); p != nil {
				fn(p)
			}
			if n := op.GetRequestTxn(); n != nil {
				txnPuts(n, fn)
			}
		}
	}
}
