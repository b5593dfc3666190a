// Package completions turns tables and sources into candidates for the shell.
// It knows no command.
package completions

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/registry"
)

// Kinds completes the first argument with Kubernetes' own resources. It reads
// nothing but the built-in table.
func Kinds(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, r := range registry.NewMapper("").Resources() {
		if name := r.Plural; strings.HasPrefix(name, word) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
