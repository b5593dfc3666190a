// Package kv holds the commands on keys and values: get, put, del and watch.
package kv

import (
	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// Commands returns the commands of this package.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{newGetCmd(env), newPutCmd(env), newDelCmd(env), newWatchCmd(env)}
}

// formats are what an answer of etcd can be written as. The first five are
// etcdctl's; under its name there are no others.
func formats(env *cli.Env, etcd ...output.Format) []output.Format {
	if env.DropIn() {
		return etcd
	}
	return append(etcd, output.JSONL, output.YAML, output.Tables, output.Wide, output.Template, output.JSONPath)
}
