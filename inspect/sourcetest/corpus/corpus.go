// Package corpus unpacks the real Kubernetes snapshots of testdata/kubernetes
// for tests, together with the truth to compare with. testdata/kubernetes/ORIGIN.md
// tells how they were made and what each file is.
package corpus

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// Snapshot returns the path of a private copy of the first snapshot (revision
// 1491, never compacted). The caller may damage it.
func Snapshot(tb testing.TB) string { return gunzip(tb, "snapshot.db.gz") }

// Later returns a private copy of the second snapshot (revision 1652, compacted
// at 1590).
func Later(tb testing.TB) string { return gunzip(tb, "later.db.gz") }

// Dir returns testdata/kubernetes of the source tree.
func Dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "testdata", "kubernetes")
}

// EncryptionConfig returns the EncryptionConfiguration that opens every sealed
// value of both snapshots.
func EncryptionConfig() string { return filepath.Join(Dir(), "encryption-config.yaml") }

var truth struct {
	sync.Once
	files map[string][]byte
	err   error
}

// Truth returns one file of truth.tar.gz, such as "stored.jsonl", "history.tsv",
// "later/keys.tsv" or "truth/v1.pods.json".
func Truth(tb testing.TB, name string) []byte {
	tb.Helper()
	b, ok := Truths(tb)[filepath.ToSlash(name)]
	if !ok {
		tb.Fatalf("corpus has no %s", name)
	}
	return b
}

// Truths returns every file of truth.tar.gz by name.
func Truths(tb testing.TB) map[string][]byte {
	tb.Helper()
	truth.Do(func() { truth.files, truth.err = untar(filepath.Join(Dir(), "truth.tar.gz")) })
	if truth.err != nil {
		tb.Fatal(truth.err)
	}
	return truth.files
}

func untar(path string) (map[string][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		files[filepath.ToSlash(filepath.Clean(h.Name))] = b
	}
}

func gunzip(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name[:len(name)-len(".gz")])
	if err := Unpack(name, path); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Unpack writes "snapshot.db.gz" or "later.db.gz" unpacked to a new file.
func Unpack(name, path string) error {
	f, err := os.Open(filepath.Join(Dir(), name))
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, z)
	return errors.Join(err, out.Close())
}

// File returns one file of truth.tar.gz like Truth, for callers without a test.
func File(name string) ([]byte, error) {
	truth.Do(func() { truth.files, truth.err = untar(filepath.Join(Dir(), "truth.tar.gz")) })
	b, ok := truth.files[filepath.ToSlash(name)]
	if truth.err == nil && !ok {
		return nil, fs.ErrNotExist
	}
	return b, truth.err
}
