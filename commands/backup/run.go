package backup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type runOptions struct {
	env      *cli.Env
	store    storeFlags
	keep     keepFlags
	save     cli.SaveFlags
	readBack bool
	metrics  string
	ping     string
}

func newRunCmd(env *cli.Env) *cobra.Command {
	o := runOptions{env: env, store: storeFlags{env: env}}
	c := &cobra.Command{
		Use:   "run",
		Short: "Take a backup: save, verify, store, compare, tidy up. One command for cron",
		Long: `Take a backup. A snapshot is saved and verified as ` + "`snapshot save`" + ` does, stored, and what
arrived is compared: size, the store's own checksum where it has one, or with --read-back
every byte. Its manifest comes last; without it a backup does not count. Then the
--keep flags remove what they do not keep; without any everything stays.

One run works on a repository at a time (another one ends with 11). Whatever ends a run, the
repository stays valid, and the next run removes what was left. Old backups go only after
the new one is complete, and never the newest that was read and found sound.

--metrics writes a file for Prometheus' node exporter, also after a failure. --ping-url is
asked after a success, and with /fail behind it after a failure, as healthchecks.io and
others want it.

Server cost: that of ` + "`snapshot save`" + `: one member streams its database; writes go on.`,
		Example: `  etcdctl-plus backup run --store /var/backups/etcd --keep-hourly 24 --keep-daily 7 --keep-weekly 5
  etcdctl-plus backup run --store s3://backups/etcd --compress zstd --recipient age1... --read-back -w jsonl`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	o.store.Define(f)
	o.save.Define(f)
	o.keep.define(f)
	f.BoolVar(&o.readBack, "read-back", false, "read what was stored in full, and compare")
	f.StringVar(&o.metrics, "metrics", "", "write metrics for Prometheus into this file (.prom)")
	f.StringVar(&o.ping, "ping-url", "", "URL to ask after a success; with /fail after a failure")
	return c
}

func (o *runOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	if o.keep.given() {
		if err := o.keep.complete(); err != nil {
			return err
		}
	}
	if o.ping != "" && !strings.HasPrefix(o.ping, "http://") && !strings.HasPrefix(o.ping, "https://") {
		return cli.Usagef("--ping-url %q is no URL", o.ping)
	}
	start := o.env.Now()
	run, err := o.backup(ctx)
	if merr := o.tell(context.WithoutCancel(ctx), start, run, err); merr != nil {
		o.env.Warn("%v", merr) // the backup's own outcome counts
	}
	if run != nil {
		if perr := p.Print(runView{run}); perr != nil && err == nil {
			err = perr
		}
	}
	if err != nil {
		return cli.ExplainSave(err)
	}
	if run.Pruned != nil && len(run.Pruned.Damaged) > 0 {
		return damagedFound(run.Pruned)
	}
	return nil
}

// damagedFound ends a command that did its work and met damage on the way.
func damagedFound(p *backup.Pruned) error {
	return cli.WithHint(cli.Failf(cli.Partial, "backups in the repository are damaged: %s", strings.Join(p.Damaged, "; ")),
		"they count for nothing, and older sound ones are kept; `backup verify` looks at all")
}

func (o *runOptions) backup(ctx context.Context) (*backup.Run, error) {
	r, err := o.store.open(true)
	if err != nil {
		return nil, err
	}
	so, err := o.save.Options(o.env)
	if err != nil {
		return nil, err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := o.save.Context(ctx)
	defer cancel()
	saving := o.env.ProgressBytes("snapshot")
	storing := o.env.ProgressBytes("storing")
	so.Progress = saving.Set
	run, err := r.Run(ctx, client, backup.RunOptions{
		Save: so, Dir: o.store.dir, ReadBack: o.readBack, Policy: o.keep.policy, Now: o.env.Now,
		Upload: func(done, total int64) { saving.Done(); storing.Set(done, total) },
	})
	saving.Done()
	storing.Done()
	if run != nil {
		return run, err // complete, and only what comes after is not
	}
	return nil, o.save.Timed(ctx, err)
}

// tell writes the metrics and asks the URL.
func (o *runOptions) tell(ctx context.Context, start time.Time, run *backup.Run, failed error) error {
	var errs []error
	if o.metrics != "" {
		name := o.store.where
		if o.store.repo != nil {
			name = o.store.repo.Store.String()
		}
		m := backup.Metrics{Store: name, Attempt: start, Seconds: o.env.Now().Sub(start).Seconds(), Run: run, Failed: failed != nil}
		errs = append(errs, m.Write(o.metrics))
	}
	if o.ping != "" {
		errs = append(errs, ping(ctx, o.ping, failed != nil))
	}
	return errors.Join(errs...)
}

// pingTimeout bounds the request that tells of a run.
const pingTimeout = 10 * time.Second

func ping(ctx context.Context, url string, failed bool) error {
	if failed {
		url = strings.TrimSuffix(url, "/") + "/fail"
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("tell of the run: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("tell of the run: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("tell of the run: %s answers %s", req.URL.Host, resp.Status)
	}
	return nil
}

type runView struct{ *backup.Run }

func (v runView) Table() output.Table {
	m := v.Manifest
	t := output.Table{Columns: []output.Column{{Name: "WHAT", Keep: true}, {Name: "VALUE", Wrap: true}}}
	add := func(what, format string, a ...any) {
		t.Rows = append(t.Rows, []string{what, fmt.Sprintf(format, a...)})
	}
	add("backup", "%s", v.ID)
	add("revision", "%d, compacted at %d", m.Revision, max(m.CompactRev, 0))
	add("content", "%d keys, %d records, %d leases", m.Keys, m.Records, m.Leases)
	add("stored", "%s, compared by %s", output.Bytes(m.Bytes), v.Checked)
	add("member", "%s at %s, etcd %s", m.MemberID, m.Endpoint, m.EtcdVersion)
	for _, c := range v.Cleaned {
		add("removed", "%s, left by a run that was killed", c)
	}
	if p := v.Pruned; p != nil {
		add("policy", "%d kept, %d removed", p.Kept, p.Removed)
	}
	add("took", "%.1f s", v.Seconds)
	return t
}
