//go:build linux

package commands_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
)

// typist sits at a terminal.
type typist struct {
	f    *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	seen strings.Builder
	read int // how much of it was awaited
	done chan struct{}
}

func sitDown(t *testing.T, cmd *exec.Cmd) *typist {
	t.Helper()
	f, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	p := &typist{f: f, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		b := make([]byte, 4096)
		for {
			n, err := f.Read(b)
			p.mu.Lock()
			p.seen.Write(b[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		f.Close()
		<-p.done
	})
	return p
}

func (p *typist) types(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(p.f, text); err != nil {
		t.Fatal(err)
	}
}

// awaits waits for text behind what was awaited before.
func (p *typist) awaits(t *testing.T, text string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		rest := p.seen.String()[p.read:]
		if i := strings.Index(rest, text); i >= 0 {
			p.read += i + len(text)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("no %q in %q", text, rest)
		}
	}
}

// nudges presses Enter until text comes: a shell tells of its jobs before a prompt.
func (p *typist) nudges(t *testing.T, text string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(200 * time.Millisecond) {
		p.types(t, "\n")
		p.mu.Lock()
		seen := strings.Contains(p.seen.String()[p.read:], text)
		p.mu.Unlock()
		if seen {
			break
		}
	}
	p.awaits(t, text)
}

func (p *typist) ends(t *testing.T) int {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // its state tells
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		p.mu.Lock()
		defer p.mu.Unlock()
		t.Fatalf("it does not end: %q", p.seen.String())
	}
	if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return -int(s.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// On a terminal the command has the foreground: it reads what is typed, and Ctrl-C is its
// own. Ctrl-Z, where no shell could take over, changes nothing.
func TestLockTerminal(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	for _, name := range []string{"etcdctl-plus", "etcdctl"} {
		cmd := exec.Command(ours(t, name), "lock", "tty", "--", "sh", "-c", `trap "echo interrupted; exit 9" INT; echo up; while read x; do echo "got <$x>"; done`)
		cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + s.Endpoint(), "PATH=/usr/bin:/bin", "TERM=xterm"}
		p := sitDown(t, cmd)
		p.awaits(t, "up")
		p.types(t, "one\n")
		p.awaits(t, "got <one>")
		p.types(t, "\x1a")
		p.awaits(t, "stopped; unless it goes on")
		p.types(t, "two\n")
		p.awaits(t, "got <two>")
		p.types(t, "\x03")
		p.awaits(t, "interrupted")
		if code := p.ends(t); code != 9 {
			t.Errorf("%s: exit code %d", name, code)
		}
		nothingLeft(t, c, "tty/")
	}
	// Ctrl-C while waiting.
	holder := startWatcher(t, "etcdctl-plus", s.Endpoint(), nil, "lock", "tty")
	holder.await(t, "tty/")
	cmd := exec.Command(ours(t, "etcdctl-plus"), "lock", "tty", "--", "true")
	cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + s.Endpoint(), "PATH=/usr/bin:/bin", "TERM=xterm"}
	p := sitDown(t, cmd)
	awaitQueue(t, c, "tty/", 2)
	p.types(t, "\x03")
	if code := p.ends(t); code != -int(syscall.SIGINT) {
		t.Errorf("ended with %d", code)
	}
	awaitQueue(t, c, "tty/", 1)
}

// In an interactive shell Ctrl-Z gives the terminal back to the shell and fg goes on; after
// the command the shell has the terminal again; a job that stays stopped loses the lock.
func TestLockJobControl(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this machine has no bash")
	}
	s, c := startSandbox(t, sandbox.Options{})
	dir := t.TempDir()
	if err := os.Symlink(ours(t, "etcdctl-plus"), filepath.Join(dir, "ep")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bash, "--norc", "--noprofile", "-i")
	cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + s.Endpoint(), "PATH=" + dir + ":/usr/bin:/bin", "TERM=dumb", "PS1=$ ", "HISTFILE=", "HOME=" + dir}
	cmd.Dir = dir
	p := sitDown(t, cmd)
	if err := os.WriteFile(filepath.Join(dir, "work"), []byte("echo up\nwhile read x; do echo \"got <$x>\"; done\necho bye\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.types(t, "ep lock job --ttl 60 -- sh work\n")
	p.awaits(t, "up")
	p.types(t, "one\n")
	p.awaits(t, "got <one>")
	p.types(t, "\x1a")
	p.awaits(t, "Stopped")
	p.awaits(t, "\n$ ")
	p.types(t, "echo $((40+2)) in the shell\n")
	p.awaits(t, "42 in the shell")
	p.types(t, "fg\n")
	p.types(t, "two\n")
	p.awaits(t, "got <two>")
	p.types(t, "\x04")
	p.awaits(t, "bye")
	p.types(t, "echo $((40+3)) $?\n")
	p.awaits(t, "43 0")
	nothingLeft(t, c, "job/")
	// in the background: it stops when it reads, and goes on in the foreground
	p.types(t, "ep lock job --ttl 60 -- sh work &\n")
	p.awaits(t, "stopped; unless it goes on")
	p.nudges(t, "Stopped")
	p.types(t, "fg\n")
	p.types(t, "three\n")
	p.awaits(t, "got <three>")
	p.types(t, "\x03")
	p.awaits(t, "\n$ ") // what is typed together with it is thrown away
	p.types(t, "echo $((40+4)) $?\n")
	p.awaits(t, "44 130")
	nothingLeft(t, c, "job/")
	// it stays stopped: others get the lock, and the job ends with 123
	p.types(t, "ep lock job --ttl 4 -- sh work\n")
	p.awaits(t, "up")
	p.types(t, "\x1a")
	p.awaits(t, "Stopped")
	awaitQueue(t, c, "job/", 0)
	p.types(t, "fg\n")
	p.awaits(t, "is lost")
	p.types(t, "echo $((40+5)) $?\n")
	p.awaits(t, "45 123")
	// a loop ends with Ctrl-C (exec: dash itself can miss it just before it starts a program)
	p.types(t, "while :; do ep lock job -- sh -c 'echo r''ound; exec sleep 60'; done\n")
	p.awaits(t, "round")
	p.types(t, "\x03")
	p.awaits(t, "\n$ ")
	p.types(t, "echo $((40+6))\n")
	p.awaits(t, "46")
	p.types(t, "exit 0\n")
	if code := p.ends(t); code != 0 {
		t.Errorf("the shell ended with %d", code)
	}
	nothingLeft(t, c, "job/")
}
