// Package snapshot holds the commands for a snapshot in one's hand.
package snapshot

import (
	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// New makes `snapshot`.
func New(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Save, verify and restore snapshots",
	}
	c.AddCommand(newSaveCmd(env), newVerifyCmd(env))
	return c
}
