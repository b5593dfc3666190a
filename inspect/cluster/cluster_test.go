package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func state(endpoint string, id, leader uint64, rev int64, applied uint64, learner bool) State {
	return State{Endpoint: endpoint, Status: (*clientv3.StatusResponse)(&pb.StatusResponse{
		Header: &pb.ResponseHeader{MemberId: id, Revision: rev}, Leader: leader, RaftAppliedIndex: applied, IsLearner: learner,
	})}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	members := []*pb.Member{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4, IsLearner: true}}
	down := State{Endpoint: "d", Err: errors.New("refused")}
	for _, c := range []struct {
		states []State
		alive  int
		says   string
		damage int
	}{
		{[]State{state("a", 1, 1, 10, 20, false), state("b", 2, 1, 10, 20, false), state("c", 3, 1, 10, 20, false)}, 3, "3 of 3", 0},
		{[]State{state("a", 1, 1, 10, 20, false), state("b", 2, 1, 9, 19, false), down}, 2, "degraded but working: 2 of 3 voting members answer, 2 are needed; 0 more may fail", 0},
		{[]State{state("a", 1, 0, 10, 20, false), down}, 1, "no quorum: 1 of 3", 0},
		{[]State{state("a", 1, 1, 10, 20, false), state("l", 4, 1, 3, 20, true)}, 1, "no quorum", 0},
		{[]State{state("a", 1, 1, 10, 20, false), state("b", 2, 1, 11, 20, false), state("c", 3, 1, 10, 20, false)}, 3, "3 of 3", 1},
	} {
		q := Standing(members, c.states)
		if q.Voters != 3 || q.Learner != 1 || q.Need != 2 || q.Alive != c.alive || !strings.Contains(q.String(), c.says) || len(q.Damage) != c.damage {
			t.Errorf("%+v: %s", q, q)
		}
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	got := Order([]State{state("lead", 1, 1, 0, 0, false), {Endpoint: "down", Err: errors.New("x")}, state("b", 2, 1, 0, 0, false), state("a", 3, 1, 0, 0, false)})
	var names []string
	for _, s := range got {
		names = append(names, s.Endpoint)
	}
	if !slices.Equal(names, []string{"b", "a", "lead"}) {
		t.Error(names)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	hash := func(endpoint string, hash uint32, compact, rev int64) Hash {
		return Hash{Endpoint: endpoint, Hash: (*clientv3.HashKVResponse)(&pb.HashKVResponse{Hash: hash, CompactRevision: compact, HashRevision: rev})}
	}
	for _, c := range []struct {
		name          string
		hashes        []Hash
		differ, apart int
	}{
		{"equal", []Hash{hash("a", 7, 5, 20), hash("b", 7, 5, 20)}, 0, 0},
		{"damage", []Hash{hash("a", 7, 5, 20), hash("b", 8, 5, 20), hash("c", 7, 5, 20)}, 1, 0},
		{"another compaction", []Hash{hash("a", 7, 5, 20), hash("b", 8, 6, 20)}, 0, 1},
		{"another revision", []Hash{hash("a", 7, 5, 20), hash("b", 8, 5, 21)}, 0, 1},
		{"one is down", []Hash{{Endpoint: "x", Err: errors.New("down")}, hash("a", 7, 5, 20), hash("b", 7, 5, 20)}, 0, 0},
		{"an old server does not tell the revision", []Hash{hash("a", 7, 5, 0), hash("b", 7, 5, 20)}, 0, 0},
		{"nobody", nil, 0, 0},
	} {
		if v := Compare(c.hashes); len(v.Differences) != c.differ || len(v.NotCompared) != c.apart {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}
