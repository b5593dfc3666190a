// Package snapshot holds the commands for a snapshot in one's hand.
package snapshot

import (
	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// New makes `snapshot`. Under etcdutl's name it has what that has, and under etcdctl's
// what 3.5 had for files.
func New(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Save, verify and restore snapshots",
	}
	if env.DropIn() {
		c.Short = "Look at snapshots and restore them"
		c.AddCommand(newStatusCmd(env), newRestoreCmd(env))
		return c
	}
	c.AddCommand(newSaveCmd(env), newVerifyCmd(env), newStatusCmd(env), NewHashKV(env), newRestoreCmd(env))
	return c
}
