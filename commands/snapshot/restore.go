package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/backup/restore"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type restoreOptions struct {
	env    *cli.Env
	file   fileFlags
	path   string
	peers  string
	policy string
	dryRun bool
	// locator finds a backup in a repository; nil: the argument is a file.
	locator cli.Locator
	restore.Options
}

const restoreLong = `Make an etcd data folder of a snapshot. In a cluster of several members run it once
on each host, with the same file and flags but for --name,
--initial-advertise-peer-urls and the folders.

The file is verified first, down to every record. A damaged one is refused with all
that is wrong with it; --accept-findings restores what is left of it. The folder is
built beside its place and put there when it is complete: whatever goes wrong, there
is nothing that etcd would start on.

The token tells the restored cluster from the old one, so that members of both never
talk to each other. Unless it is given it is computed from the content of the file,
--initial-cluster and the flags that change what is restored: hosts that restore the
same agree. etcd itself needs no token when it starts on the folder.

Clients that were ahead of the snapshot would take new writes for old ones.
--bump-revision moves the revision past all that they saw, and --mark-compacted makes
their watches fail, so that they read everything again. For a Kubernetes cluster
--kubernetes does both: it moves the revision on by 1000000000, more than a cluster
writes in seven days at 1650 writes a second, and deletes the entries of the API
servers that were alive then.

A lease that keys name and the file does not have is made anew for
--missing-lease-ttl, so that its keys expire unless their owner goes on to renew it;
--missing-leases drop deletes them at once, and keep leaves them as they are, for ever.

A member's own db file has no checksum and needs --skip-hash-check; what only the
member's write-ahead log has is not in it.`

func newRestoreCmd(env *cli.Env) *cobra.Command { return restoreCmd(env, nil) }

// NewRestore makes `restore` for what a locator finds.
func NewRestore(env *cli.Env, l cli.Locator) *cobra.Command {
	c := restoreCmd(env, l)
	c.Use, c.Short = "restore BACKUP", "Make an etcd data folder of a backup in a repository"
	c.Long = "Fetch a backup, compare it with its manifest, and restore it. " + strings.TrimSpace(restoreLong)
	c.Example = `  etcdctl-plus backup restore latest --store s3://backups/etcd --data-dir /var/lib/etcd-restored --dry-run`
	return c
}

