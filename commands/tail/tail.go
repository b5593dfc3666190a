// Package tail is the command that follows the revision stream.
package tail

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type options struct {
	env    *cli.Env
	source cli.SourceFlags

	prefixes, keys, spans []string
	all                   bool
	from                  string
	snapshot              bool
	untilRev              int64
	untilIdle, lasting    time.Duration
	maxSilence            time.Duration
	onCompacted           string
	onDiverged            string
	prev                  bool
	checkpoint            string
	out                   string
	rotate                cli.Bytes
	keep                  int
	stats                 bool
	exec, execBatch       string
	retries               int
	filter                filter
	decoder               cli.DecodeFlags
	decode, diff          bool
	dec                   *cli.Decoding

	ranges []keyspace.Range
	rev    int64 // --from as a revision
	form   output.Format

	printer *output.Printer
}

// The values of --from besides revisions, and of --on-compacted and --on-diverged.
const (
	fromNow, fromOldest, fromCheckpoint = "now", "oldest", "checkpoint"

	stop, resync = "stop", "resync"
)

// New makes the command.
func New(env *cli.Env) *cobra.Command {
	o := options{env: env}
	c := &cobra.Command{
		Use:   "tail [PREFIX…]",
		Short: "Follow the changes of keys, and go on exactly where it stopped",
		Long: `Follow every change of the keys that start with one of the prefixes, in the order of
revisions, over lost connections, members and leaders. With --checkpoint the next run
goes on behind the last change of this one, however this one ended.

A file (--out) has every event once, even when this program or the machine is killed at
any moment: on the next run what stands there behind the checkpoint is read and kept, and
only a torn last revision is cut off. Standard output, and what --exec runs, have every
event at least once: what was given after the last checkpoint comes again. The events of
one revision are I of N of it, and come together.

A checkpoint is written at most every 0.1 s, when the output before it is on disk, and
only between revisions. It knows the cluster's history again: when the history from there
on was compacted tail ends with 30, when another one was restored, also under the same
ids, with 31. --on-compacted=resync and --on-diverged=resync list what is there now
instead, between a BEGIN and an END. A damaged checkpoint ends it with 32; the generation
before it is used where it is sound. TERM, and the end of --for, --until-rev or
--until-idle, end it with 0 and a good checkpoint; HUP begins a new file after --out was
moved. A file that is cut by somebody else, as copytruncate does, ends it with 78.

--decode shows objects in the lines of jsonl; --diff says what a change changed and which
manager wrote it. --match, --exclude, --regexp, --verb, --namespace, --kind, --selector and
--where (jq) leave out what does not fit; I and N count what is left. An event of which
--where fails is let through, and told. Secrets are redacted unless --show-secrets.

Keys between the prefixes are sent too when there are several: one watch has the range
from the first to the last of them.

Server cost: one watch at the newest revision costs what a client of Kubernetes costs.
What lies more than 5000 revisions back is read from a snapshot that one member, a
follower where there is one, streams once; a watch from there would hold up all writes.
Members are asked how far they are every 10 s (from etcd 3.5.8 and 3.4.25 on; older ones
say more than they have sent, and a quiet prefix then keeps an old checkpoint).`,
		Example: `  etcdctl-plus tail /registry/pods/ --checkpoint pods.ckpt --out pods.jsonl
  etcdctl-plus tail /registry/ --from oldest --until-idle 1s -w jsonl
  etcdctl-plus tail /registry/ --from oldest --db snapshot.db
  etcdctl-plus tail /registry/deployments/ --diff --verb update --where '.object.spec.replicas == 0'
  etcdctl-plus tail config/ --checkpoint c -w jsonl --exec 'jq -r .key | xargs reload'`,
		RunE: func(c *cobra.Command, args []string) error {
			o.prefixes = args
			if err := o.complete(c); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.source.Define(f)
	f.StringArrayVar(&o.keys, "key", nil, "follow this key too (repeatable)")
	f.StringArrayVar(&o.spans, "range", nil, "follow the keys from START on and before END too: START,END (repeatable)")
	f.BoolVar(&o.all, "all", false, "follow every key")
	f.StringVar(&o.from, "from", "", "where to begin: now, oldest, a revision, or checkpoint (default: the checkpoint where there is one, else now)")
	f.BoolVar(&o.snapshot, "snapshot", false, "list the keys that are there first, and go on behind the list without a gap")
	f.Int64Var(&o.untilRev, "until-rev", 0, "end behind this revision")
	f.DurationVar(&o.untilIdle, "until-idle", 0, "end when no event has come for so long")
	f.DurationVar(&o.lasting, "for", 0, "end after so long")
	f.DurationVar(&o.maxSilence, "max-silence", 0, "end with 21 when no member was heard of for so long (0: try again without end)")
	f.StringVar(&o.onCompacted, "on-compacted", stop, "when the next revision was compacted: stop, or resync")
	f.StringVar(&o.onDiverged, "on-diverged", stop, "when the history is another one: stop, or resync")
	f.BoolVar(&o.prev, "prev-kv", false, "with the value before each change")
	f.StringVar(&o.checkpoint, "checkpoint", "", "keep how far it came in this file")
	f.StringVar(&o.out, "out", "", "append to this file, each event once; jsonl unless -w says simple")
	f.Var(&o.rotate, "rotate-size", "with --out: begin a new file when it has so many bytes, such as 100M; the old ones are FILE.1, FILE.2, …")
	f.IntVar(&o.keep, "rotate-keep", 0, "with --rotate-size: keep so many old files (0: all)")
	f.StringVar(&o.exec, "exec", "", "run this with the shell for each event, which is its standard input; it is delivered when that ends with 0")
	f.StringVar(&o.execBatch, "exec-batch", "", "as --exec, for all events that have come together")
	f.IntVar(&o.retries, "exec-retries", 5, "how often --exec is tried again, after 1, 2, 4 … seconds, before tail ends (-1: without end)")
	o.filter.define(c, f)
	o.decoder.Define(env, f)
	f.BoolVar(&o.decode, "decode", false, "decode what Kubernetes stored")
	f.BoolVar(&o.diff, "diff", false, "say what each change changed, and by whom, where values are objects of Kubernetes or JSON")
	f.BoolVar(&o.stats, "stats", false, "say on standard error every 10 s, and at the end, how much came and how far behind it is")
	for name, values := range map[string][]string{"from": {fromNow, fromOldest, fromCheckpoint}, "on-compacted": {stop, resync}, "on-diverged": {stop, resync}} {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	}
	c.AddCommand(newCheckpointCmd(env))
	return c
}

func (o *options) complete(c *cobra.Command) error {
	if err := o.source.Check(); err != nil {
		return err
	}
	if err := o.selection(); err != nil {
		return err
	}
	for flag, d := range map[string]time.Duration{"until-idle": o.untilIdle, "for": o.lasting, "max-silence": o.maxSilence} {
		if d < 0 || d == 0 && c.Flags().Changed(flag) && flag != "max-silence" {
			return cli.Usagef("--%s %s: it has to be positive", flag, d)
		}
	}
	for _, how := range []string{o.onCompacted, o.onDiverged} {
		if how != stop && how != resync {
			return cli.Usagef("%q is neither stop nor resync", how)
		}
	}
	switch {
	case o.untilRev < 0 || o.untilRev == 0 && c.Flags().Changed("until-rev"):
		return cli.Usagef("--until-rev %d: revisions begin with 1", o.untilRev)
	case c.Flags().Changed("exec") && o.exec == "", c.Flags().Changed("exec-batch") && o.execBatch == "":
		return cli.WithHint(cli.Usagef("--exec is empty"), "is a variable in your script unset?")
	case (o.exec != "" || o.execBatch != "") && o.out != "" || o.exec != "" && o.execBatch != "":
		return cli.Usagef("--out, --exec and --exec-batch exclude each other")
	case c.Flags().Changed("exec-retries") && o.exec == "" && o.execBatch == "":
		return cli.Usagef("--exec-retries goes with --exec")
	case o.keep < 0:
		return cli.Usagef("--rotate-keep %d: it cannot be negative", o.keep)
	case o.out == "" && (o.rotate > 0 || c.Flags().Changed("out")):
		return cli.WithHint(cli.Usagef("--out is empty"), "is a variable in your script unset?")
	case o.keep > 0 && o.rotate == 0:
		return cli.Usagef("--rotate-keep goes with --rotate-size")
	case o.checkpoint == "" && c.Flags().Changed("checkpoint"):
		return cli.WithHint(cli.Usagef("--checkpoint is empty"), "is a variable in your script unset?")
	case o.out != "" && o.checkpoint == "" && o.source.DB == "":
		return cli.WithHint(cli.Usagef("--out goes with --checkpoint, by which a file is known again"), "to write a file once, send standard output there")
	case o.source.DB != "" && (o.checkpoint != "" || o.snapshot || o.maxSilence > 0 || o.untilIdle > 0 || o.lasting > 0):
		return cli.Usagef("--checkpoint, --snapshot, --max-silence, --until-idle and --for are for a cluster: a file ends by itself")
	case o.snapshot && o.from != "":
		return cli.Usagef("--snapshot and --from exclude each other: the list says where it begins")
	case o.from == fromCheckpoint && o.checkpoint == "":
		return cli.Usagef("--from checkpoint goes with --checkpoint")
	}
	if !o.decode && !o.diff && !o.filter.needsKubernetes() {
		if err := o.decoder.Unused("--decode, --diff or a filter of objects"); err != nil {
			return err
		}
	}
	if err := o.filter.complete(); err != nil {
		return err
	}
	return o.start()
}

// start reads --from.
func (o *options) start() error {
	switch o.from {
	case "", fromNow, fromOldest, fromCheckpoint:
		if o.source.DB != "" && (o.from == fromNow || o.from == fromCheckpoint) {
			return cli.Usagef("--from %s is for a cluster", o.from)
		}
		return nil
	}
	n, err := strconv.ParseInt(o.from, 10, 64)
	if err != nil || n < 1 {
		return cli.Usagef("--from %q is neither now, oldest, checkpoint nor a revision", o.from)
	}
	o.rev = n
	return nil
}

func (o *options) selection() error {
	if o.all {
		if len(o.prefixes)+len(o.keys)+len(o.spans) > 0 {
			return cli.Usagef("--all is every key already")
		}
		o.ranges = []keyspace.Range{keyspace.All()}
		return nil
	}
	for _, p := range append(slices.Clone(o.prefixes), o.keys...) {
		if p == "" {
			return cli.WithHint(cli.Usagef("an empty prefix or key"), "is a variable in your script unset? For every key say --all")
		}
	}
	for _, p := range o.prefixes {
		o.ranges = append(o.ranges, keyspace.Prefix([]byte(p)))
	}
	for _, k := range o.keys {
		o.ranges = append(o.ranges, keyspace.Range{Key: []byte(k)})
	}
	for _, s := range o.spans {
		start, end, ok := strings.Cut(s, ",")
		if !ok || start == "" || end <= start {
			return cli.Usagef("--range %q is not START,END with START before END", s)
		}
		o.ranges = append(o.ranges, keyspace.Range{Key: []byte(start), End: []byte(end)})
	}
	if len(o.ranges) == 0 {
		return cli.WithHint(cli.Usagef("tail needs a prefix, --key, --range or --all"), "`etcdctl-plus tail /registry/pods/` follows the pods of Kubernetes")
	}
	return nil
}

// selected is the selection as a checkpoint has it: another one is another stream.
func (o *options) selected(keyPrefix string) string {
	parts := make([]string, 0, len(o.ranges))
	for _, r := range o.ranges {
		parts = append(parts, fmt.Sprintf("%q-%q", r.Key, r.End))
	}
	slices.Sort(parts)
	s := strings.Join(slices.Compact(parts), " ") + " as " + string(o.form)
	if o.printer != nil && o.printer.Arg != "" {
		s += fmt.Sprintf("=%q", o.printer.Arg)
	}
	if keyPrefix != "" {
		s += fmt.Sprintf(" below %q", keyPrefix)
	}
	if o.prev {
		s += " with prev"
	}
	if o.decode {
		s += " decoded"
	}
	if o.diff {
		s += " with changes"
	}
	if f := o.filter.String(); f != "" {
		s += " where " + f
	}
	return s
}

// ended gives ctx an end at --for.
func (o *options) ended(ctx context.Context, why error) (context.Context, context.CancelFunc) {
	if o.lasting == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.lasting, why)
}
