//go:build linux

package restore

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

func options(dir string) Options {
	return Options{Name: "m", DataDir: filepath.Join(dir, "data"), InitialCluster: "m=http://127.0.0.1:1", PeerURLs: []string{"http://127.0.0.1:1"}}
}

// all are the files and folders below dir.
func all(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != dir {
			rel, rerr := filepath.Rel(dir, path)
			names, err = append(names, rel), rerr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// etcdRefuses starts an etcd that is to end by itself, with an error.
func etcdRefuses(t *testing.T, version string, o Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, server.Binary(t, version), "--name", o.Name, "--data-dir", o.DataDir, "--wal-dir", o.WALDir,
		"--listen-client-urls", "unix://"+filepath.Join(t.TempDir(), "c"), "--advertise-client-urls", "http://127.0.0.1:1", "--listen-peer-urls", "unix://"+filepath.Join(t.TempDir(), "p"),
		"--initial-advertise-peer-urls", "http://127.0.0.1:1", "--initial-cluster", o.InitialCluster, "--logger", "zap")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if ctx.Err() != nil || !errors.As(err, &exit) || strings.Contains(string(out), "ready to serve client requests") {
		t.Errorf("etcd %s: %v, %v\n%s", version, err, ctx.Err(), out[max(0, len(out)-2000):])
	}
}

// A kill between the data and a separate log coming into place: no etcd starts on what
// is there, and the next restore takes it back and works.
func TestKilledBetween(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.5", "3.6", "3.7"} {
		server.Binary(t, version)
		from := server.Start(t, server.Options{Version: version})
		c := from.Client(t)
		if _, err := c.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		db := sourcetest.SaveSnapshot(t, c) // of the same version: 3.6 refuses what 3.7 wrote
		from.Kill()
		for name, empty := range map[string]bool{"beside": false, "inside": true} {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				o := options(dir)
				o.WALDir = filepath.Join(dir, "log")
				if empty {
					for _, d := range []string{o.DataDir, o.WALDir} {
						if err := os.Mkdir(d, 0o700); err != nil {
							t.Fatal(err)
						}
					}
				}
				p, err := Prepare(t.Context(), db, o)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				b := &build{p: p, id: randomName()}
				killed := errors.New("killed")
				b.between = func() error { return killed }
				if err := b.run(t.Context()); !errors.Is(err, killed) {
					t.Fatal(err)
				}
				// A dead process holds no locks.
				if err := errors.Join(b.data.lock.Close(), b.log.lock.Close()); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(filepath.Join(o.DataDir, "member", "snap", "db")); err != nil {
					t.Fatal(err)
				}
				if name == "inside" { // something of somebody else's keeps all of it
					other := filepath.Join(o.DataDir, "member", "other")
					if err := os.WriteFile(other, nil, 0o600); err != nil {
						t.Fatal(err)
					}
					_, err := Prepare(t.Context(), db, o)
					// Another test that starts a process right then shares our locks for a moment.
					var busy *InUseError
					for begin := time.Now(); errors.As(err, &busy) && time.Since(begin) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
						_, err = Prepare(t.Context(), db, o)
					}
					if !errors.Is(err, os.ErrExist) {
						t.Errorf("with another file in it: %v", err)
					}
					if err := os.Remove(other); err != nil {
						t.Fatal(err)
					}
				}
				etcdRefuses(t, version, o)
				there := all(t, dir)
				p, err = Prepare(t.Context(), db, o)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				if now := all(t, dir); strings.Join(now, " ") != strings.Join(there, " ") {
					t.Errorf("Prepare made %v of %v", now, there)
				}
				if err := p.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, name := range all(t, dir) {
					if strings.Contains(name, "etcdctl-plus") || strings.Contains(name, markFile) || strings.Contains(name, guardName) {
						t.Errorf("%s is left", name)
					}
				}
				server.Start(t, server.Options{Version: version, DataDir: o.DataDir, Name: "m", Args: []string{"--wal-dir", o.WALDir}}).Client(t)
			})
		}
	}
}

