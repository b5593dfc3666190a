package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/registry"
)

type applyOptions struct {
	env        *cli.Env
	file       cli.FileFlags
	decoder    cli.DecodeFlags
	guard      cli.Guard
	prefix     bool
	rev        int64
	overwrite  bool
	kubernetes bool
	dropLeases bool
}

func newApplyCmd(env *cli.Env) *cobra.Command {
	o := applyOptions{env: env}
	c := &cobra.Command{
		Use:   "apply FILE KEY...",
		Short: "Bring keys of a snapshot back into a live cluster",
		Long: `Bring keys of a snapshot back into a live cluster. A KEY stands for itself and for what
is below it behind a slash; one that ends in a slash for what is below; with --prefix
for all keys that begin with it.

What the cluster lacks is created. A key that it has with another value is kept, unless
--overwrite replaces it. Nothing is deleted, and nothing else is touched. Every key
is compared with what the plan saw in the transaction that writes it: what somebody else
changed meanwhile stays, is named, and ends with exit code 5. The same command again
does what is left.

A key that had a lease gets a new one, for as long as the old one was granted. Where
the file does not have its lease, it would never expire: it is skipped, unless
--drop-leases.

What Kubernetes stored is not written without --kubernetes: the way in is kubectl apply,
with which the API server validates and converts (` + "`registry get --db FILE -o yaml`" + `).
An object whose owner is gone too is collected again, so bring the owner back first.

Server cost: the keys are read once, from a follower where there is one; up to 64 keys
or 512 kB are written in one transaction.`,
		Example: `  etcdctl-plus snapshot apply snapshot.db /app/config --dry-run
  etcdctl-plus snapshot apply snapshot.db /registry/deployments/shop/web --kubernetes`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0], args[1:]) },
	}
	f := c.Flags()
	f.BoolVar(&o.prefix, "prefix", false, "a KEY stands for all keys that begin with it")
	f.Int64Var(&o.rev, "rev", 0, "bring back what was there at this revision of the file (0: its newest)")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace values that differ")
	f.BoolVar(&o.kubernetes, "kubernetes", false, "also write keys of Kubernetes'")
	f.BoolVar(&o.dropLeases, "drop-leases", false, "bring keys back without their lease where the file does not have it; they never expire")
	o.guard.Define(f)
	o.file.Define(f, "")
	o.decoder.Define(env, f)
	return c
}

func (o *applyOptions) run(ctx context.Context, path string, keys []string) error {
	if o.rev < 0 {
		return cli.Usagef("--rev cannot be negative")
	}
	if slices.Contains(keys, "") && !o.prefix {
		return cli.WithHint(cli.Usagef("an argument is empty"), `is a variable in your script unset? For every key say --prefix ""`)
	}
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	file, err := o.open(ctx, path)
	if err != nil {
		return err
	}
	var flags cli.SourceFlags
	cluster, err := flags.Live(ctx, o.env, false)
	if err != nil {
		return err
	}
	set, err := o.env.Settings()
	if err != nil {
		return err
	}
	part := keyspace.Under([]byte(set.KeyPrefix), file)
	if err := allThere(ctx, part, keys, o.prefix, o.rev, path); err != nil {
		return err
	}
	plan, err := backup.NewPlan(ctx, file, []byte(set.KeyPrefix), cluster, ranges(keys, o.prefix), backup.PlanOptions{Rev: o.rev, Overwrite: o.overwrite, DropLeases: o.dropLeases})
	if err != nil {
		return err
	}
	v, err := o.preview(ctx, part, plan)
	if err != nil {
		return err
	}
	if err := o.allowed(plan, set.KeyPrefix); err != nil {
		if !o.guard.DryRun {
			return err
		}
		o.env.Warn("this would be refused without --kubernetes")
	}
	if v.Create+v.Replace == 0 || o.guard.DryRun {
		v.DryRun = true
		if err := p.Print(v); err != nil {
			return err
		}
		return o.nothing(v, path)
	}
	return o.apply(ctx, p, plan, v)
}

// nothing is the answer when there was nothing to do, or nothing was to be done.
func (o *applyOptions) nothing(v *applyView, path string) error {
	if v.Create+v.Replace+v.Keep+v.Skip+int(v.Same) == 0 {
		return cli.Failf(cli.Negative, "no such key in %s", path)
	}
	return nil
}

func (o *applyOptions) open(ctx context.Context, path string) (*dbfile.Source, error) {
	fo, err := o.file.Options(o.env)
	if err != nil {
		return nil, err
	}
	file, err := dbfile.Open(ctx, path, fo)
	if err != nil {
		return nil, err
	}
	o.env.OnClose(file.Close)
	return file, nil
}

// allowed refuses what Kubernetes stored, unless told otherwise.
func (o *applyOptions) allowed(plan *backup.Plan, keyPrefix string) error {
	if o.kubernetes {
		return nil
	}
	prefix := o.decoder.Prefix
	m := registry.NewMapper(prefix)
	for _, s := range plan.Steps {
		if s.Action != backup.Create && s.Action != backup.Replace {
			continue
		}
		if strings.HasPrefix(keyPrefix+string(s.Record.Key), m.Prefix()+"/") {
			return &cli.Error{Code: cli.Refused, Err: fmt.Errorf("%q is Kubernetes': the API server does not see who writes behind its back; nothing was changed", s.Record.Key),
				Hint: "bring it back with kubectl apply, from `registry get --db FILE -o yaml`; --kubernetes writes it all the same"}
		}
	}
	return nil
}

