// Package kv holds the commands on keys and values: get, put, del and watch.
package kv

import (
	"context"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
)

// Commands returns the commands of this package.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{newGetCmd(env), newPutCmd(env), newDelCmd(env), newTxnCmd(env), newWatchCmd(env), newCompactionCmd(env)}
}

// noLeader says so when a request failed for want of a leader; as etcdctl, err as it is.
func noLeader(ctx context.Context, env *cli.Env, client *clientv3.Client, err error) error {
	if env.DropIn() || err == nil {
		return err
	}
	return live.NoLeader(ctx, client, err)
}
