package inspect

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

type memberInfo struct {
	keyspace.Source
	info keyspace.Info
}

func (m memberInfo) Info(context.Context) (keyspace.Info, error) { return m.info, nil }

// Only two members of one cluster, at one revision, must be equal.
func TestReplicas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		from, to  side
		cluster   uint64 // of the second; the first is of 1
		replicas  bool
		revisions [2]int64
		warning   string
	}{
		{"members", side{endpoint: "a:1"}, side{endpoint: "b:1"}, 1, true, [2]int64{5, 5}, ""},
		{"members at one revision", side{endpoint: "a:1", rev: 3}, side{endpoint: "b:1", rev: 3}, 1, true, [2]int64{3, 3}, ""},
		{"members at two revisions", side{endpoint: "a:1", rev: 3}, side{endpoint: "b:1", rev: 4}, 1, false, [2]int64{3, 4}, ""},
		{"one member at two revisions", side{endpoint: "a:1", rev: 3}, side{endpoint: "a:1", rev: 4}, 1, false, [2]int64{3, 4}, ""},
		{"members of two clusters", side{endpoint: "a:1"}, side{endpoint: "b:1"}, 2, false, [2]int64{7, 5}, "different clusters"},
		{"a file and a member", side{path: "x.db"}, side{endpoint: "b:1"}, 1, false, [2]int64{7, 5}, ""},
	} {
		var stderr bytes.Buffer
		o := diffOptions{env: cli.NewEnv("etcdctl-plus", nil, nil, &stderr, func(string) string { return "" }), from: c.from, to: c.to}
		replicas, err := o.pin(t.Context(), memberInfo{info: keyspace.Info{ClusterID: 1, Revision: 7}}, memberInfo{info: keyspace.Info{ClusterID: c.cluster, Revision: 5}})
		if err != nil || replicas != c.replicas || [2]int64{o.from.rev, o.to.rev} != c.revisions {
			t.Errorf("%s: %t at %d and %d, %v", c.name, replicas, o.from.rev, o.to.rev, err)
		}
		if (stderr.Len() > 0) != (c.warning != "") || !strings.Contains(stderr.String(), c.warning) {
			t.Errorf("%s: %q", c.name, stderr.String())
		}
	}
}
