package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type fetchOptions struct {
	env   *cli.Env
	store storeFlags
	file  cli.FileFlags
	asIs  bool
}

func newFetchCmd(env *cli.Env) *cobra.Command {
	o := fetchOptions{env: env, store: storeFlags{env: env}}
	c := &cobra.Command{
		Use:   "fetch BACKUP FILE",
		Short: "Take a backup out of a repository, as a plain snapshot",
		Long: `Take a backup out of a repository, as a plain snapshot: unpacked, decrypted, with etcd's
checksum behind it, compared with its manifest on the way. FILE must not exist.`,
		Example: `  etcdctl-plus backup fetch latest etcd.db --store s3://backups/etcd --identity key.txt`,
		Args:    cobra.ExactArgs(2),
		RunE:    func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0], args[1]) },
	}
	o.store.Define(c.Flags())
	o.file.DefinePacked(c.Flags(), "")
	c.Flags().BoolVar(&o.asIs, "damaged", false, "take it as it is stored, packed and encrypted, whatever is wrong with it, also without a manifest")
	return c
}

func (o *fetchOptions) run(ctx context.Context, ref, file string) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	fo, err := o.file.Options(o.env)
	if err != nil {
		return err
	}
	if file == "" {
		return cli.WithHint(cli.Usagef("FILE is empty"), "is a variable in your script unset?")
	}
	if o.asIs {
		return o.damaged(ctx, p, ref, file)
	}
	path, name, err := o.store.Locate(ctx, ref)
	if err != nil {
		return err
	}
	if err := backup.Unpack(ctx, path, file, fo); err != nil {
		return cli.Named(err, path, name)
	}
	e, err := o.store.listing.Find(ref)
	if err != nil {
		return err
	}
	return p.Print(fetchView{ID: e.ID(), File: file, Revision: e.Manifest.Revision})
}

// damaged takes a backup as it is.
func (o *fetchOptions) damaged(ctx context.Context, p *output.Printer, ref, file string) error {
	l, err := o.store.list(ctx)
	if err != nil {
		return err
	}
	e, err := l.Find(ref)
	if errors.Is(err, store.ErrNotExist) {
		if orphan, oerr := l.FindOrphan(ref); !errors.Is(oerr, store.ErrNotExist) {
			e, err = orphan, oerr
		}
	}
	if err != nil {
		return notFound(err)
	}
	if err := o.store.repo.FetchDamaged(ctx, e, file); err != nil {
		return err
	}
	v := fetchView{ID: e.ID(), File: file}
	if e.Manifest != nil {
		v.Revision = e.Manifest.Revision
	}
	return p.Print(v)
}

type fetchView struct {
	ID       string `json:"id"`
	File     string `json:"file"`
	Revision int64  `json:"revision"`
}

func (v fetchView) Table() output.Table {
	return output.Table{Columns: []output.Column{{Name: "BACKUP", Keep: true}, {Name: "FILE", Keep: true}, {Name: "REVISION", Right: true}}, Rows: [][]string{{v.ID, v.File, fmt.Sprint(v.Revision)}}}
}
