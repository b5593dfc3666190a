package reply

import (
	"encoding/json"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	answer, err := json.Marshal(&pb.RangeResponse{
		Header: &pb.ResponseHeader{ClusterId: 14841639068965178418, MemberId: 10276657743932975437, Revision: 3, RaftTerm: 2},
		Kvs:    []*mvccpb.KeyValue{{Key: []byte(`"lease":1`), Value: []byte(`\"`), CreateRevision: 2, ModRevision: 3, Version: 2, Lease: 7587862094607535112}, {Key: []byte("b"), Lease: -1}},
		Count:  2,
	})
	if err != nil {
		t.Fatal(err)
	}
	members, err := json.Marshal(map[string]any{`a"b\`: 1, "ID": 5, "name": `"ID":7`, "leases": []map[string]int64{{"id": 9}}, "lease": []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in, decimal, hexed string
	}{
		{
			string(answer),
			`{"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","revision":3,"raft_term":2},"kvs":[{"key":"ImxlYXNlIjox","create_revision":2,"mod_revision":3,"version":2,"value":"XCI=","lease":"7587862094607535112"},{"key":"Yg==","lease":"-1"}],"count":2}`,
			`{"header":{"cluster_id":"cdf818194e3a8c32","member_id":"8e9e05c52164694d","revision":3,"raft_term":2},"kvs":[{"key":"ImxlYXNlIjox","create_revision":2,"mod_revision":3,"version":2,"value":"XCI=","lease":"694d805f71bbcc08"},{"key":"Yg==","lease":"ffffffffffffffff"}],"count":2}`,
		},
		{
			string(members),
			`{"ID":"5","a\"b\\":1,"lease":[1],"leases":[{"id":"9"}],"name":"\"ID\":7"}`,
			`{"ID":"5","a\"b\\":1,"lease":[1],"leases":[{"id":"9"}],"name":"\"ID\":7"}`,
		},
		{`"unfinished`, `"unfinished`, `"unfinished`},
		{`{"ID":`, `{"ID":`, `{"ID":`},
		{`{"ID"`, `{"ID"`, `{"ID"`},
	} {
		if got := string(quoteIDs([]byte(c.in), false)); got != c.decimal {
			t.Errorf("%s\ngot  %s\nwant %s", c.in, got, c.decimal)
		}
		if got := string(quoteIDs([]byte(c.in), true)); got != c.hexed {
			t.Errorf("hex of %s\ngot  %s\nwant %s", c.in, got, c.hexed)
		}
	}
}
