//go:build unix

package commands_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// vault is a folder with an earlier backup, which every failure must leave as it is.
type vault struct {
	dir, old string
	sum      [32]byte
}

func newVault(t *testing.T, dir string) *vault {
	t.Helper()
	s, c := startSandbox(t, sandbox.Options{})
	if _, err := c.Put(t.Context(), "earlier", "1"); err != nil {
		t.Fatal(err)
	}
	v := &vault{dir: dir, old: filepath.Join(dir, "old.db")}
	ok(t, map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint()}, "snapshot", "save", v.old)
	v.sum = v.read(t)
	return v
}

func (v *vault) read(t *testing.T) [32]byte {
	t.Helper()
	b, err := os.ReadFile(v.old)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

func (v *vault) path() string { return filepath.Join(v.dir, "new.db") }

// untouched fails unless the earlier backup is as it was, and nothing but want (names) is
// there beside it.
func (v *vault) untouched(t *testing.T, want ...string) {
	t.Helper()
	if v.read(t) != v.sum {
		t.Error("the earlier backup was changed")
	}
	ok(t, nil, "snapshot", "verify", "--strict", v.old)
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "old.db") {
			names = append(names, e.Name())
		}
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("beside the earlier backup there is %v, want %v", names, want)
	}
}

var saved = []string{"new.db", "new.db.manifest.json"}

// load fills a cluster with about n MB that do not compress.
func load(t *testing.T, c *clientv3.Client, mb int) {
	t.Helper()
	rng := rand.NewChaCha8([32]byte{1})
	for i := range mb {
		b := make([]byte, 1<<20)
		_, _ = rng.Read(b)
		if _, err := c.Put(t.Context(), fmt.Sprintf("big/%03d", i), string(b)); err != nil {
			t.Fatal(err)
		}
	}
}

// saving starts our program in a process of its own.
func saving(t *testing.T, endpoint, path string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(ours(t, "etcdctl-plus"), append([]string{"snapshot", "save", path, "-w", "json"}, args...)...)
	cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + endpoint}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &errs
}

// endsWith fails unless the process ends with a code, soon enough.
func endsWith(t *testing.T, cmd *exec.Cmd, errs *bytes.Buffer, want int, within time.Duration) {
	t.Helper()
	kill := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait() // the code counts
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("exit code %d, want %d (%v)\n%s", got, want, cmd.ProcessState, errs)
	}
}

// F02: the network goes away without a word in the middle of the stream.
func TestSaveBlackhole(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	s, c := startSandbox(t, sandbox.Options{})
	load(t, c, 8)
	p := server.NewProxy(t, s.Endpoint())
	p.Throttle(4 << 20)
	cmd, errs := saving(t, p.Endpoint, v.path(), "--stall-timeout", "500ms")
	p.Await(t, 2<<20)
	p.Blackhole()
	endsWith(t, cmd, errs, 21, 10*time.Second)
	v.untouched(t)
}

// The whole of it has a limit too.
func TestSaveTimeout(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	s, c := startSandbox(t, sandbox.Options{})
	load(t, c, 4)
	p := server.NewProxy(t, s.Endpoint())
	p.Throttle(1 << 20)
	cmd, errs := saving(t, p.Endpoint, v.path(), "--timeout", "1s")
	endsWith(t, cmd, errs, 21, 10*time.Second)
	v.untouched(t)
}

// F03: the server is killed in the middle of the stream.
func TestSaveServerKilled(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	srv := server.Start(t, server.Options{})
	load(t, srv.Client(t), 16)
	p := server.NewProxy(t, srv.Endpoint)
	p.Throttle(4 << 20)
	cmd, errs := saving(t, p.Endpoint, v.path())
	p.Await(t, 2<<20)
	srv.Kill()
	p.Cut()
	endsWith(t, cmd, errs, 20, 15*time.Second)
	v.untouched(t)
}

