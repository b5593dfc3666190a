package perf_test

import (
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/perf"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// A server that answers no more does not hold a load for ever: each write is bounded, and
// counted as failed.
func TestStoppedServer(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{})
	c := p.Client(t)
	if s := perf.Run(t.Context(), []*clientv3.Client{c}, "k/", perf.Load{Keys: 5, KeyBytes: 8, ValBytes: 8, Timeout: 10 * time.Second}); s.Writes != 5 || len(s.Errors) != 0 {
		t.Fatalf("%+v", s)
	}
	p.Signal(t, syscall.SIGSTOP)
	defer p.Signal(t, syscall.SIGCONT)
	const timeout = 300 * time.Millisecond
	s := perf.Run(t.Context(), []*clientv3.Client{c}, "k/", perf.Load{Keys: 5, KeyBytes: 8, ValBytes: 8, Timeout: timeout})
	failed := 0
	for _, n := range s.Errors {
		failed += n
	}
	if s.Writes != 0 || failed != 5 || s.Total < timeout {
		t.Errorf("%+v", s)
	}
}
