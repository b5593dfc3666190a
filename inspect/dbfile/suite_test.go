package dbfile_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

func TestSuiteSnapshot(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, sourcetest.Options{Servers: 3, Histories: 25}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
		path := sourcetest.SaveSnapshot(tb, c)
		sourcetest.Untouched(tb, path)
		s, err := dbfile.Open(tb.Context(), path, dbfile.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	})
}

// A member's folder as it is found after its etcd was killed: the pages of
// a snapshot without their trailer.
func TestSuiteDataFolder(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, sourcetest.Options{Servers: 2, Histories: 20}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
		dir := tb.TempDir()
		snap := filepath.Join(dir, "member", "snap")
		if err := os.MkdirAll(snap, 0o700); err != nil {
			tb.Fatal(err)
		}
		stripTrailer(tb, sourcetest.SaveSnapshot(tb, c), filepath.Join(snap, "db"))
		sourcetest.Untouched(tb, dir)
		s, err := dbfile.Open(tb.Context(), dir, dbfile.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	})
}

func stripTrailer(tb testing.TB, from, to string) {
	tb.Helper()
	src, err := os.Open(from)
	if err != nil {
		tb.Fatal(err)
	}
	defer src.Close()
	st, err := src.Stat()
	if err != nil {
		tb.Fatal(err)
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.CopyN(dst, src, st.Size()-32); err != nil {
		tb.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		tb.Fatal(err)
	}
	// Not the time of this test: a write to it must show.
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(to, past, past); err != nil {
		tb.Fatal(err)
	}
}
