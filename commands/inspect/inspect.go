// Package inspect holds the commands that look into any keyspace.
package inspect

import (
	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// New makes `inspect`.
func New(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "inspect",
		Short: "Sizes, keys, history and differences of any keyspace, live or in a file",
		Long: `Sizes, keys, history, differences, leases of any keyspace: a live cluster, a snapshot, a member's
file or its data folder (--db). Nothing is ever written to what is read.`,
	}
	c.AddCommand(newUsageCmd(env), newKeysCmd(env), newHistoryCmd(env),
		newDiffCmd(env), newChurnCmd(env), newLeasesCmd(env), newSpaceCmd(env))
	return c
}
