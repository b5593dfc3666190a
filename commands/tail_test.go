//go:build unix

package commands_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail/validate"
)

// follower runs `tail t/` with a checkpoint and a file, again and again.
type follower struct {
	t         *testing.T
	program   string
	endpoints string
	dir       string
	cmd       *exec.Cmd
	errs      bytes.Buffer
}

func newFollower(t *testing.T, endpoints ...string) *follower {
	t.Helper()
	return &follower{t: t, program: ours(t, "etcdctl-plus"), endpoints: strings.Join(endpoints, ","), dir: t.TempDir()}
}

func (f *follower) out() string        { return filepath.Join(f.dir, "out.jsonl") }
func (f *follower) checkpoint() string { return filepath.Join(f.dir, "ckpt") }

// start begins a run; more are flags of its own.
func (f *follower) start(more ...string) {
	f.t.Helper()
	args := append([]string{"tail", "t/", "--endpoints", f.endpoints, "--checkpoint", f.checkpoint(), "--out", f.out(), "--prev-kv"}, more...)
	f.cmd = exec.CommandContext(f.t.Context(), f.program, args...)
	f.errs.Reset()
	f.cmd.Stderr = &f.errs
	if err := f.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
}

// ends waits for the end of a run and returns its exit code, -1 for a signal.
func (f *follower) ends() int {
	f.t.Helper()
	kill := time.AfterFunc(60*time.Second, func() { _ = f.cmd.Process.Kill() })
	defer kill.Stop()
	_ = f.cmd.Wait()
	return f.cmd.ProcessState.ExitCode()
}

// run is a whole run with a bounded time.
func (f *follower) run(more ...string) int {
	f.t.Helper()
	f.start(more...)
	return f.ends()
}

func (f *follower) kill() {
	f.t.Helper()
	_ = f.cmd.Process.Kill() // it may have ended
	_ = f.cmd.Wait()
}

func (f *follower) saved() *watchtail.Checkpoint {
	f.t.Helper()
	c, _, err := watchtail.ReadCheckpoint(f.checkpoint())
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// awaits waits until the checkpoint is at a revision.
func (f *follower) awaits(rev int64) {
	f.t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if c, _, err := watchtail.ReadCheckpoint(f.checkpoint()); err == nil && c.Revision >= rev {
			return
		}
		if time.Since(begin) > 30*time.Second {
			f.t.Fatalf("revision %d does not come: %s", rev, &f.errs)
		}
	}
}

// lines reads all output, rotated files first.
func (f *follower) lines(files ...string) []validate.Event {
	f.t.Helper()
	var all []validate.Event
	for _, name := range append(files, f.out()) {
		b, err := os.Open(name)
		if err != nil {
			f.t.Fatal(err)
		}
		events, err := validate.Read(b)
		b.Close()
		if err != nil {
			f.t.Fatalf("%s: %v", name, err)
		}
		all = append(all, events...)
	}
	return all
}

