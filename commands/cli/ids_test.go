package cli_test

import (
	"bytes"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

func TestParseID(t *testing.T) {
	t.Parallel()
	env := func(name string) *cli.Env {
		return cli.NewEnv(name, nil, &bytes.Buffer{}, &bytes.Buffer{}, func(string) string { return "" })
	}
	for _, c := range []struct {
		text      string
		own, etcd uint64 // 0: refused
	}{
		{"8e9e05c52164694d", 0x8e9e05c52164694d, 0x8e9e05c52164694d},
		{"694d805f71bbcc08", 0x694d805f71bbcc08, 0x694d805f71bbcc08},
		{"10276657743932975437", 10276657743932975437, 0},
		{"7587862094607535112", 7587862094607535112, 0},
		{"0x7b", 0x7b, 0},
		{"0X7B", 0x7b, 0},
		{"7b", 0x7b, 0x7b},
		{"123", 0x123, 0x123},
		{"99999999999999999999999", 0, 0},
		{"xyz", 0, 0},
		{"-1", 0, 0},
		{"", 0, 0},
	} {
		for name, want := range map[string]uint64{"etcdctl-plus": c.own, "etcdctl": c.etcd} {
			got, err := cli.ParseID(env(name), "member", c.text)
			if got != want || (err != nil) != (want == 0) {
				t.Errorf("%s: %q: %x, %v; want %x", name, c.text, got, err, want)
			}
		}
	}
}
