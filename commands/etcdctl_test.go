package commands_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
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
