package commands_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// beats is a script that writes a name and the time into a file, from a child of its own
// too, and from one in another process group; it prints the three process numbers.
const beats = `beat() { while :; do echo "$1 $(date +%s%N)" >>"$FILE"; sleep 0.05; done; }
beat child & a=$!
setsid sh -c 'echo $$; while :; do echo "group $(date +%s%N)" >>"$FILE"; sleep 0.05; done' &
echo $$; echo $a; echo up
beat self`

// beatsOf returns the times in a file, by name.
func beatsOf(t *testing.T, file string) map[string][]time.Time {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	got := map[string][]time.Time{}
	for line := range strings.Lines(string(b)) {
		name, ns, ok := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(ns, 10, 64)
		if ok && err == nil { // the last line can be cut by a kill
			got[name] = append(got[name], time.Unix(0, n))
		}
	}
	return got
}

// last is the last moment at which anything of beats ran.
func last(t *testing.T, file string) time.Time {
	t.Helper()
	var at time.Time
	all := beatsOf(t, file)
	for _, name := range []string{"self", "child", "group"} {
		if len(all[name]) == 0 {
			t.Fatalf("%s never ran", name)
		}
		if l := all[name][len(all[name])-1]; l.After(at) {
			at = l
		}
	}
	return at
}

// numbers returns the lines that are numbers.
func numbers(lines []string) (pids []int) {
	for _, l := range lines {
		if n, err := strconv.Atoi(l); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// alive tells whether a process runs; one that nobody has waited for yet does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	return f[0][0] != 'Z' && f[0][0] != 'X'
}

// awaitDead waits until none of the processes runs and returns how long that took.
func awaitDead(t *testing.T, pids []int) time.Duration {
	t.Helper()
	begin := time.Now()
	for slices.ContainsFunc(pids, alive) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("of %v some still run", pids)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(begin)
}

// lockServer is a real etcd that can be stopped and cut off.
func lockServer(t *testing.T) (*server.Process, *clientv3.Client) {
	t.Helper()
	p := server.Start(t, server.Options{Args: fast("3.7")})
	return p, p.Client(t)
}

// nothingLeft fails when there are leases, or keys below prefix.
func nothingLeft(t *testing.T, c *clientv3.Client, prefix string) {
	t.Helper()
	leases, err := c.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := c.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(leases.Leases) > 0 || len(keys.Kvs) > 0 {
		t.Errorf("left: leases %v, keys %v", leases.Leases, keys.Kvs)
	}
}

// awaitQueue waits until a queue has n keys and returns them, the oldest first.
func awaitQueue(t *testing.T, c *clientv3.Client, prefix string, n int) []string {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		r, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Kvs) == n {
			var keys []string
			for _, kv := range r.Kvs {
				keys = append(keys, string(kv.GetKey()))
			}
			return keys
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("%d keys below %s, want %d", len(r.Kvs), prefix, n)
		}
	}
}

