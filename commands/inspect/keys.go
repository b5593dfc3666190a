package inspect

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type keysOptions struct {
	env        *cli.Env
	source     cli.SourceFlags
	prefix     string
	rev, limit int64
}

func newKeysCmd(env *cli.Env) *cobra.Command {
	o := keysOptions{env: env}
	c := &cobra.Command{
		Use:   "keys [PREFIX]",
		Short: "List keys in order, a line each",
		Long: `List the keys under a prefix in order, a line each; -w wide or -w json adds
revisions, version and lease.

Server cost (live): the keys are read once, without values. A server lists the
rest of the range for every page it sends, so pages are large.`,
		Example: `  etcdctl-plus inspect keys --db snapshot.db
  etcdctl-plus inspect keys /registry/secrets/ --rev 1200 --db snapshot.db`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.prefix = args[0]
			}
			if o.rev < 0 || o.limit < 0 {
				return cli.Usagef("--rev and --limit cannot be negative")
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.source.Define(f)
	f.Int64Var(&o.rev, "rev", 0, "look at this revision (0: the newest)")
	f.Int64Var(&o.limit, "limit", 0, "at most this many keys (0: all)")
	return c
}

func (o *keysOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(append([]output.Format{output.Simple}, output.Views()...)...)
	if err != nil {
		return err
	}
	src, err := o.source.Open(ctx, o.env)
	if err != nil {
		return err
	}
	r := keyspace.Prefix([]byte(o.prefix))
	r.Rev, r.Limit, r.KeysOnly = o.rev, o.limit, true
	if p.Format == output.Simple {
		return plainKeys(ctx, p, src, r)
	}
	s := p.Stream(output.Envelope{})
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			return err
		}
		if err := s.Write(newKeyView(rec)); err != nil {
			return err
		}
	}
	return s.Close("no key under this prefix")
}

// plainKeys is the simple format without views: a million keys should take no
// longer than finding them.
func plainKeys(ctx context.Context, p *output.Printer, src keyspace.Source, r keyspace.Range) error {
	var b []byte
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			return err
		}
		b = append(output.AppendCell(b, rec.Key), '\n')
		if len(b) < 32<<10 {
			continue
		}
		if _, err := p.Out.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	_, err := p.Out.Write(b)
	return err
}

// keyView is one key.
type keyView struct {
	Key       string `json:"key,omitempty"`
	KeyBase64 []byte `json:"keyBase64,omitempty"` // instead of key when that is no UTF-8
	CreateRev int64  `json:"createRevision"`
	ModRev    int64  `json:"modRevision"`
	Version   int64  `json:"version"`
	Lease     string `json:"lease,omitempty"`

	raw string
}

func newKeyView(r keyspace.Record) keyView {
	v := keyView{raw: string(r.Key), CreateRev: r.CreateRev, ModRev: r.ModRev, Version: r.Version, Lease: cli.LeaseID(r.Lease)}
	if utf8.Valid(r.Key) {
		v.Key = v.raw
	} else {
		v.KeyBase64 = r.Key
	}
	return v
}

func (v keyView) Table() output.Table {
	return output.Table{
		Columns: []output.Column{
			{Name: "KEY", Keep: true}, {Name: "CREATE REV", Right: true, Wide: true}, {Name: "MOD REV", Right: true, Wide: true},
			{Name: "VERSION", Right: true, Wide: true}, {Name: "LEASE", Wide: true},
		},
		Rows: [][]string{{v.raw, fmt.Sprint(v.CreateRev), fmt.Sprint(v.ModRev), fmt.Sprint(v.Version), v.Lease}},
	}
}
