package commands_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdctl-plus/etcdctl-plus/commands"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
)

// result is what one command line gave.
type result struct {
	stdout, stderr string
	code           int
}

// run executes a command line in this process, with no variables but env.
func run(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	return runAs(t, "etcdctl-plus", env, args...)
}

// runAs is run under another name.
func runAs(t *testing.T, name string, env map[string]string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	e := cli.NewEnv(name, strings.NewReader(""), &out, &errs, func(k string) string { return env[k] })
	code := commands.Run(context.Background(), e, args)
	if i := slices.Index(args, "-w"); i >= 0 && i+1 < len(args) && (args[i+1] == "json" || args[i+1] == "jsonl") {
		objectsOnly(t, errs.String())
	}
	return result{out.String(), errs.String(), code}
}

// objectsOnly checks that what went to stderr with a JSON format is an object a line.
func objectsOnly(t *testing.T, stderr string) {
	t.Helper()
	for line := range strings.Lines(stderr) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("stderr has %q among JSON: %v", line, err)
		}
	}
}

// ok is run for a command that must succeed.
func ok(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	r := run(t, env, args...)
	if r.code != 0 {
		t.Fatalf("%v: exit code %d\n%s", args, r.code, r.stderr)
	}
	return r.stdout
}

// decode reads JSON with every digit kept.
func decode(t *testing.T, doc string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %.200s", err, doc)
	}
	return v
}

func startSandbox(t *testing.T, o sandbox.Options) (*sandbox.Sandbox, *clientv3.Client) {
	t.Helper()
	s, err := sandbox.Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return s, c
}