// leaseOf is the lease in the name of a lock's key.
func leaseOf(t *testing.T, key string) clientv3.LeaseID {
	t.Helper()
	n, err := strconv.ParseInt(key[strings.LastIndexByte(key, '/')+1:], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return clientv3.LeaseID(n)
}

func signalTo(t *testing.T, w *watcher, s syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func wantEnd(t *testing.T, w *watcher, want int) {
	t.Helper()
	if got := w.ends(t); got != want {
		t.Errorf("%q ended with %d, want %d\n%s", w.cmd.Args[1:], got, want, w.errs)
	}
}

const lockTTL = 4 * time.Second

// F43: a holder that is stopped past its time to live overlaps with nobody, nor do its
// command's descendants; when it goes on it says that the lock was lost.
func TestLockF43HolderStopped(t *testing.T) {
	t.Parallel()
	_, c := lockServer(t)
	for _, name := range []string{"etcdctl-plus", "etcdctl"} {
		file := filepath.Join(t.TempDir(), "beats")
		env := []string{"FILE=" + file}
		endpoint := c.Endpoints()[0]
		w := startWatcher(t, name, endpoint, env, "lock", "f43", "--ttl", "4", "--", "sh", "-c", beats)
		pids := numbers(w.await(t, "up"))
		for len(beatsOf(t, file)) < 3 {
			time.Sleep(10 * time.Millisecond)
		}
		next := startWatcher(t, name, endpoint, env, "lock", "f43", "--ttl", "4", "--", "sh", "-c", `echo "next $(date +%s%N)" >>"$FILE"`)
		awaitQueue(t, c, "f43/", 2)
		stopped := time.Now()
		signalTo(t, w, syscall.SIGSTOP)
		wantEnd(t, next, 0)
		for _, pid := range pids {
			if alive(pid) {
				t.Errorf("%d still runs when the next has had the lock", pid)
			}
		}
		end, began := last(t, file), beatsOf(t, file)["next"][0]
		t.Logf("%s: stopped; the last of it ran %s later, the next began after %s", name, end.Sub(stopped), began.Sub(stopped))
		if !end.Before(began) || end.Sub(stopped) >= lockTTL {
			t.Errorf("the command ran until %s after the stop, the next began after %s; the time to live is %s", end.Sub(stopped), began.Sub(stopped), lockTTL)
		}
		signalTo(t, w, syscall.SIGCONT)
		wantEnd(t, w, map[string]int{"etcdctl-plus": 123, "etcdctl": 1}[name])
		nothingLeft(t, c, "f43/")
	}
}

// F44: when the holder is killed, command and descendants are gone within a second.
func TestLockF44HolderKilled(t *testing.T) {
	t.Parallel()
	_, c := lockServer(t)
	for _, verb := range [][]string{{"lock", "f44"}, {"elect", "f44", "me"}} {
		file := filepath.Join(t.TempDir(), "beats")
		w := startWatcher(t, "etcdctl-plus", c.Endpoints()[0], []string{"FILE=" + file}, append(verb, "--ttl", "4", "--", "sh", "-c", beats)...)
		pids := numbers(w.await(t, "up"))
		for len(beatsOf(t, file)) < 3 {
			time.Sleep(10 * time.Millisecond)
		}
		pids = append(pids, numbers(drain(w))...)
		killed := time.Now()
		signalTo(t, w, syscall.SIGKILL)
		took := awaitDead(t, pids)
		if end := last(t, file).Sub(killed); took > time.Second || end > time.Second || len(pids) != 3 {
			t.Errorf("%v were dead after %s, and ran for %s", pids, took, end)
		} else {
			t.Logf("%v: dead after %s", verb, took)
		}
		awaitQueue(t, c, "f44/", 0) // the lease ends by itself
	}
}

// drain returns the lines that are there.
func drain(w *watcher) (lines []string) {
	for {
		select {
		case l, more := <-w.lines:
			if !more {
				return lines
			}
			lines = append(lines, l)
		default:
			return lines
		}
	}
}

// F45: signals are passed on; the key is gone, and the code is the command's.
func TestLockF45Signals(t *testing.T) {
	t.Parallel()
	_, c := lockServer(t)
	trapped := `trap "echo got; exit 7" TERM INT HUP QUIT USR1; echo up; while :; do sleep 0.05; done`
	plain := `echo up; exec sleep 60`
	for _, e := range []struct {
		program string
		script  string
		sig     syscall.Signal
		want    int
	}{
		{"etcdctl-plus", trapped, syscall.SIGTERM, 7}, {"etcdctl-plus", trapped, syscall.SIGHUP, 7}, {"etcdctl-plus", trapped, syscall.SIGINT, 7},
		{"etcdctl-plus", trapped, syscall.SIGQUIT, 7}, {"etcdctl-plus", trapped, syscall.SIGUSR1, 7},
		{"etcdctl-plus", plain, syscall.SIGTERM, 143}, {"etcdctl-plus", plain, syscall.SIGHUP, 129}, {"etcdctl-plus", plain, syscall.SIGINT, -2},
		{"etcdctl", trapped, syscall.SIGTERM, 7}, {"etcdctl", plain, syscall.SIGINT, 255},
	} {
		w := startWatcher(t, e.program, c.Endpoints()[0], nil, "lock", "f45", "--", "sh", "-c", e.script)
		w.await(t, "up")
		signalTo(t, w, e.sig)
		if got := w.ends(t); got != e.want {
			t.Errorf("%s, %s at %q: ended with %d, want %d\n%s", e.program, e.sig, e.script, got, e.want, w.errs)
		}
		nothingLeft(t, c, "f45/")
	}
}

// F46, case 5: the lease revoked or the key deleted under the command stops it, also one
// that does not want to.
func TestLockF46LostUnderTheCommand(t *testing.T) {
	t.Parallel()
	_, c := lockServer(t)
	polite := `trap "echo told; exit 0" TERM; echo up; while :; do sleep 0.05; done`
	deaf := `trap "" TERM; echo up; while :; do sleep 0.05; done`
	for _, e := range []struct {
		program, script string
		lose            func(key string) error
		want            int
	}{
		{"etcdctl-plus", polite, func(k string) error { return second(c.Revoke(t.Context(), leaseOf(t, k))) }, 123},
		{"etcdctl-plus", polite, func(k string) error { return second(c.Delete(t.Context(), k)) }, 123},
		{"etcdctl-plus", deaf, func(k string) error { return second(c.Delete(t.Context(), k)) }, 123},
		{"etcdctl", polite, func(k string) error { return second(c.Revoke(t.Context(), leaseOf(t, k))) }, 1},
		{"etcdctl", deaf, func(k string) error { return second(c.Delete(t.Context(), k)) }, 1},
	} {
		w := startWatcher(t, e.program, c.Endpoints()[0], nil, "lock", "f46", "--ttl", "30", "--", "sh", "-c", e.script)
		w.await(t, "up")
		begin := time.Now()
		if err := e.lose(awaitQueue(t, c, "f46/", 1)[0]); err != nil {
			t.Fatal(err)
		}
		if e.script == polite {
			w.await(t, "told")
		}
		wantEnd(t, w, e.want)
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("%s: it took %s", e.program, took)
		}
		if !strings.Contains(w.errs.String(), "is lost") {
			t.Errorf("it does not say so: %s", w.errs)
		}
		nothingLeft(t, c, "f46/")
	}
}

// A holder without a command says that it lost the lock, and a leader too.
func TestLockLostWithoutCommand(t *testing.T) {
	t.Parallel()
	_, c := lockServer(t)
	for _, e := range []struct {
		program string
		args    []string
		want    int
	}{
		{"etcdctl-plus", []string{"lock", "lone"}, 123}, {"etcdctl", []string{"lock", "lone"}, 1},
		{"etcdctl-plus", []string{"elect", "lone", "me"}, 123}, {"etcdctl", []string{"elect", "lone", "me"}, 1},
	} {
		w := startWatcher(t, e.program, c.Endpoints()[0], nil, e.args...)
		w.await(t, "lone/")
		if _, err := c.Revoke(t.Context(), leaseOf(t, awaitQueue(t, c, "lone/", 1)[0])); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, w, e.want)
		nothingLeft(t, c, "lone/")
	}
}

