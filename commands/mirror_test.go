package commands_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// awaitKeys waits until a cluster's keys under a prefix are those wanted.
func awaitKeys(t *testing.T, c *clientv3.Client, prefix string, want map[string]string) {
	t.Helper()
	var got map[string]string
	for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		r, err := c.Get(t.Context(), prefix, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		got = map[string]string{}
		for _, kv := range r.Kvs {
			got[string(kv.GetKey())] = string(kv.GetValue())
		}
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
	}
	t.Fatalf("keys are %v, want %v", got, want)
}

// Case 4: a prefix, also with a start revision, keeps its destination in both phases; what
// has several keys in one revision arrives whole; deletions do too; other keys stay out.
func TestMirror(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"etcdctl", "etcdctl-plus"} {
		for _, rev := range []string{"0", "2"} {
			t.Run(name+" rev "+rev, func(t *testing.T) {
				t.Parallel()
				s, c := startSandbox(t, sandbox.Options{})
				d, dc := startSandbox(t, sandbox.Options{})
				put := func(kvs ...string) {
					t.Helper()
					var ops []clientv3.Op
					for i := 0; i < len(kvs); i += 2 {
						ops = append(ops, clientv3.OpPut(kvs[i], kvs[i+1]))
					}
					if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
						t.Fatal(err)
					}
				}
				put("app/a", "1", "app/b", "2", "other", "x")
				for i := range 300 {
					put(fmt.Sprintf("app/n%03d", i), "v")
				}
				if _, err := c.Delete(t.Context(), "app/n", clientv3.WithPrefix()); err != nil {
					t.Fatal(err)
				}
				w := startWatcher(t, name, s.Endpoint(), nil, "make-mirror", "--prefix", "app/", "--rev", rev, "--max-txn-ops", "7", d.Endpoint())
				awaitKeys(t, dc, "", map[string]string{"app/a": "1", "app/b": "2"})
				put("app/c", "3", "other", "y")
				if _, err := c.Delete(t.Context(), "app/a"); err != nil {
					t.Fatal(err)
				}
				awaitKeys(t, dc, "", map[string]string{"app/b": "2", "app/c": "3"})
				if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				if code := w.ends(t); code != -int(syscall.SIGTERM) {
					t.Errorf("exit code %d\n%s", code, w.errs)
				}
			})
		}
	}
}

// Another prefix there, or none.
func TestMirrorPrefixes(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	if _, err := c.Put(t.Context(), "app/app/x", "1"); err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		args []string
		want string
	}{
		{[]string{"--prefix", "app/", "--dest-prefix", "copy/"}, "copy/app/x"},
		{[]string{"--prefix", "app/", "--no-dest-prefix"}, "app/x"},
		{[]string{"--dest-prefix", "all/"}, "all/app/app/x"},
		{[]string{"--prefix", "app/", "--rev", "2", "--dest-prefix", "copy/"}, "copy/app/x"},
	} {
		d, dc := startSandbox(t, sandbox.Options{})
		startWatcher(t, "etcdctl", s.Endpoint(), nil, append(append([]string{"make-mirror"}, e.args...), d.Endpoint())...)
		awaitKeys(t, dc, "", map[string]string{e.want: "1"})
	}
}