// F04: killed at any moment, it leaves nothing that anybody would take for a backup, and
// the next run cleans up.
func TestSaveKilled(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	s, c := startSandbox(t, sandbox.Options{})
	load(t, c, 4)
	p := server.NewProxy(t, s.Endpoint())
	rng := rand.New(rand.NewPCG(4, 4))
	for range 20 {
		p.Throttle(8 << 20)
		cmd, _ := saving(t, p.Endpoint, v.path())
		time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if _, err := os.Stat(v.path()); err == nil {
			// It came that far: then it is whole.
			ok(t, nil, "snapshot", "verify", "--strict", v.path())
			for _, name := range saved {
				if err := os.RemoveAll(filepath.Join(v.dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	p.Throttle(0)
	cmd, errs := saving(t, p.Endpoint, v.path())
	endsWith(t, cmd, errs, 0, 30*time.Second)
	v.untouched(t, saved...)
	ok(t, nil, "snapshot", "verify", "--strict", v.path())
}

// F05: a signal ends it as it ends any program, and nothing is left.
func TestSaveSignals(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	s, c := startSandbox(t, sandbox.Options{})
	load(t, c, 8)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		p := server.NewProxy(t, s.Endpoint())
		p.Throttle(1 << 20)
		cmd, errs := saving(t, p.Endpoint, v.path())
		p.Await(t, 1<<20)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := endedBy(cmd.Wait()); got != sig {
			t.Errorf("ended by %v, want %v\n%s", got, sig, errs)
		}
		v.untouched(t)
	}
}

// F06: the disk is full.
func TestSaveDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	v := newVault(t, dir)
	s, c := startSandbox(t, sandbox.Options{})
	load(t, c, 12)
	cmd, errs := saving(t, s.Endpoint(), v.path())
	endsWith(t, cmd, errs, 74, 30*time.Second)
	if !strings.Contains(errs.String(), "no space left") {
		t.Errorf("%s", errs)
	}
	v.untouched(t)
}

// changed is a server whose snapshots are changed on their way.
func changed(t *testing.T, change func(part int, r *pb.SnapshotResponse, send func(*pb.SnapshotResponse) error) error) *sandbox.Sandbox {
	t.Helper()
	s, c := startSandbox(t, sandbox.Options{ServerOptions: []grpc.ServerOption{grpc.ChainStreamInterceptor(
		func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if strings.HasSuffix(info.FullMethod, "/Snapshot") {
				ss = &snapshotStream{ServerStream: ss, change: change}
			}
			return handler(srv, ss)
		})}})
	load(t, c, 1)
	return s
}

type snapshotStream struct {
	grpc.ServerStream
	n      int
	change func(int, *pb.SnapshotResponse, func(*pb.SnapshotResponse) error) error
}

func (s *snapshotStream) SendMsg(m any) error {
	s.n++
	return s.change(s.n-1, m.(*pb.SnapshotResponse), func(r *pb.SnapshotResponse) error { return s.ServerStream.SendMsg(r) })
}

// F07, F08: what comes is not what the server has.
func TestSaveBadStream(t *testing.T) {
	t.Parallel()
	type send = func(*pb.SnapshotResponse) error
	for name, c := range map[string]struct {
		change func(int, *pb.SnapshotResponse, send) error
		code   int
		says   string
	}{
		"a bit flipped": {func(n int, r *pb.SnapshotResponse, s send) error {
			if n == 3 {
				r.Blob = bytes.Clone(r.Blob)
				r.Blob[len(r.Blob)/2] ^= 8
			}
			return s(r)
		}, 10, "its SHA-256 is"},
		"no checksum behind it": {func(_ int, r *pb.SnapshotResponse, s send) error {
			if len(r.Blob) == 32 {
				return nil
			}
			return s(r)
		}, 10, "without a checksum"},
		"one part missing": {func(n int, r *pb.SnapshotResponse, s send) error {
			if n == 2 {
				return nil
			}
			return s(r)
		}, 10, "its SHA-256 is"},
		"one part twice": {func(n int, r *pb.SnapshotResponse, s send) error {
			if n == 2 {
				if err := s(r); err != nil {
					return err
				}
			}
			return s(r)
		}, 10, "its SHA-256 is"},
		"empty parts for ever": {func(n int, r *pb.SnapshotResponse, s send) error {
			for n == 2 {
				if err := s(&pb.SnapshotResponse{RemainingBytes: r.RemainingBytes}); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
			return s(r)
		}, 21, "nothing came for"},
		"nothing at all": {func(int, *pb.SnapshotResponse, send) error { return nil }, 10, "ended after 0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, t.TempDir())
			s := changed(t, c.change)
			r := run(t, map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint()}, "snapshot", "save", v.path(), "--stall-timeout", "1s")
			if r.code != c.code || !strings.Contains(r.stderr, c.says) {
				t.Errorf("exit code %d, want %d\n%s", r.code, c.code, r.stderr)
			}
			v.untouched(t)
		})
	}
}

// F09: two at once to one name. One saves, the other is told.
func TestSaveTwice(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	s, c := startSandbox(t, sandbox.Options{})
	load(t, c, 4)
	p := server.NewProxy(t, s.Endpoint())
	p.Throttle(4 << 20)
	first, firstErrs := saving(t, p.Endpoint, v.path())
	p.Await(t, 1<<20)
	second, secondErrs := saving(t, s.Endpoint(), v.path())
	endsWith(t, second, secondErrs, 11, 10*time.Second)
	p.Throttle(0)
	endsWith(t, first, firstErrs, 0, 30*time.Second)
	v.untouched(t, saved...)
	ok(t, nil, "snapshot", "verify", "--strict", v.path())
}

// F10: whatever lies where a file should go, nothing is followed, nothing is lost.
func TestSaveOddTargets(t *testing.T) {
	t.Parallel()
	s, _ := startSandbox(t, sandbox.Options{})
	for name, lay := range map[string]func(path string) error{
		"folder":       func(p string) error { return os.Mkdir(p, 0o700) },
		"dangling":     func(p string) error { return os.Symlink(p+".elsewhere", p) },
		"link to file": func(p string) error { return os.Symlink("old.db", p) },
		"fifo":         func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"lock is a link": func(p string) error {
			return os.Symlink("old.db", filepath.Join(filepath.Dir(p), ".new.db.etcdctl-plus.lock"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, t.TempDir())
			if err := lay(v.path()); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadDir(v.dir)
			if err != nil {
				t.Fatal(err)
			}
			r := run(t, map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint()}, "snapshot", "save", v.path(), "--force")
			if r.code != 73 && r.code != 77 {
				t.Errorf("exit code %d\n%s", r.code, r.stderr)
			}
			after, err := os.ReadDir(v.dir)
			if err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("%v became %v, %v", before, after, err)
			}
			if v.read(t) != v.sum {
				t.Error("the earlier backup was changed")
			}
		})
	}
}

