package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type historyOptions struct {
	env            *cli.Env
	source         cli.SourceFlags
	decoder        cli.DecodeFlags
	key            string
	prefix         bool
	minRev, maxRev int64
	diff, values   bool
	managed        bool
	dec            *cli.Decoding
	sealed         int // changed values that could not be opened
}

func newHistoryCmd(env *cli.Env) *cobra.Command {
	o := historyOptions{env: env}
	c := &cobra.Command{
		Use:   "history KEY",
		Short: "Every surviving change of a key or prefix, the oldest first",
		Long: `Every surviving change of a key or of all keys under a prefix, in the order it
happened. --diff says what changed from one version to the next, in Kubernetes
objects and in JSON by path. --values adds the values themselves, decoded where
they can be.

What was compacted away is gone: of what is older than the compact revision only
the then newest version of each key is left.

Server cost (live): a snapshot of the whole database is streamed to a private
temporary file and read there. That is one pass over the file; a watch from far
back, which would hold up writes, is never used.`,
		Example: `  etcdctl-plus inspect history /registry/deployments/shop/web --diff --db snapshot.db
  etcdctl-plus inspect history /registry/configmaps/ --prefix -w jsonl --db snapshot.db`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.source.Define(f)
	o.decoder.Define(env, f)
	f.BoolVar(&o.prefix, "prefix", false, "all keys that start with KEY; without KEY every key")
	f.Int64Var(&o.minRev, "from-rev", 0, "first revision to show (0: the oldest that survives)")
	f.Int64Var(&o.maxRev, "to-rev", 0, "last revision to show (0: the newest)")
	f.BoolVar(&o.diff, "diff", false, "say what each change changed")
	f.BoolVar(&o.managed, "show-managed-fields", false, "with --diff: show changes of metadata.managedFields too")
	f.BoolVar(&o.values, "values", false, "with the values")
	return c
}

func (o *historyOptions) complete(args []string) error {
	if len(args) > 0 {
		o.key = args[0]
	}
	if o.key == "" && !o.prefix {
		return cli.WithHint(cli.Usagef("history needs a key"), "for every key of the keyspace say --prefix")
	}
	if o.minRev < 0 || o.maxRev < 0 {
		return cli.Usagef("--from-rev and --to-rev cannot be negative")
	}
	if !o.diff && !o.values {
		if err := o.decoder.Unused("--diff or --values"); err != nil {
			return err
		}
	}
	if o.managed && !o.diff {
		return cli.Usagef("--show-managed-fields goes with --diff")
	}
	if o.maxRev > 0 && o.minRev > o.maxRev {
		return cli.Usagef("--from-rev %d is above --to-rev %d", o.minRev, o.maxRev)
	}
	return nil
}

func (o *historyOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	if _, err := o.decoder.Options(); err != nil {
		return err
	}
	src, err := o.source.History(ctx, o.env)
	if err != nil {
		return err
	}
	if o.diff || o.values {
		if o.dec, err = o.decoder.OpenIfAllowed(ctx, src, 0); err != nil {
			return err
		}
	}
	r := keyspace.EventRange{Key: []byte(o.key), MinRev: o.minRev, MaxRev: o.maxRev, Prev: o.diff}
	if o.prefix {
		all := keyspace.Prefix([]byte(o.key))
		r.Key, r.End = all.Key, all.End
	}
	s := p.Stream(output.Envelope{})
	n := 0
	for e, err := range src.Events(ctx, r) {
		if err != nil {
			return err
		}
		n++
		v, err := o.view(e)
		if err != nil {
			return err
		}
		if err := s.Write(v); err != nil {
			return err
		}
	}
	warnSealed(o.env, &o.decoder, o.sealed)
	if n > 0 || o.prefix {
		return s.Close("no surviving change under this prefix")
	}
	if err := s.Close(""); err != nil {
		return err
	}
	return cli.WithHint(cli.Failf(cli.Negative, "no surviving change of key %q", o.key), "for all keys that start with it say --prefix; `inspect keys` lists them")
}

// eventView is one change.
type eventView struct {
	Revision    int64            `json:"revision"`
	Sub         int64            `json:"sub"` // place inside its transaction
	Type        string           `json:"type"`
	Key         string           `json:"key,omitempty"`
	KeyBase64   []byte           `json:"keyBase64,omitempty"` // instead of key when that is no UTF-8
	CreateRev   int64            `json:"createRevision,omitempty"`
	Version     int64            `json:"version,omitempty"`
	Lease       string           `json:"lease,omitempty"`
	ValueBytes  int              `json:"valueBytes"`
	Changes     []inspect.Change `json:"changes,omitempty"`
	Encoding    string           `json:"encoding,omitempty"`
	Encryption  string           `json:"encryption,omitempty"`
	Object      json.RawMessage  `json:"object,omitempty"`
	Value       *string          `json:"value,omitempty"`
	ValueBase64 []byte           `json:"valueBase64,omitempty"`
	Problem     string           `json:"problem,omitempty"`

	notes []string // lines of the CHANGE column
	many  bool     // keys of a prefix: show which
	diff  bool
	body  string // of the VALUE column
	value bool
}

func (o *historyOptions) view(e keyspace.Event) (eventView, error) {
	r := e.Record
	v := eventView{
		Revision: e.Rev.Main, Sub: e.Rev.Sub, Type: e.Type.String(), Key: string(r.Key), CreateRev: r.CreateRev, Version: r.Version,
		Lease: cli.LeaseID(r.Lease), ValueBytes: len(r.Value), many: o.prefix, diff: o.diff, value: o.values,
	}
	if !utf8.Valid(r.Key) {
		v.Key, v.KeyBase64 = "", r.Key
	}
	if e.Type == keyspace.Delete {
		if o.diff {
			v.notes = []string{"deleted"}
		}
		return v, nil
	}
	if o.dec == nil {
		return v, nil
	}
	now := o.dec.Value(r)
	v.Encoding, v.Encryption, v.Problem = now.Encoding, now.Encryption, now.Problem
	if o.values {
		v.Object, v.Value, v.ValueBase64, v.body = now.Object, now.Text, now.Bytes, now.String()
	}
	if !o.diff {
		return v, nil
	}
	var err error
	v.Changes, v.notes, err = changes(o.dec, e.Prev, e.Record, now, o.managed, &o.sealed)
	return v, err
}

func (v eventView) Table() output.Table {
	t := output.Table{Columns: []output.Column{
		{Name: "REVISION", Right: true, Keep: true}, {Name: "SUB", Right: true, Keep: true, Wide: true}, {Name: "TYPE", Keep: true}, {Name: "KEY", Wide: !v.many},
		{Name: "VERSION", Right: true, Keep: true, Drop: true}, {Name: "LEASE", Wide: true}, {Name: "BYTES", Right: true, Keep: true, Drop: true},
	}}
	key := v.Key
	if v.KeyBase64 != nil {
		key = string(v.KeyBase64)
	}
	row := []string{fmt.Sprint(v.Revision), fmt.Sprint(v.Sub), v.Type, key, fmt.Sprint(v.Version), v.Lease, fmt.Sprint(v.ValueBytes)}
	if v.value {
		t.Columns = append(t.Columns, output.Column{Name: "VALUE", Wrap: v.value})
		row = append(row, v.body)
	}
	if !v.diff {
		t.Rows = [][]string{row}
		return t
	}
	addNotes(&t, row, v.notes)
	return t
}
