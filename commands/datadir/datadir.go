// Package datadir holds the commands on the data folder of an etcd that does not run.
package datadir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup/datadir"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// NewDefrag makes etcdutl's `defrag`.
func NewDefrag(env *cli.Env) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "defrag",
		Short: "Defragments the storage of the etcd",
		Long:  "Makes the database of a data folder anew, without free pages, and takes its place when both hold the same. etcd must not run.",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			timeout, err := c.Flags().GetDuration("timeout")
			if err != nil {
				return err
			}
			return Defrag(c.Context(), env, dir, timeout)
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "Required. Defragments a data directory not in use by etcd.")
	required(c, "data-dir")
	return c
}

func required(c *cobra.Command, flags ...string) {
	for _, f := range flags {
		if err := c.MarkFlagRequired(f); err != nil {
			panic(err) // no such flag
		}
	}
	if err := c.MarkFlagDirname("data-dir"); err != nil {
		panic(err)
	}
}

type defragView struct {
	DataDir string `json:"dataDir"`
	*datadir.Defragmented
	Seconds float64 `json:"seconds"`
}

func (v defragView) Table() output.Table {
	return output.Table{
		Columns: []output.Column{{Name: "DATA DIR"}, {Name: "BEFORE", Right: true, Bytes: true}, {Name: "AFTER", Right: true, Bytes: true}, {Name: "SECONDS", Right: true}},
		Rows:    [][]string{{v.DataDir, fmt.Sprint(v.BytesBefore), fmt.Sprint(v.BytesAfter), fmt.Sprintf("%.1f", v.Seconds)}},
	}
}

// Defrag defragments a data folder and tells what it won; as etcdctl or etcdutl it says
// nothing.
func Defrag(ctx context.Context, env *cli.Env, dir string, timeout time.Duration) error {
	formats := output.Views()
	if env.DropIn() {
		formats = []output.Format{output.Simple, output.Fields, output.JSON, output.Tables, output.Protobuf}
	}
	p, err := env.Printer(formats...)
	if err != nil {
		return err
	}
	start := time.Now()
	d, err := datadir.Defrag(ctx, dir, timeout)
	if err != nil {
		return fmt.Errorf("Failed to defragment etcd data[%s] (%w)", dir, described(err))
	}
	if env.DropIn() {
		return nil
	}
	return p.Print(defragView{dir, d, time.Since(start).Seconds()})
}

// described adds what to do.
func described(err error) error {
	var v *datadir.VersionError
	if errors.As(err, &v) {
		return &cli.Error{Code: cli.Usage, Err: err, DropIn: 128}
	}
	return err
}

type migrateOptions struct {
	env   *cli.Env
	dir   string
	o     datadir.MigrateOptions
	guard cli.Guard
}

// NewMigrate makes `migrate`.
func NewMigrate(env *cli.Env) *cobra.Command {
	o := migrateOptions{env: env}
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Migrates schema of etcd data dir files to make them compatible with different etcd version",
		Long: `Changes the layout of a data folder's database so that another version of etcd starts on
it. etcd must not run. A downgrade of a running cluster is prepared with "downgrade enable".`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.o.Timeout = 10 * time.Second
			if env.Personality == cli.Etcdutl {
				var err error
				if o.o.Timeout, err = c.Flags().GetDuration("timeout"); err != nil {
					return err
				}
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&o.dir, "data-dir", "", "Path to the etcd data dir")
	f.StringVar(&o.o.Target, "target-version", "", `Target etcd version to migrate contents of data dir. Minimal value 3.5. Format "X.Y" for example 3.6.`)
	f.BoolVar(&o.o.Force, "force", false, "Ignore migration failure and forcefully override storage version. Not recommended.")
	required(c, "data-dir", "target-version")
	if !env.DropIn() {
		o.guard.Define(f)
	}
	return c
}

type migrateView struct {
	DataDir string `json:"dataDir"`
	*datadir.Migrated
	DryRun bool `json:"dryRun,omitempty"`
}

func (v migrateView) Table() output.Table {
	did := "changed"
	switch {
	case v.From == v.To:
		did = "nothing to do"
	case v.DryRun:
		did = "can be done"
	case v.Forced:
		did = "forced: " + v.Problem
	}
	return output.Table{
		Columns: []output.Column{{Name: "DATA DIR"}, {Name: "FROM"}, {Name: "TO"}, {Name: "RESULT", Wrap: true}},
		Rows:    [][]string{{v.DataDir, v.From, v.To, did}},
	}
}

func (o *migrateOptions) run(ctx context.Context) error {
	formats := output.Views()
	if o.env.DropIn() {
		formats = []output.Format{output.Simple, output.Fields, output.JSON, output.Tables, output.Protobuf}
	}
	p, err := o.env.Printer(formats...)
	if err != nil {
		return err
	}
	if _, err := datadir.ParseTarget(o.o.Target); err != nil {
		return described(err)
	}
	if o.o.DryRun = o.guard.DryRun; !o.o.DryRun {
		if err := o.guard.Ask(o.env, fmt.Sprintf("change the layout of %s to that of etcd %s", o.dir, o.o.Target)); err != nil {
			return err
		}
	}
	m, err := datadir.Migrate(ctx, o.dir, o.o)
	if err != nil {
		return described(err)
	}
	if o.env.DropIn() {
		return nil
	}
	return p.Print(migrateView{o.dir, m, o.o.DryRun})
}
