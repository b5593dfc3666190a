package commands

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/commands/help"
	"github.com/etcdctl-plus/etcdctl-plus/commands/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/commands/kv"
	"github.com/etcdctl-plus/etcdctl-plus/commands/registry"
	"github.com/etcdctl-plus/etcdctl-plus/commands/sandbox"
)

const rootLong = `etcdctl-plus reads, checks and tends etcd, and Kubernetes' data in it.

Every reading command works on a live cluster (--endpoints) and on a file
(--db): a snapshot, a member's database, or a data folder.

Started under the name etcdctl or etcdutl (a symlink will do) it takes their
place: the same commands, flags, environment and output.`

// NewRoot builds the command tree for env's personality.
func NewRoot(env *cli.Env) *cobra.Command {
	cobra.EnablePrefixMatching = true // as etcdctl: `mem l`
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:           env.Name,
		Short:         "Read, check and tend etcd and the Kubernetes data in it",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          wrongCommand,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return cli.WithHint(&cli.Error{Code: cli.Usage, Err: err, DropIn: 1}, "`"+c.CommandPath()+" --help` lists the flags")
	})
	env.Flags = config.Define(root.PersistentFlags(), env.DropIn(), env.Getenv)
	root.AddGroup(
		&cobra.Group{ID: groupData, Title: "Keys and values:"},
		&cobra.Group{ID: groupInspect, Title: "Look inside, live or in a file:"},
		&cobra.Group{ID: groupMore, Title: "More:"},
	)
	if env.Personality != cli.Etcdutl {
		add(root, groupData, kv.Commands(env)...)
	}
	if !env.DropIn() {
		add(root, groupInspect, registry.New(env), inspect.New(env))
		add(root, groupMore, sandbox.New(env))
	}
	add(root, groupMore, help.NewVersion(env))
	root.SetHelpCommandGroupID(groupMore)
	root.SetCompletionCommandGroupID(groupMore)
	root.AddCommand(help.Topics(env)...)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	strict(root)
	return root
}

func add(root *cobra.Command, group string, cmds ...*cobra.Command) {
	for _, c := range cmds {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// strict makes every command that only holds others fail on an unknown one:
// cobra alone prints help and exits 0.
func strict(c *cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.HasSubCommands() && !sub.Runnable() {
			sub.Args = cobra.ArbitraryArgs
			sub.RunE = wrongCommand
		}
		strict(sub)
	}
}

// Surface visits every command and its own flags, for documentation and tests.
func Surface(root *cobra.Command, visit func(c *cobra.Command, flags []*pflag.Flag)) {
	var flags []*pflag.Flag
	root.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f) })
	visit(root, flags)
	for _, c := range root.Commands() {
		Surface(c, visit)
	}
}
