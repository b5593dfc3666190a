package kv

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// killDelay is how long a command may take to end when the watch is over.
const killDelay = 5 * time.Second

// runForEvent runs a command for one event. The error is the command's end; as etcdctl it
// is always 1.
func runForEvent(ctx context.Context, env *cli.Env, command []string, rev int64, e *clientv3.Event) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(env.ChildEnviron(),
		fmt.Sprintf("ETCD_WATCH_REVISION=%d", rev),
		fmt.Sprintf("ETCD_WATCH_EVENT_TYPE=%q", e.GetType()),
		fmt.Sprintf("ETCD_WATCH_KEY=%q", e.GetKv().GetKey()),
		fmt.Sprintf("ETCD_WATCH_VALUE=%q", e.GetKv().GetValue()))
	cmd.Stdout, cmd.Stderr = env.Stdout, env.Stderr
	if f, ok := env.Raw(); ok {
		cmd.Stdout, cmd.Stderr = f[1], f[2]
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(cli.Terminate) }
	cmd.WaitDelay = killDelay
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && env.DropIn():
		return &cli.Error{Code: cli.Failure, Err: fmt.Errorf("command %q error (%w)", command, err)}
	}
	return cli.ChildEnded(env, command[0], err)
}