// historyOf is everything that happened, by a member's own snapshot.
func historyOf(t *testing.T, c *clientv3.Client) []keyspace.Event {
	t.Helper()
	s, err := dbfile.Open(t.Context(), sourcetest.SaveSnapshot(t, c), dbfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var all []keyspace.Event
	for e, err := range s.Events(t.Context(), keyspace.EventRange{Key: []byte{0}, End: []byte{0}}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// holds checks everything that a tail promises.
func (f *follower) holds(c *clientv3.Client, from, to int64, files ...string) {
	f.t.Helper()
	want := historyOf(f.t, c)
	o := validate.Options{Selected: func(k []byte) bool { return bytes.HasPrefix(k, []byte("t/")) }, From: from, To: to, Prev: true}
	got := f.lines(files...)
	for i, v := range validate.Check(got, want, o) {
		if f.t.Error(v); i == 10 {
			break
		}
	}
	for _, v := range validate.Bookmark(got, want, f.saved().Revision, o) {
		f.t.Error(v)
	}
	if len(got) == 0 {
		f.t.Error("nothing came")
	}
}

// writes makes random changes until ctx ends, and counts those that were acknowledged.
func writes(ctx context.Context, t *testing.T, endpoints []string, pause time.Duration) (wait func() int) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	n := 0
	done.Go(func() {
		defer c.Close()
		rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
		key := func() string { return fmt.Sprintf("%s/%d", []string{"t", "t", "other"}[rng.IntN(3)], rng.IntN(20)) }
		for ctx.Err() == nil {
			var err error
			rctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			switch rng.IntN(8) {
			case 0:
				_, err = c.Delete(rctx, key())
			case 1:
				_, err = c.Delete(rctx, "t/1", clientv3.WithRange("t/2"))
			case 2:
				var ops []clientv3.Op
				for i := range []int{2, 3, 128}[rng.IntN(3)] {
					ops = append(ops, clientv3.OpPut(fmt.Sprintf("t/many/%d", i), fmt.Sprint(rng.Int())))
				}
				_, err = c.Txn(rctx).Then(ops...).Commit()
			default:
				_, err = c.Put(rctx, key(), fmt.Sprint(rng.Int()))
			}
			cancel()
			if err == nil {
				n++
			}
			time.Sleep(pause)
		}
	})
	return func() int { done.Wait(); return n }
}

func newest(t *testing.T, c *clientv3.Client) int64 {
	t.Helper()
	r, err := c.Get(t.Context(), "t/")
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.GetRevision()
}

// F33, F35: killed at any moment, also between output and checkpoint and inside of a
// revision: nothing is lost, nothing comes twice.
func TestTailKilled(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("3.7")})
	c := p.Client(t)
	f := newFollower(t, p.Endpoint)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	wait := writes(ctx, t, []string{p.Endpoint}, time.Millisecond)
	f.start("--from", "1")
	f.awaits(1)
	kills := 60
	if s := os.Getenv("TAIL_KILLS"); s != "" {
		if _, err := fmt.Sscan(s, &kills); err != nil {
			t.Fatal(err)
		}
	}
	for range kills {
		time.Sleep(time.Duration(20+rand.IntN(120)) * time.Millisecond)
		f.kill()
		f.start()
	}
	stop()
	if n := wait(); n < 200 {
		t.Errorf("only %d writes", n)
	}
	to := newest(t, c)
	f.awaits(to)
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := f.ends(); code != 0 {
		t.Errorf("after TERM: exit code %d: %s", code, &f.errs)
	}
	f.holds(c, 1, to)
}

// F31, F32: members are killed and stopped under it, the leader too, and it is killed itself.
func TestTailMembersKilled(t *testing.T) {
	t.Parallel()
	members := server.Cluster(t, 3, server.Options{Args: fast("3.7")})
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoint)
	}
	f := newFollower(t, endpoints...)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	wait := writes(ctx, t, endpoints, 2*time.Millisecond)
	f.start("--from", "1")
	f.awaits(1)
	for i := range 10 {
		n := rand.IntN(len(members))
		if i%3 == 0 {
			n = server.Leader(t, members)
		}
		if i%2 == 0 {
			members[n].Kill()
			time.Sleep(300 * time.Millisecond)
			members[n] = server.Start(t, members[n].Options)
		} else { // cut off: it answers nobody
			members[n].Signal(t, syscall.SIGSTOP)
			time.Sleep(1500 * time.Millisecond)
			members[n].Signal(t, syscall.SIGCONT)
		}
		members[n].Client(t)
		if i%4 == 3 {
			f.kill()
			f.start()
		}
		time.Sleep(200 * time.Millisecond)
	}
	stop()
	if n := wait(); n < 100 {
		t.Errorf("only %d writes", n)
	}
	c := members[0].Client(t)
	to := newest(t, c)
	f.awaits(to)
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := f.ends(); code != 0 {
		t.Errorf("after TERM: exit code %d: %s", code, &f.errs)
	}
	f.holds(c, 1, to)
}

// put writes n keys, each in a revision of its own.
func puts(t *testing.T, c *clientv3.Client, n int) int64 {
	t.Helper()
	var rev int64
	for i := range n {
		r, err := c.Put(t.Context(), fmt.Sprintf("t/%d", i), "v")
		if err != nil {
			t.Fatal(err)
		}
		rev = r.Header.GetRevision()
	}
	return rev
}

