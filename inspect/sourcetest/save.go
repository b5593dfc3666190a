package sourcetest

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// SaveSnapshot saves a snapshot of what c is connected to, with the server's
// trailer, into a folder of the test and returns its path.
func SaveSnapshot(tb testing.TB, c *clientv3.Client) string {
	tb.Helper()
	r, err := c.Snapshot(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	path := filepath.Join(tb.TempDir(), "snapshot.db")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(f, r); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return path
}
