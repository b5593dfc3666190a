package help

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// NewHelp makes `help`, which fails on what it does not know.
func NewHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command or topic",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || c == nil || len(rest) > 0 || len(args) > 0 && c == root {
				return cli.WithHint(cli.Usagef("no help on %q", strings.Join(args, " ")), fmt.Sprintf("`%s --help` lists commands and topics", root.Name()))
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// NewOptions makes `options`: the flags that every command has.
func NewOptions(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "The flags for connection and output, which every command has",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "The following options can be passed to any command:\n\n%s", root.PersistentFlags().FlagUsages())
			return err
		},
	}
}

// Short is the version alone.
func Short() string { return current().Version }
