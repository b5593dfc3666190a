package dbfile_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

func wantError(t *testing.T, name string, err, want error, parts ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", name, err, want)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: error %q does not say %q", name, err, p)
		}
	}
}

// openError opens within a bound: what never ends, such as a pipe, must not hold
// up a command.
func openError(t *testing.T, path string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		s, err := dbfile.Open(ctx, path, dbfile.Options{})
		if err == nil {
			s.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		t.Fatalf("Open(%s) does not end", path)
		return nil
	}
}

func someDatabase(t *testing.T) []byte {
	t.Helper()
	var m sourcetest.Memory
	put(&m, "a", "b", "c")
	b := build(t, 4096)
	b.events(events(t, &m, whole))
	data, err := os.ReadFile(b.done())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestForeignFiles(t *testing.T) {
	t.Parallel()
	db := someDatabase(t)
	twice := bytes.Clone(db)
	copy(twice[:8192], make([]byte, 8192))
	metas := bytes.Clone(db)
	metas[16+30] ^= 1
	metas[4096+16+30] ^= 1
	future := bytes.Clone(db)
	for _, at := range []int{16 + 4, 4096 + 16 + 4} {
		future[at] = 9
	}
	for name, c := range map[string]struct {
		data  []byte
		want  error
		parts []string
	}{
		"empty":      {nil, keyspace.ErrNotDatabase, []string{"it is empty"}},
		"one byte":   {[]byte{7}, keyspace.ErrNotDatabase, nil},
		"text":       {[]byte(strings.Repeat("key: value\n", 1000)), keyspace.ErrNotDatabase, []string{"it is text"}},
		"xz":         {append([]byte("\xfd7zXZ\x00"), make([]byte, 5000)...), keyspace.ErrNotDatabase, []string{"an xz archive", "unxz"}},
		"sqlite":     {append([]byte("SQLite format 3\x00"), make([]byte, 5000)...), keyspace.ErrNotDatabase, []string{"an SQLite database"}},
		"zeros":      {make([]byte, 100_000), keyspace.ErrNotDatabase, []string{"full of zeros"}},
		"no metas":   {twice, keyspace.ErrCorrupt, []string{"both meta pages were overwritten", "a database's"}},
		"both metas": {metas, keyspace.ErrCorrupt, []string{"page 0", "neither meta page is valid", "wrong checksum"}},
		"version":    {future, keyspace.ErrCorrupt, []string{"format version 9"}},
		"first page": {db[:4096], keyspace.ErrCorrupt, []string{"cut short"}},
		"half":       {db[:len(db)/2], keyspace.ErrCorrupt, []string{"cut short"}},
	} {
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, c.data)
		sourcetest.Untouched(t, path)
		wantError(t, name, openError(t, path), c.want, append(c.parts, path)...)
	}
}

// Another program's bbolt file is no damage, only the wrong file.
func TestForeignBbolt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "other.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("jobs")); return err }); err != nil {
		t.Fatal(err)
	}
	db.Close()
	wantError(t, "bbolt", openError(t, path), keyspace.ErrNotDatabase, path, "not of etcd")
}

func TestPaths(t *testing.T) {
	t.Parallel()
	db := someDatabase(t)
	dir := t.TempDir()
	snap := filepath.Join(dir, "data", "member", "snap")
	if err := os.MkdirAll(snap, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(snap, "db")
	write(t, file, db)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	sourcetest.Untouched(t, dir)
	for _, p := range []string{"data", "data/member", "data/member/snap", "data/member/snap/db", "link"} {
		s := open(t, filepath.Join(dir, p), dbfile.Options{})
		if got := records(t, s, keyspace.All()); len(got) != 3 {
			t.Errorf("%s: %d records", p, len(got))
		}
		info, err := s.Info(t.Context())
		if err != nil || info.Kind != keyspace.Member || !strings.Contains(info.Note, "write-ahead log") && !strings.Contains(info.Note, `no folder "wal"`) {
			t.Errorf("%s: Info = %+v, %v", p, info, err)
		}
	}
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if err := openError(t, loop); err == nil || !strings.Contains(err.Error(), loop) {
		t.Errorf("symlink to itself: %v", err)
	}
	wantError(t, "missing", openError(t, filepath.Join(dir, "missing")), fs.ErrNotExist, "missing")
	wantError(t, "below a file", openError(t, filepath.Join(file, "x")), errNotDir, "x")
	wantError(t, "folder", openError(t, dir), keyspace.ErrNotDatabase, dir, "a folder without member/snap/db")
}

// Nothing that was never closed for reading keeps the file or its copy.
func TestClose(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	write(t, path, someDatabase(t))
	temp := t.TempDir()
	s, err := dbfile.Open(t.Context(), path, dbfile.Options{Copy: true, TempDir: temp})
	if err != nil {
		t.Fatal(err)
	}
	if st := left(t, temp); len(st) != 1 {
		t.Errorf("%v in the folder for copies, want one", st)
	}
	n := 0
	var last error
	for rec, err := range s.Records(t.Context(), keyspace.All()) {
		if last = err; err != nil {
			break
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if len(rec.Value) == 0 { // still mapped
			t.Error("no value")
		}
		n++
	}
	// The records of the step that was read before Close may still come.
	if n == 0 || last != nil && !errors.Is(last, dbfile.ErrClosed) {
		t.Errorf("%d records, then %v", n, last)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	for _, err := range s.Records(t.Context(), keyspace.All()) {
		wantError(t, "Records after Close", err, dbfile.ErrClosed, path)
	}
	for _, err := range s.Events(t.Context(), whole) {
		wantError(t, "Events after Close", err, dbfile.ErrClosed, path)
	}
	if _, err := s.Info(t.Context()); !errors.Is(err, dbfile.ErrClosed) {
		t.Errorf("Info after Close: %v", err)
	}
	if st := left(t, temp); len(st) != 0 {
		t.Errorf("%v left behind", st)
	}
}

func left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
