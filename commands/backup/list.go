package backup

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type listOptions struct {
	env      *cli.Env
	store    storeFlags
	cluster  string
	segments bool
}

func newListCmd(env *cli.Env) *cobra.Command {
	o := listOptions{env: env, store: storeFlags{env: env}}
	c := &cobra.Command{
		Use:   "list",
		Short: "The backups of a repository",
		Long: `The backups of a repository, by cluster, oldest first, as their manifests have them. What
lies there besides is told on standard error: what runs left that were killed, snapshots
whose manifest is lost, and what no run of this program wrote.`,
		Example: `  etcdctl-plus backup list --store /var/backups/etcd`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.store.Define(c.Flags())
	c.Flags().BoolVar(&o.segments, "segments", false, "the segments of the revision stream instead (see `backup follow`)")
	c.Flags().StringVar(&o.cluster, "cluster", "", "only backups of this cluster id")
	return c
}

func (o *listOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	l, err := o.store.list(ctx)
	if err != nil {
		return err
	}
	if o.segments {
		return o.listSegments(p, l)
	}
	s := p.Stream(output.Envelope{})
	problems, n := 0, 0
	for i := range l.Entries {
		e := &l.Entries[i]
		if o.cluster != "" && e.Cluster != o.cluster {
			continue
		}
		n++
		if e.Problem != "" {
			problems++
		}
		if err := s.Write(entryView{e, o.env.Now()}); err != nil {
			return err
		}
	}
	empty := "no backup in " + o.store.repo.Store.String()
	if o.cluster != "" {
		empty = "" // the error says so
	}
	if err := s.Close(empty); err != nil {
		return err
	}
	o.store.tellOdd(l, o.cluster)
	switch {
	case problems > 0:
		return cli.Failf(cli.Integrity, "%s", cli.Count(problems, "backup is not what its manifest says", "backups are not what their manifests say"))
	case n == 0 && o.cluster != "":
		return o.store.none(l, o.cluster)
	}
	return nil
}

func (o *listOptions) listSegments(p *output.Printer, l *backup.Listing) error {
	s := p.Stream(output.Envelope{})
	for _, seg := range l.Segments {
		if o.cluster != "" && seg.Cluster != o.cluster {
			continue
		}
		if err := s.Write(segmentView{seg}); err != nil {
			return err
		}
	}
	return s.Close("no segment in " + o.store.repo.Store.String())
}

type entryView struct {
	*backup.Entry
	now time.Time
}

func (v entryView) Table() output.Table {
	t := output.Table{Columns: []output.Column{
		{Name: "SEQ", Right: true, Keep: true}, {Name: "TAKEN", Keep: true}, {Name: "AGE", Right: true}, {Name: "CLUSTER"}, {Name: "REVISION", Right: true}, {Name: "KEYS", Right: true},
		{Name: "SIZE", Right: true, Bytes: true}, {Name: "VERIFIED"}, {Name: "HOST"}, {Name: "NAME", Keep: true}, {Name: "NOTE"},
	}}
	m := v.Manifest
	if m == nil {
		t.Rows = [][]string{{"", "", "", v.Cluster, "", "", size(v.Bytes), "", "", v.Name, v.Problem}}
		return t
	}
	note := v.Problem
	if note == "" && m.Stale {
		note = "taken without a quorum"
	} else if note == "" && m.Rebuilt {
		note = "its manifest was lost, and made anew"
	}
	t.Rows = [][]string{{
		fmt.Sprint(m.Sequence), m.Started.UTC().Format(time.RFC3339), output.Age(v.now.Sub(m.Started)), v.Cluster, fmt.Sprint(m.Revision), fmt.Sprint(m.Keys),
		size(v.Bytes), fmt.Sprintf("%d %s", m.Verified, m.Verified), m.Host, v.Name, note,
	}}
	return t
}
