//go:build unix

package commands_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

// endedBy returns the signal that ended a process; 0 for none.
func endedBy(err error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return w.Signal()
	}
	return 0
}

// A watch prints events as they come, and a signal ends it as a signal ends any
// program: a shell loop around it stops.
func TestWatchAndSignals(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd := exec.Command(ours(t, "etcdctl-plus"), "watch", "k", "--prefix", "--prev-kv", "-w", "jsonl")
		cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + s.Endpoint()}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		go func() { // until the watch is up, nobody knows when it is
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					_, _ = c.Put(context.Background(), "k1", "v")
				}
			}
		}()
		lines := bufio.NewScanner(out)
		for range 3 {
			if !lines.Scan() {
				t.Fatal("no event came")
			}
			if !strings.Contains(lines.Text(), `"type":"PUT"`) || !strings.Contains(lines.Text(), `"key":"k1"`) {
				t.Errorf("event %s", lines.Text())
			}
		}
		close(stop)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out)
		if got := endedBy(cmd.Wait()); got != sig {
			t.Errorf("ended by %v, want %v", got, sig)
		}
	}
}

// A reader that goes away ends us by SIGPIPE, and without a word.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(ours(t, "etcdctl-plus"), "registry", "dump", "--db", corpus.Snapshot(t))
	cmd.Stdout = w
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := r.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if got := endedBy(cmd.Wait()); got != syscall.SIGPIPE || errs.Len() > 0 {
		t.Errorf("ended by %v, stderr %q", got, errs.String())
	}
}

// A sandbox leaves nothing behind, whatever ends it, and its command gets TERM.
func TestSandboxSignals(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"sandbox"}, {"sandbox", "--", "sh", "-c", "echo up; exec sleep 60"}} {
		tmp := t.TempDir()
		cmd := exec.Command(ours(t, "etcdctl-plus"), args...)
		cmd.Env = []string{"TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH")}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !bufio.NewScanner(out).Scan() {
			t.Fatal("no line on stdout")
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if got := endedBy(cmd.Wait()); got != syscall.SIGTERM {
			t.Errorf("%v ended by %v", args, got)
		}
		if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
			t.Errorf("%v left %v", args, left)
		}
	}
}

// Case 29: on a terminal, put says that it waits for the value.
func TestPutOnTerminal(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	cmd := exec.Command(ours(t, "etcdctl-plus"), "put", "typed")
	cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + s.Endpoint(), "TERM=xterm"}
	f, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewReader(f)
	line, err := in.ReadString('\n')
	if err != nil || !strings.Contains(line, "reading the value from the terminal; end it with Ctrl-D") {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := f.WriteString("hello\n\x04"); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, in)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	r, err := c.Get(context.Background(), "typed")
	if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "hello\n" {
		t.Errorf("%v, %v", r, err)
	}
}

// F40: a full disk behind stdout is told, with its code.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"registry", "dump"}, {"inspect", "keys"}} {
		cmd := exec.Command(ours(t, "etcdctl-plus"), append(args, "--db", corpus.Snapshot(t))...)
		var errs strings.Builder
		cmd.Stdout, cmd.Stderr = full, &errs
		_ = cmd.Run() // the code tells
		if code := cmd.ProcessState.ExitCode(); code != 74 || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%v: exit code %d, %s", args, code, errs.String())
		}
	}
}