// F29, F30, case 10: what was compacted away ends it with 30, and output and checkpoint stay;
// --on-compacted=resync lists what has changed since.
func TestTailCompacted(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("3.7")})
	c := p.Client(t)
	f := newFollower(t, p.Endpoint)
	rev := puts(t, c, 3)
	if code := f.run("--from", "1", "--until-rev", fmt.Sprint(rev)); code != 0 {
		t.Fatalf("exit code %d: %s", code, &f.errs)
	}
	before, err := os.ReadFile(f.out())
	if err != nil {
		t.Fatal(err)
	}
	ckpt := f.saved()
	rev = puts(t, c, 2)
	if _, err := c.Delete(t.Context(), "t/2"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if code := f.run("--for", "20s"); code != 30 || !strings.Contains(f.errs.String(), fmt.Sprintf("revision %d ", ckpt.Revision+1)) || !strings.Contains(f.errs.String(), fmt.Sprint(rev)) {
			t.Fatalf("exit code %d: %s", code, &f.errs)
		}
	}
	if after, err := os.ReadFile(f.out()); err != nil || !bytes.Equal(before, after) || f.saved().Revision != ckpt.Revision {
		t.Errorf("the output is %s, the checkpoint %+v, %v", after, f.saved(), err)
	}
	if code := f.run("--on-compacted=resync", "--until-idle", "300ms"); code != 0 {
		t.Fatalf("exit code %d: %s", code, &f.errs)
	}
	var kinds []string
	for _, l := range f.lines()[3:] {
		kinds = append(kinds, l.Type+" "+l.Key)
	}
	if got := strings.Join(kinds, ", "); got != "BEGIN , PUT t/0, PUT t/1, END " {
		t.Errorf("%s", got)
	}
	// The list is in it once, whatever comes.
	if code := f.run("--until-idle", "300ms"); code != 0 || len(f.lines()) != 7 {
		t.Errorf("exit code %d, %d lines", code, len(f.lines()))
	}
}

// Case 11: a quiet prefix, while others write and compact: progress has moved the checkpoint.
func TestTailQuietPrefix(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("3.7")})
	c := p.Client(t)
	f := newFollower(t, p.Endpoint)
	puts(t, c, 1)
	f.start("--from", "1")
	f.awaits(2)
	var rev int64
	for range 50 {
		r, err := c.Put(t.Context(), "quiet", "v")
		if err != nil {
			t.Fatal(err)
		}
		rev = r.Header.GetRevision()
	}
	f.awaits(rev) // within 10 s
	f.kill()
	if _, err := c.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	puts(t, c, 1)
	if code := f.run("--until-rev", fmt.Sprint(rev+1)); code != 0 || len(f.lines()) != 2 {
		t.Errorf("exit code %d, %d lines: %s", code, len(f.lines()), &f.errs)
	}
}

// F37, F38: an older state under the same ids, behind the checkpoint or already past it, also
// with the checkpoint's revision compacted away, is told from a cluster that was restarted.
func TestTailRestored(t *testing.T) {
	t.Parallel()
	restored := func(p *server.Process, db string) *server.Process {
		t.Helper()
		p.Kill()
		if err := os.RemoveAll(p.DataDir); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), ours(t, "etcdutl"), "snapshot", "restore", db, "--data-dir", p.DataDir, "--name", "m0", "--initial-cluster", "m0="+p.Peer,
			"--initial-advertise-peer-urls", p.Peer, "--initial-cluster-token", "etcd-cluster")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return server.Start(t, p.Options)
	}
	for name, more := range map[string]struct {
		writes  int
		compact bool
		want    int
	}{
		"behind":          {0, false, 31},
		"past":            {40, false, 31},
		"past, compacted": {40, true, 31},
		"at the same":     {10, false, 31},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := server.Cluster(t, 1, server.Options{Args: append(fast("3.7"), "--initial-cluster-token", "etcd-cluster")})[0]
			c := p.Client(t)
			puts(t, c, 5)
			db := sourcetest.SaveSnapshot(t, c)
			f := newFollower(t, p.Endpoint)
			rev := puts(t, c, 10)
			if code := f.run("--from", "1", "--until-rev", fmt.Sprint(rev)); code != 0 {
				t.Fatalf("exit code %d: %s", code, &f.errs)
			}
			id := f.saved().ClusterID
			if name == "behind" { // a restart alone is none
				p.Kill()
				p = server.Start(t, p.Options)
				p.Client(t)
				if code := f.run("--until-idle", "300ms"); code != 0 {
					t.Fatalf("after a restart: exit code %d: %s", code, &f.errs)
				}
			}
			p = restored(p, db)
			c = p.Client(t)
			if r := puts(t, c, more.writes); more.compact {
				if _, err := c.Compact(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			before, err := os.ReadFile(f.out())
			if err != nil {
				t.Fatal(err)
			}
			if code := f.run("--for", "40s"); code != more.want {
				t.Errorf("exit code %d: %s", code, &f.errs)
			}
			if after, err := os.ReadFile(f.out()); err != nil || !bytes.Equal(before, after) || f.saved().ClusterID != id {
				t.Errorf("the output has changed, %v", err)
			}
			if code := f.run("--on-diverged=resync", "--until-idle", "300ms"); code != 0 {
				t.Fatalf("exit code %d: %s", code, &f.errs)
			}
			if l := f.lines(); !slices.ContainsFunc(l, func(e validate.Event) bool { return e.Type == "BEGIN" }) || l[len(l)-1].Type != "END" {
				t.Errorf("%+v", l[len(l)-1])
			}
		})
	}
}

