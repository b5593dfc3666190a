package backup

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type statusOptions struct {
	env     *cli.Env
	store   storeFlags
	maxAge  age
	cluster string
}

func newStatusCmd(env *cli.Env) *cobra.Command {
	o := statusOptions{env: env, store: storeFlags{env: env}}
	c := &cobra.Command{
		Use:   "status",
		Short: "Whether there is a backup that is recent enough",
		Long: `Whether there is a backup that is recent enough: for each cluster of the repository, its
newest backup that is what its manifest says. However many runs have failed since, its age
tells. Exit code 4 when there is none, or the newest is older than --max-age. What lies
there besides is told on standard error.`,
		Example: `  etcdctl-plus backup status --store /var/backups/etcd --max-age 26h`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.store.Define(c.Flags())
	c.Flags().Var(&o.maxAge, "max-age", "oldest age that is good, such as 26h or 2d")
	c.Flags().StringVar(&o.cluster, "cluster", "", "only this cluster id; it must have one")
	return c
}

type statusView struct {
	Cluster    string    `json:"cluster"`
	Newest     string    `json:"newest"` // "": none
	Taken      time.Time `json:"taken,omitzero"`
	AgeSeconds float64   `json:"ageSeconds"`
	Revision   int64     `json:"revision"`
	Backups    int       `json:"backups"`
	Problems   int       `json:"problems"`
	Good       bool      `json:"good"`
}

func (v statusView) Table() output.Table {
	good := "yes"
	if !v.Good {
		good = "NO"
	}
	taken := ""
	if !v.Taken.IsZero() {
		taken = v.Taken.UTC().Format(time.RFC3339)
	}
	return output.Table{
		Columns: []output.Column{{Name: "CLUSTER", Keep: true}, {Name: "GOOD", Keep: true}, {Name: "AGE", Right: true}, {Name: "TAKEN"}, {Name: "REVISION", Right: true}, {Name: "BACKUPS", Right: true}, {Name: "PROBLEMS", Right: true}, {Name: "NEWEST", Keep: true}},
		Rows:    [][]string{{v.Cluster, good, output.Age(time.Duration(v.AgeSeconds * float64(time.Second))), taken, fmt.Sprint(v.Revision), fmt.Sprint(v.Backups), fmt.Sprint(v.Problems), v.Newest}},
	}
}

func (o *statusOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	l, err := o.store.list(ctx)
	if err != nil {
		return err
	}
	var all []*statusView
	for i := range l.Entries {
		e := &l.Entries[i]
		if o.cluster != "" && e.Cluster != o.cluster {
			continue
		}
		if len(all) == 0 || all[len(all)-1].Cluster != e.Cluster {
			all = append(all, &statusView{Cluster: e.Cluster})
		}
		v := all[len(all)-1]
		v.Backups++
		if e.Problem != "" {
			v.Problems++
			continue
		}
		v.Newest, v.Taken, v.Revision = e.Name, e.Manifest.Started, e.Manifest.Revision
	}
	s := p.Stream(output.Envelope{})
	bad := 0
	for _, v := range all {
		if v.Newest != "" {
			v.AgeSeconds = o.env.Now().Sub(v.Taken).Seconds()
			v.Good = o.maxAge == 0 || v.AgeSeconds <= time.Duration(o.maxAge).Seconds()
		}
		if !v.Good {
			bad++
		}
		if err := s.Write(v); err != nil {
			return err
		}
	}
	if err := s.Close(""); err != nil {
		return err
	}
	o.store.tellOdd(l, o.cluster)
	switch {
	case len(all) == 0:
		return o.store.none(l, o.cluster)
	case bad > 0:
		return cli.Failf(cli.Negative, "%d of %s no backup that is recent enough", bad, cli.Count(len(all), "cluster has", "clusters have"))
	}
	return nil
}
