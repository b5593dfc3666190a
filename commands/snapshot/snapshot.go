// Package snapshot holds the commands that work on a snapshot in hand.
package snapshot

import (
	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// New makes `snapshot`. Under the names etcdctl and etcdutl it has what they have, or
// had in 3.5.
func New(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Save a snapshot, verify it, restore it",
		Long: `Save a snapshot, find out whether it can be trusted, restore it. A file that is only
looked at is never written to. What was packed (gzip, zstd) or encrypted (age) is read
as it is.`,
	}
	if env.Personality != cli.Etcdutl {
		c.AddCommand(newSaveCmd(env))
	}
	c.AddCommand(newStatusCmd(env), newRestoreCmd(env))
	if !env.DropIn() {
		c.AddCommand(newVerifyCmd(env), newDrillCmd(env), newExtractCmd(env), newApplyCmd(env), NewHashKV(env))
	}
	return c
}
