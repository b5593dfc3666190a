// Package context holds `context`: names for the settings that reach a cluster.
package context

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
)

// New makes `context`.
func New(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "context",
		Short: "Names for clusters: endpoints, certificates and what else reaches them",
		Long: `A context is a name for settings: endpoints, certificates, a user, read-only. The
current one counts for every command that is given nothing else; --context NAME and
ETCDCTL_PLUS_CONTEXT choose another. Flags and variables win over a context.

They live in one file, etcdctl-plus/config.yaml in the user's configuration folder or
what --config names. It is replaced in one step and has mode 0600. Comments, order and
members that are not changed stay; blank lines and indentation are written anew. A
file that is wrong is not written to.

None of these commands talks to a cluster.`,
	}
	c.AddCommand(newListCmd(env), newShowCmd(env), newUseCmd(env), newSetCmd(env), newDetectCmd(env))
	return c
}

// names completes the names of contexts.
func names(env *cli.Env) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		f, err := env.Flags.File()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return f.Names(), cobra.ShellCompDirectiveNoFileComp
	}
}

// endpoints tells what a context reaches.
func endpoints(x *config.Context) []string {
	if e := config.Text(x.Settings["endpoints"]); e != "" {
		var all []string
		for s := range strings.SplitSeq(e, ",") {
			if s = strings.TrimSpace(s); s != "" {
				all = append(all, s)
			}
		}
		return all
	}
	if d := config.Text(x.Settings["discovery-srv"]); d != "" {
		return []string{"SRV records of " + d}
	}
	return []string{"127.0.0.1:2379 (default)"}
}

// tellCurrent says when a variable wins over what was chosen in the file.
func tellCurrent(env *cli.Env, f *config.File) {
	if name, from := env.Flags.InForce(f); from != "" && from != "current-context" {
		env.Warn("%s names context %q, which counts instead of the file's", sourceName(from), name)
	}
}

func sourceName(from string) string {
	if from == "flag" {
		return "--context"
	}
	return from
}

// said writes one line of a result for people.
func said(env *cli.Env, format string, a ...any) error {
	_, err := fmt.Fprintf(env.Stdout, format+"\n", a...)
	return err
}
