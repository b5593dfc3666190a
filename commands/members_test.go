package commands_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// picture is everything of a cluster that a refused command must leave as it is: revision,
// members, alarms, leader, version and the sizes of the files.
func picture(t *testing.T, members []*server.Process) string {
	t.Helper()
	c := members[0].Client(t)
	var b strings.Builder
	list, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Members {
		fmt.Fprintln(&b, m)
	}
	alarms, err := c.AlarmList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alarms.Alarms {
		fmt.Fprintln(&b, a)
	}
	for _, m := range members {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		st, err := c.Status(ctx, m.Endpoint)
		cancel()
		if err != nil {
			continue
		}
		fmt.Fprintln(&b, m.Endpoint, st.DbSize, st.Leader, st.Header.GetRevision(), st.IsLearner, st.DowngradeInfo)
	}
	return b.String()
}

// refused runs a command line that must be refused for a reason, and must change nothing.
func refused(t *testing.T, members []*server.Process, env map[string]string, reason string, args ...string) {
	t.Helper()
	before := picture(t, members)
	r := run(t, env, args...)
	if r.code != 40 || !strings.Contains(r.stderr, reason) || r.stdout != "" {
		t.Errorf("%v: exit code %d, want 40 and %q\n%s%s", args, r.code, reason, r.stdout, r.stderr)
	}
	if after := picture(t, members); after != before {
		t.Errorf("%v changed something\nbefore: %s\nafter:  %s", args, before, after)
	}
}

// named are the members' ids by their names, in hexadecimal.
func named(t *testing.T, c *clientv3.Client) map[string]string {
	t.Helper()
	r, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, m := range r.Members {
		ids[m.Name] = fmt.Sprintf("%x", m.ID)
	}
	return ids
}

// fill makes free pages: what is compacted away leaves them.
func fill(t *testing.T, c *clientv3.Client, megabytes int) {
	t.Helper()
	value := strings.Repeat("x", 1<<20)
	var rev int64
	for range megabytes {
		r, err := c.Put(t.Context(), "big", value)
		if err != nil {
			t.Fatal(err)
		}
		rev = r.Header.GetRevision()
	}
	if _, err := c.Compact(t.Context(), rev, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

// settled waits until every member tells of the pages that became free, which it counts when
// it commits.
func settled(t *testing.T, members []*server.Process) {
	t.Helper()
	for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
		if _, err := members[0].Client(t).Put(t.Context(), "tick", "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		if !slices.ContainsFunc(members, func(p *server.Process) bool { st := mustStatus(t, p); return st.DbSizeInUse*2 > st.DbSize }) {
			return
		}
	}
	t.Fatal("no pages became free")
}

// F56: what destroys something is refused where nobody confirms it, says which cluster and
// why, and leaves everything as it is.
func TestClusterGuards(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 3, server.Options{Args: fast("")})
	env := joined(members)
	c := members[0].Client(t)
	lead := server.Leader(t, members)
	ids := named(t, c)
	leader, follower := ids[fmt.Sprintf("m%d", lead)], ids[fmt.Sprintf("m%d", (lead+1)%3)]
	fill(t, c, 4)
	settled(t, members)
	cluster := fmt.Sprintf("cluster %x at ", mustStatus(t, members[0]).Header.GetClusterId())
	for _, args := range [][]string{
		{"member", "add", "m9", "--peer-urls", "http://127.0.0.1:1"},
		{"member", "remove", leader}, {"member", "remove", follower},
		{"defrag", "--cluster"}, {"defrag", "--cluster", "--all"}, {"defrag", "--endpoints", members[lead].Endpoint, "--all"},
		{"downgrade", "enable", "3.6"},
		{"check", "perf"}, {"check", "datascale"},
	} {
		refused(t, members, env, cluster, args...)
	}
	refused(t, members, env, "the leader) from", "member", "remove", leader)
	refused(t, members, env, "which then has 4, of which 3 are needed", "member", "add", "m9", "--peer-urls", "http://127.0.0.1:1")
	refused(t, members, env, "--learner", "member", "add", "m9", "--peer-urls", "http://127.0.0.1:1")

	raise(t, c, mustStatus(t, members[1]).Header.GetMemberId(), pb.AlarmType_CORRUPT)
	refusedAlarm := func(reason string) {
		t.Helper()
		r := run(t, env, "alarm", "disarm")
		left, err := c.AlarmList(t.Context())
		if r.code != 40 || !strings.Contains(r.stderr, reason) || err != nil || len(left.Alarms) != 1 {
			t.Errorf("exit code %d: %s (%v, %v)", r.code, r.stderr, left, err)
		}
	}
	refusedAlarm("CORRUPT of m1")
	if out := ok(t, env, "alarm", "list"); !strings.Contains(out, "alarm:CORRUPT") {
		t.Error(out)
	}
	if out := ok(t, env, "alarm", "disarm", "--yes"); !strings.Contains(out, "alarm:CORRUPT") {
		t.Error(out)
	}

	members[(lead+1)%3].Kill()
	if lead != 0 { // picture asks the first member
		members[0], members[lead] = members[lead], members[0]
	}
	third := ids[members[slices.IndexFunc(members, func(p *server.Process) bool { return ids[p.Options.Name] != leader && ids[p.Options.Name] != follower })].Options.Name]
	refused(t, members, env, "that leaves no quorum", "member", "remove", third, "--yes")
	refused(t, members, env, "nothing works until it has started", "member", "add", "m9", "--peer-urls", "http://127.0.0.1:1")
	refused(t, members, env, "a member that does not answer", "member", "remove", follower)
	refused(t, members, env, "not every member of "+cluster, "defrag", "--cluster", "--yes")
	if r := run(t, env, "move-leader", follower); r.code != 20 || !strings.Contains(r.stderr, "does not answer") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if r := run(t, env, "member", "remove", "7777", "--yes"); r.code != 4 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if out := ok(t, env, "member", "remove", follower, "--dry-run", "-w", "json"); decode(t, out).(map[string]any)["dryRun"] != true {
		t.Error(out)
	}
	ok(t, env, "member", "remove", follower, "--yes")
	if left := named(t, members[0].Client(t)); len(left) != 2 {
		t.Error(left)
	}
}

