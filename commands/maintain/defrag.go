package maintain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// defragTimeout bounds the defragmentation of one member unless --command-timeout is
// given: 5 s are enough for some hundred MB at most.
const defragTimeout = 10 * time.Minute

type defragOptions struct {
	env        *cli.Env
	cluster    bool
	dataDir    string
	guard      cli.Guard
	all        bool
	force      bool
	moveLeader bool
	minFree    float64
	wait       time.Duration
}

// offlineTimeout is how long a data folder that is in use is waited for.
const offlineTimeout = 10 * time.Second

func newDefragCmd(env *cli.Env, offline Offline) *cobra.Command {
	o := defragOptions{env: env}
	c := &cobra.Command{
		Use:   "defrag",
		Short: "Defragments the storage of the etcd members with given endpoints",
		Long: `Gives the free pages of the members' databases back to their file systems: followers
first, the leader last.

Server cost: a member takes no requests meanwhile, some seconds for 500 MB. The default of
--command-timeout is 10 minutes here.`,
		Args: cobra.ArbitraryArgs, // etcdctl ignores them
		RunE: func(c *cobra.Command, args []string) error {
			if o.dataDir != "" {
				if o.cluster {
					return cli.Usagef("--data-dir and --cluster exclude each other")
				}
				return offline(c.Context(), env, o.dataDir, offlineTimeout)
			}
			if env.DropIn() {
				return o.direct(c.Context())
			}
			return o.run(c.Context(), args)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.cluster, "cluster", false, "use all endpoints from the cluster member list")
	f.StringVar(&o.dataDir, "data-dir", "", "defragment a data directory that is not in use by etcd, instead of members")
	if !env.DropIn() {
		c.Short = "Defragments the storage of members, one after another"
		c.Long = `Gives the free pages of the members' databases back to their file systems.

One member after another: it begins only when all members of the cluster are healthy (or
with --force), takes followers first and the leader last (with --move-leader after it has
handed over), and goes on when the member is healthy and has caught up. It ends at the
first that fails. A member with little free space is left out (--min-free-ratio, --all).
The leader, or all members, want an answer on a terminal or --yes. --dry-run shows the plan.

With --data-dir no server is asked: the database of a folder whose etcd does not run is
made anew beside the old one, compared with it, and takes its place.

Server cost: a member takes no requests meanwhile, some seconds for 500 MB. The default of
--command-timeout is 10 minutes here.`
		c.Example = "  etcdctl-plus defrag --cluster --move-leader --yes"
		o.guard.Define(f)
		f.BoolVar(&o.all, "all", false, "also members where there is little to win")
		f.Float64Var(&o.minFree, "min-free-ratio", 0.1, "leave out a member with a smaller share of its file free")
		f.BoolVar(&o.moveLeader, "move-leader", false, "hand the leadership over before the leader's turn")
		f.BoolVar(&o.force, "force", false, "begin although a member is down or unhealthy")
		f.DurationVar(&o.wait, "wait", 2*time.Minute, "how long to wait until a member is healthy again; 0: without end")
	}
	return c
}

// timeouts of one member's defragmentation, and of everything else.
func (o *defragOptions) timeouts() (work, ask time.Duration, err error) {
	s, err := o.env.Settings()
	if err != nil {
		return 0, 0, err
	}
	if s.CommandTimeoutFrom == "default" {
		return defragTimeout, s.CommandTimeout, nil
	}
	return s.CommandTimeout, s.CommandTimeout, nil
}

// direct is etcdctl's way: no questions, and it goes on behind a member that fails.
func (o *defragOptions) direct(ctx context.Context) error {
	work, ask, err := o.timeouts()
	if err != nil {
		return err
	}
	endpoints, err := o.env.Endpoints(ctx, o.cluster)
	if err != nil {
		return err
	}
	if len(endpoints) > 1 {
		endpoints = cluster.FollowersFirst(cluster.States(ctx, o.env.ClientOf, endpoints, ask))
	}
	failed := 0
	for _, ep := range endpoints {
		start := time.Now()
		_, err := cluster.DefragOne(ctx, o.env.ClientOf, ep, work)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			failed++
			fmt.Fprintf(o.env.Stderr, "Failed to defragment etcd member[%s]. took %s. (%s)\n", output.CleanLine(ep), time.Since(start), reply.Reason(err))
			continue
		}
		fmt.Fprintf(o.env.Stdout, "Finished defragmenting etcd member[%s]. took %s\n", ep, time.Since(start))
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d endpoints failed", failed, len(endpoints))
	}
	return nil
}

