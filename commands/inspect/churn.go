package inspect

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type churnOptions struct {
	env            *cli.Env
	source         cli.SourceFlags
	prefix         string
	depth, top     int
	minRev, maxRev int64
}

func newChurnCmd(env *cli.Env) *cobra.Command {
	o := churnOptions{env: env}
	c := &cobra.Command{
		Use:   "churn [PREFIX]",
		Short: "Which prefixes and keys are written most",
		Long: `How often the keys under each prefix were written between two revisions, the
busiest first; --depth 0 counts each key by itself. What was compacted away is not
counted: by default the count begins behind the compact revision.

Server cost (live): a snapshot of the whole database is streamed to a private
temporary file and read there, one pass over the file and no lock on writes.`,
		Example: `  etcdctl-plus inspect churn --db snapshot.db
  etcdctl-plus inspect churn /registry/ --depth 0 --top 10 --db snapshot.db`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.prefix = args[0]
			}
			if o.depth < 0 || o.top < 0 || o.minRev < 0 || o.maxRev < 0 {
				return cli.Usagef("--depth, --top, --from-rev and --to-rev cannot be negative")
			}
			if o.maxRev > 0 && o.minRev > o.maxRev {
				return cli.Usagef("--from-rev %d is above --to-rev %d", o.minRev, o.maxRev)
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.source.Define(f)
	f.IntVar(&o.depth, "depth", 2, "how many path segments below PREFIX make a group (0: each key)")
	f.IntVar(&o.top, "top", 0, "show only this many (0: all)")
	f.Int64Var(&o.minRev, "from-rev", 0, "first revision to count (0: behind the compact revision)")
	f.Int64Var(&o.maxRev, "to-rev", 0, "last revision to count (0: the newest)")
	return c
}

func (o *churnOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	src, err := o.source.History(ctx, o.env)
	if err != nil {
		return err
	}
	rep, err := inspect.CountChurn(ctx, src, inspect.ChurnOptions{Prefix: o.prefix, Depth: o.depth, MinRev: o.minRev, MaxRev: o.maxRev})
	if err != nil {
		return err
	}
	if o.top > 0 && len(rep.Prefixes) > o.top {
		rep.Prefixes = rep.Prefixes[:o.top]
	}
	return p.Print(churnView{rep})
}

type churnView struct{ *inspect.ChurnReport }

func (v churnView) Table() output.Table {
	t := output.Table{
		Columns: []output.Column{
			{Name: "PREFIX"}, {Name: "PUTS", Right: true, Keep: true}, {Name: "DELETES", Right: true, Keep: true}, {Name: "KEYS", Right: true, Keep: true},
			{Name: "WRITTEN", Right: true, Keep: true, Bytes: true}, {Name: "LAST REV", Right: true, Keep: true, Drop: true},
		},
		Empty: fmt.Sprintf("nothing was written from revision %d to %d", v.FromRev, v.ToRev),
	}
	if v.Total.Prefix != "" {
		t.Empty = fmt.Sprintf("nothing was written under %q from revision %d to %d", v.Total.Prefix, v.FromRev, v.ToRev)
	}
	row := func(name string, c inspect.Churn) []string {
		return []string{name, fmt.Sprint(c.Puts), fmt.Sprint(c.Deletes), fmt.Sprint(c.Keys), fmt.Sprint(c.Bytes), fmt.Sprint(c.LastRev)}
	}
	for _, c := range v.Prefixes {
		t.Rows = append(t.Rows, row(c.Prefix, c))
	}
	if len(v.Prefixes) > 0 {
		t.Footer = [][]string{row("total", v.Total)}
	}
	return t
}