func restoreCmd(env *cli.Env, l cli.Locator) *cobra.Command {
	o := restoreOptions{env: env, locator: l}
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make an etcd data folder of a snapshot",
		Long:  restoreLong,
		Example: `  etcdctl-plus snapshot restore snapshot.db --data-dir /var/lib/etcd-restored --dry-run
  etcdctl-plus snapshot restore snapshot.db --name m1 --data-dir /var/lib/etcd-restored \
    --initial-cluster m1=https://10.0.0.1:2380,m2=https://10.0.0.2:2380 \
    --initial-advertise-peer-urls https://10.0.0.1:2380 --kubernetes`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.path, err = oneFile(c, args); err != nil {
				return err
			}
			if err := o.complete(c); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&o.DataDir, "data-dir", "", "Path to the output data directory")
	f.StringVar(&o.WALDir, "wal-dir", "", "Path to the WAL directory (use --data-dir if none given)")
	f.StringVar(&o.InitialCluster, "initial-cluster", "default=http://localhost:2380", "Initial cluster configuration for restore bootstrap")
	f.StringVar(&o.peers, "initial-advertise-peer-urls", "http://localhost:2380", "List of this member's peer URLs to advertise to the rest of the cluster")
	f.StringVar(&o.Name, "name", "default", "Human-readable name for this member")
	f.BoolVar(&o.SkipChecksum, "skip-hash-check", false, "Ignore snapshot integrity hash value (required if copied from data directory)")
	f.Uint64Var(&o.BumpRevision, "bump-revision", 0, "How much to increase the latest revision after restore")
	f.BoolVar(&o.MarkCompacted, "mark-compacted", false, "Mark the latest revision after restore as the point of scheduled compaction (required if --bump-revision > 0, disallowed otherwise)")
	_ = c.MarkFlagDirname("data-dir") // fails only for an unknown flag
	_ = c.MarkFlagDirname("wal-dir")
	if env.DropIn() {
		f.StringVar(&o.Token, "initial-cluster-token", "etcd-cluster", "Initial cluster token for the etcd cluster during restore bootstrap")
		f.Uint64Var(&o.InitialMmapSize, "initial-memory-map-size", 10<<30, "Initial memory map size of the database in bytes. It uses the default value if not defined or defined to 0")
		return c
	}
	o.file.DefinePacked(f, "")
	if l != nil {
		l.Define(f)
	}
	f.StringVar(&o.Token, "initial-cluster-token", "", "token that tells this cluster from others (default: computed from the content and the cluster)")
	f.Uint64Var(&o.InitialMmapSize, "initial-memory-map-size", 0, "bytes of address space to set aside for the database while it is changed (0: as many as needed)")
	f.BoolVar(&o.dryRun, "dry-run", false, "verify, say everything that would be done, and write nothing")
	f.BoolVar(&o.AcceptFindings, "accept-findings", false, "restore a damaged file as far as it can be read, after listing what is wrong with it")
	f.BoolVar(&o.Kubernetes, "kubernetes", false, "for a cluster of Kubernetes: bump the revision, mark it compacted, delete stale entries of API servers, and say what to restart")
	f.StringVar(&o.policy, "missing-leases", string(restore.Grant), "keys whose lease is not in the file: grant (a new lease), drop, or keep (for ever)")
	f.DurationVar(&o.LeaseTTL, "missing-lease-ttl", restore.DefaultLeaseTTL, "time to live of leases that are granted anew")
	_ = c.RegisterFlagCompletionFunc("missing-leases", cobra.FixedCompletions([]string{"grant", "drop", "keep"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (o *restoreOptions) complete(c *cobra.Command) error {
	o.PeerURLs = strings.Split(o.peers, ",")
	o.MissingLeases = restore.LeasePolicy(o.policy)
	if o.env.DropIn() {
		// Nobody can be asked there: who leaves the checksum alone wants the file as it is.
		o.AcceptFindings, o.MissingLeases = o.SkipChecksum, restore.Keep
	}
	o.Report = func(f backup.Finding) {
		tell := o.env.Damage
		if f.Warning {
			tell = o.env.Warn
		}
		tell("%s", f.String())
	}
	switch {
	case (o.BumpRevision > 0) != o.MarkCompacted && !o.Kubernetes:
		return cli.Usagef("--mark-compacted required if --bump-revision > 0, and the other way round")
	case c.Flags().Changed("missing-lease-ttl") && o.MissingLeases != restore.Grant:
		return cli.Usagef("--missing-lease-ttl goes with --missing-leases grant")
	}
	for name, value := range map[string]string{"data-dir": o.DataDir, "wal-dir": o.WALDir} {
		if value == "" && c.Flags().Changed(name) && !o.env.DropIn() {
			return cli.WithHint(cli.Usagef("--%s is empty", name), "is a variable in your script unset? For the default leave the flag away")
		}
	}
	return nil
}

func (o *restoreOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	if o.File, err = o.file.options(o.env); err != nil {
		return err
	}
	name := o.path
	if o.locator != nil {
		if o.path, name, err = o.locator.Locate(ctx, o.path); err != nil {
			return err
		}
	}
	plan, err := restore.Prepare(ctx, o.path, o.Options)
	if err != nil {
		return restoreError(cli.Named(err, o.path, name))
	}
	o.env.OnClose(plan.Close)
	if !o.dryRun {
		if err := plan.Run(ctx); err != nil {
			return restoreError(cli.Named(err, o.path, name))
		}
	}
	plan.Snapshot, plan.Verified.File = name, name
	if o.env.DropIn() {
		return nil // etcdutl says nothing on stdout
	}
	return p.Print(restoreView{Plan: plan, DryRun: o.dryRun, Next: nextSteps(plan, o.Kubernetes)})
}

// restoreError adds code and hint.
func restoreError(err error) error {
	var settings *restore.SettingsError
	var findings *restore.FindingsError
	var occupied *restore.OccupiedError
	var used *restore.InUseError
	var code cli.Code
	var hint string
	switch {
	case errors.As(err, &settings):
		code = cli.Usage
	case errors.As(err, &findings):
		code, hint = cli.Integrity, "use another copy of the snapshot; if there is none, --accept-findings restores what can be read"
		if !findings.Readable {
			hint = "use another copy of the snapshot: of this one nothing can be restored"
		}
	case errors.Is(err, restore.ErrUnsealed):
		code, hint = cli.Refused, "a member's own db file has none; restore it with --skip-hash-check"
	case errors.As(err, &occupied):
		code, hint = cli.CantCreate, "name a folder that does not exist or is empty; what is in this one was left alone"
	case errors.As(err, &used):
		code, hint = cli.Busy, "stop the etcd that works there, or name another folder; nothing was changed"
	case errors.Is(err, keyspace.ErrLocked):
		return ownHint(err)
	default:
		return err
	}
	d := *cli.Describe(err)
	d.Code, d.Class, d.Hint, d.Retryable = code, "", hint, false
	return &d
}

type restoreView struct {
	*restore.Plan
	DryRun bool     `json:"dryRun"`
	Next   []string `json:"next"`
}

// nextSteps says what remains to be done, in order.
func nextSteps(p *restore.Plan, kubernetes bool) []string {
	var next []string
	say := func(format string, a ...any) { next = append(next, fmt.Sprintf(format, a...)) }
	if len(p.Members) > 1 {
		var others []string
		for _, m := range p.Members {
			if !m.Self {
				others = append(others, m.Name)
			}
		}
		say("restore the same file on the hosts of %s, and compare: the cluster id must be %s there too", strings.Join(others, " and "), p.ClusterID)
	}
	if kubernetes {
		say("stop kube-apiserver on every control plane host before etcd starts: it would go on to serve what it has in memory")
	}
	flags := "--data-dir " + p.DataDir
	if w := p.WALDir; !strings.HasPrefix(w, p.DataDir) {
		flags += " --wal-dir " + w
	}
	say("start etcd with --name %s %s; the folder must belong to the user it runs as", selfName(p), flags)
	if p.AuthEnabled {
		say("authentication is enabled, with the users of the snapshot")
	}
	if p.Alarms > 0 {
		say("%s raised in the snapshot: look at them, and disarm them, or etcd may refuse writes", cli.Count(p.Alarms, "alarm was", "alarms were"))
	}
	if kubernetes {
		say("start kube-apiserver on every control plane host: its cache is filled anew, and watches from before are told that their revision is gone")
		say("restart kube-controller-manager and kube-scheduler: they may hold a lock, and decisions, from after the snapshot")
		say("restart kubelet on every node, then the network plugin and operators: what they know of their pods may be newer than the cluster does")
		say("look for what was made after the snapshot and is unknown to the cluster now: volumes, load balancers, running containers")
	}
	return next
}

func selfName(p *restore.Plan) string {
	for _, m := range p.Members {
		if m.Self {
			return m.Name
		}
	}
	return ""
}

func (v restoreView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "WHAT", Keep: true}, {Name: "VALUE", Wrap: true}}}
	add := func(what, format string, a ...any) {
		t.Rows = append(t.Rows, []string{what, fmt.Sprintf(format, a...)})
	}
	if v.DryRun {
		add("dry run", "nothing was written")
	} else {
		add("restored", "in %.1f s", v.Seconds)
	}
	add("snapshot", "%s: %s, %d keys", v.Snapshot, v.Verified.Verdict, v.Keys)
	if v.Rebuilt {
		add("damage", "the database is made anew of what can be read; the list of findings says what is lost")
	}
	add("revision", "%s", v.revisions())
	add("data folder", "%s", v.DataDir)
	add("log folder", "%s", v.WALDir)
	add("cluster id", "%s", v.ClusterID)
	token := v.Token
	if v.TokenComputed {
		token += " (computed)"
	}
	add("token", "%s", token)
	for _, m := range v.Members {
		self := ""
		if m.Self {
			self = ", this one"
		}
		add("member", "%s %s %s%s", m.ID, m.Name, strings.Join(m.PeerURLs, ","), self)
	}
	for _, k := range v.DroppedKeys {
		add("deleted key", "%s", k)
	}
	for _, l := range v.MissingLeases {
		add("missing lease", "%s of %d keys (%s): %s", l.ID, len(l.Keys), strings.Join(l.Keys[:min(len(l.Keys), 3)], ", "), v.leases())
	}
	for _, s := range v.Space {
		free := "unknown"
		if s.Free >= 0 {
			free = output.Bytes(s.Free)
		}
		add("space", "%s: needs %s, free %s", s.Dir, output.Bytes(s.Need), free)
	}
	for _, s := range v.Swept {
		add("removed", "%s, left by a restore that was killed", s)
	}
	for i, s := range v.Next {
		add(fmt.Sprintf("next %d", i+1), "%s", s)
	}
	return t
}

func (v restoreView) leases() string {
	switch v.LeasePolicy {
	case restore.Grant:
		return fmt.Sprintf("granted anew for %v", time.Duration(v.LeaseTTL)*time.Second)
	case restore.Drop:
		return "the keys are deleted"
	default:
		return "left as it is, the keys never expire"
	}
}

func (v restoreView) revisions() string {
	if v.Bump > 0 {
		return fmt.Sprintf("%d, from %d in the snapshot (bumped by %d), compacted", v.NewRev, v.Revision, v.Bump)
	}
	if v.NewRev != v.Revision {
		return fmt.Sprintf("%d, from %d in the snapshot", v.NewRev, v.Revision)
	}
	return fmt.Sprint(v.NewRev)
}
