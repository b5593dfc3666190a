package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type pruneOptions struct {
	env   *cli.Env
	store storeFlags
	keep  keepFlags
	guard cli.Guard
	// orphans: those without a manifest go, whatever the policy.
	orphans bool
}

func newPruneCmd(env *cli.Env) *cobra.Command {
	o := pruneOptions{env: env, store: storeFlags{env: env}}
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove the backups that a policy does not keep",
		Long: `Remove the backups that a policy does not keep. Each cluster is judged for itself, by
sequence and revision and not by the clock of the store. Before anything goes, the newest
backup that stays is read in full; when it is damaged, the next older one is looked at, and
the exit code is 3. The newest sound backup always stays, and what no run of this program
wrote is never touched.

A backup whose manifest is lost stays, too. --orphans removes those, with or without a
policy; ` + "`backup verify --rebuild-manifests`" + ` looks first whether they are sound.

--dry-run says for each backup what becomes of it, and why.`,
		Example: `  etcdctl-plus backup prune --store /var/backups/etcd --keep-daily 7 --keep-weekly 5 --dry-run`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.store.Define(c.Flags())
	o.keep.define(c.Flags())
	c.Flags().BoolVar(&o.orphans, "orphans", false, "remove backups whose manifest is lost")
	o.guard.Define(c.Flags())
	return c
}

func (o *pruneOptions) run(ctx context.Context) (outcome error) {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	if o.keep.given() || !o.orphans {
		if err := o.keep.complete(); err != nil {
			return err
		}
	}
	r, err := o.store.open(false)
	if err != nil {
		return err
	}
	if !o.guard.DryRun {
		lock, err := r.Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { outcome = errors.Join(outcome, lock.Release()) }()
		ctx = lock.Context()
	}
	plan, err := o.prune(ctx, r, true)
	if err != nil {
		return err
	}
	if plan.Removed > 0 && !o.guard.DryRun {
		if err := o.guard.Ask(o.env, fmt.Sprintf("remove %d of %s from %s", plan.Removed, cli.Count(plan.Removed+plan.Kept, "backup", "backups"), r.Store)); err != nil {
			return err
		}
		if plan, err = o.prune(ctx, r, false); err != nil {
			return err
		}
	}
	if err := p.Print(pruneView{plan}); err != nil {
		return err
	}
	if len(plan.Damaged) > 0 {
		return damagedFound(plan)
	}
	return nil
}

// prune applies the policy, if there is one, and then removes orphans.
func (o *pruneOptions) prune(ctx context.Context, r *backup.Repository, dryRun bool) (*backup.Pruned, error) {
	done := &backup.Pruned{}
	if o.keep.given() {
		var err error
		if done, err = r.Prune(ctx, o.keep.policy, backup.RunOptions{Now: o.env.Now}, dryRun); err != nil {
			return nil, err
		}
	}
	if !o.orphans {
		return done, nil
	}
	gone, err := r.RemoveOrphans(ctx, dryRun)
	done.Decisions = append(done.Decisions, gone...)
	done.Removed += len(gone)
	return done, err
}

type pruneView struct{ *backup.Pruned }

func (v pruneView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "ACTION", Keep: true}, {Name: "BACKUP", Keep: true}, {Name: "WHY", Wrap: true}}, Empty: "no backup"}
	for _, d := range v.Decisions {
		action := "remove"
		if d.Keep {
			action = "keep"
		}
		t.Rows = append(t.Rows, []string{action, d.ID, strings.Join(d.Reasons, "; ")})
	}
	return t
}
