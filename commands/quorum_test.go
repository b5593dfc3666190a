package commands_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
)

// Without a quorum every command ends in time, says so, and names what still works,
// which does.
func TestLostQuorum(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	if _, err := c.Put(t.Context(), "a/b", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Grant(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	// A second voter that never starts.
	if _, err := c.MemberAdd(t.Context(), []string{"http://127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		st, err := c.Status(t.Context(), s.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		if st.Leader == 0 {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the member still has a leader")
		}
	}
	env := map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint(), "ETCDCTL_COMMAND_TIMEOUT": "1s"}
	for _, line := range []string{
		"inspect keys", "inspect usage", "inspect churn", "inspect space", "inspect leases", "inspect diff @1 live", "registry ls", "registry get pods -A",
		"get a/b", "get a --prefix", "put a/b 2", "del a/b", "inspect leases --consistency s",
	} {
		begin := time.Now()
		r := run(t, env, strings.Fields(line)...)
		if r.code != 20 || !strings.Contains(r.stderr, "the cluster has no leader") || strings.Count(r.stderr, "\n") != 2 || !strings.Contains(r.stderr, "Hint: ") {
			t.Errorf("%s: exit code %d\n%s", line, r.code, r.stderr)
		}
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("%s took %v", line, took)
		}
	}
	if r := run(t, env, "inspect", "keys"); !strings.Contains(r.stderr, "--consistency s") || !strings.Contains(r.stderr, "--db") {
		t.Errorf("hint: %s", r.stderr)
	}
	if r := run(t, env, "put", "a/b", "2", "-w", "json"); !strings.Contains(r.stderr, `"class":"unknown-outcome"`) {
		t.Errorf("put: %s", r.stderr)
	}
	for line, want := range map[string]string{
		"inspect keys": "a/b", "inspect usage": "a/", "inspect churn": "a/", "inspect diff @1 live": "a/b", "get a --prefix": "a/b",
	} {
		if out := ok(t, env, append(strings.Fields(line), "--consistency", "s")...); !strings.Contains(out, want) {
			t.Errorf("%s --consistency s: %s", line, out)
		}
	}
	if r := run(t, env, "registry", "ls", "--consistency", "s"); r.code != 0 {
		t.Errorf("registry ls --consistency s: exit code %d\n%s", r.code, r.stderr)
	}
}
