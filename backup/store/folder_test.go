package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store/storetest"
)

func open(t *testing.T, where string, o store.Options) store.Store {
	t.Helper()
	s, err := store.Open(where, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// leftIn finds temporary files below dir.
func leftIn(dir string) func(context.Context) ([]string, error) {
	return func(context.Context) (left []string, err error) {
		err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasPrefix(filepath.Base(path), ".etcdctl-plus-") {
				left = append(left, path)
			}
			if errors.Is(err, fs.ErrNotExist) { // moved meanwhile
				return nil
			}
			return err
		})
		return left, err
	}
}

func folderPlace(t *testing.T) storetest.Place {
	dir := t.TempDir()
	return storetest.Place{
		Open: func() (store.Store, error) { return store.Open(dir, store.Options{}) },
		Left: leftIn(dir), Part: 1 << 20,
	}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	storetest.Run(t, folderPlace)
}

func put(t *testing.T, s store.Store, name, text string, o store.PutOptions) error {
	t.Helper()
	return storetest.Put(t.Context(), s, name, []byte(text), o)
}

func TestOpenFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := filepath.Join(dir, "a b", "c")
	for _, where := range []string{want, "file://" + strings.ReplaceAll(want, " ", "%20"), "file://localhost" + strings.ReplaceAll(want, " ", "%20")} {
		if _, err := store.Open(where, store.Options{}); !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), "no such folder") {
			t.Errorf("%s, which is not there: %v", where, err)
		}
		s := open(t, where, store.Options{Create: true})
		if s.String() != want {
			t.Errorf("%s is %s", where, s)
		}
		i, err := os.Stat(want)
		if err != nil || i.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", where, i, err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "a b")); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for where, say := range map[string]string{
		file: "not a directory", "": "no store is named", "file://relative": "three slashes", "gs://bucket": "rclone:REMOTE:PATH", "s3:///x": "s3://bucket/prefix",
	} {
		if s, err := store.Open(where, store.Options{}); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v, %v; want %q", where, s, err, say)
		}
	}
}

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

// TestFolderSweep: only what a dead writer of ours left is removed.
func TestFolderSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, store.Options{})
	// What the living one looks like.
	begun, goOn, done := make(chan string, 1), make(chan bool), make(chan error, 1)
	go func() {
		src := reading(func() {
			if left, err := leftIn(dir)(t.Context()); err == nil && len(left) == 1 {
				begun <- left[0]
			} else {
				begun <- ""
			}
			<-goOn
		})
		done <- s.Put(t.Context(), "living", src, 1, sha256.Sum256([]byte{0}), store.PutOptions{})
	}()
	living := filepath.Base(<-begun)
	ours, ok := strings.CutPrefix(living, ".etcdctl-plus-")
	if !ok {
		t.Fatalf("the temporary file is %q", living)
	}
	host := ours[:8]
	name := func(host string, n int) string { return fmt.Sprintf(".etcdctl-plus-%s-%032x.part", host, n) }
	stays := []string{
		living, "note.part", ".etcdctl-plus-note", ".etcdctl-plus-" + host + "-1.part", name("XXXXXXXX", 1), name("00000000", 1), // of another host, and young
		strings.TrimSuffix(name(host, 2), ".part"), "snapshot.db",
	}
	goes := []string{name(host, 3), name("00000000", 4)}
	for _, f := range append(slices.Clone(stays[1:]), goes...) {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, goes[1]), past, past); err != nil {
		t.Fatal(err)
	}
	folder := name(host, 5)
	if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
		t.Fatal(err)
	}
	stays = append(stays, folder)
	other := open(t, dir, store.Options{})
	if err := put(t, other, "next", "x", store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range stays {
		if _, err := os.Lstat(filepath.Join(dir, f)); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	for _, f := range goes {
		if _, err := os.Lstat(filepath.Join(dir, f)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there", f)
		}
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Errorf("the living one: %v", err)
	}
	if b, err := storetest.Get(t.Context(), s, "living"); err != nil || !bytes.Equal(b, []byte{0}) {
		t.Errorf("the living one stored %q, %v", b, err)
	}
}

// reading is a source of zeros that calls when it is read.
type reading func()

func (r reading) ReadAt(b []byte, _ int64) (int, error) {
	r()
	clear(b)
	return len(b), nil
}

func TestFolderListsWhatIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"by hand", "sub/x", "bad\xffname", "line\nbreak"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir, store.Options{})
	names, err := storetest.Names(t.Context(), s, "")
	if err != nil || !slices.Equal(names, []string{"by hand", "sub/x"}) {
		t.Errorf("listed are %q, %v", names, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := storetest.Names(ctx, s, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled List: %v", err)
	}
}
