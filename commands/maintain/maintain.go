// Package maintain holds the commands that tend a cluster: alarm, defrag, move-leader,
// downgrade and check.
package maintain

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// Offline defragments a data folder whose etcd does not run.
type Offline func(ctx context.Context, env *cli.Env, dir string, timeout time.Duration) error

// Commands returns the commands; offline is what `defrag --data-dir` does.
func Commands(env *cli.Env, offline Offline) []*cobra.Command {
	return []*cobra.Command{newAlarmCmd(env), newDefragCmd(env, offline), newMoveLeaderCmd(env), newDowngradeCmd(env), newCheckCmd(env)}
}

// request sends one request, bounded by the command timeout.
func request[T any](ctx context.Context, env *cli.Env, f func(context.Context, *clientv3.Client) (T, error)) (T, error) {
	var none T
	client, err := env.Client(ctx)
	if err != nil {
		return none, err
	}
	ctx, cancel, err := env.CommandContext(ctx)
	if err != nil {
		return none, err
	}
	defer cancel()
	return f(ctx, client)
}
