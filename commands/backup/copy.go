package backup

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type copyOptions struct {
	env   *cli.Env
	store storeFlags
	to    storeFlags
}

func newCopyCmd(env *cli.Env) *cobra.Command {
	o := copyOptions{env: env, store: storeFlags{env: env}, to: storeFlags{env: env}}
	c := &cobra.Command{
		Use:   "copy",
		Short: "Copy the backups of a repository into another one",
		Long: `Copy the backups that the repository --to does not have into it, as they are stored, each
compared with its manifest on the way. A damaged one is left out and named, and the exit
code is 3. Nothing is ever replaced or removed.`,
		Example: `  etcdctl-plus backup copy --store /var/backups/etcd --to s3://offsite/etcd`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.store.Define(c.Flags())
	c.Flags().StringVar(&o.to.where, "to", "", "the repository to copy into")
	o.to.defineS3(c.Flags(), "to-")
	return c
}

func (o *copyOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	if o.to.where == "" {
		return cli.Usagef("--to names no repository")
	}
	from, err := o.store.open(false)
	if err != nil {
		return err
	}
	to, err := o.to.open(true)
	if err != nil {
		return err
	}
	c, err := from.Copy(ctx, to, o.store.dir)
	if err != nil {
		return err
	}
	if err := p.Print(copyView{c}); err != nil {
		return err
	}
	if len(c.Failed) > 0 {
		return cli.Failf(cli.Partial, "%s left out: %s", cli.Count(len(c.Failed), "backup was", "backups were"), strings.Join(c.Failed, "; "))
	}
	return nil
}

type copyView struct{ *backup.Copied }

func (v copyView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "RESULT", Keep: true}, {Name: "BACKUP", Keep: true}}}
	for _, id := range v.Copied.Copied {
		t.Rows = append(t.Rows, []string{"copied", id})
	}
	for _, f := range v.Failed {
		t.Rows = append(t.Rows, []string{"left out", f})
	}
	t.Rows = append(t.Rows, []string{"there before", fmt.Sprint(v.There)})
	return t
}