// F47: etcd is gone when the lock is to be given back: that is bounded, and the code is the
// command's.
func TestLockF47ServerGone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"etcdctl-plus", "etcdctl"} {
		p, _ := lockServer(t)
		w := startWatcher(t, name, p.Endpoint, nil, "lock", "f47", "--ttl", "60", "--", "sh", "-c", "echo up; cat >/dev/null; exit 42")
		w.await(t, "up")
		p.Kill()
		begin := time.Now()
		w.in.Close()
		wantEnd(t, w, 42)
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		if !strings.Contains(w.errs.String(), "end by themselves within") {
			t.Errorf("it does not say what is left: %s", w.errs)
		}
	}
}

// F48, case 6: a waiter that loses its place, or is told to end, leaves nothing.
func TestLockF48Waiter(t *testing.T) {
	t.Parallel()
	_, c := lockServer(t)
	endpoint := c.Endpoints()[0]
	for _, e := range []struct {
		program string
		args    []string
		how     string
		want    int
	}{
		{"etcdctl-plus", []string{"lock", "f48"}, "revoke", 124},
		{"etcdctl-plus", []string{"lock", "f48", "--", "true"}, "revoke", 124},
		{"etcdctl-plus", []string{"lock", "f48", "--", "true"}, "delete", 124},
		{"etcdctl-plus", []string{"lock", "f48"}, "TERM", -15},
		{"etcdctl-plus", []string{"lock", "f48", "--", "true"}, "TERM", -15},
		{"etcdctl-plus", []string{"lock", "f48", "--", "true"}, "INT", -2},
		{"etcdctl-plus", []string{"lock", "f48", "--", "true"}, "HUP", -1},
		{"etcdctl-plus", []string{"lock", "f48", "--", "true"}, "QUIT", 131},
		{"etcdctl-plus", []string{"lock", "f48", "--wait", "300ms"}, "", 124},
		{"etcdctl-plus", []string{"lock", "f48", "--wait", "300ms", "--", "true"}, "", 124},
		{"etcdctl-plus", []string{"lock", "f48", "--try"}, "", 4},
		{"etcdctl-plus", []string{"lock", "f48", "--try", "--", "true"}, "", 124},
		{"etcdctl-plus", []string{"elect", "f48", "me"}, "INT", -2},
		{"etcdctl-plus", []string{"elect", "f48", "me", "--", "true"}, "revoke", 124},
		{"etcdctl-plus", []string{"elect", "f48", "me", "--try"}, "", 4},
		{"etcdctl", []string{"lock", "f48"}, "INT", 1},
		{"etcdctl", []string{"lock", "f48", "--", "true"}, "TERM", 1},
		{"etcdctl", []string{"elect", "f48", "me"}, "INT", 1},
		{"real", []string{"lock", "f48"}, "INT", 1}, // etcdctl itself
		{"real", []string{"lock", "f48", "--", "true"}, "TERM", 1},
		{"real", []string{"elect", "f48", "me"}, "INT", 1},
	} {
		holder := startWatcher(t, "etcdctl-plus", endpoint, nil, "lock", "f48")
		holder.await(t, "f48/")
		var w *watcher
		if e.program == "real" {
			w = startProgram(t, build(t, "go.etcd.io/etcd/etcdctl/v3"), endpoint, nil, e.args...)
		} else {
			w = startWatcher(t, e.program, endpoint, nil, e.args...)
		}
		if e.how != "" {
			key := awaitQueue(t, c, "f48/", 2)[1]
			var err error
			switch e.how {
			case "revoke":
				_, err = c.Revoke(t.Context(), leaseOf(t, key))
			case "delete":
				_, err = c.Delete(t.Context(), key)
			default:
				err = w.cmd.Process.Signal(map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT}[e.how])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		wantEnd(t, w, e.want)
		leases, err := c.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.program != "real" && len(leases.Leases) != 1 {
			t.Errorf("%q after %s: %d leases are left beside the holder's", e.args, e.how, len(leases.Leases)-1)
		}
		if e.program != "real" { // which now and then leaves its key to its lease
			awaitQueue(t, c, "f48/", 1)
		}
		signalTo(t, holder, syscall.SIGTERM)
		wantEnd(t, holder, -15)
		for _, l := range leases.Leases { // etcdctl's own stay
			_, _ = c.Revoke(t.Context(), l.ID)
		}
		nothingLeft(t, c, "f48/")
	}
}

// F49: the command's end is ours.
func TestLockF49Codes(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"lock", "f49", "--"}, {"elect", "f49", "me", "--"}} {
		for _, e := range []struct {
			command []string
			want    int
		}{
			{[]string{"true"}, 0}, {[]string{"false"}, 1}, {[]string{"sh", "-c", "exit 42"}, 42}, {[]string{"sh", "-c", "exit 255"}, 255}, {[]string{"sh", "-c", "exit 141"}, 141},
			{[]string{"sh", "-c", "kill -9 $$"}, 137}, {[]string{"sh", "-c", "kill -TERM $$"}, 143},
			{[]string{"/no/such/program"}, 127}, {[]string{"no-such-program"}, 127}, {[]string{plain}, 126}, {[]string{"/"}, 126},
		} {
			w := startWatcher(t, "etcdctl-plus", s.Endpoint(), nil, append(verb, e.command...)...)
			if l, more := <-w.lines; more {
				t.Errorf("%q prints %q", e.command, l)
			}
			wantEnd(t, w, e.want)
		}
	}
	// What is not etcd's to say: nothing is there to connect to.
	w := startWatcher(t, "etcdctl-plus", "127.0.0.1:1", nil, "lock", "f49", "--", "true")
	wantEnd(t, w, 125)
	w = startWatcher(t, "etcdctl-plus", "127.0.0.1:1", nil, "lock", "f49")
	wantEnd(t, w, 20)
	nothingLeft(t, c, "f49/")
}

