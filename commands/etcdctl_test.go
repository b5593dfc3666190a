package commands_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
)

// build builds a program of the module graph, once for the whole test run.
func build(t *testing.T, pkg string) string {
	t.Helper()
	b, _ := builds.LoadOrStore(pkg, &program{})
	p := b.(*program)
	p.once.Do(func() {
		dir, err := os.MkdirTemp("", "etcdctl-plus-test-*")
		if err != nil {
			p.err = err
			return
		}
		p.path = filepath.Join(dir, "etcdctl")
		cmd := exec.Command("go", "build", "-o", p.path, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.path
}

type program struct {
	once sync.Once
	path string
	err  error
}

var builds sync.Map

// ours builds our own program and names it as given.
func ours(t *testing.T, name string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(build(t, "github.com/etcdctl-plus/etcdctl-plus/cmd/etcdctl-plus"), link); err != nil {
		t.Fatal(err)
	}
	return link
}

// TestEqualsEtcdctl runs testdata/etcdctl/kv.txt through the real etcdctl and
// through ours under that name.
func TestEqualsEtcdctl(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile(filepath.Join("..", "testdata", "etcdctl", "kv.txt"))
	if err != nil {
		t.Fatal(err)
	}
	programs := []string{build(t, "go.etcd.io/etcd/etcdctl/v3"), ours(t, "etcdctl")}
	var endpoints, dirs []string
	for range programs {
		dirs = append(dirs, t.TempDir())
		s, err := sandbox.Start(context.Background(), sandbox.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		endpoints = append(endpoints, s.Endpoint())
	}
	n := 0
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		n++
		_, known, differs := strings.Cut(line, ": ")
		if differs = differs && strings.HasPrefix(line, "differs "); differs {
			line = known
		}
		words, stdin, _ := strings.Cut(line, " < ")
		words = strings.TrimSuffix(words, " <")
		args := shellWords(words)
		var got [2]string
		for i, p := range programs {
			got[i] = execute(t, p, dirs[i], endpoints[i], unescape(stdin), args)
		}
		if differs {
			if got[0] == got[1] {
				t.Errorf("%s: no longer differs: %q", line, got[0])
			}
			continue
		}
		if got[0] != got[1] {
			t.Errorf("%s\netcdctl: %q\nours:    %q", line, got[0], got[1])
		}
	}
	if n < 100 {
		t.Errorf("only %d command lines", n)
	}
}

// execute returns stdout and exit code.
func execute(t *testing.T, program, dir, endpoint, stdin string, args []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + endpoint, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return fmt.Sprintf("exit %d: %s", cmd.ProcessState.ExitCode(), out.String())
}

// shellWords splits at spaces outside double quotes; \" is a quote.
func shellWords(s string) (words []string) {
	var w []byte
	open, any := false, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && s[i+1] == '"':
			w = append(w, '"')
			i++
		case c == '"':
			open, any = !open, true
		case c == ' ' && !open:
			if len(w) > 0 || any {
				words = append(words, string(w))
			}
			w, any = nil, false
		default:
			w = append(w, c)
		}
	}
	if len(w) > 0 || any {
		words = append(words, string(w))
	}
	return words
}

func unescape(s string) string { return unquote(s) }
