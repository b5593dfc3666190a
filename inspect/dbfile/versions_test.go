package dbfile_test

import (
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// Snapshots and data folders that etcd 3.4 to 3.7 wrote.
func TestSuiteVersions(t *testing.T) {
	t.Parallel()
	for _, version := range server.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server.Binary(t, version)
			var folders sync.Map
			start := func(tb testing.TB) *clientv3.Client {
				p := server.Start(tb, server.Options{Version: version})
				c := p.Client(tb)
				folders.Store(c, p.DataDir)
				return c
			}
			read := func(tb testing.TB, path string, o dbfile.Options) keyspace.Source {
				o.TempDir = tb.TempDir()
				s, err := dbfile.Open(tb.Context(), path, o)
				if err != nil {
					tb.Fatal(err)
				}
				if err := s.Check(tb.Context()); err != nil {
					tb.Error(err)
				}
				healthy(tb, s)
				info, err := s.Info(tb.Context())
				// 3.4 notes its version when it is agreed upon, some seconds after the
				// start.
				if err != nil || info.Version != version && (info.Version != "" || version > "3.5") {
					tb.Errorf("version %q, %v", info.Version, err)
				}
				return s
			}
			t.Run("snapshot", func(t *testing.T) {
				t.Parallel()
				sourcetest.Run(t, sourcetest.Options{Servers: 1, Histories: 8, Start: start}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
					return read(tb, sourcetest.SaveSnapshot(tb, c), dbfile.Options{})
				})
			})
			t.Run("folder", func(t *testing.T) {
				t.Parallel()
				sourcetest.Run(t, sourcetest.Options{Servers: 1, Histories: 8, Start: start}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
					dir, _ := folders.Load(c)
					return read(tb, dir.(string), dbfile.Options{Copy: true})
				})
			})
		})
	}
}