// First come, first served, etcdctl's own among ours; the fencing number grows.
func TestLockOrder(t *testing.T) {
	t.Parallel()
	_, c := lockServer(t)
	endpoint := c.Endpoints()[0]
	file := filepath.Join(t.TempDir(), "order")
	real := build(t, "go.etcd.io/etcd/etcdctl/v3")
	programs := []string{ours(t, "etcdctl-plus"), real, ours(t, "etcdctl"), real, ours(t, "etcdctl-plus")}
	holder := startWatcher(t, "etcdctl-plus", endpoint, nil, "lock", "order")
	holder.await(t, "order/")
	var waiters []*watcher
	for i, p := range programs {
		w := startProgram(t, p, endpoint, []string{"FILE=" + file}, "lock", "order", "--", "sh", "-c", fmt.Sprintf(`echo "%d ${ETCD_LOCK_FENCE:-0} $ETCD_LOCK_REV" >>"$FILE"; sleep 0.1; echo "%d ${ETCD_LOCK_FENCE:-0} $ETCD_LOCK_REV" >>"$FILE"`, i, i))
		awaitQueue(t, c, "order/", i+2)
		waiters = append(waiters, w)
	}
	signalTo(t, holder, syscall.SIGINT)
	for _, w := range waiters {
		wantEnd(t, w, 0)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	fence, rev := 0, 0
	for i, l := range lines {
		var n, f, r int
		if _, err := fmt.Sscan(l, &n, &f, &r); err != nil || n != i/2 || len(lines) != 2*len(programs) {
			t.Fatalf("%v in %q", err, lines)
		}
		if f != 0 && f < fence || r < rev {
			t.Errorf("numbers go back: %q", lines)
		}
		fence, rev = max(fence, f), r
	}
}

// A restart of etcd within the time to live keeps the lock.
func TestLockServerRestart(t *testing.T) {
	t.Parallel()
	p, _ := lockServer(t)
	w := startWatcher(t, "etcdctl-plus", p.Endpoint, nil, "lock", "restart", "--ttl", "30", "--", "sh", "-c", "echo up; read x; echo got $x; exit 5")
	w.await(t, "up")
	p.Kill()
	time.Sleep(time.Second)
	o := p.Options
	o.DataDir = p.DataDir
	fmt.Sscanf(p.Endpoint, "127.0.0.1:%d", &o.ClientPort)
	fmt.Sscanf(strings.TrimPrefix(p.Peer, "http://"), "127.0.0.1:%d", &o.PeerPort)
	c := server.Start(t, o).Client(t)
	awaitQueue(t, c, "restart/", 1)
	if _, err := io.WriteString(w.in, "word\n"); err != nil {
		t.Fatal(err)
	}
	w.await(t, "got word")
	wantEnd(t, w, 5)
	nothingLeft(t, c, "restart/")
}

// A connection that is cut is made anew. A network that swallows everything ends the
// command before the lease does, and nobody gets the lock before.
func TestLockNetwork(t *testing.T) {
	t.Parallel()
	p, c := lockServer(t)
	for _, script := range []string{beats, `trap "" TERM; ` + beats} {
		proxy := server.NewProxy(t, p.Endpoint)
		file := filepath.Join(t.TempDir(), "beats")
		env := []string{"FILE=" + file}
		w := startWatcher(t, "etcdctl-plus", proxy.Endpoint, env, "lock", "net", "--ttl", "4", "--", "sh", "-c", script)
		pids := numbers(w.await(t, "up"))
		for range 3 {
			time.Sleep(time.Second)
			proxy.Cut()
		}
		for len(beatsOf(t, file)) < 3 {
			time.Sleep(10 * time.Millisecond)
		}
		next := startWatcher(t, "etcdctl-plus", p.Endpoint, env, "lock", "net", "--ttl", "4", "--", "sh", "-c", `echo "next $(date +%s%N)" >>"$FILE"`)
		awaitQueue(t, c, "net/", 2)
		cut := time.Now()
		proxy.Blackhole()
		wantEnd(t, w, 123)
		awaitDead(t, pids)
		wantEnd(t, next, 0)
		end, began := last(t, file), beatsOf(t, file)["next"][0]
		t.Logf("cut; the last of it ran %s later, the next began after %s", end.Sub(cut), began.Sub(cut))
		if !end.Before(began) || end.Sub(cut) >= lockTTL {
			t.Errorf("the command ran until %s after the cut, the next began after %s", end.Sub(cut), began.Sub(cut))
		}
	}
}

// Case 6: standard input reaches the command, and no lease is left whatever the end.
func TestLockCase6(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	for _, name := range []string{"etcdctl-plus", "etcdctl"} {
		cmd := exec.Command(ours(t, name), "lock", "L", "--", "cat")
		cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + s.Endpoint(), "PATH=/usr/bin:/bin"}
		cmd.Stdin = strings.NewReader("hi\n")
		if out, err := cmd.Output(); err != nil || string(out) != "hi\n" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
		nothingLeft(t, c, "L/")
		for _, args := range [][]string{{"lock", "L"}, {"elect", "L", "me"}} {
			w := startWatcher(t, name, s.Endpoint(), nil, args...)
			w.await(t, "L/")
			for range 3 { // whoever ends a job may send more than one
				_ = w.cmd.Process.Signal(syscall.SIGINT) // it may be gone by then
			}
			wantEnd(t, w, map[string]int{"etcdctl-plus": -2, "etcdctl": 0}[name])
			nothingLeft(t, c, "L/")
		}
		w := startWatcher(t, name, s.Endpoint(), nil, "elect", "L", "--listen")
		if _, err := c.Put(t.Context(), "L/1", "somebody"); err != nil {
			t.Fatal(err)
		}
		w.await(t, "somebody")
		if _, err := c.Put(t.Context(), "L/1", "else"); err != nil {
			t.Fatal(err)
		}
		w.await(t, "else")
		if _, err := c.Delete(t.Context(), "L/1"); err != nil {
			t.Fatal(err)
		}
		signalTo(t, w, syscall.SIGTERM)
		wantEnd(t, w, map[string]int{"etcdctl-plus": -15, "etcdctl": 0}[name])
		nothingLeft(t, c, "L/")
	}
}