// defragRow is one member's turn, or what it would be.
type defragRow struct {
	Member      string `json:"member"`
	ID          string `json:"id"` // hexadecimal
	Endpoint    string `json:"endpoint"`
	Role        string `json:"role"`
	BeforeBytes int64  `json:"dbBytes"`
	InUseBytes  int64  `json:"dbInUseBytes"`
	AfterBytes  int64  `json:"dbBytesAfter,omitempty"`
	TookMillis  int64  `json:"tookMillis,omitempty"`
	MovedTo     string `json:"leadershipMovedTo,omitempty"`
	Result      string `json:"result"` // planned, defragmented, skipped or failed
	Reason      string `json:"reason,omitempty"`
}

type defragView struct {
	DryRun  bool        `json:"dryRun,omitempty"`
	Members []defragRow `json:"members"`
}

func (v defragView) Table() output.Table {
	t := output.Table{Columns: []output.Column{
		{Name: "MEMBER", Keep: true}, {Name: "ENDPOINT"}, {Name: "ROLE"}, {Name: "DB SIZE", Right: true, Bytes: true}, {Name: "IN USE", Right: true, Bytes: true},
		{Name: "AFTER", Right: true, Bytes: true}, {Name: "RESULT", Keep: true}, {Name: "REASON", Wrap: true},
	}, Empty: "no member"}
	for _, r := range v.Members {
		after := ""
		if r.AfterBytes > 0 {
			after = fmt.Sprint(r.AfterBytes)
		}
		t.Rows = append(t.Rows, []string{r.Member, r.Endpoint, r.Role, fmt.Sprint(r.BeforeBytes), fmt.Sprint(r.InUseBytes), after, r.Result, r.Reason})
	}
	return t
}

func (o *defragOptions) run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return cli.Usagef("defrag takes no argument")
	}
	if o.minFree < 0 || o.minFree > 1 {
		return cli.Usagef("--min-free-ratio %g is not between 0 and 1", o.minFree)
	}
	p, err := reply.New(o.env, 0)
	if err != nil {
		return err
	}
	c, steps, opts, err := o.plan(ctx)
	if err != nil {
		return err
	}
	v := defragView{DryRun: o.guard.DryRun, Members: []defragRow{}}
	if o.guard.DryRun {
		for _, s := range steps {
			v.Members = append(v.Members, row(cluster.DefragResult{DefragStep: s}, "planned"))
		}
		return printDefrag(p, v)
	}
	if err := o.ask(c, steps); err != nil {
		return err
	}
	done := 0
	err = cluster.Defrag(ctx, o.env.ClientOf, c, steps, opts, func(r cluster.DefragResult) {
		d := row(r, "defragmented")
		v.Members = append(v.Members, d)
		if r.Err == nil && r.Skip == "" {
			done++
		}
		o.tell(d, r.Took)
	})
	if perr := printDefrag(p, v); perr != nil || err == nil {
		return perr
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return ended(err, done, len(steps))
}

