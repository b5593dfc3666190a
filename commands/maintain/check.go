package maintain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/perf"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

func newCheckCmd(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "check <subcommand>",
		Short: "commands for checking properties of the etcd cluster",
		Long: `Writes keys to the cluster, measures how it takes them, and deletes them again.

Server cost: all the writes, and their history until it is compacted.`,
	}
	c.AddCommand(newPerfCmd(env), newDatascaleCmd(env))
	return c
}

// checkOptions are what both checks share.
type checkOptions struct {
	env         *cli.Env
	load        string
	prefix      string
	autoCompact bool
	autoDefrag  bool
	guard       cli.Guard
}

// define adds the flags; what is the check's name.
func (o *checkOptions) define(f *pflag.FlagSet, what, prefix, load string) {
	f.StringVar(&o.load, "load", "s", load)
	f.StringVar(&o.prefix, "prefix", prefix, "The prefix for writing the "+what+" check's keys.")
	f.BoolVar(&o.autoCompact, "auto-compact", false, "Compact storage with last revision after test is finished.")
	f.BoolVar(&o.autoDefrag, "auto-defrag", false, "Defragment storage after test is finished.")
	if !o.env.DropIn() {
		o.guard.Define(f)
	}
}

// sizes are the loads' names.
var sizes = map[string]string{"s": "s", "small": "s", "m": "m", "medium": "m", "l": "l", "large": "l", "xl": "xl", "xLarge": "xl"}

func (o *checkOptions) size(args []string) (string, error) {
	if len(args) > 0 && !o.env.DropIn() { // etcdctl ignores them
		return "", cli.Usagef("check takes no argument")
	}
	s, ok := sizes[o.load]
	if !ok {
		return "", &cli.Error{Code: cli.Usage, Err: fmt.Errorf("unknown load option %v", o.load), DropIn: 4, Hint: "s, m, l or xl"}
	}
	if o.prefix == "" && !o.env.DropIn() {
		return "", cli.Usagef("--prefix is empty, and all keys below it are deleted at the end")
	}
	return s, nil
}

// form chooses the format. etcdctl has one form whatever -w says.
func (o *checkOptions) form() (*reply.Printer, error) {
	if o.env.DropIn() {
		return &reply.Printer{Printer: &output.Printer{Out: o.env.Stdout, Format: output.Simple}}, nil
	}
	return reply.New(o.env, 0)
}

// ask asks before a load. done: it was a dry run.
func (o *checkOptions) ask(ctx context.Context, p *reply.Printer, client *clientv3.Client, what string) (done bool, err error) {
	if o.env.DropIn() {
		return false, nil
	}
	name, err := cli.ClusterName(ctx, o.env, client)
	if err != nil {
		return false, err
	}
	what = fmt.Sprintf("%s below %q to %s, and delete them again", what, o.prefix, name)
	if o.guard.DryRun {
		return true, p.Would(what)
	}
	return false, o.guard.Ask(o.env, what)
}

// connect opens n connections, and makes sure that nobody's keys are deleted at the end.
func (o *checkOptions) connect(ctx context.Context, n int) ([]*clientv3.Client, error) {
	if err := o.env.Login(); err != nil {
		return nil, err
	}
	s, err := o.env.Settings()
	if err != nil {
		return nil, err
	}
	var all []*clientv3.Client
	for range n {
		c, err := cli.Dial(ctx, s, o.env.AskPassword)
		if err != nil {
			return nil, err
		}
		o.env.OnClose(c.Close)
		all = append(all, c)
	}
	return all, o.empty(ctx, all[0])
}

func (o *checkOptions) empty(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	err = perf.Empty(ctx, client, o.prefix)
	if errors.Is(err, perf.ErrNotEmpty) {
		return &cli.Error{Code: cli.Refused, DropIn: 3, Err: fmt.Errorf("prefix %q has keys, which would be deleted at the end; nothing was changed", o.prefix),
			Hint: fmt.Sprintf("another --prefix, or `%s del --prefix %s` first", o.env.Name, o.prefix)}
	}
	return err
}

// cleanTimeout bounds each request of the cleanup, as etcdctl does: they take longer than others.
const cleanTimeout = 30 * time.Second