// F36: a checkpoint that was cut anywhere is told, or the one before it is used; the file has
// each event once in any case.
func TestTailCheckpointCut(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("3.7")})
	c := p.Client(t)
	f := newFollower(t, p.Endpoint)
	rev := puts(t, c, 3)
	if code := f.run("--from", "1", "--until-rev", fmt.Sprint(rev)); code != 0 {
		t.Fatalf("exit code %d: %s", code, &f.errs)
	}
	whole, err := os.ReadFile(f.checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := watchtail.DecodeCheckpoint(whole[:n]); err == nil {
			t.Fatalf("the first %d bytes are taken for a checkpoint", n)
		}
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1
		if _, err := watchtail.DecodeCheckpoint(flipped); err == nil {
			t.Fatalf("byte %d can be changed", n)
		}
	}
	for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
		if err := os.WriteFile(f.checkpoint(), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if code := f.run("--until-idle", "200ms"); code != 0 || !strings.Contains(f.errs.String(), "the generation before it is used") {
			t.Errorf("cut at %d: exit code %d: %s", n, code, &f.errs)
		}
		f.holds(c, 1, rev)
	}
	if err := os.WriteFile(f.checkpoint(), whole[:5], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.checkpoint() + ".prev"); err != nil {
		t.Fatal(err)
	}
	if code := f.run("--until-idle", "200ms"); code != 32 {
		t.Errorf("exit code %d: %s", code, &f.errs)
	}
	f.lines()
}

// F41: moved and HUP, our own rotation, moved while it is dead: nothing is lost. copytruncate
// is told.
func TestTailRotation(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("3.7")})
	c := p.Client(t)
	f := newFollower(t, p.Endpoint)
	f.start("--from", "1")
	f.awaits(puts(t, c, 3))
	first := f.out() + "-first"
	if err := os.Rename(f.out(), first); err != nil {
		t.Fatal(err)
	}
	f.awaits(puts(t, c, 2)) // still in the old one
	if err := f.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	f.awaits(puts(t, c, 2))
	f.kill()
	second := f.out() + "-second"
	if err := os.Rename(f.out(), second); err != nil { // while it is dead
		t.Fatal(err)
	}
	rev := puts(t, c, 40)
	if code := f.run("--until-rev", fmt.Sprint(rev), "--rotate-size", "2K"); code != 0 {
		t.Fatalf("exit code %d: %s", code, &f.errs)
	}
	files := append([]string{first, second}, slices.DeleteFunc(watchtail.Files(f.out()), func(s string) bool { return s == f.out() })...)
	if len(files) < 4 {
		t.Errorf("%q", files)
	}
	f.holds(c, 1, rev, files...)
	if code := f.run("--until-idle", "100ms", "--rotate-size", "2K", "--rotate-keep", "1"); code != 0 {
		t.Fatalf("exit code %d: %s", code, &f.errs)
	}
	f.start()
	f.awaits(puts(t, c, 3))
	if err := os.Truncate(f.out(), 0); err != nil {
		t.Fatal(err)
	}
	puts(t, c, 1)
	if code := f.ends(); code != 78 || !strings.Contains(f.errs.String(), "copytruncate") {
		t.Errorf("exit code %d: %s", code, &f.errs)
	}
	if code := f.run("--until-idle", "100ms"); code != 78 || !strings.Contains(f.errs.String(), "copytruncate") {
		t.Errorf("the next run: exit code %d: %s", code, &f.errs)
	}
}

// F42: one checkpoint is one tail's.
func TestTailTwice(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("3.7")})
	f := newFollower(t, p.Endpoint)
	f.start("--from", "1")
	f.awaits(1)
	other := *f
	if code := other.run("--until-idle", "100ms"); code != 11 {
		t.Errorf("exit code %d: %s", code, &other.errs)
	}
	f.kill()
	if code := f.run("--until-idle", "100ms"); code != 0 {
		t.Errorf("after the first was killed: exit code %d: %s", code, &f.errs)
	}
}

