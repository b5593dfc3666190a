//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// sample is one run of a command.
type sample struct {
	wall, first time.Duration // first: until the first byte of output
	peak, anon  int64         // bytes; peak counts mapped pages of files too
	cpu         time.Duration
}

// command is what to run; endpoint, when set, goes into the environment.
type command struct {
	args     []string
	endpoint string
	until    string // end the command once its output had this; "": it ends by itself
	code     int    // that it ends with
}

// unchecked is c without the comparison of a snapshot with its SHA-256.
func (c command) unchecked() command {
	c.args = append(slices.Clip(c.args), "--db-skip-hash-check")
	return c
}

// run executes c once and measures it. Its output is read and thrown away.
func (c command) run(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "TMPDIR=" + os.TempDir()}
	if c.endpoint != "" {
		cmd.Env = append(cmd.Env, "ETCDCTL_ENDPOINTS="+c.endpoint)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return sample{}, err
	}
	var s sample
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return s, err
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		s.anon, s.peak = watchMemory(cmd.Process.Pid, done)
	}()
	ended := c.read(out, func() { s.first = time.Since(start) })
	if ended {
		s.wall = time.Since(start)
		_ = cmd.Process.Kill() // a watch has no end of its own
	}
	err = cmd.Wait()
	if ended {
		err = nil
	} else {
		s.wall = time.Since(start)
	}
	close(done)
	wg.Wait()
	if err != nil && cmd.ProcessState.ExitCode() != c.code {
		return s, fmt.Errorf("%s: %w\n%s", strings.Join(c.args, " "), err, errs.String())
	}
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return s, nil
}

// read throws the output away and tells whether it had c.until.
func (c command) read(out io.Reader, first func()) bool {
	buf := make([]byte, 0, 1<<20)
	for started := false; ; {
		n, err := out.Read(buf[len(buf):cap(buf)])
		if n > 0 && !started {
			first()
			started = true
		}
		buf = buf[:len(buf)+n]
		if c.until != "" && bytes.Contains(buf, []byte(c.until)) {
			return true
		}
		if err != nil {
			return false
		}
		// The end may lie across two reads.
		keep := min(len(buf), len(c.until))
		buf = append(buf[:0], buf[len(buf)-keep:]...)
	}
}

// watchMemory returns the largest RssAnon and the VmHWM of a process, seen every
// 5 ms. (getrusage's maximum counts what the parent had before exec.)
func watchMemory(pid int, done <-chan struct{}) (anon, peak int64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
			for sc := bufio.NewScanner(f); sc.Scan(); {
				for name, most := range map[string]*int64{"RssAnon:": &anon, "VmHWM:": &peak} {
					if rest, ok := strings.CutPrefix(sc.Text(), name); ok {
						kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64) // the kernel's own format
						*most = max(*most, kb<<10)
					}
				}
			}
			f.Close()
		}
		select {
		case <-done:
			return anon, peak
		case <-tick.C:
		}
	}
}

// compare runs ours and the peer in turn and returns the medians of each.
func (b *bencher) compare(ctx context.Context, before func() error, cmds ...command) ([]sample, error) {
	runs := make([][]sample, len(cmds))
	for range b.runs {
		for i, c := range cmds {
			if before != nil {
				if err := before(); err != nil {
					return nil, err
				}
			}
			s, err := c.run(ctx)
			if err != nil {
				return nil, err
			}
			runs[i] = append(runs[i], s)
		}
	}
	out := make([]sample, len(cmds))
	for i, rs := range runs {
		out[i] = sample{
			wall: median(rs, func(s sample) int64 { return int64(s.wall) }), first: median(rs, func(s sample) int64 { return int64(s.first) }),
			cpu:  median(rs, func(s sample) int64 { return int64(s.cpu) }),
			peak: int64(median(rs, func(s sample) int64 { return s.peak })), anon: int64(median(rs, func(s sample) int64 { return s.anon })),
		}
	}
	return out, nil
}

func median(rs []sample, get func(sample) int64) time.Duration {
	v := make([]int64, len(rs))
	for i, r := range rs {
		v[i] = get(r)
	}
	slices.Sort(v)
	return time.Duration(v[len(v)/2])
}

// forget drops a file from the page cache.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// server is a real etcd process on a restored copy of a database.
type server struct {
	endpoint string
	cmd      *exec.Cmd
	dir      string
	client   *clientv3.Client
}

func (b *bencher) serve(ctx context.Context, db string) (*server, error) {
	dir, err := os.MkdirTemp(b.dir, "server-*")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	if db == "" {
		return b.start(ctx, s)
	}
	restore := exec.CommandContext(ctx, b.etcdutl, "snapshot", "restore", db, "--data-dir", dir+"/data", "--name", "bench", "--initial-cluster", "bench=http://127.0.0.1:1", "--initial-advertise-peer-urls", "http://127.0.0.1:1")
	if out, err := restore.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("restore: %w\n%s", err, out), s.close())
	}
	return b.start(ctx, s)
}

// start starts an etcd on the folder of s, empty or restored.
func (b *bencher) start(ctx context.Context, s *server) (*server, error) {
	dir := s.dir
	port, err := freePort()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.endpoint = fmt.Sprintf("127.0.0.1:%d", port)
	s.cmd = exec.CommandContext(ctx, b.etcd, "--name", "bench", "--data-dir", dir+"/data", "--unsafe-no-fsync", "--quota-backend-bytes", "8589934592",
		"--listen-client-urls", "http://"+s.endpoint, "--advertise-client-urls", "http://"+s.endpoint, "--listen-peer-urls", "http://127.0.0.1:0",
		"--initial-advertise-peer-urls", "http://127.0.0.1:1", "--initial-cluster", "bench=http://127.0.0.1:1", "--log-level", "error", "--snapshot-count", "1000000000")
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.client, err = clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	wait, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		if _, err = s.client.Get(wait, "up"); err == nil {
			return s, nil
		}
		if wait.Err() != nil {
			return nil, errors.Join(fmt.Errorf("etcd did not start: %w", err), s.close())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// cpu is what the server has used so far, of all cores together.
func (s *server) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ") // behind the name: state is field 3, utime 14, stime 15
	f := strings.Fields(rest)
	var sum int64
	for _, i := range []int{11, 12} {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / 100, nil // USER_HZ
}

func (s *server) close() error {
	if s.client != nil {
		_ = s.client.Close() // the server ends next
	}
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // by its pid; already gone is fine
		_ = s.cmd.Wait()         // it was killed
	}
	return os.RemoveAll(s.dir)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// putter measures how long puts of another client take, one after another.
type putter struct {
	stop chan struct{}
	done chan []time.Duration
}

func (s *server) putting(ctx context.Context) *putter {
	p := &putter{stop: make(chan struct{}), done: make(chan []time.Duration, 1)}
	go func() {
		var took []time.Duration
		for i := 0; ; i++ {
			select {
			case <-p.stop:
				p.done <- took
				return
			case <-ctx.Done():
				p.done <- took
				return
			case <-time.After(2 * time.Millisecond):
			}
			start := time.Now()
			if _, err := s.client.Put(ctx, fmt.Sprintf("/bench/put-%d", i%100), "x"); err == nil {
				took = append(took, time.Since(start))
			}
		}
	}()
	return p
}

// p99 ends the puts and returns their 99th percentile.
func (p *putter) p99() time.Duration {
	close(p.stop)
	took := <-p.done
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

func (s *server) idleP99(ctx context.Context) time.Duration {
	p := s.putting(ctx)
	time.Sleep(2 * time.Second)
	return p.p99()
}
