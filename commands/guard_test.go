package commands_test

import (
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// everything is what a command line could have changed of a cluster.
func everything(t *testing.T, c *clientv3.Client, endpoint string) string {
	t.Helper()
	ctx := t.Context()
	var b strings.Builder
	get, err := c.Get(ctx, "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "revision %d, %d keys\n", (*pb.RangeResponse)(get).GetHeader().GetRevision(), len(get.Kvs))
	members, err := c.MemberList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members.Members {
		fmt.Fprintf(&b, "member %x %v %t\n", m.GetID(), m.GetPeerURLs(), m.GetIsLearner())
	}
	alarms, err := c.AlarmList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Status(ctx, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	auth, err := c.AuthStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	leases, err := c.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	users, err := c.UserList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	roles, err := c.RoleList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "alarms %v, database %d bytes, leader %x, downgrade %v, auth %t %d, %d leases, users %v, roles %v\n",
		alarms.Alarms, st.DbSize, st.Leader, st.DowngradeInfo.GetEnabled(), auth.Enabled, auth.AuthRevision, len(leases.Leases), users.Users, roles.Roles)
	return b.String()
}

// F56: no destructive command does anything where nobody has confirmed it.
func TestDestructiveCommandsAsk(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("")})
	c := p.Client(t)
	ctx := t.Context()
	lease, err := c.Grant(ctx, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		if _, err := c.Put(ctx, fmt.Sprintf("app/%03d", i), strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		second(c.Put(ctx, "leased", "1", clientv3.WithLease(lease.ID))), second(c.Put(ctx, "/registry/pods/a/b", "1")),
		second(c.UserAdd(ctx, "root", "pw")), second(c.RoleAdd(ctx, "some")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	status, err := c.Status(ctx, p.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.GetMemberId(), Alarm: pb.AlarmType_CORRUPT}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"ETCDCTL_ENDPOINTS": p.Endpoint}
	before := everything(t, c, p.Endpoint)
	for _, args := range destructive(status, lease.ID) {
		r := run(t, env, args...)
		if r.code != int(cli.Refused) || r.stderr == "" {
			t.Errorf("%q: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
		if after := everything(t, c, p.Endpoint); after != before {
			t.Fatalf("%q changed the cluster\nbefore %s\nafter  %s", args, before, after)
		}
	}
}

// destructive are command lines that must not work without an answer.
func destructive(st *clientv3.StatusResponse, lease clientv3.LeaseID) [][]string {
	member := fmt.Sprintf("%x", st.Header.GetMemberId())
	return [][]string{
		{"del", "", "--prefix"}, {"del", "", "--from-key"}, {"del", "app/", "--prefix"}, {"del", "app/", "--prefix", "--chunked"}, {"del", "app/000", "app/140", "--range"},
		{"del", "/registry/pods/a/b"}, {"del", "/registry/", "--prefix", "--yes"}, {"put", "/registry/pods/a/b", "2"}, {"put", "/registry/new", "2"}, {"put", "/kubernetes.io/new", "2"},
		{"compaction", "100"}, {"compaction", "100", "--physical"}, {"lease", "revoke", fmt.Sprintf("%x", int64(lease))},
		{"member", "add", "new", "--peer-urls", "http://127.0.0.1:1"}, {"member", "remove", fmt.Sprintf("%x", st.Header.GetMemberId())}, {"alarm", "disarm"},
		{"defrag", "--all"}, {"defrag", "--cluster", "--all"}, {"downgrade", "enable", "3.6"},
		{"auth", "enable"}, {"user", "delete", "root"}, {"role", "delete", "some"}, {"endpoint", "hashkv"},
		{"member", "add", "m9", "--peer-urls", "http://127.0.0.1:1"}, {"member", "remove", member}, {"member", "remove", member, "--yes"}, {"alarm", "disarm"},
		{"defrag", "--all"}, {"defrag", "--cluster", "--all"}, {"defrag", "--cluster", "--all", "--force"}, {"downgrade", "enable", "3.6"}, {"check", "perf"}, {"check", "datascale"},
	}
}
