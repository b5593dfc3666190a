package dbfile_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// logEntry is an entry of a log made by hand.
type logEntry struct {
	index, term uint64
	conf        *raftpb.ConfChange
	data        []byte
}

func putting(tb testing.TB, key string) []byte {
	return request(tb, &pb.InternalRaftRequest{ID: 1, Put: &pb.PutRequest{Key: []byte(key), Value: []byte("v")}})
}

func request(tb testing.TB, r *pb.InternalRaftRequest) []byte {
	tb.Helper()
	b, err := proto.Marshal(r)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

const self, other = uint64(0xa1), uint64(0xb2)

// member makes a member's folder: a database written up to a raft index, members
// that vote, and a log.
func member(tb testing.TB, index, term uint64, voters []uint64, commit uint64, snapshot uint64, log ...logEntry) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700); err != nil {
		tb.Fatal(err)
	}
	b := build(tb, 4096)
	for _, v := range voters {
		b.put("members", fmt.Sprintf("%x", v), fmt.Appendf(nil, `{"id":%d,"peerURLs":["http://a"],"name":"m"}`, v))
	}
	b.put("meta", "consistent_index", binary.BigEndian.AppendUint64(nil, index))
	b.put("meta", "term", binary.BigEndian.AppendUint64(nil, term))
	b.events([]keyspace.Event{{Rev: keyspace.Revision{Main: 2}, Record: keyspace.Record{Key: []byte("old"), Value: []byte("v"), CreateRev: 2, ModRev: 2, Version: 1}}})
	if err := os.Rename(b.done(), filepath.Join(dir, "member", "snap", "db")); err != nil {
		tb.Fatal(err)
	}
	meta, err := proto.Marshal(&pb.Metadata{NodeID: new(self), ClusterID: new(uint64(9))})
	if err != nil {
		tb.Fatal(err)
	}
	w, err := wal.Create(zap.NewNop(), filepath.Join(dir, "member", "wal"), meta)
	if err != nil {
		tb.Fatal(err)
	}
	if snapshot > 0 {
		if err := w.SaveSnapshot(&walpb.Snapshot{Index: new(snapshot), Term: new(uint64(1)), ConfState: &raftpb.ConfState{}}); err != nil {
			tb.Fatal(err)
		}
	}
	for i, l := range log {
		e := &raftpb.Entry{Index: new(l.index), Term: new(l.term), Data: l.data, Type: new(raftpb.EntryNormal)}
		if l.conf != nil {
			e.Type = new(raftpb.EntryConfChange)
			if e.Data, err = proto.Marshal(l.conf); err != nil {
				tb.Fatal(err)
			}
		}
		state := &raftpb.HardState{Term: new(l.term)}
		if i == len(log)-1 {
			state.Commit = new(min(commit, l.index))
		}
		if err := w.Save(state, []*raftpb.Entry{e}); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// What of a log counts, and what is said about the rest.
func TestRaftLog(t *testing.T) {
	t.Parallel()
	conf := func(kind raftpb.ConfChangeType, node uint64) *raftpb.ConfChange {
		return &raftpb.ConfChange{Type: new(kind), NodeId: new(node)}
	}
	// A field that no request of today has.
	future := protowire.AppendBytes(protowire.AppendTag(nil, 777, protowire.BytesType), []byte("?"))
	futurePut := append(putting(t, "x"), future...)
	// A request of etcd's first API, bare and wrapped.
	v2 := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5)
	v2 = protowire.AppendString(protowire.AppendTag(v2, 2, protowire.BytesType), "PUT")
	v2 = protowire.AppendString(protowire.AppendTag(v2, 3, protowire.BytesType), "/0/members/1/attributes")
	v2 = protowire.AppendVarint(protowire.AppendTag(v2, 5, protowire.VarintType), 0)
	wrapped := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), v2)

	for _, c := range []struct {
		name             string
		index, term      uint64
		voters           []uint64
		commit, snapshot uint64
		log              []logEntry
		want, note       string // keys, and what the note says; "-": nothing
	}{
		{"alone: all of it counts", 2, 1, []uint64{self}, 2, 0, []logEntry{{1, 1, nil, nil}, {2, 1, nil, putting(t, "old")}, {3, 1, nil, putting(t, "a")}, {4, 1, nil, putting(t, "b")}}, "a b old", "revisions 3 to 4"},
		{"of several: what is committed", 2, 1, []uint64{self, other}, 3, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, putting(t, "a")}, {4, 1, nil, putting(t, "b")}, {5, 1, nil, putting(t, "c")}, {6, 1, nil, nil}}, "a old", "2 requests are in the write-ahead log behind raft index 3"},
		{"replaced by another leader", 2, 1, []uint64{self, other}, 4, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, putting(t, "gone")}, {4, 1, nil, putting(t, "gone2")}, {3, 2, nil, putting(t, "a")}, {4, 2, nil, putting(t, "b")}}, "a b old", "revisions 3 to 4"},
		{"replaced, and shorter", 2, 1, []uint64{self}, 2, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, putting(t, "gone")}, {4, 1, nil, putting(t, "gone2")}, {3, 2, nil, putting(t, "a")}}, "a old", "revision 3 is"},
		{"a second voter joins", 2, 1, []uint64{self}, 2, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, putting(t, "a")}, {4, 1, conf(raftpb.ConfChangeAddNode, other), nil}, {5, 1, nil, putting(t, "b")}}, "a old", "1 request is"},
		{"a learner joins", 2, 1, []uint64{self}, 2, 0, []logEntry{{2, 1, nil, nil}, {3, 1, conf(raftpb.ConfChangeAddLearnerNode, other), nil}, {4, 1, nil, putting(t, "a")}}, "a old", "revision 3 is"},
		{"the other leaves", 2, 1, []uint64{self, other}, 3, 0, []logEntry{{2, 1, nil, nil}, {3, 1, conf(raftpb.ConfChangeRemoveNode, other), nil}, {4, 1, nil, putting(t, "a")}}, "a old", "revision 3 is"},
		{"nothing behind the database", 4, 1, []uint64{self}, 4, 0, []logEntry{{3, 1, nil, putting(t, "x")}, {4, 1, nil, putting(t, "y")}}, "old", "-"},
		{"a snapshot that is not in place", 4, 1, []uint64{self, other}, 60, 50, []logEntry{{51, 1, nil, putting(t, "x")}}, "old", "between raft index 5 and 50"},
		{"a snapshot that is", 50, 1, []uint64{self, other}, 51, 50, []logEntry{{51, 1, nil, putting(t, "x")}}, "old x", "revision 3 is"},
		{"another history", 3, 7, []uint64{self}, 3, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, putting(t, "x")}, {4, 1, nil, putting(t, "y")}}, "old", "of term 1, the database of term 7"},
		{"another member", 2, 1, []uint64{other}, 4, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, putting(t, "x")}}, "old", "whom the database does not know"},
		{"the first API", 2, 1, []uint64{self}, 2, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, v2}, {4, 1, nil, wrapped}, {5, 1, nil, putting(t, "a")}}, "a old", "revision 3 is"},
		{"of a newer etcd", 2, 1, []uint64{self}, 2, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, putting(t, "a")}, {4, 1, nil, futurePut}, {5, 1, nil, putting(t, "b")}}, "a old", "read up to raft index 3: the request at raft index 4: it has a field 777"},
		{"no request", 2, 1, []uint64{self}, 2, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, []byte{0xff, 0xff}}, {4, 1, nil, putting(t, "b")}}, "old", "the request at raft index 3: it does not decode"},
		{"authentication comes on", 2, 1, []uint64{self}, 2, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, putting(t, "a")}, {4, 1, nil, request(t, &pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})}, {5, 1, nil, putting(t, "b")}}, "a old", "cannot be told"},
		{"users, while it is off", 2, 1, []uint64{self}, 2, 0, []logEntry{{2, 1, nil, nil}, {3, 1, nil, request(t, &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "u"}})}, {4, 1, nil, putting(t, "b")}}, "b old", "revision 3 is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, member(t, c.index, c.term, c.voters, c.commit, c.snapshot, c.log...), dbfile.Options{})
			info, err := s.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, r := range records(t, s, keyspace.All()) {
				keys = append(keys, string(r.Key))
			}
			if got := strings.Join(keys, " "); got != c.want {
				t.Errorf("keys %q, want %q (%s)", got, c.want, info.Note)
			}
			if !strings.Contains(info.Note, strings.Trim(c.note, "-")) || c.note == "-" && info.Note != "" {
				t.Errorf("note %q, want %q", info.Note, c.note)
			}
			if info.Revision != int64(len(keys))+1 {
				t.Errorf("revision %d with %d keys", info.Revision, len(keys))
			}
		})
	}
}