func (o *applyOptions) apply(ctx context.Context, p *output.Printer, plan *backup.Plan, v *applyView) error {
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	name, err := cli.ClusterName(ctx, o.env, client)
	if err != nil {
		return err
	}
	if !o.guard.Yes && o.env.StdinTTY {
		if err := (&output.Printer{Out: o.env.Stderr, Err: o.env.Stderr, Format: output.Tables}).Print(v); err != nil {
			return err
		}
	}
	if err := o.guard.Ask(o.env, fmt.Sprintf("create %d and replace %d keys in %s", v.Create, v.Replace, name)); err != nil {
		return err
	}
	progress := o.env.Progress("keys written")
	done, err := plan.Apply(ctx, client, progress.Set)
	progress.Done()
	if err != nil {
		return cli.UnknownOutcome(err, "run the same command again: it tells what is not there yet, and does that")
	}
	v.Created, v.Replaced, v.NewLeases, v.Lost, v.Revision = done.Created, done.Replaced, done.Leases, done.Lost, done.Revision
	if err := p.Print(v); err != nil {
		return err
	}
	if len(done.Lost) > 0 {
		return cli.WithHint(cli.Failf(cli.Precondition, "%s changed meanwhile, by somebody else, and left alone", plural(len(done.Lost), "key")), "look at them with --dry-run")
	}
	return nil
}

type applyStep struct {
	Action    backup.Action    `json:"action"`
	Key       string           `json:"key"`
	KeyBase64 []byte           `json:"keyBase64,omitempty"`
	Bytes     int              `json:"bytes"`
	Lease     string           `json:"lease,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	Changes   []inspect.Change `json:"changes,omitempty"`
}

type applyView struct {
	Create    int         `json:"create"`
	Replace   int         `json:"replace"`
	Keep      int         `json:"keep"`
	Skip      int         `json:"skip"`
	Same      int64       `json:"same"`
	Steps     []applyStep `json:"steps"`
	DryRun    bool        `json:"dryRun,omitempty"`
	Created   int64       `json:"created"`
	Replaced  int64       `json:"replaced"`
	NewLeases int64       `json:"newLeases"`
	Lost      []string    `json:"lost,omitempty"`
	Revision  int64       `json:"revision,omitempty"`
}

// preview turns the plan into what is shown of it.
func (o *applyOptions) preview(ctx context.Context, file keyspace.Source, plan *backup.Plan) (*applyView, error) {
	v := &applyView{Same: plan.Same, Steps: []applyStep{}, Create: plan.Count(backup.Create), Replace: plan.Count(backup.Replace), Keep: plan.Count(backup.Keep), Skip: plan.Count(backup.Skip)}
	var dec *cli.Decoding
	for _, s := range plan.Steps {
		step := applyStep{Action: s.Action, Key: string(s.Record.Key), Bytes: len(s.Record.Value), Lease: cli.LeaseID(s.Record.Lease), Reason: s.Reason}
		if !utf8.Valid(s.Record.Key) {
			step.Key, step.KeyBase64 = "", slices.Clone(s.Record.Key)
		}
		if s.Was.ModRev != 0 {
			if dec == nil {
				var err error
				if dec, err = o.decoder.Open(ctx, file, o.rev); err != nil {
					return nil, err
				}
			}
			step.Changes = changes(dec, s.Was, s.Record)
		}
		v.Steps = append(v.Steps, step)
	}
	return v, nil
}

// changes are what differs inside two values, as far as they decode.
func changes(dec *cli.Decoding, was, now keyspace.Record) []inspect.Change {
	a, b := dec.Value(was).JSON(), dec.Value(now).JSON()
	if a == nil || b == nil {
		size := func(r keyspace.Record) []byte { return fmt.Appendf(nil, "%d bytes", len(r.Value)) }
		return []inspect.Change{{Path: "(value, not shown)", Old: size(was), New: size(now)}}
	}
	ch, err := inspect.Changes(a, b)
	if err != nil {
		return nil // then the sizes are shown alone
	}
	return slices.DeleteFunc(ch, func(c inspect.Change) bool { return strings.HasPrefix(c.Path, ".metadata.managedFields") })
}

// Table lists the keys, and below each what changes in it.
func (v *applyView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "ACTION", Keep: true}, {Name: "KEY", Keep: true}, {Name: "SIZE", Right: true, Bytes: true}, {Name: "DETAIL"}}}
	for _, s := range v.Steps {
		key := s.Key
		if s.KeyBase64 != nil {
			key = fmt.Sprintf("%q", s.KeyBase64)
		}
		t.Rows = append(t.Rows, []string{string(s.Action), key, fmt.Sprint(s.Bytes), s.Reason})
		for _, c := range s.Changes {
			t.Rows = append(t.Rows, []string{"", "", "", c.String()})
		}
	}
	for _, k := range v.Lost {
		t.Rows = append(t.Rows, []string{"lost", k, "", "changed by somebody else meanwhile, and left alone"})
	}
	sum := fmt.Sprintf("create %d, replace %d, keep %d, skip %d; %d are the same", v.Create, v.Replace, v.Keep, v.Skip, v.Same)
	if v.Created+v.Replaced > 0 {
		sum = fmt.Sprintf("created %d, replaced %d, with %d new leases; %d kept, %d skipped, %d the same; revision %d", v.Created, v.Replaced, v.NewLeases, v.Keep, v.Skip, v.Same, v.Revision)
	}
	t.Rows = append(t.Rows, []string{"", "", "", sum})
	return t
}
