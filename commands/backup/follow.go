package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

type followOptions struct {
	env       *cli.Env
	store     storeFlags
	save      cli.SaveFlags
	file      cli.FileFlags
	sealEvery time.Duration
	sealBytes cli.Bytes
	lasting   time.Duration
	silence   time.Duration
}

func newFollowCmd(env *cli.Env) *cobra.Command {
	o := followOptions{env: env, store: storeFlags{env: env}}
	c := &cobra.Command{
		Use:   "follow",
		Short: "Append the revision stream to the repository, so that every revision can be restored",
		Long: `Append the revision stream of the cluster to the repository, in sealed segments behind
the last backup: ` + "`backup restore latest --to-revision N`, or --to-time T" + `, then gives the exact
state at any revision. A segment is stored every --seal-every, or when it has --seal-bytes;
what came since the last one is lost with this host.

It goes on where the last segment ends, however this or the last run ended. Where there is
no backup of the cluster, or the next revision was compacted meanwhile, a backup is taken
and a new chain begins there. When the cluster's history is not the one that is in the
repository, since an older state was restored, it ends with 31: take a backup then
(` + "`backup run`" + `), and a new chain begins behind it. TERM ends it with 0, after what has come
was stored.

Segments hold keys, values and how long each lease was granted; users, members and alarms
are those of the backup. The segments that no kept backup needs go with ` + "`backup prune`" + `.

Server cost: one watch of the whole keyspace, and a request for each lease that comes for
the first time in a segment.`,
		Example: `  etcdctl-plus backup follow --store /var/backups/etcd
  etcdctl-plus backup follow --store s3://backups/etcd --seal-every 5m --recipient age1...`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.sealEvery <= 0 {
				return cli.Usagef("--seal-every %s: it has to be positive", o.sealEvery)
			}
			if o.lasting < 0 || o.silence < 0 {
				return cli.Usagef("--for and --max-silence cannot be negative")
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.store.Define(f)
	o.save.Define(f)
	f.StringArrayVar(&o.file.Identity, "identity", nil, "file of age identities that open the last segment (also ETCDCTL_PLUS_IDENTITY); without one less is known of the history")
	f.DurationVar(&o.sealEvery, "seal-every", time.Minute, "store what has come at least so often")
	f.Var(&o.sealBytes, "seal-bytes", "store it also when it has so many bytes, compressed, such as 16M (0: no bound)")
	f.DurationVar(&o.lasting, "for", 0, "end after so long (0: without end)")
	f.DurationVar(&o.silence, "max-silence", 0, "end with 21 when no member was heard of for so long (0: try again without end)")
	return c
}

func (o *followOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	r, err := o.store.open(true)
	if err != nil {
		return err
	}
	so, err := o.save.Options(o.env)
	if err != nil {
		return err
	}
	file, err := o.file.Options(o.env)
	if err != nil {
		return err
	}
	s, err := o.env.Settings()
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	if err := o.env.Login(); err != nil {
		return err
	}
	endpoints, err := o.env.Endpoints(ctx, false)
	if err != nil {
		return err
	}
	if err := backup.SweepSegments(o.store.dir, o.env.Now()); err != nil {
		o.env.Warn("%v", err)
	}
	ctx, stop := o.ends(ctx)
	defer stop()
	rows := p.Stream(output.Envelope{})
	err = r.Follow(ctx, client, backup.FollowOptions{
		Run: backup.RunOptions{Save: so, Dir: o.store.dir, Now: o.env.Now},
		Stream: watchtail.Options{
			Endpoints: endpoints, Dial: o.env.ClientOf, MaxSilence: o.silence, BacklogRevs: farBack,
			Backlog: func(context.Context) (keyspace.HistorySource, error) {
				return live.New(client, live.Options{RequestTimeout: s.CommandTimeout, TempDir: o.store.dir}), nil
			},
			Trouble: o.trouble,
		},
		SealEvery: o.sealEvery, SealBytes: int64(o.sealBytes), Recipients: so.Recipients, Identities: file.Identities,
		Stored: func(s backup.Segment) {
			if werr := rows.Write(segmentView{s}); werr == nil {
				_ = o.env.Flush() // the end tells of it
			}
		},
		Began: func(base *backup.Entry, why string) {
			o.env.Say("a new chain begins with backup %s: %s", base.ID(), why)
		},
	})
	var sig *cli.SignalError
	switch {
	case errors.Is(err, watchtail.ErrEnough), errors.As(context.Cause(ctx), &sig) && sig.Signal == syscall.SIGTERM && errors.Is(err, context.Cause(ctx)):
		o.env.TakeSignals(nil)
		return rows.Close("nothing was written meanwhile")
	}
	return cli.ExplainSave(err)
}

// farBack is from how many revisions on the history is read from a snapshot.
const farBack = 5000

func (o *followOptions) trouble(endpoint string, err error) {
	if err == nil {
		o.env.Say("%s: goes on", endpoint)
		return
	}
	o.env.Warn("%s: %v; trying again", endpoint, err)
}

// ends gives ctx an end at --for. A second signal does not end the program before what has
// come is stored.
func (o *followOptions) ends(ctx context.Context) (context.Context, context.CancelFunc) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, cli.Caught(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	stop := func() {
		if ctx.Err() == nil { // else until the process ends: another one may come late
			signal.Stop(again)
		}
	}
	if o.lasting == 0 {
		return ctx, stop
	}
	bounded, cancel := context.WithTimeoutCause(ctx, o.lasting, watchtail.ErrEnough)
	return bounded, func() { cancel(); stop() }
}

// segmentView is a segment that was stored.
type segmentView struct{ backup.Segment }

func (v segmentView) Table() output.Table {
	return output.Table{
		Columns: []output.Column{{Name: "SEGMENT", Keep: true}, {Name: "FIRST", Right: true}, {Name: "LAST", Right: true}, {Name: "SEALED", Keep: true}, {Name: "BYTES", Right: true, Bytes: true}},
		Rows:    [][]string{{v.ID(), fmt.Sprint(v.First), fmt.Sprint(v.Last), v.Sealed.UTC().Format(time.RFC3339), fmt.Sprint(v.Bytes)}},
	}
}
