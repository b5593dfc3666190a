package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type usageOptions struct {
	env     *cli.Env
	source  cli.SourceFlags
	prefix  string
	depth   int
	rev     int64
	top     int
	sortBy  string
	history bool
}

func newUsageCmd(env *cli.Env) *cobra.Command {
	o := usageOptions{env: env}
	c := &cobra.Command{
		Use:   "usage [PREFIX]",
		Short: "How much the keys under each prefix take up, the largest first",
		Long: `How much the keys under each prefix take up, the largest first: number of keys,
bytes of keys and values now, and of a file also bytes of superseded versions and
tombstones (history) and how many versions there are.

Bytes are those of keys and values. A database file is larger: pages, revisions
and free space come on top.

Server cost (live): every key and value under the prefix is read and sent once.
--history on a live cluster streams a snapshot of the whole database to a private
temporary file and reads that: one pass over the file in the server, no lock on
writes. With --db it costs the cluster nothing, and history is always counted.`,
		Example: `  etcdctl-plus inspect usage --db snapshot.db
  etcdctl-plus inspect usage /registry/ --depth 2 --db snapshot.db
  etcdctl-plus inspect usage /registry/events/ -w json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.source.Define(f)
	f.IntVar(&o.depth, "depth", 2, "how many path segments below PREFIX make a group")
	f.Int64Var(&o.rev, "rev", 0, "look at this revision (0: the newest)")
	f.IntVar(&o.top, "top", 0, "show only this many prefixes (0: all)")
	f.StringVar(&o.sortBy, "sort-by", "bytes", "bytes, history, keys, revisions, or prefix")
	f.BoolVar(&o.history, "history", false, "live: count superseded versions too, from a streamed snapshot")
	_ = c.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions([]string{"bytes", "history", "keys", "revisions", "prefix"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	return c
}

func (o *usageOptions) complete(args []string) error {
	if len(args) > 0 {
		o.prefix = args[0]
	}
	if o.depth < 1 {
		return cli.Usagef("--depth %d: at least 1", o.depth)
	}
	if o.rev < 0 || o.top < 0 {
		return cli.Usagef("--rev and --top cannot be negative")
	}
	if usageOrder(o.sortBy) == nil {
		return cli.Usagef("--sort-by %q is not one of bytes, history, keys, revisions, prefix", o.sortBy)
	}
	if (o.sortBy == "history" || o.sortBy == "revisions") && o.source.DB == "" && !o.history {
		return cli.WithHint(cli.Usagef("--sort-by %s needs the history", o.sortBy), "add --history: it streams a snapshot of the cluster")
	}
	return nil
}

func (o *usageOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	src, err := o.source.Open(ctx, o.env)
	if err != nil {
		return err
	}
	progress := o.env.Progress("keys read")
	rep, err := inspect.UsageByPrefix(ctx, src, inspect.UsageOptions{
		Prefix: o.prefix, Rev: o.rev, Depth: o.depth, History: o.history || o.source.DB != "",
		Progress: func(n int64) { progress.Set(n, 0) },
	})
	progress.Done()
	if err != nil {
		return err
	}
	slices.SortStableFunc(rep.Prefixes, usageOrder(o.sortBy))
	if o.top > 0 && len(rep.Prefixes) > o.top {
		rep.Prefixes = rep.Prefixes[:o.top]
	}
	return p.Print(usageView{rep})
}

func usageOrder(by string) func(a, b inspect.Usage) int {
	desc := func(get func(inspect.Usage) int64) func(a, b inspect.Usage) int {
		return func(a, b inspect.Usage) int { return cmp.Compare(get(b), get(a)) }
	}
	switch by {
	case "bytes":
		return desc(func(u inspect.Usage) int64 { return u.LiveBytes })
	case "history":
		return desc(func(u inspect.Usage) int64 { return u.HistoryBytes })
	case "keys":
		return desc(func(u inspect.Usage) int64 { return u.Keys })
	case "revisions":
		return desc(func(u inspect.Usage) int64 { return u.Revisions })
	case "prefix":
		return func(a, b inspect.Usage) int { return strings.Compare(a.Prefix, b.Prefix) }
	}
	return nil
}

type usageView struct{ *inspect.UsageReport }

func (v usageView) Table() output.Table {
	t := output.Table{
		Columns: []output.Column{{Name: "PREFIX"}, {Name: "KEYS", Right: true, Keep: true}, {Name: "LIVE", Right: true, Keep: true, Bytes: true}},
		Empty:   "no key under this prefix",
	}
	if v.History {
		t.Columns = append(t.Columns, output.Column{Name: "HISTORY", Right: true, Keep: true, Bytes: true}, output.Column{Name: "REVISIONS", Right: true, Keep: true},
			output.Column{Name: "TOMBSTONES", Right: true, Keep: true, Wide: true})
	}
	for _, u := range v.Prefixes {
		t.Rows = append(t.Rows, v.row(u.Prefix, u))
	}
	if len(v.Prefixes) > 0 {
		t.Footer = [][]string{v.row("total", v.Total)}
	}
	return t
}

func (v usageView) row(name string, u inspect.Usage) []string {
	if name == "" {
		name = `""`
	}
	r := []string{name, fmt.Sprint(u.Keys), fmt.Sprint(u.LiveBytes)}
	if v.History {
		r = append(r, fmt.Sprint(u.HistoryBytes), fmt.Sprint(u.Revisions), fmt.Sprint(u.Tombstones))
	}
	return r
}