// Whatever step fails, nothing is left; folders that were there stay.
func TestUndo(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	for name, change := range map[string]func(o *Options, dir string) error{
		"plain":    func(*Options, string) error { return nil },
		"deep":     func(o *Options, dir string) error { o.DataDir = filepath.Join(dir, "a", "b", "c"); return nil },
		"log":      func(o *Options, dir string) error { o.WALDir = filepath.Join(dir, "l", "log"); return nil },
		"existing": func(o *Options, _ string) error { return os.Mkdir(o.DataDir, 0o700) },
		"both existing": func(o *Options, dir string) error {
			o.WALDir = filepath.Join(dir, "log")
			return errors.Join(os.Mkdir(o.DataDir, 0o700), os.Mkdir(o.WALDir, 0o700))
		},
	} {
		dir := t.TempDir()
		o := options(dir)
		if err := change(&o, dir); err != nil {
			t.Fatal(err)
		}
		before := all(t, dir)
		failed := errors.New("failed")
		for step := range 2 {
			p, err := Prepare(t.Context(), db, o)
			if err != nil {
				t.Fatal(err)
			}
			b := &build{p: p, id: randomName()}
			ctx, cancel := context.WithCancel(t.Context())
			switch {
			case step == 0:
				cancel()
				failed = context.Canceled
			case o.WALDir == "":
				b.p.Members = append(b.p.Members, Member{}) // reading back finds one too few
				failed = nil
			default:
				failed = errors.New("failed")
				b.between = func() error { return failed }
			}
			err = b.run(ctx)
			cancel()
			if err == nil || failed != nil && !errors.Is(err, failed) {
				t.Errorf("%s, step %d: %v", name, step, err)
			}
			if err := errors.Join(b.undo(), p.Close()); err != nil {
				t.Errorf("%s, step %d: %v", name, step, err)
			}
			if after := all(t, dir); strings.Join(after, " ") != strings.Join(before, " ") {
				t.Errorf("%s, step %d: %v is left", name, step, after)
			}
		}
	}
}

// A full disk: found before anything is written, and when it fills up meanwhile.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	o := options(dir)
	if _, err := Prepare(t.Context(), db, o); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("before: %v", err)
	}
	for _, size := range []string{"2m", "9m", "50m"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size="+size); err != nil {
			t.Fatal(err)
		}
		p := plenty(t, db, o)
		if err := p.Run(t.Context()); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", size, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if left := all(t, dir); len(left) > 0 {
			t.Errorf("%s: %v is left", size, left)
		}
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=300m"); err != nil {
		t.Fatal(err)
	}
	p, err := Prepare(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// plenty is a plan that believes there is room.
func plenty(t *testing.T, db string, o Options) *Plan {
	t.Helper()
	elsewhere := o
	elsewhere.DataDir = filepath.Join(t.TempDir(), "data")
	p, err := Prepare(t.Context(), db, elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	p.o.DataDir, p.DataDir = o.DataDir, o.DataDir
	p.WALDir = filepath.Join(o.DataDir, "member", "wal")
	return p
}

// What looks like ours and holds something else, belongs to a living process, or is
// a link, is not removed.
func TestSweep(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	dir := t.TempDir()
	o := options(dir)
	folder := func(end string, files ...string) string {
		d := filepath.Join(dir, workPrefix(o.DataDir)+end)
		if err := os.MkdirAll(filepath.Join(d, "data", "member", "snap"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(d, f), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	ours := folder("0000000000000001", "data/member/snap/db", markFile)
	foreign := folder("0000000000000002", "data/member/snap/db", "precious")
	short := folder("1")
	other := filepath.Join(dir, ".other"+workMark+"0000000000000003")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	target := t.TempDir()
	link := filepath.Join(dir, workPrefix(o.DataDir)+"0000000000000004")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	linked := folder("0000000000000005")
	if err := os.Symlink(target, filepath.Join(linked, "wal")); err != nil {
		t.Fatal(err)
	}
	p, err := Prepare(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := os.Stat(ours); err != nil {
		t.Error("Prepare removed something")
	}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ours); !errors.Is(err, os.ErrNotExist) || len(p.Swept) != 1 {
		t.Errorf("what a killed restore left is still there: %v, %v", err, p.Swept)
	}
	for _, d := range []string{foreign, filepath.Join(foreign, "precious"), filepath.Join(foreign, "data/member/snap/db"), short, other, link, target, linked} {
		if _, err := os.Lstat(d); err != nil {
			t.Error(err)
		}
	}
	// At work: the other restore is told of.
	o.DataDir = filepath.Join(dir, "second")
	w, err := newWork(dir, workPrefix(o.DataDir), "id")
	if err != nil {
		t.Fatal(err)
	}
	var used *InUseError
	if _, err := Prepare(t.Context(), db, o); !errors.As(err, &used) {
		t.Errorf("while another one works: %v", err)
	}
	if err := w.remove(); err != nil {
		t.Error(err)
	}
}