// cleanup deletes the keys that were written, and compacts and defragments where that is
// wanted. It goes on when ctx has ended: nothing of the load should stay.
func (o *checkOptions) cleanup(ctx context.Context, client *clientv3.Client) error {
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	rev, err := o.delete(ctx, client)
	if err != nil {
		return fmt.Errorf("delete the keys of the check below %q, which are still there: %w", o.prefix, err)
	}
	if o.autoCompact && !interrupted {
		o.say("Compacting with revision %d\n", rev)
		if err := bounded(ctx, func(ctx context.Context) error {
			_, err := client.Compact(ctx, rev, clientv3.WithCompactPhysical())
			return err
		}); err != nil {
			return fmt.Errorf("compact at revision %d: %w", rev, err)
		}
		o.say("Compacted with revision %d\n", rev)
	}
	if !o.autoDefrag || interrupted {
		return nil
	}
	for _, ep := range client.Endpoints() {
		o.say("Defragmenting %q\n", ep)
		if err := bounded(ctx, func(ctx context.Context) error {
			_, err := client.Defragment(ctx, ep)
			return err
		}); err != nil {
			return fmt.Errorf("defragment %s: %w", ep, err)
		}
		o.say("Defragmented %q\n", ep)
	}
	return nil
}

func bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	return f(ctx)
}

// deleteChunk is how many keys go in one transaction under our own name, which lets others'
// writes in between.
const deleteChunk = 1000

// delete returns the revision of the last delete.
func (o *checkOptions) delete(ctx context.Context, client *clientv3.Client) (rev int64, err error) {
	for {
		end, more := clientv3.GetPrefixRangeEnd(o.prefix), false
		err := bounded(ctx, func(ctx context.Context) error {
			if !o.env.DropIn() {
				r, err := client.Get(ctx, o.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(deleteChunk))
				if err != nil {
					return err
				}
				if more = r.More; more {
					end = string(r.Kvs[len(r.Kvs)-1].GetKey()) + "\x00"
				}
			}
			d, err := client.Delete(ctx, o.prefix, clientv3.WithRange(end))
			if err == nil {
				rev = d.Header.GetRevision()
			}
			return err
		})
		if err != nil || !more {
			return rev, err
		}
	}
}

// say tells what goes on: on stdout as etcdctl, whose text it is, else on stderr.
func (o *checkOptions) say(format string, a ...any) {
	w := o.env.Stderr
	if o.env.DropIn() {
		w = o.env.Stdout
	}
	fmt.Fprintf(w, format, a...)
}

// checkView is the verdict.
type checkView struct {
	Pass          bool           `json:"pass"`
	Writes        int            `json:"writes"`
	WritesPerSec  float64        `json:"writesPerSecond"`
	SlowestMillis float64        `json:"slowestMillis"`
	StddevMillis  float64        `json:"stddevMillis"`
	Errors        map[string]int `json:"errors,omitempty"`
	MemoryBytes   *int64         `json:"serverMemoryBytes,omitempty"` // that the server has grown by
	lines         []string
}

func newCheckView(s perf.Stats) checkView {
	millis := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return checkView{Pass: len(s.Errors) == 0, Writes: s.Writes, WritesPerSec: s.Rate(), SlowestMillis: millis(s.Slowest), StddevMillis: millis(s.Stddev), Errors: s.Errors}
}

func (v *checkView) say(format string, a ...any) {
	v.lines = append(v.lines, fmt.Sprintf(format, a...))
}

func (v *checkView) failures() {
	if len(v.Errors) == 0 {
		return
	}
	v.say("FAIL: too many errors")
	for e, n := range v.Errors {
		v.say("FAIL: ERROR(%s) -> %d", output.CleanLine(e), n)
	}
}

func (v checkView) table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "CHECK", Wrap: true}}}
	for _, l := range v.lines {
		t.Rows = append(t.Rows, []string{l})
	}
	return t
}

// end prints the verdict; a check that failed ends with 1 as etcdctl, else with 4.
func (v checkView) end(p *reply.Printer) error {
	if err := p.Print(reply.Answer{
		JSON: v, View: v,
		Simple: func(b []byte) []byte { return append(b, strings.Join(v.lines, "\n")+"\n"...) },
		Table:  v.table,
	}); err != nil || v.Pass {
		return err
	}
	return &cli.Error{Code: cli.Negative, Err: errors.New("the check failed"), DropIn: 1}
}