func mustStatus(t *testing.T, p *server.Process) *clientv3.StatusResponse {
	t.Helper()
	st, err := p.Client(t).Status(t.Context(), p.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Disarming NOSPACE asks while the database is as large as its quota, and does not where
// there is space again.
func TestDisarmWithoutSpace(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 1, server.Options{Args: append(fast(""), "--quota-backend-bytes", "4000000")})
	env := joined(members)
	c := members[0].Client(t)
	var rev int64
	for {
		r, err := c.Put(t.Context(), "big", strings.Repeat("x", 500_000))
		if err != nil {
			break
		}
		rev = r.Header.GetRevision()
	}
	for start := time.Now(); !strings.Contains(ok(t, env, "alarm", "list"), "NOSPACE"); time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("no alarm came")
		}
	}
	for before := ""; before != picture(t, members); time.Sleep(200 * time.Millisecond) { // what was written is on its way into the file
		before = picture(t, members)
	}
	refused(t, members, env, "with a quota of 3.8 MiB", "alarm", "disarm")
	if r := run(t, env, "endpoint", "health", "-w", "table"); r.code == 0 || !strings.Contains(r.stdout, "NOSPACE") {
		t.Errorf("exit code %d: %s", r.code, r.stdout)
	}
	ok(t, env, "compaction", fmt.Sprint(rev), "--physical", "--yes")
	ok(t, env, "defrag", "--all", "--yes")
	if out := ok(t, env, "alarm", "disarm"); !strings.Contains(out, "alarm:NOSPACE") {
		t.Error(out)
	}
	if out := ok(t, env, "alarm", "disarm"); out != "" {
		t.Error(out)
	}
	ok(t, env, "put", "a", "1")
}

// A learner is added, waited for until it has what the leader has, and promoted; its
// settings are printed before the wait.
func TestMemberAddPromotes(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 1, server.Options{Args: fast("")})
	env := joined(members)
	fill(t, members[0].Client(t), 5)
	ports := server.Ports(t, 2)
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	var wg sync.WaitGroup
	var r result
	wg.Go(func() {
		r = run(t, env, "member", "add", "l", "--peer-urls", peer, "--learner", "--promote", "--wait", "60s")
	})
	for start := time.Now(); len(named(t, members[0].Client(t))) != 2; time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatal("no member was added")
		}
	}
	server.Start(t, server.Options{Name: "l", Peers: "m0=" + members[0].Peer + ",l=" + peer, ClientPort: ports[0], PeerPort: ports[1], Args: append(fast(""), "--initial-cluster-state", "existing")})
	wg.Wait()
	if r.code != 0 || !strings.Contains(r.stdout, "added as learner") || !strings.Contains(r.stdout, "ETCD_INITIAL_CLUSTER_STATE=\"existing\"\n") || !strings.HasSuffix(r.stdout, "\n") || !strings.Contains(r.stdout, "promoted in cluster") || !strings.Contains(r.stderr, "l has started") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	list, err := members[0].Client(t).MemberList(t.Context())
	if err != nil || len(list.Members) != 2 || slices.ContainsFunc(list.Members, func(m *pb.Member) bool { return m.IsLearner }) {
		t.Errorf("%v, %v", list, err)
	}
}

