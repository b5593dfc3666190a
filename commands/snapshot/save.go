package snapshot

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type saveOptions struct {
	env        *cli.Env
	path       string
	force      bool
	noManifest bool
	dir        string
	save       cli.SaveFlags
}

func newSaveCmd(env *cli.Env) *cobra.Command {
	o := saveOptions{env: env}
	c := &cobra.Command{
		Use:   "save <filename>",
		Short: "Stores an etcd node backend snapshot to a given file",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return cli.Usagef("snapshot save expects one argument")
			}
			o.path = args[0]
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	if env.DropIn() {
		o.force, o.noManifest = true, true
		o.save.AllowAll()
		return c
	}
	c.Use = "save FILE|-"
	c.Short = "Save a snapshot of the cluster, and verify it before it counts"
	c.Long = `Save a snapshot of the cluster into a file, or with - to standard output.

It comes from one member over one connection: a follower where there is one, with
a leader, no learner, no alarm CORRUPT. Its checksum is compared as it comes, then every
page and record is verified and it is compared with the revision that the cluster had
before. Only then it gets its name, with mode 0600; nothing is ever left half done,
whatever ends the work. FILE` + backup.ManifestSuffix + ` comes last, and says what was saved.

A file that is there is not replaced without --force. --compress and --recipient pack
and encrypt the file; every other command reads such files as they are.

Server cost: the member streams its whole database and keeps one read transaction open
for as long as that takes; writes go on. --hashkv stops all writes of that member for a
scan of the database, 0.6 s for 560 MB.`
	c.Example = `  etcdctl-plus snapshot save /var/backups/etcd.db
  etcdctl-plus snapshot save --compress zstd --recipient age1... etcd.db.zst.age
  etcdctl-plus snapshot save - | ssh backup 'cat > etcd.db'`
	f := c.Flags()
	f.BoolVar(&o.force, "force", false, "replace a file that is there")
	f.BoolVar(&o.noManifest, "no-manifest", false, "write no manifest beside the file")
	o.save.Define(f)
	o.save.Complete(c)
	f.StringVar(&o.dir, "dir", "", "with -: folder for the temporary file (default: the system's)")
	return c
}

func (o *saveOptions) complete() error {
	if o.path == "-" && !o.env.DropIn() && o.env.StdoutTTY {
		return cli.WithHint(cli.Usagef("a snapshot is not for a terminal"), "send it to a file or a pipe: `snapshot save - > etcd.db`")
	}
	return nil
}

func (o *saveOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(append([]output.Format{output.Simple}, output.Views()...)...)
	if err != nil {
		return err
	}
	bo, err := o.save.Options(o.env)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return cli.ExplainSave(err)
	}
	ctx, cancel := o.save.Context(ctx)
	defer cancel()
	progress := o.env.ProgressBytes("snapshot")
	bo.Force, bo.NoManifest, bo.TempDir, bo.Progress = o.force, o.noManifest, o.dir, progress.Set
	if o.path == "-" && !o.env.DropIn() {
		_, err := backup.SaveTo(ctx, client, o.env.Stdout, bo)
		progress.Done()
		return cli.ExplainSave(o.save.Timed(ctx, err))
	}
	m, err := backup.Save(ctx, client, o.path, bo)
	progress.Done()
	if err != nil {
		return cli.ExplainSave(o.save.Timed(ctx, err))
	}
	v := saveView{Manifest: m, path: o.path}
	if o.env.DropIn() {
		_, err := io.WriteString(o.env.Stdout, v.Text()) // whatever -w says, as etcdctl
		return err
	}
	return p.Print(v)
}

type saveView struct {
	*backup.Manifest
	path string
}

// Text is what etcdctl prints.
func (v saveView) Text() string {
	s := fmt.Sprintf("Snapshot saved at %s\n", v.path)
	if v.StorageVersion != "" {
		s += fmt.Sprintf("Server version %s\n", v.StorageVersion)
	}
	return s
}

func (v saveView) Table() output.Table {
	return output.Table{
		Columns: []output.Column{{Name: "FILE", Keep: true}, {Name: "SIZE", Right: true, Bytes: true}, {Name: "REVISION", Right: true}, {Name: "COMPACTED", Right: true}, {Name: "KEYS", Right: true}, {Name: "HASH"}, {Name: "MEMBER"}, {Name: "VERSION"}, {Name: "TOOK"}},
		Rows: [][]string{{v.path, fmt.Sprint(v.Bytes), fmt.Sprint(v.Revision), fmt.Sprint(v.CompactRev), fmt.Sprint(v.Keys), fmt.Sprintf("%08x", *v.HashKV), v.MemberID, v.EtcdVersion,
			time.Duration(v.DurationSeconds * float64(time.Second)).Round(10 * time.Millisecond).String()}},
	}
}
