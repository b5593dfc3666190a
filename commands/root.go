package commands

import (
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/commands/auth"
	"github.com/etcdctl-plus/etcdctl-plus/commands/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/commands/context"
	"github.com/etcdctl-plus/etcdctl-plus/commands/datadir"
	"github.com/etcdctl-plus/etcdctl-plus/commands/endpoint"
	"github.com/etcdctl-plus/etcdctl-plus/commands/help"
	"github.com/etcdctl-plus/etcdctl-plus/commands/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/commands/kv"
	"github.com/etcdctl-plus/etcdctl-plus/commands/lease"
	"github.com/etcdctl-plus/etcdctl-plus/commands/lock"
	"github.com/etcdctl-plus/etcdctl-plus/commands/maintain"
	"github.com/etcdctl-plus/etcdctl-plus/commands/member"
	"github.com/etcdctl-plus/etcdctl-plus/commands/mirror"
	"github.com/etcdctl-plus/etcdctl-plus/commands/registry"
	"github.com/etcdctl-plus/etcdctl-plus/commands/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/commands/snapshot"
	"github.com/etcdctl-plus/etcdctl-plus/commands/tail"
)

const rootLong = `etcdctl-plus reads, checks and tends etcd, and Kubernetes' data in it.

Every reading command works on a live cluster (--endpoints) and on a file
(--db): a snapshot, a member's database, or a data folder.

Started under the name etcdctl or etcdutl (a symbolic link will do) it is a drop-in:
the same commands, flags, variables, output and exit codes.`

const dropInLong = `etcdctl-plus under another's name: the same commands, flags, environment, output and
exit codes as the real program. Under its own name it asks before it destroys something,
and can do more: see etcdctl-plus --help.`

// settings are cobra's, for the whole program.
var settings = sync.OnceFunc(func() {
	cobra.EnablePrefixMatching = true // as etcdctl: `mem l`
	cobra.EnableCommandSorting = false
})

// NewRoot builds the command tree for env's personality.
func NewRoot(env *cli.Env) *cobra.Command {
	settings()
	env.Version = help.Short()
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
		if args := c.Flags().Args(); len(args) > 0 && (!c.HasParent() || c.HasSubCommands()) {
			return wrongCommand(c, args) // its flags are unknown because it is
		}
		return cli.WithHint(&cli.Error{Code: cli.Usage, Err: err, DropIn: 1}, "`"+c.CommandPath()+" --help` lists the flags")
	})
	env.Flags = globalFlags(root.PersistentFlags(), env)
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	if env.DropIn() {
		root.Long = dropInLong
	} else {
		root.Version = help.Short()
		root.SetVersionTemplate("{{.Name}} version: {{.Version}}\n")
	}
	if env.Personality != cli.Etcdutl {
		add(root, groupData, "Keys and values:", append(kv.Commands(env), lease.New(env))...)
	}
	if env.Personality == cli.Etcdutl {
		add(root, groupFiles, "A file in hand:", snapshot.New(env), snapshot.NewHashKV(env), datadir.NewDefrag(env), datadir.NewMigrate(env))
	} else {
		add(root, groupFiles, "A file in hand:", snapshot.New(env))
	}
	if env.Personality == cli.Own {
		add(root, groupFiles, "A file in hand:", datadir.NewMigrate(env))
	}
	if env.Personality != cli.Etcdutl {
		add(root, groupConcurrency, "One at a time:", lock.Commands(env)...)
		add(root, groupCluster, "The cluster and its members:", append([]*cobra.Command{endpoint.New(env), member.New(env)}, append(maintain.Commands(env, datadir.Defrag), mirror.New(env))...)...)
		add(root, groupAuth, "Users and what they may:", auth.Commands(env)...)
	}
	if !env.DropIn() {
		add(root, groupInspect, "Look inside, live or in a file:", registry.New(env), inspect.New(env), tail.New(env))
		add(root, groupBackup, "Backups that are kept:", backup.New(env, snapshot.NewRestore, snapshot.NewDrill, inspect.NewDiff))
		add(root, groupMore, "More:", sandbox.New(env), context.New(env), help.NewVersion(env), help.NewOptions(root))
	} else {
		add(root, groupMore, "More:", help.NewVersion(env), help.NewOptions(root))
	}
	root.SetHelpCommandGroupID(groupMore)
	root.SetCompletionCommandGroupID(groupMore)
	root.AddCommand(help.Topics(env)...)
	root.SetHelpCommand(help.NewHelp(root))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	strict(root)
	named(root, env.Name)
	return root
}

// globalFlags defines the flags that every command has. etcdutl talks to no server: it
// has two, and reads no variables.
func globalFlags(set *pflag.FlagSet, env *cli.Env) *config.Flags {
	if env.Personality != cli.Etcdutl {
		return config.Define(set, env.DropIn(), env.Getenv)
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f := config.Define(all, true, func(string) string { return "" })
	set.Duration("timeout", 10*time.Second, "time to wait to obtain a file lock on db file, 0 to block indefinitely")
	set.AddFlag(all.Lookup("write-out"))
	return f
}

func add(root *cobra.Command, group, title string, cmds ...*cobra.Command) {
	if !root.ContainsGroup(group) {
		root.AddGroup(&cobra.Group{ID: group, Title: title})
	}
	for _, c := range cmds {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// usageTemplate puts one line in the place of the two dozen global flags, which
// would push what a command itself has off the screen. etcdctl does the same.
func usageTemplate(t string) string {
	start := strings.Index(t, "{{if .HasAvailableInheritedFlags}}")
	end := strings.Index(t[start:], "{{end}}") + start + len("{{end}}")
	return t[:start] + "{{if .HasAvailableInheritedFlags}}\n\nFlags for connection and output: `{{.Root.Name}} options` lists them.{{end}}" + t[end:]
}

// strict makes every command refuse what it does not know as a wrong command
// line: cobra alone prints help and exits 0, or 1.
func strict(c *cobra.Command) {
	for _, sub := range c.Commands() {
		switch {
		case sub.HasSubCommands() && !sub.Runnable():
			sub.Args = cobra.ArbitraryArgs
			sub.RunE = wrongCommand
		case sub.Args != nil:
			check := sub.Args
			sub.Args = func(c *cobra.Command, args []string) error {
				if err := check(c, args); err != nil {
					return cli.WithHint(&cli.Error{Code: cli.Usage, Err: err, DropIn: 1}, "`"+c.CommandPath()+" --help` shows how it is used")
				}
				return nil
			}
		}
		strict(sub)
	}
}

// named writes the name the program was started under into the examples.
func named(c *cobra.Command, name string) {
	c.Example = strings.ReplaceAll(c.Example, "etcdctl-plus ", name+" ")
	for _, sub := range c.Commands() {
		named(sub, name)
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