// F34: a revision of 5 MB comes whole.
func TestTailLargeRevision(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: append(fast("3.7"), "--max-request-bytes", "8000000")})
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Endpoint}, Logger: zap.NewNop(), MaxCallSendMsgSize: 9 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p.Client(t)
	var ops []clientv3.Op
	for i := range 100 {
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("t/%03d", i), strings.Repeat("x", 50_000)))
	}
	f := newFollower(t, p.Endpoint)
	f.start("--from", "1")
	f.awaits(1)
	var rev int64
	for range 4 {
		r, err := c.Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		rev = r.Header.GetRevision()
		f.kill()
		f.start()
	}
	f.awaits(rev)
	f.kill()
	f.holds(c, 1, rev)
}

// F39: a token that expires is renewed, a right that is taken ends it with 22.
func TestTailAuth(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: append(fast("3.7"), "--auth-token-ttl", "1")})
	open := p.Client(t)
	ctx := t.Context()
	for _, err := range []error{
		errOf(open.UserAdd(ctx, "root", "pw")), errOf(open.RoleAdd(ctx, "root")), errOf(open.UserGrantRole(ctx, "root", "root")),
		errOf(open.UserAdd(ctx, "app", "pw")), errOf(open.RoleAdd(ctx, "app")), errOf(open.UserGrantRole(ctx, "app", "app")),
		errOf(open.RoleGrantPermission(ctx, "app", "t/", "t0", clientv3.PermissionType(clientv3.PermReadWrite))), errOf(open.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Endpoint}, Username: "root", Password: "pw", Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f := newFollower(t, p.Endpoint)
	// A user who may not stream a snapshot watches from the oldest revision on.
	puts(t, root, 3)
	if _, err := root.Compact(ctx, newest(t, root)-1); err != nil {
		t.Fatal(err)
	}
	f.start("--user", "app:pw", "--from", "oldest")
	f.awaits(newest(t, root))
	if n := len(f.lines()); n != 1 {
		t.Errorf("%d events from the oldest revision on", n)
	}
	rev := puts(t, root, 2)
	f.awaits(rev)
	time.Sleep(2500 * time.Millisecond) // its token is gone
	p.Kill()
	p = server.Start(t, p.Options)
	f.awaits(puts(t, root, 2))
	if _, err := root.UserRevokeRole(ctx, "app", "app"); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	server.Start(t, p.Options)
	if code := f.ends(); code != 22 {
		t.Errorf("exit code %d: %s", code, &f.errs)
	}
}

func errOf[T any](_ T, err error) error { return err }

// F40: a reader that goes away, a full disk, a slow reader.
func TestTailReaders(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: fast("3.7")})
	c := p.Client(t)
	f := newFollower(t, p.Endpoint)
	for range 20 {
		var ops []clientv3.Op
		for i := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("t/%03d", i), strings.Repeat("x", 10_000)))
		}
		if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	shell := func(script string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "bash", "-c", "P="+f.program+"\nexport ETCDCTL_ENDPOINTS="+f.endpoints+"\n"+script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if out := shell(`$P tail t/ --from 1 | head -1 | cut -c1-6; echo ${PIPESTATUS[0]}`); out != "2 1/10\n141" {
		t.Errorf("a closed pipe: %s", out)
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		if out := shell(`$P tail t/ --from 1 -w json > /dev/full 2> err || echo $?; $P tail t/ --from 1 > /dev/full 2>&1 || echo $?; rm err`); !strings.HasSuffix(out, "74") {
			t.Errorf("a full disk: %s", out)
		}
	}
	// 20 MB wait behind a reader that takes nothing; the program holds no more of them than a
	// message and a buffer.
	cmd := exec.CommandContext(t.Context(), f.program, "tail", "t/", "--from", "1", "--endpoints", f.endpoints, "-w", "jsonl")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if anon := anonymous(t, cmd.Process.Pid); anon > 150<<20 {
		t.Errorf("%d MiB of anonymous memory", anon>>20)
	}
	n := 0
	for d := json.NewDecoder(out); n < 2000; n++ {
		var e validate.Event
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// anonymous is how much memory a process has that no file backs, in bytes; 0 where the
// system does not tell.
func anonymous(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}
