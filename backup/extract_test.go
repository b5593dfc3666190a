package backup_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// F53: whatever a key is called, its file lies inside and is no other key's.
func TestExtract(t *testing.T) {
	t.Parallel()
	keys := []string{
		"../../x", "/../../x", "..", ".", "", "/", "//", "a", "A", "/a", "/A", "/a/b", "/A/b", "a/b", "/a/b/", "/a//b", "/a/./b", "/a/../b",
		"index.jsonl", "/index.jsonl", "/INDEX.jsonl", "con", "/con", "/NUL.txt", "/com1", "with space", "/x\x00y", "/\xff\xfe", "/a%2Fb", "/ü",
		"/" + strings.Repeat("l", 300), "/" + strings.Repeat("l", 299) + "m", "/a/b~2", "/A/B", "-rf", "/trailing.", "/.hidden", "C:\\x", "/link/x",
	}
	dir := filepath.Join(t.TempDir(), "out")
	var records iter.Seq2[keyspace.Record, error] = func(yield func(keyspace.Record, error) bool) {
		for i, k := range keys {
			if !yield(keyspace.Record{Key: []byte(k), Value: fmt.Appendf(nil, "value %d", i), Version: 1}, nil) {
				return
			}
		}
	}
	n, err := backup.Extract(t.Context(), records, dir, backup.ExtractOptions{})
	if err != nil || n != int64(len(keys)) {
		t.Fatalf("%d, %v", n, err)
	}
	index, err := os.Open(filepath.Join(dir, backup.IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	seen := map[string]bool{}
	i := 0
	for lines := bufio.NewScanner(index); lines.Scan(); i++ {
		var e backup.Extracted
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		key := e.Key
		if e.KeyBase64 != nil {
			key = string(e.KeyBase64)
		}
		if low := strings.ToLower(e.File); seen[low] {
			t.Errorf("%s is there twice", low)
		} else {
			seen[low] = true
		}
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(e.File)))
		if key != keys[i] || err != nil || string(b) != fmt.Sprintf("value %d", i) || !filepath.IsLocal(e.File) {
			t.Errorf("key %q is %q in %s, %v", keys[i], b, e.File, err)
		}
	}
	files := 0
	err = filepath.WalkDir(filepath.Dir(dir), func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
			if st, err := d.Info(); err != nil || st.Mode() != 0o600 {
				t.Errorf("%s: %v, %v", p, st.Mode(), err)
			}
		}
		return err
	})
	if err != nil || files != len(keys)+1 || i != len(keys) {
		t.Errorf("%d files and %d lines for %d keys, %v", files, i, len(keys), err)
	}
	if _, err := backup.Extract(t.Context(), records, dir, backup.ExtractOptions{}); err == nil {
		t.Error("extracted over what was there")
	}
}

// What another process put there meanwhile stays, and is told.
func TestExtractUndone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	broken := errors.New("the file ends here")
	records := func(yield func(keyspace.Record, error) bool) {
		if !yield(keyspace.Record{Key: []byte("/a/b"), Value: []byte("v")}, nil) {
			return
		}
		if err := os.WriteFile(filepath.Join(dir, "a", "theirs"), nil, 0o600); err != nil {
			t.Error(err)
		}
		yield(keyspace.Record{}, broken)
	}
	_, err := backup.Extract(t.Context(), records, dir, backup.ExtractOptions{})
	var part *backup.PartError
	if !errors.Is(err, broken) || !errors.As(err, &part) || part.Dir != dir {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", "theirs")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", "b")); err == nil {
		t.Error("ours is still there")
	}
}
