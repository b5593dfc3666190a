package live_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// Servers of etcd 3.4 to 3.7, as they answer by themselves.
func TestSuiteVersions(t *testing.T) {
	t.Parallel()
	for _, version := range server.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server.Binary(t, version)
			start := func(tb testing.TB) *clientv3.Client {
				return server.Start(tb, server.Options{Version: version}).Client(tb)
			}
			sourcetest.Run(t, sourcetest.Options{Servers: 1, Histories: 10, Start: start}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
				return live.New(c, live.Options{TempDir: tb.TempDir()})
			})
		})
	}
}