// Row "--command-timeout" of the surface: it ends neither lock nor elect nor a command.
func TestLockCommandTimeout(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	for _, name := range []string{"etcdctl-plus", "etcdctl"} {
		env := []string{"ETCDCTL_COMMAND_TIMEOUT=100ms"}
		holder := startWatcher(t, name, s.Endpoint(), env, "lock", "slow")
		holder.await(t, "slow/")
		w := startWatcher(t, name, s.Endpoint(), env, "lock", "slow", "--", "sh", "-c", "sleep 1; echo done")
		leader := startWatcher(t, name, s.Endpoint(), env, "elect", "slowly", "me")
		leader.await(t, "slowly/")
		time.Sleep(500 * time.Millisecond)
		signalTo(t, holder, syscall.SIGINT)
		w.await(t, "done")
		wantEnd(t, w, 0)
		signalTo(t, leader, syscall.SIGINT)
		leader.ends(t)
		holder.ends(t)
	}
	nothingLeft(t, c, "slow")
}

// The guard is no command: started by hand it ends at once and kills nobody.
func TestLockGuardByHand(t *testing.T) {
	t.Parallel()
	w := startWatcher(t, "etcdctl-plus", "", []string{"ETCDCTL_PLUS_LOCK_GUARD=1"})
	wantEnd(t, w, 1)
	if !strings.Contains(w.errs.String(), "by the program itself") {
		t.Error(w.errs)
	}
}

