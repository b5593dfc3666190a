package dbfile_test

import (
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

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
		healthy(tb, s)
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
		healthy(tb, s)
		return s
	})
}

// The folder of a running server: what its database does not have yet comes from
// the write-ahead log, and there is always something.
func TestSuiteWriteAheadLog(t *testing.T) {
	t.Parallel()
	var folders sync.Map
	var behind atomic.Int64
	start := func(tb testing.TB) *clientv3.Client {
		c, dir := lazyServer(tb)
		folders.Store(c, dir)
		return c
	}
	t.Cleanup(func() {
		if !t.Failed() && behind.Load() == 0 {
			t.Error("the database was never behind its log")
		}
	})
	sourcetest.Run(t, sourcetest.Options{Servers: 2, Histories: 30, Start: start}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
		dir, _ := folders.Load(c)
		s, err := dbfile.Open(tb.Context(), dir.(string), dbfile.Options{Copy: true, TempDir: tb.TempDir()})
		if err != nil {
			tb.Fatal(err)
		}
		info, err := s.Info(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		if strings.Contains(info.Note, "in the write-ahead log only") {
			behind.Add(1)
		}
		if strings.Contains(info.Note, "raft index") || info.ClusterID == 0 || info.MemberID == 0 {
			tb.Errorf("Info: %+v", info)
		}
		return s
	})
}

// lazyServer starts an etcd that writes to its database when it must, and returns
// a client and its data folder.
func lazyServer(tb testing.TB) (*clientv3.Client, string) {
	tb.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(tb.TempDir(), "data")
	sock := func(name string) []url.URL {
		// Short: the path of a socket has little room.
		dir, err := os.MkdirTemp("", "e")
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { os.RemoveAll(dir) })
		return []url.URL{{Scheme: "unix", Path: filepath.Join(dir, name)}}
	}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	cfg.InitialCluster = cfg.Name + "=http://127.0.0.1:1"
	cfg.ListenClientUrls = sock("c")
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.BackendBatchInterval, cfg.BackendBatchLimit = time.Hour, 1<<20
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + cfg.ListenClientUrls[0].Path}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c, cfg.Dir
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
