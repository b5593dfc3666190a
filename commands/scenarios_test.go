package commands_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// expect runs command lines against an endpoint and compares exit code and output.
type expectation struct {
	args string
	code cli.Code
	want string // in stdout, or in stderr when the command fails
}

func expect(t *testing.T, env map[string]string, list []expectation) {
	t.Helper()
	for _, e := range list {
		r := run(t, env, strings.Fields(e.args)...)
		out := r.stdout
		if e.code != 0 {
			out = r.stderr
		}
		if r.code != int(e.code) || !strings.Contains(out, e.want) {
			t.Errorf("%s: exit code %d, want %d and %q\nstdout: %s\nstderr: %s", e.args, r.code, e.code, e.want, r.stdout, r.stderr)
		}
		if strings.Contains(r.stderr, "rpc error") || e.code != 0 && strings.Count(strings.TrimSpace(r.stderr), "\n") > 1 {
			t.Errorf("%s: not one clear line: %s", e.args, r.stderr)
		}
	}
}

// With authentication on, a user reads what its role allows, and is told about the
// rest; root reads everything.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, k := range []string{"app/a", "app/b", "other/c"} {
		for _, v := range []string{"1", "2"} {
			if _, err := c.Put(ctx, k, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.UserAdd(ctx, "root", "rootpw"))
	must(c.RoleAdd(ctx, "root"))
	must(c.UserGrantRole(ctx, "root", "root"))
	must(c.UserAdd(ctx, "app", "apppw"))
	must(c.RoleAdd(ctx, "app"))
	must(c.RoleGrantPermission(ctx, "app", "app/", "app0", clientv3.PermissionType(clientv3.PermReadWrite)))
	must(c.UserGrantRole(ctx, "app", "app"))
	must(c.AuthEnable(ctx))
	env := map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint()}
	expect(t, env, []expectation{
		{"get app/a", cli.Auth, "authentication enabled"},
		{"get app/a --user app:wrong", cli.Auth, "password"},
	})
	env["ETCDCTL_USER"] = "app:apppw"
	expect(t, env, []expectation{
		{"get app/a", 0, "2"},
		{"get app/ --prefix", 0, "app/b\n2\n"},
		{"get app/ --prefix --rev 2 -w json", 0, `"count":1`},
		{"get other/c", cli.Auth, "do not allow"},
		{"get other/ --prefix", cli.Auth, "do not allow"},
		{"put app/new 1", 0, "OK"},
		{"put other/new 1", cli.Auth, "do not allow"},
		{"inspect keys app/", 0, "app/new"},
		{"inspect usage app/", 0, "total"},
		{"inspect usage", cli.Auth, "do not allow"},
		{"inspect keys --key-prefix app/", 0, "new"},
		{"inspect diff @2 live --prefix app/", 0, "app/new"},
		{"inspect diff @2 live --prefix app/a --registry-prefix /registry", 0, "1 → 2"},
		{"inspect diff @2 live", cli.Auth, "do not allow"},
		{"registry ls", cli.Auth, "do not allow"},
		{"inspect history app/a", cli.Auth, "permission"}, // a snapshot is root's
	})
	env["ETCDCTL_USER"] = "root:rootpw"
	expect(t, env, []expectation{
		{"get --prefix other/", 0, "other/c"},
		{"inspect keys", 0, "other/c"},
		{"inspect usage", 0, "total"},
		{"inspect history app/a", 0, "PUT"},
	})
}

// Through etcd's gRPC proxy everything works that the proxy passes on.
func TestGRPCProxy(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{})
	c := p.Client(t)
	for i := range 300 {
		if _, err := c.Put(t.Context(), fmt.Sprintf("k%03d", i), strings.Repeat("v", 50)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Compact(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", server.Ports(t, 1)[0])
	server.Run(t, server.Binary(t, "3.7"), listen, "grpc-proxy", "start", "--endpoints", p.Endpoint, "--listen-addr", listen, "--data-dir", t.TempDir())
	expect(t, map[string]string{"ETCDCTL_ENDPOINTS": listen}, []expectation{
		{"get k001", 0, "vvv"},
		{"get k --prefix --keys-only", 0, "k299"},
		{"get k --prefix --rev 50", cli.Compacted, "100"},
		{"put new 1", 0, "OK"},
		{"inspect keys", 0, "k299"},
		{"inspect usage", 0, "total"},
		{"inspect history k299", 0, "PUT"},
		{"registry ls -A", 0, ""},
	})
	if out := ok(t, map[string]string{"ETCDCTL_ENDPOINTS": listen}, "inspect", "keys"); strings.Count(out, "\n") != 301 {
		t.Errorf("%d keys", strings.Count(out, "\n"))
	}
}

// Kine speaks part of the API. What it has works, and what it lacks is said in one
// line; a range without an end, in which it finds nothing, is not taken for empty.
func TestKine(t *testing.T) {
	t.Parallel()
	kine := server.Binary(t, "kine")
	listen := fmt.Sprintf("127.0.0.1:%d", server.Ports(t, 1)[0])
	server.Run(t, kine, listen, "--listen-address", "tcp://"+listen, "--metrics-bind-address", "0", "--endpoint", "sqlite://"+t.TempDir()+"/state.db")
	env := map[string]string{"ETCDCTL_ENDPOINTS": listen, "XDG_STATE_HOME": t.TempDir()}
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"}}`
	if r := run(t, env, "put", "/registry/pods/shop/web", pod, "--kubernetes"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	expect(t, env, []expectation{
		{"put zz 1", 0, "OK"},
		{"get zz", 0, "1"},
		{"get /registry/ --prefix --keys-only", 0, "/registry/pods/shop/web"},
		{"get / --from-key --keys-only", 0, "zz"},
		{"get / --from-key --limit 1 --keys-only", 0, "/registry/"},
		{"inspect keys", 0, "zz"},
		{"inspect usage", 0, "total"},
		{"registry get pods -A", 0, "web"},
		{"registry get pod web -n shop -o json", 0, `"Pod"`},
		{"inspect history zz", cli.Failure, "Kine"},
		{"inspect leases", cli.Failure, "Kine"},
		{"get zz --consistency s", cli.Failure, "Kine"},
		{"get / --from-key --sort-by MODIFY", cli.Failure, "Kine"},
		{"del zz", cli.Failure, "Kine"},
		{"snapshot save " + t.TempDir() + "/kine.db", cli.Failure, "Kine"},
	})
}