// A key with a lease has one at the destination, which lives as long as the source's; as
// etcdctl it has none, which is said.
func TestMirrorLeases(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	d, dc := startSandbox(t, sandbox.Options{})
	lease, err := c.Grant(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"svc/a", "svc/b"} {
		if _, err := c.Put(t.Context(), k, "1", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Put(t.Context(), "svc/plain", "1"); err != nil {
		t.Fatal(err)
	}
	w := startWatcher(t, "etcdctl-plus", s.Endpoint(), nil, "make-mirror", d.Endpoint())
	all := map[string]string{"svc/a": "1", "svc/b": "1", "svc/plain": "1"}
	awaitKeys(t, dc, "", all)
	leaseOf := func(key string) (id clientv3.LeaseID, ttl int64) {
		t.Helper()
		r, err := dc.Get(t.Context(), key)
		if err != nil || len(r.Kvs) != 1 {
			t.Fatal(err, r)
		}
		if r.Kvs[0].GetLease() == 0 {
			return 0, 0
		}
		l, err := dc.TimeToLive(t.Context(), clientv3.LeaseID(r.Kvs[0].GetLease()))
		if err != nil {
			t.Fatal(err)
		}
		return l.ID, l.GrantedTTL
	}
	a, ttl := leaseOf("svc/a")
	b, _ := leaseOf("svc/b")
	if plain, _ := leaseOf("svc/plain"); a == 0 || a != b || ttl != 100 || plain != 0 {
		t.Errorf("leases %x and %x of %d s, plain %x", a, b, ttl, plain)
	}
	// A key that loses its lease at the source loses it there.
	if _, err := c.Put(t.Context(), "svc/b", "2"); err != nil {
		t.Fatal(err)
	}
	all["svc/b"] = "2"
	awaitKeys(t, dc, "", all)
	if id, _ := leaseOf("svc/b"); id != 0 {
		t.Errorf("svc/b still has lease %x", id)
	}
	if _, err := c.Revoke(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	delete(all, "svc/a")
	awaitKeys(t, dc, "", all)
	_ = w.cmd.Process.Signal(syscall.SIGINT) // w.ends tells
	if code := w.ends(t); code != -int(syscall.SIGINT) {
		t.Errorf("exit code %d\n%s", code, w.errs)
	}

	lease, err = c.Grant(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "svc/leased", "1", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	e, ec := startSandbox(t, sandbox.Options{})
	w = startWatcher(t, "etcdctl", s.Endpoint(), nil, "make-mirror", e.Endpoint())
	all["svc/leased"] = "1"
	awaitKeys(t, ec, "", all)
	_ = w.cmd.Process.Signal(syscall.SIGINT) // w.ends tells
	w.ends(t)
	if !strings.Contains(w.errs.String(), "1 of what was mirrored had a lease") {
		t.Error(w.errs)
	}
}

// What cannot go well is said: one cluster, a compaction with both revisions, a destination
// that is not there or wants a user; a lost connection to the source is none of it.
func TestMirrorTrouble(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	d, dc := startSandbox(t, sandbox.Options{})
	for range 9 {
		if _, err := c.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint(), "ETCDCTL_DIAL_TIMEOUT": "1s"}
	expect(t, env, []expectation{
		{"make-mirror " + s.Endpoint(), 40, "one cluster"},
		{"make-mirror 127.0.0.1:1", 20, "destination"},
		{"make-mirror", 64, "one destination"},
		{"make-mirror --dest-prefix a --no-dest-prefix " + d.Endpoint(), 64, "choose one"},
		{"make-mirror --max-txn-ops 0 " + d.Endpoint(), 64, "at least 1"},
	})
	if _, err := c.Compact(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	expect(t, env, []expectation{{"make-mirror --rev 3 " + d.Endpoint(), 30, "7"}})

	p := server.NewProxy(t, s.Endpoint())
	w := startWatcher(t, "etcdctl-plus", p.Endpoint, nil, "make-mirror", d.Endpoint())
	awaitKeys(t, dc, "", map[string]string{"k": "v"})
	p.Cut()
	if _, err := c.Put(t.Context(), "k", "after"); err != nil {
		t.Fatal(err)
	}
	awaitKeys(t, dc, "", map[string]string{"k": "after"})
	d.Close()
	if _, err := c.Put(t.Context(), "k", "lost"); err != nil {
		t.Fatal(err)
	}
	if code := w.ends(t); code == 0 || code < 0 || !strings.Contains(w.errs.String(), "destination") {
		t.Errorf("exit code %d\n%s", code, w.errs)
	}
}
