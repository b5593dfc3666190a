package commands_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// joined are the endpoints of members as a variable.
func joined(members []*server.Process) map[string]string {
	var eps []string
	for _, m := range members {
		eps = append(eps, m.Endpoint)
	}
	return map[string]string{"ETCDCTL_ENDPOINTS": strings.Join(eps, ","), "ETCDCTL_DIAL_TIMEOUT": "1s", "ETCDCTL_COMMAND_TIMEOUT": "3s"}
}

// When one of three members is down there are three rows, one of which says why, the exit
// code is 3, and one line tells that the cluster works all the same. When two are down there
// is no quorum.
func TestEndpointsDown(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 3, server.Options{Args: fast("")})
	env := joined(members)
	for _, args := range [][]string{{"endpoint", "health", "-w", "table"}, {"endpoint", "status", "-w", "table"}, {"endpoint", "hashkv", "--yes", "-w", "table"}} {
		if r := run(t, env, args...); r.code != 0 || strings.Count(r.stdout, "\n") != 4 {
			t.Errorf("%v: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	members[2].Kill()
	for _, args := range [][]string{{"endpoint", "health"}, {"endpoint", "status"}, {"endpoint", "hashkv", "--yes"}} {
		r := run(t, env, append(args, "-w", "table")...)
		if r.code != 3 || strings.Count(r.stdout, "\n") != 4 || !strings.Contains(r.stdout, "refused") || !strings.Contains(r.stderr, "degraded but working: 2 of 3") {
			t.Errorf("%v: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
		r = run(t, env, append(args, "-w", "json")...)
		if all, ok := decode(t, r.stdout).([]any); !ok || len(all) != 3 {
			t.Errorf("%v: %s", args, r.stdout)
		}
	}
	members[1].Kill()
	r := run(t, env, "endpoint", "health", "-w", "table")
	if r.code == 0 || !strings.Contains(r.stderr, "no quorum") || strings.Contains(r.stdout, " healthy") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// A member that stands still costs its own row the timeout, and nobody else's.
func TestEndpointStopped(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 3, server.Options{Args: fast("")})
	env := joined(members)
	frozen := (server.Leader(t, members) + 1) % 3
	members[frozen].Signal(t, syscall.SIGSTOP)
	start := time.Now()
	r := run(t, env, "endpoint", "status", "-w", "table")
	if r.code != 3 || strings.Count(r.stdout, " down ") != 1 || strings.Count(r.stdout, "leader") != 1 {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

// Cases 17 and 19: an alarm is unhealthy, a learner is not.
func TestHealthAlarmsAndLearners(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 1, server.Options{Args: fast("")})
	env := joined(members)
	c := members[0].Client(t)
	ports := server.Ports(t, 2)
	peer := "http://127.0.0.1:" + strconv.Itoa(ports[1])
	if _, err := c.MemberAddAsLearner(t.Context(), []string{peer}); err != nil {
		t.Fatal(err)
	}
	learner := server.Start(t, server.Options{Name: "l", Peers: "m0=" + members[0].Peer + ",l=" + peer, ClientPort: ports[0], PeerPort: ports[1], Args: append(fast(""), "--initial-cluster-state", "existing")})
	env["ETCDCTL_ENDPOINTS"] += "," + learner.Endpoint
	var r result
	for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(50 * time.Millisecond) {
		if r = run(t, env, "endpoint", "health", "-w", "table"); r.code == 0 {
			break
		}
	}
	if r.code != 0 || !strings.Contains(r.stdout, "learner") || strings.Count(r.stdout, " healthy") != 2 {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := run(t, env, "endpoint", "status", "-w", "table"); r.code != 0 || !strings.Contains(r.stdout, "learner") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	st, err := c.Status(t.Context(), members[0].Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: st.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}); err != nil {
		t.Fatal(err)
	}
	r = run(t, env, "endpoint", "health", "-w", "json")
	if r.code != 3 || !strings.Contains(r.stdout, "alarms: NOSPACE") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// Case 18: all members are asked for one revision; hashes of different stretches of history
// are not compared; it stops writes, so it asks.
func TestHashKVComparesOnlyWhatIsComparable(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 3, server.Options{Args: fast("")})
	env := joined(members)
	c := members[0].Client(t)
	for range 20 {
		if _, err := c.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	if r := run(t, env, "endpoint", "hashkv"); r.code != 40 || !strings.Contains(r.stderr, "takes no writes") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	r := run(t, env, "endpoint", "hashkv", "--yes", "-w", "jsonpath={.*.HashKV.hash_revision}")
	if r.code != 0 || r.stdout != "21 21 21\n" {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}
