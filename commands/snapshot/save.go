package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type saveOptions struct {
	env            *cli.Env
	path           string
	force          bool
	noManifest     bool
	stale          bool
	learner        bool
	corrupt        bool
	timeout, stall time.Duration
	compress       string
	recipients     []string
	hashKV         bool
	dir            string
}

func newSaveCmd(env *cli.Env) *cobra.Command {
	o := saveOptions{env: env}
	c := &cobra.Command{
		Use:   "save <filename>",
		Short: "Stores an etcd node backend snapshot to a given file",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return &cli.Error{Code: cli.Usage, Err: errors.New("snapshot save expects one argument"), DropIn: 128}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.path = args[0]
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	if env.DropIn() {
		o.force, o.noManifest, o.corrupt, o.stale, o.learner = true, true, true, true, true
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
	f.BoolVar(&o.stale, "allow-stale", false, "save from a member without a leader; the manifest says so")
	f.BoolVar(&o.learner, "allow-learner", false, "save from a learner, which may be behind")
	f.BoolVar(&o.corrupt, "allow-corrupt", false, "save although the cluster has raised the alarm CORRUPT")
	f.DurationVar(&o.timeout, "timeout", 0, "longest time for all of it (0: no limit)")
	f.DurationVar(&o.stall, "stall-timeout", 30*time.Second, "longest time without a byte (0: no limit)")
	f.StringVar(&o.compress, "compress", "", "pack the file: zstd")
	f.StringArrayVar(&o.recipients, "recipient", nil, "encrypt the file to this age recipient, or to those in a file of them; may be repeated")
	f.BoolVar(&o.hashKV, "hashkv", false, "also compare with the member's own hash, which stops its writes meanwhile")
	f.StringVar(&o.dir, "dir", "", "with -: folder for the temporary file (default: the system's)")
	_ = c.RegisterFlagCompletionFunc("compress", cobra.FixedCompletions([]string{"zstd"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	return c
}

func (o *saveOptions) complete() error {
	switch {
	case o.compress != "" && o.compress != "zstd":
		return cli.Usagef("--compress %s: it is zstd", o.compress)
	case o.timeout < 0 || o.stall < 0:
		return cli.Usagef("--timeout and --stall-timeout cannot be negative")
	case o.path == "-" && !o.env.DropIn() && o.env.StdoutTTY:
		return cli.WithHint(cli.Usagef("a snapshot is not for a terminal"), "send it to a file or a pipe: `snapshot save - > etcd.db`")
	}
	return nil
}

func (o *saveOptions) run(ctx context.Context) error {
	set, err := o.env.Settings()
	if err != nil {
		return err
	}
	p, err := o.env.Printer(append([]output.Format{output.Simple}, output.Views()...)...)
	if err != nil {
		return err
	}
	to, err := cli.Recipients(o.recipients)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	host, _ := os.Hostname() // the manifest goes without
	progress := o.env.ProgressBytes("snapshot")
	bo := backup.SaveOptions{
		Force: o.force, NoManifest: o.noManifest, AllowStale: o.stale, AllowLearner: o.learner, AllowCorrupt: o.corrupt,
		Stall: o.stall, RequestTimeout: set.CommandTimeout, Compress: o.compress != "", Recipients: to, HashKV: o.hashKV, TempDir: o.dir,
		Progress: progress.Set, Warn: func(s string) { progress.Done(); o.env.Warn("%s", s) },
		Host: host, Tool: "etcdctl-plus " + o.env.Version, Now: o.env.Now,
	}
	if o.path == "-" && !o.env.DropIn() {
		_, err := backup.SaveTo(ctx, client, o.env.Stdout, bo)
		progress.Done()
		return o.explain(err)
	}
	m, err := backup.Save(ctx, client, o.path, bo)
	progress.Done()
	if err != nil {
		return o.explain(err)
	}
	return p.Print(saveView{Manifest: m, path: o.path})
}

// explain adds what the operator can do.
func (o *saveOptions) explain(err error) error {
	if err == nil {
		return nil
	}
	d := *cli.Describe(err)
	d.DropIn = 5 // as etcdctl, for whatever goes wrong with a snapshot
	var stalled *backup.StallError
	switch {
	case errors.Is(err, backup.ErrCorruptAlarm):
		d.Code, d.Hint = cli.Refused, "find the member that differs first; --allow-corrupt saves all the same"
	case errors.Is(err, backup.ErrLearner):
		d.Code, d.Hint = cli.Refused, "name a voting member with --endpoints; --allow-learner saves all the same"
	case errors.Is(err, backup.ErrNoQuorum):
		d.Code, d.Hint = cli.Unavailable, "name a member that has a leader; --allow-stale saves what this one has"
	case errors.As(err, &stalled):
		d.Code, d.Endpoint, d.Hint = cli.Timeout, stalled.Endpoint, "--stall-timeout allows for longer pauses"
	case errors.Is(err, backup.ErrExists):
		d.Hint = "choose another name, or replace it with --force"
	}
	d.Retryable = d.Code.Info().Retryable
	d.Class = d.Code.Info().Class
	return &d
}

type saveView struct {
	*backup.Manifest
	path string
}

// Text is what etcdctl prints.
func (v saveView) Text() string {
	return fmt.Sprintf("Snapshot saved at %s\nServer version %s\n", v.path, v.EtcdVersion)
}

func (v saveView) Table() output.Table {
	return output.Table{
		Columns: []output.Column{{Name: "FILE", Keep: true}, {Name: "SIZE", Right: true, Bytes: true}, {Name: "REVISION", Right: true}, {Name: "COMPACTED", Right: true}, {Name: "KEYS", Right: true}, {Name: "HASH"}, {Name: "MEMBER"}, {Name: "VERSION"}, {Name: "TOOK"}},
		Rows: [][]string{{v.path, fmt.Sprint(v.Bytes), fmt.Sprint(v.Revision), fmt.Sprint(v.CompactRev), fmt.Sprint(v.Keys), fmt.Sprintf("%08x", *v.HashKV), v.MemberID, v.EtcdVersion,
			time.Duration(v.DurationSeconds * float64(time.Second)).Round(10 * time.Millisecond).String()}},
	}
}