// A learner that never starts costs the wait and no more, and the message says what is left.
func TestMemberAddWaitsBounded(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 1, server.Options{Args: fast("")})
	start := time.Now()
	r := run(t, joined(members), "member", "add", "l", "--peer-urls", "http://127.0.0.1:1", "--learner", "--promote", "--wait", "1s", "-w", "json")
	if r.code != 21 || !strings.Contains(r.stderr, "has not started") || !strings.Contains(r.stderr, "member remove") || time.Since(start) > 15*time.Second {
		t.Errorf("exit code %d after %s\n%s%s", r.code, time.Since(start), r.stdout, r.stderr)
	}
	doc, isMap := decode(t, r.stdout).(map[string]any)
	if !isMap || doc["settings"].(map[string]any)["ETCD_NAME"] != "l" {
		t.Error(r.stdout)
	}
	if _, isText := doc["member"].(map[string]any)["ID"].(string); !isText {
		t.Errorf("the id is no text: %s", r.stdout)
	}
}

// The leader is found from any endpoint, and without a member the one that has applied the
// most is chosen.
func TestMoveLeader(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 3, server.Options{Args: fast("")})
	lead := server.Leader(t, members)
	ids := named(t, members[0].Client(t))
	other, third := (lead+1)%3, (lead+2)%3
	env := joined(members[other : other+1])
	if r := run(t, env, "move-leader", "--dry-run"); r.code != 0 || server.Leader(t, members) != lead {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	to := ids[fmt.Sprintf("m%d", third)]
	if out := ok(t, env, "move-leader", to); !strings.Contains(out, "to "+to) || server.Leader(t, members) != third {
		t.Error(out)
	}
	if out := ok(t, env, "move-leader", to); !strings.Contains(out, "leads already") {
		t.Error(out)
	}
	members[lead].Signal(t, syscall.SIGSTOP) // it does not answer, so it is not chosen
	env["ETCDCTL_COMMAND_TIMEOUT"] = "2s"
	if r := run(t, env, "move-leader", "-w", "json"); r.code != 0 || !strings.Contains(r.stdout, ids[fmt.Sprintf("m%d", other)]) {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if st := mustStatus(t, members[other]); st.Leader != st.Header.GetMemberId() {
		t.Error("it does not lead")
	}
}

// defragResult is the part of the answer that tests look at.
type defragResult struct {
	DryRun  bool
	Members []struct {
		Member, Role, Result, Reason, LeadershipMovedTo string
		DBBytes, DBBytesAfter                           int64
	}
}

func (d *defragResult) names() string {
	var names []string
	for _, m := range d.Members {
		names = append(names, m.Member+" "+m.Result)
	}
	return strings.Join(names, ", ")
}

func defragged(t *testing.T, r result) defragResult {
	t.Helper()
	var d defragResult
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
		t.Fatalf("%v in %q; exit code %d: %s", err, r.stdout, r.code, r.stderr)
	}
	return d
}

