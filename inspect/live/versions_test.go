package live_test

import (
	"fmt"
	"sync"
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

// Through etcd's gRPC proxy, which has no RangeStream and answers what it remembers.
func TestSuiteProxy(t *testing.T) {
	t.Parallel()
	var proxies sync.Map
	start := func(tb testing.TB) *clientv3.Client {
		p := server.Start(tb, server.Options{})
		c := p.Client(tb)
		listen := fmt.Sprintf("127.0.0.1:%d", server.Ports(tb, 1)[0])
		proxy := server.Run(tb, server.Binary(tb, "3.7"), listen, "grpc-proxy", "start", "--endpoints", p.Endpoint, "--listen-addr", listen, "--data-dir", tb.TempDir())
		proxies.Store(c, proxy.Client(tb))
		return c
	}
	sourcetest.Run(t, sourcetest.Options{Servers: 1, Histories: 10, Start: start}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
		proxied, _ := proxies.Load(c)
		return live.New(proxied.(*clientv3.Client), live.Options{TempDir: tb.TempDir()})
	})
}