// F11: whatever the umask is, and whatever was there, others cannot read it.
func TestSaveMode(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	s, _ := startSandbox(t, sandbox.Options{})
	if err := os.WriteFile(v.path(), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(v.path(), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `umask 000 && exec "$0" snapshot save "$1" --force`, ours(t, "etcdctl-plus"), v.path())
	cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + s.Endpoint()}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range saved {
		st, err := os.Stat(filepath.Join(v.dir, name))
		if err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
}

// F12: a member without a quorum is refused, or its snapshot marked.
func TestSaveWithoutQuorum(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	s, c := startSandbox(t, sandbox.Options{})
	if _, err := c.Put(t.Context(), "a", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.MemberAdd(t.Context(), []string{"http://127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint(), "ETCDCTL_COMMAND_TIMEOUT": "1s"}
	// At once, it may still think that it has a leader; later it knows.
	for range 2 {
		if r := run(t, env, "snapshot", "save", v.path()); r.code != 20 || !strings.Contains(r.stderr, "--allow-stale") {
			t.Errorf("exit code %d\n%s", r.code, r.stderr)
		}
		v.untouched(t)
		time.Sleep(time.Second)
	}
	r := run(t, env, "snapshot", "save", v.path(), "--allow-stale", "-w", "json")
	if r.code != 0 || !strings.Contains(r.stdout, `"stale": true`) || !strings.Contains(r.stderr, "may be missing") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	v.untouched(t, saved...)
}

// F13: a follower that stands still does not stand in the way, and is never saved behind
// the cluster's back. F14: a learner is refused.
func TestSaveFollowersAndLearners(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	var members []*server.Process
	ports := server.Ports(t, 6)
	var peers, endpoints []string
	for i := range 3 {
		peers = append(peers, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[2*i+1]))
	}
	for i := range 3 {
		members = append(members, server.Start(t, server.Options{Name: fmt.Sprintf("m%d", i), Peers: strings.Join(peers, ","), ClientPort: ports[2*i], PeerPort: ports[2*i+1], NoWait: true}))
		endpoints = append(endpoints, members[i].Endpoint)
	}
	for _, m := range members {
		m.Ready(t)
	}
	c := members[0].Client(t)
	st, err := c.Status(t.Context(), endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	leader := 0
	for i, m := range members {
		ms, err := m.Client(t).Status(t.Context(), m.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if ms.Header.MemberId == st.Leader {
			leader = i
		}
	}
	frozen, other := (leader+1)%3, (leader+2)%3
	all := map[string]string{"ETCDCTL_ENDPOINTS": strings.Join([]string{endpoints[frozen], endpoints[leader], endpoints[other]}, ",")}
	members[frozen].Signal(t, syscall.SIGSTOP)
	put, err := members[leader].Client(t).Put(t.Context(), "after", "1")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Revision int64
		Endpoint string
	}
	if err := json.Unmarshal([]byte(ok(t, all, "snapshot", "save", v.path(), "-w", "json")), &m); err != nil {
		t.Fatal(err)
	}
	if m.Revision < put.Header.Revision || m.Endpoint != endpoints[other] {
		t.Errorf("saved revision %d of %s, want %d of %s", m.Revision, m.Endpoint, put.Header.Revision, endpoints[other])
	}
	alone := map[string]string{"ETCDCTL_ENDPOINTS": endpoints[frozen], "ETCDCTL_COMMAND_TIMEOUT": "1s", "ETCDCTL_DIAL_TIMEOUT": "1s"}
	if r := run(t, alone, "snapshot", "save", v.path()+"2"); r.code != 20 && r.code != 21 {
		t.Errorf("a frozen member alone: exit code %d\n%s", r.code, r.stderr)
	}
	members[frozen].Signal(t, syscall.SIGCONT)

	ports = server.Ports(t, 2)
	// Members that were away are healthy again only after a while.
	lc := members[leader].Client(t)
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		_, err := lc.MemberAddAsLearner(t.Context(), []string{fmt.Sprintf("http://127.0.0.1:%d", ports[1])})
		if err == nil {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatal(err)
		}
	}
	learner := server.Start(t, server.Options{
		Name: "l", Peers: strings.Join(append(peers, fmt.Sprintf("l=http://127.0.0.1:%d", ports[1])), ","),
		ClientPort: ports[0], PeerPort: ports[1], Args: []string{"--initial-cluster-state=existing"}, NoWait: true,
	})
	env := map[string]string{"ETCDCTL_ENDPOINTS": learner.Endpoint, "ETCDCTL_DIAL_TIMEOUT": "10s"}
	var r result
	for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(200 * time.Millisecond) {
		if r = run(t, env, "snapshot", "save", v.path()+"3"); r.code == 40 {
			break
		}
	}
	if r.code != 40 || !strings.Contains(r.stderr, "--allow-learner") {
		t.Fatalf("a learner: exit code %d\n%s\n%s", r.code, r.stderr, learner.Log())
	}
	r = run(t, env, "snapshot", "save", v.path()+"3", "--allow-learner", "-w", "json")
	if r.code != 0 || !strings.Contains(r.stdout, `"learner": true`) || !strings.Contains(r.stderr, "neither was checked") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	v.untouched(t, "new.db", "new.db.manifest.json", "new.db3", "new.db3.manifest.json")
}

// F15: an alarm.
func TestSaveAlarms(t *testing.T) {
	t.Parallel()
	v := newVault(t, t.TempDir())
	s, c := startSandbox(t, sandbox.Options{})
	env := map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint()}
	st, err := c.Status(t.Context(), s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	raise := func(a pb.AlarmType) {
		t.Helper()
		if _, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(context.Background(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: st.Header.MemberId, Alarm: a}); err != nil {
			t.Fatal(err)
		}
	}
	raise(pb.AlarmType_NOSPACE)
	if r := run(t, env, "snapshot", "save", v.path()); r.code != 0 || !strings.Contains(r.stderr, "NOSPACE") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	raise(pb.AlarmType_CORRUPT)
	if r := run(t, env, "snapshot", "save", v.path()+"2"); r.code != 40 || !strings.Contains(r.stderr, "CORRUPT") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	if r := run(t, env, "snapshot", "save", v.path()+"2", "--allow-corrupt"); r.code != 0 {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

// F16: what was saved is on the disk before it has its name, and the name after.
func TestSaveSynced(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	v := newVault(t, t.TempDir())
	s, _ := startSandbox(t, sandbox.Options{})
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-y", "-o", trace, "-e", "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat", ours(t, "etcdctl-plus"), "snapshot", "save", v.path())
	cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + s.Endpoint()}
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("nothing can be traced here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	// For the backup, then for its manifest: the file, its name, the folder.
	var got []string
	for line := range strings.Lines(string(b)) {
		switch {
		case strings.Contains(line, "sync(") && strings.Contains(line, ".new.db.etcdctl-plus"), strings.Contains(line, "sync(") && strings.Contains(line, ".new.db.manifest.json.etcdctl-plus"):
			got = append(got, "file")
		case strings.Contains(line, "sync(") && strings.Contains(line, "<"+v.dir+">"):
			got = append(got, "folder")
		case strings.Contains(line, "rename") && strings.Contains(line, "new.db"):
			got = append(got, "name")
		}
	}
	if want := "file name folder file name folder"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s\n%s", strings.Join(got, " "), want, b)
	}
}

// On a terminal, what takes longer shows how far it is, how fast, and what is left.
func TestSaveProgress(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	load(t, c, 8)
	p := server.NewProxy(t, s.Endpoint())
	p.Throttle(3 << 20)
	cmd := exec.Command(ours(t, "etcdctl-plus"), "snapshot", "save", filepath.Join(t.TempDir(), "x.db"))
	cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + p.Endpoint, "TERM=xterm"}
	term, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	out, _ := io.ReadAll(term) // ends with an error of the terminal
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`snapshot: [0-9.]+ [KM]iB of [0-9.]+ MiB \([0-9]+ %\), [0-9.]+ [KM]iB/s, [0-9]+s left`).Match(out) || !bytes.Contains(out, []byte("Snapshot saved at")) {
		t.Errorf("%q", out)
	}
}

// A full disk ends an extract with 74, and nothing of it stays; with room it works.
func TestExtractDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	db := filepath.Join(t.TempDir(), "snapshot.db")
	if err := corpus.Unpack("snapshot.db.gz", db); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "there"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"a/b", "there"} {
		r := run(t, nil, "snapshot", "extract", db, "/registry/", "--to", filepath.Join(dir, to), "-w", "json")
		if r.code != 74 || r.stdout != "" || !strings.Contains(r.stderr, "no space left") {
			t.Errorf("%s: exit code %d\n%s%s", to, r.code, r.stdout, r.stderr)
		}
	}
	var left []string
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		left = append(left, strings.TrimPrefix(p, dir))
		return err
	})
	if err != nil || strings.Join(left, " ") != " /there" {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"a/b", "there"} {
		ok(t, nil, "snapshot", "extract", db, "/registry/", "--to", filepath.Join(dir, to))
	}
}

