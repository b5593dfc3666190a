package commands_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// runbook is a shell that has our program under the name etcdctl.
func runbook(t *testing.T, endpoint string) func(script string) string {
	t.Helper()
	dir := filepath.Dir(ours(t, "etcdctl"))
	work := t.TempDir()
	return func(script string) string {
		t.Helper()
		cmd := exec.Command("bash", "-e", "-c", script)
		cmd.Dir = work
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + work, "ETCDCTL_ENDPOINTS=" + endpoint}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		done := time.AfterFunc(60*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer done.Stop()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
		return string(out)
	}
}

// The recipes of a ten-year-old runbook, as they are written there.
func TestRunbook(t *testing.T) {
	t.Parallel()
	s, _ := startSandbox(t, sandbox.Options{})
	sh := runbook(t, s.Endpoint())
	expect := func(got string, wants ...string) {
		t.Helper()
		for _, w := range wants {
			if !regexp.MustCompile(w).MatchString(got) {
				t.Errorf("no %q in\n%s", w, got)
			}
		}
	}

	// A service registry: a lease that is kept alive, and one that is not.
	expect(sh(`
LEASE_ID=$(etcdctl lease grant 30 | awk '{print $2}')
etcdctl put /services/order/instance-1 '{"ip":"10.0.0.5","port":8080}' --lease=$LEASE_ID
etcdctl lease keep-alive $LEASE_ID >alive.txt &
KEEPER=$!
etcdctl get /services/order/ --prefix
for i in $(seq 100); do grep -q keepalived alive.txt && break; sleep 0.05; done
kill $KEEPER; wait $KEEPER || true
cat alive.txt
etcdctl lease timetolive $LEASE_ID --keys
etcdctl lease revoke $LEASE_ID
etcdctl get /services/order/ --prefix | wc -l
`), `OK\n/services/order/instance-1\n\{"ip":"10.0.0.5","port":8080\}\n`, `keepalived with TTL\(30\)`, `attached keys\(\[/services/order/instance-1\]\)`, `revoked\n0\n`)

	// Watching: the put and the expiry are seen, and from a revision again.
	expect(sh(`
etcdctl watch --prefix /services/order/ >seen.txt &
WATCH=$!
for i in $(seq 100); do
  etcdctl put /services/order/ready x >/dev/null; grep -q ready seen.txt && break; sleep 0.05
done
LEASE_ID=$(etcdctl lease grant 2 | awk '{print $2}')
etcdctl put /services/order/short x --lease=$LEASE_ID
for i in $(seq 200); do grep -q DELETE seen.txt && break; sleep 0.05; done
kill $WATCH; wait $WATCH || true
grep -A1 DELETE seen.txt
REV=$(etcdctl get /services/order/ready -w json | sed 's/.*"mod_revision":\([0-9]*\).*/\1/')
timeout 5 etcdctl watch --prefix /services/order/ --rev=$((REV+1)) >later.txt & sleep 1; kill %2 2>/dev/null || true
wait || true
cat later.txt
`), `DELETE\n/services/order/short\n`, `(?s)PUT\n/services/order/short\nx\nDELETE\n/services/order/short\n`)

	// A lock: first come, first served; no timeout of a request ends it, or a keep-alive.
	expect(sh(`
etcdctl lock /my-lock -- echo "I hold the lock"
etcdctl lock /my-lock -- sh -c 'echo holding >held.txt; while [ ! -e go ]; do sleep 0.05; done; echo first >>order.txt' & 
for i in $(seq 200); do [ -e held.txt ] && break; sleep 0.05; done
for n in second third; do
  etcdctl lock /my-lock -- sh -c "echo $n >>order.txt" &
  for i in $(seq 200); do [ $(etcdctl get /my-lock --prefix --keys-only | grep -c my-lock) = $([ $n = second ] && echo 2 || echo 3) ] && break; sleep 0.05; done
done
touch go
wait
cat order.txt
ETCDCTL_COMMAND_TIMEOUT=1s etcdctl lock /my-lock -- sh -c 'sleep 2; echo still mine'
LEASE_ID=$(etcdctl lease grant 30 | awk '{print $2}')
ETCDCTL_COMMAND_TIMEOUT=1s etcdctl lease keep-alive $LEASE_ID >long.txt &
sleep 2; kill -0 $! && echo still alive; kill $!; wait $! || true
etcdctl get /my-lock --prefix --keys-only
etcdctl lease list
`), `I hold the lock\n`, `first\nsecond\nthird\n`, `still mine\n`, `still alive\n`, `found 1 leases`)

	// Files and their status, as 3.5 has it.
	snap, err := filepath.Abs(corpus.Snapshot(t))
	if err != nil {
		t.Fatal(err)
	}
	expect(sh(`
ETCDCTL_API=3 etcdctl snapshot save backup.db
ETCDCTL_API=3 etcdctl snapshot status backup.db -w table
ETCDCTL_API=3 etcdctl snapshot restore `+snap+` --data-dir restored --name m1 --initial-cluster m1=http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380
ls restored/member
ETCDCTL_API=3 etcdctl member list 2>/dev/null || true
`), `Snapshot saved at backup.db`, `HASH.*REVISION.*TOTAL`, `snap\nwal`)

	// What is gone says where it went, and nothing unknown ends well.
	for verb, want := range map[string]string{"ls /": "keys-only", "set a b": "put KEY VALUE", "mk a b": "create", "cluster-health": "endpoint health", "nonsense": "unknown command"} {
		got := sh("etcdctl " + verb + " && echo fine || echo exit $?")
		expect(got, regexp.QuoteMeta(want), `exit 1\n`)
		if strings.Count(got, "\n") > 3 {
			t.Errorf("%s: not one line: %s", verb, got)
		}
	}
}

// --command-timeout bounds what is one request, also where etcdctl forgets it.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("")})
	p.Client(t)
	p.Signal(t, syscall.SIGSTOP)
	for _, args := range []string{"user list", "user get x", "role list", "role get x", "auth status", "lease list", "lease timetolive 7b", "get a", "put a 1", "compaction 1", "endpoint status", "endpoint health"} {
		start := time.Now()
		r := runAs(t, "etcdctl", map[string]string{"ETCDCTL_ENDPOINTS": p.Endpoint, "ETCDCTL_COMMAND_TIMEOUT": "300ms", "ETCDCTL_DIAL_TIMEOUT": "300ms"}, strings.Fields(args)...)
		if took := time.Since(start); r.code == 0 || took > 10*time.Second {
			t.Errorf("%s: exit code %d after %s\n%s", args, r.code, took, r.stderr)
		}
	}
}
