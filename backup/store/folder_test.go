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
		file: "it is no folder", "": "no store is named", "file://relative": "three slashes", "gs://bucket": "rclone:REMOTE:PATH", "s3:///x": "s3://bucket/prefix",
	} {
		if s, err := store.Open(where, store.Options{}); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v, %v; want %q", where, s, err, say)
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
