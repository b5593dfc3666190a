package snapshot

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type drillOptions struct {
	env     *cli.Env
	locator cli.Locator // of a repository; nil: the argument is a file
	file    cli.FileFlags
	decoder cli.DecodeFlags
	dir     string
	hold    time.Duration
}

func newDrillCmd(env *cli.Env) *cobra.Command { return drillCmd(env, nil) }

// NewDrill makes `drill` for what a locator finds.
func NewDrill(env *cli.Env, l cli.Locator) *cobra.Command {
	c := drillCmd(env, l)
	c.Use, c.Short = "drill BACKUP", "Rehearse the restore of a backup in a repository"
	c.Example = `  etcdctl-plus backup drill latest --store /var/backups/etcd`
	return c
}

func drillCmd(env *cli.Env, l cli.Locator) *cobra.Command {
	o := drillOptions{env: env, locator: l}
	c := &cobra.Command{
		Use:   "drill FILE",
		Short: "Rehearse a restore: boot a private etcd from a copy, and compare",
		Long: `Rehearse a restore. A private etcd boots on this machine's loopback from a copy of the
file, with leases frozen and authentication off; everything is read back through it
and compared with the file: revision, hash, count, every record; every object of
Kubernetes is decoded. What it says of how long a restore takes is true of this machine.

Nothing of it is left when it ends, and the file is only read. It needs room for twice
the file (--dir). Differences end with exit code 10.`,
		Example: `  etcdctl-plus snapshot drill snapshot.db --encryption-config enc.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0]) },
	}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", "", "folder for its temporary files (default: the system's)")
	f.DurationVar(&o.hold, "hold", 0, "keep the etcd for so long, then compare again")
	o.decoder.DefineKeys(env, f)
	if l != nil {
		o.file.DefinePacked(f, "")
		l.Define(f)
		return c
	}
	o.file.Define(f, "")
	return c
}

func (o *drillOptions) run(ctx context.Context, path string) error {
	if o.hold < 0 {
		return cli.Usagef("--hold cannot be negative")
	}
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	if _, err := o.decoder.Options(); err != nil {
		return err
	}
	file, err := o.file.Options(o.env)
	if err != nil {
		return err
	}
	ref := path
	if o.locator != nil {
		if path, ref, err = o.locator.Locate(ctx, ref); err != nil {
			return err
		}
	}
	d, err := backup.Drill(ctx, path, backup.DrillOptions{File: file, Dir: o.dir, Hold: o.hold, Objects: o.decoder.Objects()})
	if err != nil {
		return cli.Named(err, path, ref)
	}
	if err := p.Print(drillView{File: ref, Drilled: d}); err != nil {
		return err
	}
	if len(d.Findings) > 0 {
		return cli.Failf(cli.Integrity, "what was restored from %s differs from it: %s", ref, plural(len(d.Findings), "finding"))
	}
	if d.Sealed > 0 {
		o.env.Warn("%d values stayed sealed: %s", d.Sealed, o.decoder.SealedHint())
	}
	return nil
}

type drillView struct {
	File string `json:"file"`
	*backup.Drilled
}

func (v drillView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "WHAT", Keep: true}, {Name: "RESULT", Keep: true}}}
	row := func(what, format string, a ...any) {
		t.Rows = append(t.Rows, []string{what, fmt.Sprintf(format, a...)})
	}
	row("revision", "%d, compacted at %d", v.Revision, max(v.CompactRev, 0))
	row("keys", "%d, every record compared", v.Keys)
	if v.HashKV != nil {
		row("hash", "%08x", *v.HashKV)
	}
	if v.Objects+v.Sealed > 0 {
		row("objects", "%d decoded, %d stayed sealed", v.Objects, v.Sealed)
	}
	row("restore", "%.1f s from the file to an etcd that answers", v.RestoreSeconds)
	row("comparing", "%.1f s", v.CompareSeconds)
	if v.HeldSeconds > 0 {
		row("held", "%.0f s, and compared again", v.HeldSeconds)
	}
	for _, f := range v.Findings {
		row("finding", "%s", f)
	}
	return t
}