// Members are defragmented one after another, the leader last; who has nothing to win is
// left out; a member that is down keeps it from starting.
func TestRollingDefrag(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 3, server.Options{Args: fast("")})
	env := joined(members)
	fill(t, members[0].Client(t), 12)
	settled(t, members)
	lead := server.Leader(t, members)
	leader := fmt.Sprintf("m%d", lead)
	plan := defragged(t, run(t, env, "defrag", "--cluster", "--dry-run", "-w", "json"))
	if !plan.DryRun || len(plan.Members) != 3 || plan.Members[2].Member != leader || plan.Members[0].Result != "planned" {
		t.Errorf("%+v", plan)
	}
	sizes := picture(t, members)
	if now := picture(t, members); now != sizes {
		t.Errorf("a dry run changed something: %s, %s", sizes, now)
	}
	// One follower alone is asked about by nobody.
	follower := (lead + 1) % 3
	one := defragged(t, run(t, env, "defrag", "--endpoints", members[follower].Endpoint, "-w", "json"))
	if one.names() != fmt.Sprintf("m%d defragmented", follower) || one.Members[0].DBBytesAfter >= one.Members[0].DBBytes {
		t.Errorf("%+v", one)
	}
	r := run(t, env, "defrag", "--cluster", "--move-leader", "--yes", "-w", "json")
	all := defragged(t, r)
	if r.code != 0 || len(all.Members) != 3 || all.Members[2].Member != leader || all.Members[2].LeadershipMovedTo == "" || all.Members[2].DBBytesAfter >= all.Members[2].DBBytes {
		t.Errorf("exit code %d: %+v\n%s", r.code, all, r.stderr)
	}
	skipped := 0
	for _, m := range all.Members {
		if m.Result == "skipped" && strings.Contains(m.Reason, "less than 10 %") {
			skipped++
		}
	}
	if skipped != 1 || server.Leader(t, members) == lead {
		t.Errorf("%+v", all)
	}
	none := defragged(t, run(t, env, "defrag", "--cluster", "-w", "json")) // nothing to win anywhere
	if strings.Count(none.names(), "skipped") != 3 {
		t.Errorf("%+v", none)
	}
	members[lead].Kill() // a follower by now
	refusedAt := run(t, env, "defrag", "--cluster", "--all", "--yes")
	if refusedAt.code != 40 || !strings.Contains(refusedAt.stderr, leader+": ") {
		t.Errorf("exit code %d: %s", refusedAt.code, refusedAt.stderr)
	}
	forced := defragged(t, run(t, env, "defrag", "--cluster", "--all", "--force", "--yes", "-w", "json"))
	if strings.Count(forced.names(), "defragmented") != 2 {
		t.Errorf("%+v", forced)
	}
}

// Under the name etcdctl nothing is asked, followers come first and the leader last as well,
// and 5 s are not the default.
func TestDefragOrderAsEtcdctl(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 3, server.Options{Args: fast("")})
	lead := server.Leader(t, members)
	eps := []string{members[lead].Endpoint, members[(lead+1)%3].Endpoint, members[(lead+2)%3].Endpoint}
	r := runAs(t, "etcdctl", map[string]string{"ETCDCTL_ENDPOINTS": strings.Join(eps, ",")}, "defrag")
	lines := strings.Split(r.stdout, "\n")
	if r.code != 0 || len(lines) != 4 || !strings.Contains(lines[0], eps[1]) || !strings.Contains(lines[1], eps[2]) || !strings.Contains(lines[2], eps[0]) {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// A member that stands still keeps a defragmentation from starting, within the timeout.
func TestDefragStopped(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 3, server.Options{Args: fast("")})
	frozen := (server.Leader(t, members) + 1) % 3
	members[frozen].Signal(t, syscall.SIGSTOP)
	start := time.Now()
	r := run(t, joined(members), "defrag", "--cluster", "--all", "--yes")
	if r.code != 40 || !strings.Contains(r.stderr, fmt.Sprintf("m%d: ", frozen)) || time.Since(start) > 30*time.Second {
		t.Errorf("exit code %d after %s: %s", r.code, time.Since(start), r.stderr)
	}
}

// A load of our own is asked about, measured, and leaves no key.
func TestCheckPerf(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 1, server.Options{Args: fast("")})
	env := joined(members)
	c := members[0].Client(t)
	if _, err := c.Put(t.Context(), "mine", "1"); err != nil {
		t.Fatal(err)
	}
	r := run(t, env, "check", "perf", "--duration", "3s", "--yes", "-w", "json", "--auto-compact", "--auto-defrag")
	doc, isMap := decode(t, r.stdout).(map[string]any)
	if !isMap || r.code != 0 && r.code != 4 { // how fast it is here is not what is tested
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if n, err := doc["writes"].(json.Number).Int64(); err != nil || n < 100 || n > 460 {
		t.Errorf("%v writes", doc["writes"])
	}
	left, err := c.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count != 1 {
		t.Errorf("%d keys are left, %v", left.Count, err)
	}
	refusedPrefix := run(t, env, "check", "perf", "--prefix", "mi", "--yes")
	if refusedPrefix.code != 40 || !strings.Contains(refusedPrefix.stderr, "has keys") {
		t.Errorf("exit code %d: %s", refusedPrefix.code, refusedPrefix.stderr)
	}
}

// One that is interrupted leaves no key either.
func TestCheckInterrupted(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 1, server.Options{Args: fast("")})
	c := members[0].Client(t)
	keys := func() int64 {
		t.Helper()
		r, err := c.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return r.Count
	}
	cmd := exec.CommandContext(t.Context(), ours(t, "etcdctl-plus"), "check", "perf", "--duration", "5m", "--yes", "--endpoints", members[0].Endpoint)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); keys() < 50; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("it does not write")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	if n := keys(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
