// Package server runs real servers as processes of their own, for tests: etcd of
// several versions, Kine, which speaks part of etcd's API, and an S3 server.
//
// Programs are built once, through the module proxy, each in a small module of its
// own, and kept in the user's cache folder. What cannot be had (no network, no
// compiler for it) skips the test and says why.
package server

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Versions of etcd that Binary knows, the oldest first.
var Versions = []string{"3.4", "3.5", "3.6", "3.7"}

// modules are the programs that are built from the module proxy. 3.7 comes from
// this module's own go.mod, 3.4 has no module that builds and comes from Debian.
var modules = map[string]struct{ module, pkg, version string }{
	"3.5":  {"go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", "v3.5.35"},
	"3.6":  {"go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", "v3.6.16"},
	"utl":  {"go.etcd.io/etcd/etcdutl/v3", "go.etcd.io/etcd/etcdutl/v3", "v3.6.16"},
	"kine": {"github.com/k3s-io/kine", "github.com/k3s-io/kine", "v0.17.5"},
	"s3":   {"github.com/versity/versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"},
}

var found sync.Map // name → func() (string, error)

// debian are the programs that come from Debian's packages: what tells the right one.
var debian = map[string]struct {
	pkg, file string
	ask       []string
	answer    string
}{
	"3.4":    {"etcd-server", "etcd", []string{"--version"}, "etcd Version: 3.4."},
	"rclone": {"rclone", "rclone", []string{"version"}, "rclone v1."},
}

// Binary returns the path of a program: an etcd by its minor version, "utl" for the
// etcdutl of 3.6, "kine", "s3" for an S3 server, or "rclone". It skips the test when there is none, and in short
// mode when it would have to be built in a module of its own.
func Binary(tb testing.TB, name string) string {
	tb.Helper()
	once, _ := found.LoadOrStore(name, sync.OnceValues(func() (string, error) { return find(name) }))
	path, err := once.(func() (string, error))()
	if err != nil {
		tb.Skipf("%s cannot be had here: %v", name, err)
	}
	return path
}

func find(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "etcdctl-plus-test")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	version := "3.7"
	if m, ok := modules[name]; ok {
		version = m.version
	}
	if _, ok := debian[name]; ok {
		if p := installed(name); p != "" {
			return p, nil
		}
		version = "debian"
	}
	path := filepath.Join(cache, strings.Join([]string{name, version, runtime.GOOS, runtime.GOARCH}, "-"))
	// Packages are tested by processes of their own; one of them builds.
	unlock, err := lockedfile.MutexAt(path + ".lock").Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if st, err := os.Stat(path); err == nil && st.Size() > 0 && name != "3.7" {
		return path, nil
	}
	if testing.Short() && name != "3.7" {
		return "", fmt.Errorf("it has to be built first, which takes minutes (run without -short)")
	}
	switch m := modules[name]; {
	case debian[name].pkg != "":
		err = fromDebian(path, name)
	case name == "3.7":
		err = build("", path, "go.etcd.io/etcd/server/v3") // go's own cache tells whether it is new
	case m.module != "":
		err = buildModule(path, m.module+"@"+m.version, m.pkg)
	default:
		err = fmt.Errorf("nobody knows how to build %q", name)
	}
	if err != nil {
		return "", err
	}
	return path, nil
}

// build builds into a file beside path first, so that nobody runs half of it.
func build(dir, path, pkg string, flags ...string) error {
	part := path + ".part"
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", part}, flags...)
	if err := run(dir, "go", append(args, pkg)...); err != nil {
		return err
	}
	return os.Rename(part, path)
}

func buildModule(path, module, pkg string) error {
	dir, err := os.MkdirTemp("", "etcdctl-plus-test-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module built\n\ngo 1.24\n"), 0o600); err != nil {
		return err
	}
	if err := run(dir, "go", "get", module); err != nil {
		return err
	}
	return build(dir, path, pkg, "-mod=mod")
}

func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lines[len(lines)-1])
	}
	return nil
}

// installed returns a program of Debian's that the system has, in the right version.
func installed(name string) string {
	path, err := exec.LookPath(debian[name].file)
	if err != nil || isRight(name, path) != nil {
		return ""
	}
	return path
}

func isRight(name, path string) error {
	d := debian[name]
	out, err := exec.Command(path, d.ask...).Output()
	if err != nil || !strings.HasPrefix(string(out), d.answer) {
		return fmt.Errorf("the %s of Debian is not the one wanted: %.40q, %w", d.pkg, out, err)
	}
	return nil
}

// fromDebian unpacks one of Debian's packages without installing it.
func fromDebian(path, name string) error {
	dir, err := os.MkdirTemp("", "etcdctl-plus-test-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := run(dir, "apt-get", "download", debian[name].pkg); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get brought %v, %w", debs, err)
	}
	if err := run(dir, "dpkg-deb", "-x", debs[0], "root"); err != nil {
		return err
	}
	unpacked := filepath.Join(dir, "root", "usr", "bin", debian[name].file)
	if err := isRight(name, unpacked); err != nil {
		return err
	}
	b, err := os.ReadFile(unpacked)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", b, 0o700); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