// A guard that is killed is not gone unnoticed: nothing may run without it.
func TestLockGuardKilled(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	w := startWatcher(t, "etcdctl-plus", s.Endpoint(), nil, "lock", "guard", "--", "sh", "-c", `ps -o pgid= -p $$; echo up; while :; do sleep 0.05; done`)
	lines := w.await(t, "up")
	guard, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, w, 125)
	nothingLeft(t, c, "guard/")
}

// Background work that a command leaves behind when it ends by itself is let be.
func TestLockLeavesBackgroundWork(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	w := startWatcher(t, "etcdctl-plus", s.Endpoint(), nil, "lock", "bg", "--", "sh", "-c", `sleep 60 >/dev/null 2>&1 & echo $!; echo up`)
	pids := numbers(w.await(t, "up"))
	wantEnd(t, w, 0)
	nothingLeft(t, c, "bg/")
	time.Sleep(200 * time.Millisecond)
	if len(pids) != 1 || !alive(pids[0]) {
		t.Fatalf("%v does not run any more", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// What nohup has told to ignore HUP goes on ignoring it, holder and command.
func TestLockNohup(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	for _, args := range [][]string{{"lock", "nohup"}, {"lock", "nohup", "--", "sh", "-c", "echo nohup/; read x; echo got $x"}} {
		w := startProgram(t, "/bin/sh", s.Endpoint(), []string{"EP=" + ours(t, "etcdctl-plus")}, append([]string{"-c", `trap "" HUP; exec "$EP" "$@"`, "sh"}, args...)...)
		w.await(t, "nohup/")
		signalTo(t, w, syscall.SIGHUP)
		time.Sleep(300 * time.Millisecond)
		awaitQueue(t, c, "nohup/", 1)
		if len(args) > 2 {
			if _, err := io.WriteString(w.in, "word\n"); err != nil {
				t.Fatal(err)
			}
			w.await(t, "got word")
			wantEnd(t, w, 0)
		} else {
			signalTo(t, w, syscall.SIGTERM)
			wantEnd(t, w, -15)
		}
		nothingLeft(t, c, "nohup/")
	}
}
