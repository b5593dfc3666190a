package kv

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type getOptions struct {
	env                        *cli.Env
	source                     cli.SourceFlags
	decoder                    cli.DecodeFlags
	keys                       keyArgs
	consistency, order, sortBy string
	limit, rev                 int64
	keysOnly, countOnly        bool
	valueOnly, stream, decode  bool
	serverCount, raw           bool
	minCreate, maxCreate       int64
	minMod, maxMod             int64
	target                     clientv3.SortTarget
	sorting                    clientv3.SortOrder
}

func newGetCmd(env *cli.Env) *cobra.Command {
	o := getOptions{env: env}
	c := &cobra.Command{
		Use:   "get [options] <key> [range_end]",
		Short: "Gets the key or a range of keys",
		Long: `Gets the key or a range of keys, from a cluster or with --db from a file.

A large range is streamed, or read in pages that are all pinned to one revision,
and printed as it comes: memory stays small. --order, --sort-by and the
--min/--max flags need the whole range at once, in the server too.

Server cost: what the range holds is read and sent once, by a follower where
there is one and --consistency=s allows it. --count-only counts the keys as they
are streamed, 1.3 s for a million. The server counts faster, and lets its writes
wait for as long as that takes, 0.2 s for a million keys: --server-count (as
etcdctl, and where a server cannot stream, it is always so).

A key that does not exist ends with exit code 4 (as etcdctl: 0).`,
		Example: `  etcdctl-plus get foo
  etcdctl-plus get /registry/ --prefix --keys-only --db snapshot.db
  etcdctl-plus get /registry/services/specs/default/kubernetes --decode -w yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.define(f)
	if !env.DropIn() {
		f.BoolVar(&o.serverCount, "server-count", false, "with --count-only: let the server count at once, which holds up its writes, 0.2 s for a million keys")
		f.BoolVar(&o.raw, "raw", false, "the value of one key, byte for byte, without a line break behind it")
		f.BoolVar(&o.decode, "decode", false, "show Kubernetes values decoded, as JSON")
		o.source.Define(f)
		o.decoder.Define(env, f)
	}
	for name, values := range map[string][]string{"consistency": {"l", "s"}, "order": {"ASCEND", "DESCEND"}, "sort-by": {"CREATE", "KEY", "MODIFY", "VALUE", "VERSION"}} {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	}
	return c
}

// define adds etcdctl's flags.
func (o *getOptions) define(f *pflag.FlagSet) {
	f.StringVar(&o.consistency, "consistency", "l", "Linearizable(l) or Serializable(s)")
	f.StringVar(&o.order, "order", "", "Order of results; ASCEND or DESCEND (ASCEND by default)")
	f.StringVar(&o.sortBy, "sort-by", "", "Sort target; CREATE, KEY, MODIFY, VALUE, or VERSION")
	f.Int64Var(&o.limit, "limit", 0, "Maximum number of results")
	f.BoolVar(&o.keys.prefix, "prefix", false, "Get keys with matching prefix")
	f.BoolVar(&o.keys.fromKey, "from-key", false, "Get keys that are greater than or equal to the given key using byte compare")
	f.Int64Var(&o.rev, "rev", 0, "Specify the kv revision")
	f.BoolVar(&o.keysOnly, "keys-only", false, "Get only the keys")
	f.BoolVar(&o.countOnly, "count-only", false, "Get only the count")
	f.BoolVar(&o.valueOnly, "print-value-only", false, `Only write values when using the "simple" output format`)
	f.Int64Var(&o.minCreate, "min-create-rev", 0, "Minimum create revision")
	f.Int64Var(&o.maxCreate, "max-create-rev", 0, "Maximum create revision")
	f.Int64Var(&o.minMod, "min-mod-rev", 0, "Minimum modification revision")
	f.Int64Var(&o.maxMod, "max-mod-rev", 0, "Maximum modification revision")
	f.BoolVar(&o.stream, "stream", false, "Use the RangeStream RPC where the server has it (large ranges do so by themselves)")
}

func (o *getOptions) complete(args []string) error {
	if o.env.DropIn() && len(args) > 2 {
		args = args[:2] // etcdctl ignores what is too many
	}
	if err := o.keys.complete("get", args); err != nil {
		return err
	}
	if !o.decode {
		if err := o.decoder.Unused("--decode"); err != nil {
			return err
		}
	}
	if o.raw && (!o.keys.single() || o.countOnly || o.keysOnly || o.decode || o.valueOnly) {
		return cli.Usagef("--raw is for the value of one key")
	}
	if o.serverCount && (!o.countOnly || o.source.DB != "") {
		return cli.Usagef("--server-count goes with --count-only of a cluster")
	}
	if err := o.source.Check(); err != nil {
		return err
	}
	return o.check()
}

// check looks at everything but the keys.
func (o *getOptions) check() error {
	if o.keysOnly && o.countOnly {
		return cli.Usagef("`--keys-only` and `--count-only` cannot be set at the same time, choose one")
	}
	if o.consistency != "l" && o.consistency != "s" {
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("unknown consistency flag %q", o.consistency), DropIn: 4}
	}
	if (o.limit < 0 || o.rev < 0) && !o.env.DropIn() {
		return &cli.Error{Code: cli.Usage, Err: errors.New("--limit and --rev cannot be negative"), DropIn: 1}
	}
	o.rev, o.limit = max(o.rev, 0), max(o.limit, 0) // as etcdctl and the server take it
	orders := map[string]clientv3.SortOrder{"": clientv3.SortNone, "ASCEND": clientv3.SortAscend, "DESCEND": clientv3.SortDescend}
	targets := map[string]clientv3.SortTarget{"": clientv3.SortByKey, "KEY": clientv3.SortByKey, "CREATE": clientv3.SortByCreateRevision,
		"MODIFY": clientv3.SortByModRevision, "VALUE": clientv3.SortByValue, "VERSION": clientv3.SortByVersion}
	var ok bool
	if o.sorting, ok = orders[strings.ToUpper(o.order)]; !ok {
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("bad sort order %v", o.order), DropIn: 4}
	}
	if o.target, ok = targets[strings.ToUpper(o.sortBy)]; !ok {
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("bad sort target %v", o.sortBy), DropIn: 4}
	}
	if o.target != clientv3.SortByKey && o.sorting == clientv3.SortNone {
		o.sorting = clientv3.SortAscend // the server's own rule
	}
	if o.maxCreate > 0 && o.minCreate > o.maxCreate {
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("--min-create-rev %d is above --max-create-rev %d", o.minCreate, o.maxCreate), DropIn: 4}
	}
	if o.maxMod > 0 && o.minMod > o.maxMod {
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("--min-mod-rev %d is above --max-mod-rev %d", o.minMod, o.maxMod), DropIn: 4}
	}
	return nil
}

func (o *getOptions) run(ctx context.Context) error {
	p, err := o.printer()
	if err != nil {
		return err
	}
	if o.raw && p.Format != output.Simple {
		return cli.Usagef("--raw has no other format")
	}
	if o.valueOnly && p.Format != output.Simple {
		return cli.Usagef("print-value-only is only for `--write-out=simple`")
	}
	a, err := o.answer(p)
	if err != nil {
		return err
	}
	n, err := o.fetch(ctx, a)
	if err != nil {
		return fmt.Errorf("get %s: %w", &o.keys, err)
	}
	if n == 0 && o.keys.single() && !o.countOnly && !o.env.DropIn() {
		return cli.Failf(cli.Negative, "key %s not found", &o.keys)
	}
	return nil
}

func (o *getOptions) printer() (*reply.Printer, error) {
	if !o.decode {
		return reply.New(o.env, reply.Fields|reply.Protobuf)
	}
	p, err := o.env.Printer(append([]output.Format{output.Simple}, output.Views()...)...)
	return &reply.Printer{Printer: p}, err
}

// answer chooses how to print: etcd's own forms, or ours.
func (o *getOptions) answer(p *reply.Printer) (answer, error) {
	if !o.decode {
		switch p.Format {
		case output.Simple, output.Fields, output.JSON, output.Protobuf:
			return newAnswer(p, *o), nil
		}
		return &viewAnswer{p: p.Printer, keysOnly: o.keysOnly, count: o.countOnly, single: o.keys.single()}, nil
	}
	s, err := o.env.Settings()
	if err != nil {
		return nil, err
	}
	if s.Hex {
		return nil, cli.Usagef("--hex and --decode exclude each other")
	}
	d, err := o.decoder.Plain()
	if err != nil {
		return nil, err
	}
	if p.Format == output.Simple {
		return newDecodedAnswer(p.Out, o, d), nil
	}
	return &viewAnswer{p: p.Printer, keysOnly: o.keysOnly, count: o.countOnly, single: o.keys.single(), decode: fillDecoded(d)}, nil
}

// fetch feeds a and returns how many records there were.
func (o *getOptions) fetch(ctx context.Context, a answer) (int64, error) {
	if o.source.DB != "" {
		return o.fromFile(ctx, a)
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return 0, err
	}
	if o.countOnly && !o.keys.single() && !o.serverCount && !o.env.DropIn() {
		return o.streamed(ctx, client, a)
	}
	if o.keys.single() || o.countOnly || o.limit > 0 || o.filtered() || o.sorting != clientv3.SortNone {
		return o.oneAnswer(ctx, client, a)
	}
	return o.streamed(ctx, client, a)
}

func (o *getOptions) filtered() bool {
	return o.minCreate > 0 || o.maxCreate > 0 || o.minMod > 0 || o.maxMod > 0
}

// oneAnswer is a plain Range.
func (o *getOptions) oneAnswer(ctx context.Context, client *clientv3.Client, a answer) (int64, error) {
	ctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return 0, err
	}
	defer cancel()
	r, err := client.Get(ctx, string(o.keys.rng.Key), o.ops()...)
	if err != nil {
		return 0, o.withRevisions(ctx, client, noLeader(ctx, o.env, client, err))
	}
	if h := (*pb.RangeResponse)(r).GetHeader(); live.IsPartial(h) && string(o.keys.rng.End) == "\x00" {
		// Kine has found nothing, whatever there is.
		if r, err = client.Get(ctx, string(o.keys.rng.Key), append(o.ops(), clientv3.WithRange(live.LastKey))...); err != nil {
			return 0, err
		}
	}
	if err := a.begin((*pb.RangeResponse)(r).GetHeader()); err != nil {
		return 0, err
	}
	for _, kv := range r.Kvs {
		if err := a.record(reply.Record(kv)); err != nil {
			return 0, err
		}
	}
	return r.Count, a.end(r.More, r.Count)
}

func (o *getOptions) ops() []clientv3.OpOption {
	ops := []clientv3.OpOption{clientv3.WithLimit(o.limit), clientv3.WithSort(o.target, o.sorting), clientv3.WithRev(o.rev)}
	if o.keys.rng.End != nil {
		ops = append(ops, clientv3.WithRange(string(o.keys.rng.End)))
	}
	if o.consistency == "s" {
		ops = append(ops, clientv3.WithSerializable())
	}
	if o.keysOnly {
		ops = append(ops, clientv3.WithKeysOnly())
	}
	if o.countOnly {
		ops = append(ops, clientv3.WithCountOnly())
	}
	return append(ops, clientv3.WithMinCreateRev(o.minCreate), clientv3.WithMaxCreateRev(o.maxCreate),
		clientv3.WithMinModRev(o.minMod), clientv3.WithMaxModRev(o.maxMod))
}

// streamed reads a large range through the live source, pinned to one revision.
func (o *getOptions) streamed(ctx context.Context, client *clientv3.Client, a answer) (int64, error) {
	// The header comes from a read of one key: it costs nothing, and the user
	// may read that key if the range is allowed.
	pinCtx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return 0, err
	}
	defer cancel()
	ops := []clientv3.OpOption{clientv3.WithKeysOnly()}
	if o.consistency == "s" {
		ops = append(ops, clientv3.WithSerializable())
	}
	pin, err := client.Get(pinCtx, string(o.keys.rng.Key), ops...)
	if err != nil {
		return 0, noLeader(ctx, o.env, client, err)
	}
	src, err := o.source.Live(ctx, o.env, o.consistency == "s")
	if err != nil {
		return 0, err
	}
	h := (*pb.RangeResponse)(pin).GetHeader()
	r := o.keys.rng
	r.Rev, r.KeysOnly = cmp.Or(o.rev, h.GetRevision()), o.keysOnly
	if err := a.begin(h); err != nil {
		return 0, err
	}
	if c, ok := src.(keyspace.Counter); ok && o.countOnly {
		n, err := c.Count(ctx, r)
		if err != nil {
			return n, err
		}
		return n, a.end(false, n)
	}
	var n int64
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			return n, err
		}
		n++
		if err := a.record(rec); err != nil {
			return n, err
		}
	}
	return n, a.end(false, n)
}

// fromFile answers from a file by the server's rules: filters and sorting over
// the whole range, then the limit; the count is of the whole range.
func (o *getOptions) fromFile(ctx context.Context, a answer) (int64, error) {
	src, err := o.source.Open(ctx, o.env)
	if err != nil {
		return 0, err
	}
	info, err := src.Info(ctx)
	if err != nil {
		return 0, err
	}
	if err := a.begin(&pb.ResponseHeader{ClusterId: info.ClusterID, MemberId: info.MemberID, Revision: info.Revision}); err != nil {
		return 0, err
	}
	r := o.keys.rng
	r.Rev, r.KeysOnly = o.rev, o.keysOnly && o.target != clientv3.SortByValue || o.countOnly
	var kept []keyspace.Record // offsets into the map: of a file, records are small
	var n int64
	hold := o.sorting == clientv3.SortDescend || o.target != clientv3.SortByKey
	more := false
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			return n, err
		}
		n++
		switch {
		case o.countOnly || !o.wants(rec):
		case hold:
			kept = append(kept, rec)
		case o.limit > 0 && int64(len(kept)) == o.limit:
			more = true
		default:
			if o.limit > 0 {
				kept = append(kept, keyspace.Record{}) // counts what was printed
			}
			if err := a.record(rec); err != nil {
				return n, err
			}
		}
	}
	if hold {
		o.sort(kept)
		if o.limit > 0 && int64(len(kept)) > o.limit {
			kept, more = kept[:o.limit], true
		}
		for _, rec := range kept {
			if o.keysOnly {
				rec.Value = nil
			}
			if err := a.record(rec); err != nil {
				return n, err
			}
		}
	}
	return n, a.end(more, n)
}

func (o *getOptions) wants(r keyspace.Record) bool {
	return (o.minCreate == 0 || r.CreateRev >= o.minCreate) && (o.maxCreate == 0 || r.CreateRev <= o.maxCreate) &&
		(o.minMod == 0 || r.ModRev >= o.minMod) && (o.maxMod == 0 || r.ModRev <= o.maxMod)
}

func (o *getOptions) sort(recs []keyspace.Record) {
	by := map[clientv3.SortTarget]func(a, b keyspace.Record) int{
		clientv3.SortByKey:            func(a, b keyspace.Record) int { return bytes.Compare(a.Key, b.Key) },
		clientv3.SortByValue:          func(a, b keyspace.Record) int { return bytes.Compare(a.Value, b.Value) },
		clientv3.SortByVersion:        func(a, b keyspace.Record) int { return cmp.Compare(a.Version, b.Version) },
		clientv3.SortByCreateRevision: func(a, b keyspace.Record) int { return cmp.Compare(a.CreateRev, b.CreateRev) },
		clientv3.SortByModRevision:    func(a, b keyspace.Record) int { return cmp.Compare(a.ModRev, b.ModRev) },
	}[o.target]
	slices.SortStableFunc(recs, func(a, b keyspace.Record) int {
		if o.sorting == clientv3.SortDescend {
			return by(b, a)
		}
		return by(a, b)
	})
}

// withRevisions turns the server's bare "compacted" into an error that names
// both revisions.
func (o *getOptions) withRevisions(ctx context.Context, client *clientv3.Client, err error) error {
	d := cli.Describe(err)
	if d.Code != cli.Compacted {
		return err
	}
	if rev, ok := cli.CompactRevision(ctx, client, o.keys.rng.Key); ok {
		return &keyspace.CompactedError{Rev: o.rev, CompactRev: rev}
	}
	return err
}
