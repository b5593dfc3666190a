package live_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]live.Options{
		"stream": {},
		"pages":  {NoStream: true},
		// Pages of a few records, so that every read takes many.
		"smallPages": {NoStream: true, PageBytes: 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sourcetest.Run(t, sourcetest.Options{Servers: 2, Histories: 17}, func(tb testing.TB, c *clientv3.Client) keyspace.Source {
				o := o
				o.TempDir = tb.TempDir()
				return live.New(c, o)
			})
		})
	}
}