// plan looks whether the cluster can do without a member at a time, and orders the members.
func (o *defragOptions) plan(ctx context.Context) (*cluster.Cluster, []cluster.DefragStep, cluster.DefragOptions, error) {
	opts := cluster.DefragOptions{MinFree: o.minFree, All: o.all, MoveLeader: o.moveLeader, Wait: o.wait}
	var err error
	if opts.Timeout, opts.Ask, err = o.timeouts(); err != nil {
		return nil, nil, opts, err
	}
	c, err := o.env.Cluster(ctx)
	if err != nil {
		return nil, nil, opts, fmt.Errorf("defragment: %w", err)
	}
	if !o.cluster {
		if opts.Endpoints, err = o.env.Endpoints(ctx, false); err != nil {
			return nil, nil, opts, err
		}
	}
	unfit := cluster.Unfit(ctx, o.env.ClientOf, c, opts.Ask)
	for _, s := range c.Unreached {
		if !o.cluster {
			unfit = append(unfit, fmt.Sprintf("%s: %s", s.Endpoint, reply.Reason(s.Err)))
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil, opts, context.Cause(ctx)
	case len(unfit) == 0:
	case o.force || o.guard.DryRun:
		o.env.Warn("not every member of %s is healthy: %s", c, strings.Join(unfit, "; "))
	default:
		return nil, nil, opts, cli.WithHint(cli.Failf(cli.Refused, "not every member of %s is healthy, and a member takes no requests while it is defragmented: %s; nothing was changed", c, cleaned(unfit)),
			"`endpoint health --cluster` shows more; --force begins all the same")
	}
	return c, cluster.PlanDefrag(c, opts), opts, nil
}

func cleaned(reasons []string) string {
	return output.CleanLine(strings.Join(reasons, "; "))
}

// ask asks where the leader is among the members, or all are.
func (o *defragOptions) ask(c *cluster.Cluster, steps []cluster.DefragStep) error {
	at, leads := 0, false
	for i := range steps {
		if steps[i].Skip == "" {
			at++
			leads = leads || steps[i].Last
		}
	}
	if at == 0 || !leads && at < len(c.Members) {
		return nil
	}
	return o.guard.Ask(o.env, fmt.Sprintf("defragment %s of %s, each of which takes no requests meanwhile", cluster.Describe(steps), c))
}

func row(r cluster.DefragResult, result string) defragRow {
	d := defragRow{
		Member: r.Label(), ID: fmt.Sprintf("%x", r.GetID()), Endpoint: r.State.Endpoint, Role: r.Role(), BeforeBytes: r.DBBytes, InUseBytes: r.InUseBytes,
		AfterBytes: r.AfterBytes, TookMillis: r.Took.Milliseconds(), MovedTo: r.MovedTo, Result: result, Reason: r.Skip,
	}
	switch {
	case r.Err != nil:
		d.Result, d.Reason = "failed", reply.Reason(r.Err)
	case r.Skip != "":
		d.Result = "skipped"
	}
	return d
}

// tell says on stderr how it goes: each member can take minutes.
func (o *defragOptions) tell(d defragRow, took time.Duration) {
	if d.MovedTo != "" {
		o.env.Say("%s has handed the leadership over to %s", d.Member, d.MovedTo)
	}
	if d.Result == "defragmented" {
		o.env.Say("%s: %s became %s in %s", d.Member, output.Bytes(d.BeforeBytes), output.Bytes(d.AfterBytes), took.Round(time.Millisecond))
		return
	}
	o.env.Say("%s: %s: %s", d.Member, d.Result, d.Reason)
}

// printDefrag prints the members, in the simple format a line each.
func printDefrag(p *reply.Printer, v defragView) error {
	return p.Print(reply.Answer{
		JSON: v, View: v,
		Simple: func(b []byte) []byte {
			for _, r := range v.Members {
				line := []string{r.Endpoint, r.Member, r.Role, fmt.Sprint(r.BeforeBytes), fmt.Sprint(r.InUseBytes), fmt.Sprint(r.AfterBytes), r.Result, r.Reason}
				b = append(append(b, strings.Join(line, ", ")...), '\n')
			}
			return b
		},
		Table: v.Table,
	})
}

// ended is the error of a run that ended at a member.
func ended(err error, done, steps int) error {
	d := *cli.Describe(cli.UnknownOutcome(err, "a member goes on by itself; `endpoint status` shows the size of its database"))
	if done > 0 {
		d.Err = fmt.Errorf("%d of %d members were defragmented: %w", done, steps, err)
		d.Code, d.Class = cli.Partial, ""
	}
	if d.Hint == "" {
		d.Hint = "`endpoint health --cluster` shows how the members are"
	}
	return cli.Describe(&d)
}
