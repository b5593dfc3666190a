package snapshot

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type hashKVOptions struct {
	env  *cli.Env
	file fileFlags
	cmd  *cobra.Command
	path string
	rev  int64
	skip bool
}

// NewHashKV makes `hashkv`, which etcdutl has at the top.
func NewHashKV(env *cli.Env) *cobra.Command {
	o := hashKVOptions{env: env}
	c := &cobra.Command{
		Use:   "hashkv FILE",
		Short: "Print the hash of the key history of a given file",
		Long: `Print the hash of the key history of a given file, as etcd computes it. Two
members, or a member and a snapshot, that have the same hash at the same revision
and the same compact revision hold the same; with different compact revisions the
hashes say nothing. The file is only read.

A running server tells its own with "endpoint hashkv". That stops its writes while it
reads everything.`,
		Example: `  etcdctl-plus snapshot hashkv snapshot.db
  etcdctl-plus snapshot hashkv snapshot.db --rev 4711 -w json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.cmd, o.path = c, args[0]
			if o.rev < 0 {
				return cli.Usagef("--rev cannot be negative")
			}
			return o.run(c.Context())
		},
	}
	o.file.define(env, c.Flags())
	c.Flags().Int64Var(&o.rev, "rev", 0, "maximum revision to hash (default: latest revision)")
	if env.DropIn() {
		o.skip = true // etcdutl does not look at it
	} else {
		c.Flags().BoolVar(&o.skip, "skip-hash-check", false, "do not compare a snapshot with its checksum first, which takes longer than the hash")
	}
	return c
}

func (o *hashKVOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(o.formats()...)
	if err != nil {
		return err
	}
	file, err := o.file.options(o.env)
	if err != nil {
		return err
	}
	file.IgnoreChecksum = o.skip
	src, err := openFile(ctx, o.env, o.cmd, o.path, file)
	if err != nil {
		return err
	}
	o.env.OnClose(src.Close)
	if src.FromLog() || src.Lacks() {
		o.env.Warn("%s: %s", o.path, src.Note())
	}
	h, err := src.HashKV(ctx, o.rev)
	if err != nil {
		return err
	}
	v := hashKVView{Hash: h.Hash, HashRevision: h.Rev, CompactRevision: h.CompactRev}
	if o.env.DropIn() {
		return v.etcdutl().print(o.env)
	}
	return p.Print(v)
}

func (o *hashKVOptions) formats() []output.Format {
	if o.env.DropIn() {
		return []output.Format{output.Simple, output.Fields, output.JSON, output.Tables}
	}
	return output.Views()
}

// hashKVView has etcdutl's names.
type hashKVView struct {
	Hash            uint32 `json:"hash"`
	HashRevision    int64  `json:"hashRevision"`
	CompactRevision int64  `json:"compactRevision"` // -1: never compacted
}

func (v hashKVView) Table() output.Table {
	return output.Table{
		Columns: []output.Column{{Name: "HASH", Right: true, Keep: true}, {Name: "HASH REVISION", Right: true, Keep: true}, {Name: "COMPACT REVISION", Right: true, Keep: true}},
		Rows:    [][]string{{fmt.Sprint(v.Hash), fmt.Sprint(v.HashRevision), fmt.Sprint(v.CompactRevision)}},
	}
}

func (v hashKVView) etcdutl() etcdutlView {
	row := v.Table().Rows[0]
	return etcdutlView{
		header: []string{"hash", "hash revision", "compact revision"}, row: row, json: v,
		fields: [][2]string{{"Hash", row[0]}, {"Hash revision", row[1]}, {"Compact revision", row[2]}},
	}
}
