package snapshot

import (
	"context"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type extractOptions struct {
	env     *cli.Env
	file    cli.FileFlags
	decoder cli.DecodeFlags
	prefix  bool
	rev     int64
	to      string
	decode  bool
}

func newExtractCmd(env *cli.Env) *cobra.Command {
	o := extractOptions{env: env}
	c := &cobra.Command{
		Use:   "extract FILE [KEY...]",
		Short: "Take keys and values out of a snapshot, as lines of JSON or as files",
		Long: `Take keys and values out of a snapshot: a line of JSON for each, or with --to a file for
each below a folder, which must be empty or absent. A KEY stands for itself and for what
is below it behind a slash; one that ends in a slash for what is below; with --prefix for
all keys that begin with it; none for everything.

Values are as they are stored. --decode writes Kubernetes' objects as YAML files instead,
in which Secrets are redacted without --show-secrets.

Whatever a key is called, its file lies in the folder and is no other key's; ` + backup.IndexFile + `
there says which file holds which key. It comes last; what fails before, or is stopped,
takes back what it wrote.`,
		Example: `  etcdctl-plus snapshot extract snapshot.db /app/ > app.jsonl
  etcdctl-plus snapshot extract snapshot.db /registry/ --decode --to ./cluster`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0], args[1:]) },
	}
	f := c.Flags()
	f.BoolVar(&o.prefix, "prefix", false, "a KEY stands for all keys that begin with it")
	f.Int64Var(&o.rev, "rev", 0, "take what was there at this revision (0: the newest)")
	f.StringVar(&o.to, "to", "", "write a file for each key below this folder")
	f.BoolVar(&o.decode, "decode", false, "with --to: Kubernetes' objects as YAML")
	o.file.Define(f, "")
	o.decoder.Define(env, f)
	return c
}

func (o *extractOptions) run(ctx context.Context, path string, keys []string) error {
	switch {
	case o.rev < 0:
		return cli.Usagef("--rev cannot be negative")
	case o.decode && o.to == "":
		return cli.WithHint(cli.Usagef("--decode goes with --to"), "`registry dump --db FILE` prints all objects")
	case !o.decode:
		if err := o.decoder.Unused("--decode"); err != nil {
			return err
		}
	}
	p, err := o.env.Printer(output.JSONL, output.JSON, output.YAML, output.Tables, output.Template, output.JSONPath)
	if err != nil {
		return err
	}
	fo, err := o.file.Options(o.env)
	if err != nil {
		return err
	}
	src, err := dbfile.Open(ctx, path, fo)
	if err != nil {
		return err
	}
	o.env.OnClose(src.Close)
	set, err := o.env.Settings()
	if err != nil {
		return err
	}
	part := keyspace.Under([]byte(set.KeyPrefix), src)
	if err := allThere(ctx, part, keys, o.prefix, o.rev, path); err != nil {
		return err
	}
	all := o.records(ctx, part, keys)
	if o.to != "" {
		return o.files(ctx, p, part, all, path)
	}
	s := p.Stream(output.Envelope{})
	n := 0
	for rec, err := range all {
		if err != nil {
			return err
		}
		n++
		if err := s.Write(lineOf(rec)); err != nil {
			return err
		}
	}
	if err := s.Close(""); err != nil {
		return err
	}
	return found(n, path)
}

func found(n int, path string) error {
	if n == 0 {
		return cli.Failf(cli.Negative, "no such key in %s", path)
	}
	return nil
}

// records yields the records of all ranges in key order.
func (o *extractOptions) records(ctx context.Context, src keyspace.Source, keys []string) iter.Seq2[keyspace.Record, error] {
	return func(yield func(keyspace.Record, error) bool) {
		for _, r := range ranges(keys, o.prefix) {
			r.Rev = o.rev
			for rec, err := range src.Records(ctx, r) {
				if !yield(rec, err) {
					return
				}
			}
		}
	}
}

func (o *extractOptions) files(ctx context.Context, p *output.Printer, src keyspace.Source, all iter.Seq2[keyspace.Record, error], path string) error {
	var xo backup.ExtractOptions
	undecoded := 0
	if o.decode {
		dec, err := o.decoder.Open(ctx, src, o.rev)
		if err != nil {
			return err
		}
		if dec.Note != "" {
			o.env.Warn("%s", dec.Note)
		}
		xo.Content = func(rec keyspace.Record) ([]byte, string) {
			v := dec.Value(rec)
			if v.Object == nil {
				undecoded++
				return rec.Value, ""
			}
			b, err := output.JSONToYAML(v.Object)
			if err != nil {
				undecoded++
				return rec.Value, ""
			}
			return b, ".yaml"
		}
	}
	n, err := backup.Extract(ctx, all, o.to, xo)
	if err != nil {
		return err
	}
	if undecoded > 0 {
		o.env.Warn("%d values are no objects, or stayed sealed, and are written as they are stored", undecoded)
	}
	if err := p.Print(extractView{Folder: o.to, Files: n}); err != nil {
		return err
	}
	return found(int(n), path)
}

type extractView struct {
	Folder string `json:"folder"`
	Files  int64  `json:"files"`
}

func (v extractView) Table() output.Table {
	return output.Table{Columns: []output.Column{{Name: "FOLDER", Keep: true}, {Name: "FILES", Right: true}}, Rows: [][]string{{v.Folder, fmt.Sprint(v.Files)}}}
}

type recordLine struct {
	Key         string `json:"key"`
	KeyBase64   []byte `json:"keyBase64,omitempty"`
	ValueBase64 []byte `json:"valueBase64"`
	CreateRev   int64  `json:"createRev"`
	ModRev      int64  `json:"modRev"`
	Version     int64  `json:"version"`
	Lease       string `json:"lease,omitempty"`
}

func lineOf(r keyspace.Record) recordLine {
	l := recordLine{Key: string(r.Key), ValueBase64: r.Value, CreateRev: r.CreateRev, ModRev: r.ModRev, Version: r.Version, Lease: cli.LeaseID(r.Lease)}
	if l.ValueBase64 == nil {
		l.ValueBase64 = []byte{}
	}
	if !utf8.Valid(r.Key) {
		l.Key, l.KeyBase64 = "", r.Key
	}
	return l
}

func (l recordLine) Table() output.Table {
	key := l.Key
	if l.KeyBase64 != nil {
		key = fmt.Sprintf("%q", l.KeyBase64)
	}
	return output.Table{
		Columns: []output.Column{{Name: "KEY", Keep: true}, {Name: "MOD REV", Right: true}, {Name: "VERSION", Right: true}, {Name: "LEASE"}, {Name: "SIZE", Right: true, Bytes: true}},
		Rows:    [][]string{{key, fmt.Sprint(l.ModRev), fmt.Sprint(l.Version), l.Lease, fmt.Sprint(len(l.ValueBase64))}},
	}
}
