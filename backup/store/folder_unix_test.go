//go:build unix

package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store/storetest"
)

// TestFolderStaysInside: symbolic links neither lead out nor are replaced, and
// nothing that is no file of ours is touched.
func TestFolderStaysInside(t *testing.T) {
	t.Parallel()
	out, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(out, "secret")
	for _, err := range []error{
		os.WriteFile(secret, []byte("secret"), 0o600),
		os.Symlink(out, filepath.Join(dir, "link")),
		os.Symlink(secret, filepath.Join(dir, "file")),
		os.Symlink("nowhere", filepath.Join(dir, "dangling")),
		os.Mkdir(filepath.Join(dir, "folder"), 0o700),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir, store.Options{})
	for _, name := range []string{"link/x", "link/secret", "file", "dangling", "folder", "fifo", "fifo/x"} {
		for _, replace := range []bool{false, true} {
			if err := put(t, s, name, "x", store.PutOptions{Replace: replace}); err == nil {
				t.Errorf("Put %s is done", name)
			}
		}
		if b, err := storetest.Get(t.Context(), s, name); err == nil {
			t.Errorf("Get %s gives %q", name, b)
		}
		if err := s.Delete(t.Context(), name); err == nil {
			t.Errorf("Delete %s is done", name)
		}
		if l, err := s.Lock(t.Context(), name, store.LockOptions{}); err == nil {
			t.Errorf("Lock %s is given: %v", name, l.Release())
		}
	}
	if names, err := storetest.Names(t.Context(), s, ""); err != nil || len(names) > 0 {
		t.Errorf("listed are %q, %v", names, err)
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("outside: %q, %v", b, err)
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside are %v, %v", entries, err)
	}
	entries, err = os.ReadDir(dir)
	if err != nil || len(entries) != 5 {
		t.Errorf("inside are %v, %v", entries, err)
	}
}

// TestFolderModes: files are their owner's alone, whatever the umask, and whatever
// they replace.
func TestFolderModes(t *testing.T) { // not parallel: the umask is the process's
	for _, mask := range []int{0, 0o777} {
		old := syscall.Umask(mask)
		dir := filepath.Join(os.TempDir(), fmt.Sprintf("etcdctl-plus-test-%d-%o", os.Getpid(), mask))
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			err = os.Chmod(dir, 0o700)
		}
		if err != nil {
			syscall.Umask(old)
			t.Fatal(err)
		}
		open0666 := filepath.Join(dir, "old")
		err = errors.Join(os.WriteFile(open0666, nil, 0o666), os.Chmod(open0666, 0o666))
		s := open(t, dir, store.Options{})
		err = errors.Join(err, put(t, s, "a/b/new", "x", store.PutOptions{}), put(t, s, "old", "x", store.PutOptions{Replace: true}))
		syscall.Umask(old)
		if err != nil {
			t.Errorf("umask %o: %v", mask, err)
		}
		for name, mode := range map[string]fs.FileMode{"a": 0o700, "a/b": 0o700, "a/b/new": 0o600, "old": 0o600} {
			if i, err := os.Stat(filepath.Join(dir, name)); err != nil || i.Mode().Perm() != mode {
				t.Errorf("umask %o: %s is %v, %v", mask, name, i, err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}
