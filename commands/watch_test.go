package commands_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// watcher is a process of ours that prints lines.
type watcher struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	errs  *strings.Builder
}

func startWatcher(t *testing.T, name, endpoint string, env []string, args ...string) *watcher {
	t.Helper()
	return startProgram(t, ours(t, name), endpoint, env, args...)
}

func startProgram(t *testing.T, path, endpoint string, env []string, args ...string) *watcher {
	t.Helper()
	w := &watcher{cmd: exec.Command(path, args...), lines: make(chan string, 1000), errs: &strings.Builder{}}
	w.cmd.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "ETCDCTL_ENDPOINTS=" + endpoint}, env...)
	w.cmd.Stderr = w.errs
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // it may have ended
	})
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
		close(w.lines)
	}()
	return w
}

// await reads lines until one contains text, and returns all of them.
func (w *watcher) await(t *testing.T, text string) []string {
	t.Helper()
	var got []string
	for timeout := time.After(30 * time.Second); ; {
		select {
		case l, more := <-w.lines:
			if !more {
				t.Fatalf("it ended before %q came: %q\n%s", text, got, w.errs)
			}
			if got = append(got, l); strings.Contains(l, text) {
				return got
			}
		case <-timeout:
			t.Fatalf("no %q in %q", text, got)
		}
	}
}

// ends waits for the end and returns the exit code; of a signal its number, negative.
func (w *watcher) ends(t *testing.T) int {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		for range w.lines {
		}
		done <- w.cmd.Wait()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("it does not end\n%s", w.errs)
	}
	if s := w.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return -int(s.Signal())
	}
	return w.cmd.ProcessState.ExitCode()
}

// A watch outlives its connection, and shows every event once.
func TestWatchReconnects(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	p := server.NewProxy(t, s.Endpoint())
	w := startWatcher(t, "etcdctl-plus", p.Endpoint, nil, "watch", "k/", "--prefix", "--rev", "1", "-w", "jsonl")
	for i := range 40 {
		if _, err := c.Put(t.Context(), fmt.Sprintf("k/%02d", i), "v"); err != nil {
			t.Fatal(err)
		}
		if i%10 == 5 {
			w.await(t, fmt.Sprintf("k/%02d", i))
			p.Cut()
		}
	}
	lines := w.await(t, "k/39")
	if len(lines) != 39-35 {
		t.Errorf("%d lines behind k/35: %q", len(lines), lines)
	}
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := w.ends(t); code != -int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
}

// Case 10: below the compact revision both revisions are named; as etcdctl the code is 5.
func TestWatchCompacted(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	for range 10 {
		if _, err := c.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Compact(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]int{"etcdctl-plus": 30, "etcdctl": 5} {
		w := startWatcher(t, name, s.Endpoint(), nil, "watch", "k", "--rev", "3")
		if got := w.ends(t); got != code || !strings.Contains(w.errs.String(), "revision 3") || !strings.Contains(w.errs.String(), "8") {
			t.Errorf("%s: exit code %d\n%s", name, got, w.errs)
		}
	}
}

// A command's exit code is ours; as etcdctl it is 1. It gets no password of ours.
func TestWatchCommand(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	if _, err := c.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		name    string
		command []string
		code    int
	}{
		{"etcdctl-plus", []string{"sh", "-c", "exit 42"}, 42},
		{"etcdctl-plus", []string{"sh", "-c", "kill -9 $$"}, 137},
		{"etcdctl-plus", []string{"/no/such/program"}, 127},
		{"etcdctl-plus", []string{"/"}, 126},
		{"etcdctl", []string{"sh", "-c", "exit 42"}, 1},
	} {
		w := startWatcher(t, e.name, s.Endpoint(), nil, append([]string{"watch", "k", "--rev", "1", "--"}, e.command...)...)
		if got := w.ends(t); got != e.code {
			t.Errorf("%s %q: exit code %d, want %d\n%s", e.name, e.command, got, e.code, w.errs)
		}
	}
	secret := []string{"ETCDCTL_PLUS_AUTH_JWT_TOKEN=s3cret"}
	w := startWatcher(t, "etcdctl-plus", s.Endpoint(), secret, "watch", "k", "--rev", "1", "--", "sh", "-c", "env; echo done; exit 3")
	if got := strings.Join(w.await(t, "done"), "\n"); strings.Contains(got, "s3cret") || !strings.Contains(got, "ETCD_WATCH_KEY=\"k\"") {
		t.Error(got)
	}
}

// An interactive watch takes requests while it prints; progress tells the revision.
func TestWatchInteractive(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	w := startWatcher(t, "etcdctl-plus", s.Endpoint(), nil, "watch", "-i")
	say := func(line string) {
		t.Helper()
		if _, err := io.WriteString(w.in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	put := func(k string) {
		t.Helper()
		if _, err := c.Put(t.Context(), k, "v-"+k); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	say("watch a --rev 1")
	w.await(t, "v-a")
	say("watch b/ --prefix --rev 1")
	put("b/1")
	w.await(t, "v-b/1")
	put("a")
	w.await(t, "v-a")
	// Both watches are there: a progress notice comes for each.
	say("progress")
	w.await(t, "progress notify: 4")
	w.in.Close()
	put("b/2")
	w.await(t, "v-b/2") // the end of the input is not that of the watches
	if err := w.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := w.ends(t); code != -int(syscall.SIGINT) {
		t.Errorf("exit code %d\n%s", code, w.errs)
	}
}