// A log that was cut, or that has a hole, is told of; what a crash leaves is told
// apart from what lacks acknowledged writes.
func TestCutLog(t *testing.T) {
	t.Parallel()
	large := request(t, &pb.InternalRaftRequest{ID: 1, Put: &pb.PutRequest{Key: []byte("large"), Value: bytes.Repeat([]byte("v"), 3000)}})
	log := []logEntry{{1, 1, nil, nil}, {2, 1, nil, putting(t, "old")}, {3, 1, nil, large}, {4, 1, nil, putting(t, "b")}}
	for name, c := range map[string]struct {
		index uint64
		harm  func(b []byte) []byte
		note  string // "": none
		lacks bool
	}{
		"whole":                      {2, func(b []byte) []byte { return b }, "revisions 3 to 4", false},
		"cut in a record":            {2, func(b []byte) []byte { return b[:2000] }, "ends in the middle of a record at byte", false},
		"cut before the database":    {4, func(b []byte) []byte { return b[:2000] }, "ends before raft index 4", true},
		"cut between records":        {4, func(b []byte) []byte { clear(b[200:]); return b }, "ends before raft index 4", true},
		"a hole":                     {2, func(b []byte) []byte { clear(b[1024:1536]); return b }, "breaks off in a record at byte", true},
		"a hole before the database": {4, func(b []byte) []byte { clear(b[1024:1536]); return b }, "ends before raft index 4", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := member(t, c.index, 1, []uint64{self}, 2, 0, log...)
			file := filepath.Join(dir, "member", "wal", "0000000000000000-0000000000000000.wal")
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			write(t, file, c.harm(b))
			s := open(t, dir, dbfile.Options{})
			if !strings.Contains(s.Note(), c.note) || s.Lacks() != c.lacks {
				t.Errorf("note %q, lacks %v; want %q, %v", s.Note(), s.Lacks(), c.note, c.lacks)
			}
		})
	}
}
