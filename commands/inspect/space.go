package inspect

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type spaceOptions struct {
	env    *cli.Env
	source cli.SourceFlags
}

func newSpaceCmd(env *cli.Env) *cobra.Command {
	o := spaceOptions{env: env}
	c := &cobra.Command{
		Use:   "space",
		Short: "Why the database is as large as it is, and what would shrink it",
		Long: `Why the database file is as large as it is: live data, superseded versions,
tombstones, overhead and free pages; and what a compaction and a defrag would give
back. The last two are estimates: overhead is shared out by revisions. The whole
database counts, whatever --key-prefix says: pages belong to no prefix.

Server cost (live): a snapshot of the whole database is streamed to a private
temporary file and read there, one pass over the file and no lock on writes.`,
		Example: `  etcdctl-plus inspect space --db snapshot.db`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.source.Define(c.Flags())
	return c
}

func (o *spaceOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	src, err := o.source.History(ctx, o.env)
	if err != nil {
		return err
	}
	if src, err = cli.Whole(src); err != nil {
		return err
	}
	s, err := inspect.MeasureSpace(ctx, src)
	if err != nil {
		return err
	}
	return p.Print(spaceView{s})
}

type spaceView struct{ *inspect.Space }

func (v spaceView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "WHAT", Keep: true}, {Name: "SIZE", Right: true, Keep: true, Bytes: true}, {Name: "NOTE"}}}
	add := func(what string, n int64, format string, a ...any) {
		t.Rows = append(t.Rows, []string{what, fmt.Sprint(n), fmt.Sprintf(format, a...)})
	}
	add("file", v.FileBytes, "revision %d, compacted at %d", v.Revision, v.CompactRev)
	add("in use", v.InUseBytes, "pages that hold data")
	add("  live data", v.LiveBytes, "%d keys", v.Keys)
	add("  history", v.HistoryBytes, "%d superseded versions, %d tombstones", v.Superseded, v.Tombstones)
	add("  overhead", v.OverheadBytes, "pages that are not full, revisions, other buckets")
	add("free pages", v.FreeBytes, "what a defrag gives back now")
	add("compaction would free", v.CompactFrees, "about; into free pages, the file stays as large")
	add("file after both", v.AfterBoth, "about")
	return t
}
