// Package backup holds the commands for a repository of backups.
package backup

import (
	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// FileCommand makes a command of another noun that works on a file, for what lies in a
// repository.
type FileCommand func(*cli.Env, cli.Locator) *cobra.Command

// New makes `backup`. The commands that are also for a file in hand come from their own
// nouns.
func New(env *cli.Env, restore, drill, diff FileCommand) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup",
		Short: "A repository of backups: take, keep, verify, rehearse, restore",
		Long: `A repository of backups: in a folder, in a bucket of any S3-compatible server, or wherever
the user's rclone reaches. ` + "`backup run`" + ` is one command for cron: it saves, verifies, stores,
compares what arrived, and removes what a policy does not keep.

A BACKUP is named by its sequence, its name, CLUSTER/NAME, or as latest.`,
	}
	c.AddCommand(newRunCmd(env), newListCmd(env), newStatusCmd(env), newVerifyCmd(env), newPruneCmd(env), newFetchCmd(env), newCopyCmd(env),
		newFollowCmd(env), restore(env, &momentFlags{storeFlags: storeFlags{env: env}}), drill(env, &momentFlags{storeFlags: storeFlags{env: env}}), diff(env, &storeFlags{env: env}))
	return c
}
