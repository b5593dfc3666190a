package watchtail

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// equalToProto compares with protobuf's own decoding. Where a message is damaged both
// refuse it, but ours may not see what is wrong with a field that it does not know.
func equalToProto(tb testing.TB, d *decoder, b []byte) {
	tb.Helper()
	var want, got pb.WatchResponse
	werr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, &want)
	gerr := d.decode(b, &got)
	if werr != nil {
		return // what ours then gives does not matter, as long as it gives something
	}
	if gerr != nil {
		tb.Fatalf("%x: %v", b, gerr)
	}
	got.ProtoReflect().SetUnknown(nil)
	if h := got.GetHeader(); h != nil {
		h.ProtoReflect().SetUnknown(nil)
	}
	if !proto.Equal(&want, &got) {
		tb.Fatalf("%x:\nwant %v\ngot  %v", b, &want, &got)
	}
}

func messages(tb testing.TB) (all [][]byte) {
	tb.Helper()
	kv := func(n int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte("key"), Value: make([]byte, n), CreateRevision: n, ModRevision: n + 1, Version: 3, Lease: -n}
	}
	for _, m := range []*pb.WatchResponse{
		{},
		{Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 2, Revision: 3, RaftTerm: 4}, WatchId: 5, Created: true},
		{Canceled: true, CancelReason: "because", CompactRevision: 9},
		{Fragment: true, Events: []*mvccpb.Event{{}, {Type: mvccpb.Event_DELETE, Kv: kv(1)}, {Kv: kv(300), PrevKv: kv(2)}, {Kv: &mvccpb.KeyValue{}}}},
		{Header: &pb.ResponseHeader{Revision: 1 << 60}, Events: []*mvccpb.Event{{Kv: kv(0)}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// One decoder takes them one after another, large after small and small after large.
func TestDecode(t *testing.T) {
	t.Parallel()
	var d decoder
	all := messages(t)
	for i := range all {
		equalToProto(t, &d, all[i])
		equalToProto(t, &d, all[len(all)-1-i])
		for cut := range all[i] {
			equalToProto(t, &d, all[i][:cut])
		}
	}
	many := &pb.WatchResponse{}
	for range 200_000 {
		many.Events = append(many.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k")}})
	}
	b, err := proto.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	equalToProto(t, &d, b)
	equalToProto(t, &d, all[3])
	if len(d.events) > 100 {
		t.Errorf("room for %d events is kept", len(d.events))
	}
	equalToProto(t, &d, append(all[3:4:4][0], all[3]...))
}

func FuzzDecode(f *testing.F) {
	for _, b := range messages(f) {
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var d decoder
		equalToProto(t, &d, a)
		equalToProto(t, &d, b)
	})
}

func BenchmarkDecode(b *testing.B) {
	m := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 5}}
	for i := range 100_000 {
		m.Events = append(m.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("bench/0000001"), Value: []byte("value of some length"), CreateRevision: int64(i), ModRevision: int64(i), Version: 1}})
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ours", func(b *testing.B) {
		var d decoder
		for b.Loop() {
			var m pb.WatchResponse
			if err := d.decode(raw, &m); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e5, "ns/event")
	})
	b.Run("protobuf", func(b *testing.B) {
		for b.Loop() {
			var m pb.WatchResponse
			if err := proto.Unmarshal(raw, &m); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e5, "ns/event")
	})
}