// What was restored is on the disk before the folder has its name, and the name after.
func TestRestoreSynced(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	dir := t.TempDir()
	db := filepath.Join(t.TempDir(), "snapshot.db")
	if err := corpus.Unpack("snapshot.db.gz", db); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-y", "-o", trace, "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", ours(t, "etcdctl-plus"), "snapshot", "restore", db, "--data-dir", filepath.Join(dir, "new"))
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("nothing can be traced here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	work := regexp.QuoteMeta(dir) + `/\.new\.etcdctl-plus-[^/>"]*/data`
	placed := regexp.MustCompile(`rename.*"` + work + `",.*/new"`).FindIndex(b)
	if placed == nil {
		t.Fatalf("the folder got its name in no step\n%s", b)
	}
	before, after := b[:placed[0]], b[placed[1]:]
	for _, name := range []string{`/member/snap/db`, `/member/snap`, `/member/wal/[0-9a-f]{16}-[0-9a-f]{16}\.wal`, `/member/wal`, `/member`, ``} {
		if !regexp.MustCompile(`sync\(\d+<` + work + name + `>`).Match(before) {
			t.Errorf("%q was not synced before the folder got its name\n%s", name, b)
		}
	}
	if !regexp.MustCompile(`fsync\(\d+<` + regexp.QuoteMeta(dir) + `>`).Match(after) {
		t.Errorf("the name was not synced\n%s", b)
	}
}
