package latemetrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	_ "go.etcd.io/etcd/server/v3/embed" // what registers so much

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox/latemetrics"
)

// Etcd's metrics wait until they are released, and are all there then. If Go
// initialised the packages in another order, none would wait.
func TestHeldBack(t *testing.T) {
	if n := latemetrics.Held(); n < 50 {
		t.Errorf("only %d metrics wait: etcd registered the others before", n)
	}
	if has(t, "etcd_server_has_leader") {
		t.Error("registered before release")
	}
	// What servers do that are started before: the same metric once each.
	for range 2 {
		if err := prometheus.Register(prometheus.NewCounter(prometheus.CounterOpts{Name: "each_server"})); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := latemetrics.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if latemetrics.Held() != 0 || !has(t, "etcd_server_has_leader") {
		t.Error("not registered after release")
	}
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "late"})
	prometheus.MustRegister(c)
	if !has(t, "late") || !prometheus.Unregister(c) || has(t, "late") {
		t.Error("registrations after release do not pass")
	}
}

func has(t *testing.T, name string) bool {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return true
		}
	}
	return false
}
