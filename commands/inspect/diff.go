package inspect

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type diffOptions struct {
	env       *cli.Env
	source    cli.SourceFlags
	decoder   cli.DecodeFlags
	from, to  side
	prefix    string
	brief     bool
	rewritten bool
	managed   bool
	exitCode  bool
	dec       *cli.Decoding
	sealed    int // changed values that could not be opened
	locator   cli.Locator
	names     [][2]string // of what a Locator fetched: its path, and what it is called
}

func newDiffCmd(env *cli.Env) *cobra.Command { return diffCmd(env, nil) }

// NewDiff makes `diff` for what a locator finds.
func NewDiff(env *cli.Env, l cli.Locator) *cobra.Command {
	c := diffCmd(env, l)
	c.Use, c.Short = "diff BACKUP BACKUP|live", "What differs between two backups of a repository, or one and the cluster"
	c.Long = `What differs between two backups of a repository, or between one and the live cluster (live),
key by key; of Kubernetes objects and of JSON, what changed inside. A key that was written
again with the same value is left out unless --rewritten. --exit-code gives 10 when something
differs.`
	c.Example = `  etcdctl-plus backup diff 41 latest --store /var/backups/etcd
  etcdctl-plus backup diff latest live --prefix /registry/configmaps/ --store /var/backups/etcd`
	return c
}

func diffCmd(env *cli.Env, l cli.Locator) *cobra.Command {
	o := diffOptions{env: env, locator: l}
	c := &cobra.Command{
		Use:   "diff FROM TO",
		Short: "What differs between two revisions, files, clusters or members",
		Long: `What differs between two keyspaces, key by key; of Kubernetes objects and of JSON,
what changed inside. FROM and TO are each one of

  PATH, PATH@REV          a snapshot, a member's file or a data folder
  live, live@REV          the cluster
  HOST:PORT, URL, …@REV   one member by its own word
  @REV                    a revision of the file given with --db, or of the cluster

A key that was written again with the same value is left out unless --rewritten.

Two members of a cluster are compared at one revision, the newest that both have;
then every difference, also of revisions, is damage and the exit code is 10. For
other pairs, members at different revisions too, --exit-code gives 10 when something
differs.

Server cost (live): every key and value under the prefix is read and sent once
from each side, pinned to a revision.`,
		Example: `  etcdctl-plus inspect diff yesterday.db today.db
  etcdctl-plus inspect diff snapshot.db live --prefix /registry/configmaps/
  etcdctl-plus inspect diff @1400 @1491 --db snapshot.db
  etcdctl-plus inspect diff https://10.0.0.1:2379 https://10.0.0.2:2379`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.locate(c.Context(), args); err != nil {
				return err
			}
			if err := o.complete(args); err != nil {
				return err
			}
			o.rename()
			return o.named(o.run(c.Context()))
		},
	}
	f := c.Flags()
	if l != nil {
		l.Define(f)
		o.source.DefinePacked(f, "")
	} else {
		o.source.Define(f)
	}
	o.decoder.Define(env, f)
	f.StringVar(&o.prefix, "prefix", "", "only keys that start with this")
	f.BoolVar(&o.brief, "brief", false, "only which keys differ, not what changed inside")
	f.BoolVar(&o.rewritten, "rewritten", false, "also keys with the same value that were written again")
	f.BoolVar(&o.managed, "show-managed-fields", false, "show changes of metadata.managedFields too")
	f.BoolVar(&o.exitCode, "exit-code", false, "end with exit code 10 when something differs")
	return c
}

// locate puts files into the place of what is named.
func (o *diffOptions) locate(ctx context.Context, args []string) error {
	if o.locator == nil {
		return nil
	}
	for i, a := range args {
		if a == "live" {
			continue
		}
		path, name, err := o.locator.Locate(ctx, a)
		if err != nil {
			return err
		}
		args[i] = path
		o.names = append(o.names, [2]string{path, name})
	}
	return nil
}

// rename puts what people call a backup in the place of the file it was fetched into.
func (o *diffOptions) rename() {
	for _, s := range []*side{&o.from, &o.to} {
		for _, n := range o.names {
			if s.path == n[0] {
				s.text = n[1]
			}
		}
	}
}

// named is rename for an error.
func (o *diffOptions) named(err error) error {
	for _, n := range o.names {
		err = cli.Named(err, n[0], n[1])
	}
	return err
}

// side is one of the two keyspaces.
type side struct {
	text     string
	rev      int64
	path     string // a file
	endpoint string // one member
	live     bool   // the cluster
}

var (
	sideRev  = regexp.MustCompile(`^(.*)@([^@/]*)$`)
	hostPort = regexp.MustCompile(`^([a-z]+://)?[^/]+:\d+$`)
)

func parseSide(s string) (side, error) {
	d := side{text: s}
	if s == "" {
		return d, cli.WithHint(cli.Usagef("FROM or TO is empty"), "is a variable in your script unset? For the live cluster say live")
	}
	if m := sideRev.FindStringSubmatch(s); m != nil && !exists(s) { // else a file whose name ends like that
		rev, err := cli.ParseRev(m[2])
		switch {
		case err == nil:
			s, d.rev = m[1], rev
		case m[1] == "" || m[1] == "live" || exists(m[1]) || hostPort.MatchString(m[1]):
			return d, cli.Usagef("%s: %q is not a revision", s, m[2])
		}
		if s == "" {
			return d, nil
		}
	}
	switch {
	case s == "live":
		d.live = true
	case exists(s):
		d.path = s
	case strings.Contains(s, "://"), hostPort.MatchString(s):
		d.endpoint = s
	default:
		d.path = s
	}
	return d, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (o *diffOptions) complete(args []string) (err error) {
	if o.from, err = parseSide(args[0]); err != nil {
		return err
	}
	if o.to, err = parseSide(args[1]); err != nil {
		return err
	}
	named := func(d side) bool { return d.live || d.path != "" || d.endpoint != "" }
	if o.source.DB != "" && named(o.from) && named(o.to) {
		return cli.Usagef("--db is for @REV; both sides are named already")
	}
	if o.from.text == o.to.text {
		return cli.Usagef("both sides are %s", o.from.text)
	}
	if o.brief {
		return o.decoder.Unused("the comparison of values, which --brief leaves out")
	}
	return nil
}

func (o *diffOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	if _, err := o.decoder.Options(); err != nil {
		return err
	}
	from, err := o.open(ctx, o.from)
	if err != nil {
		return err
	}
	to := from
	if o.from.endpoint != o.to.endpoint || o.from.path != o.to.path || o.from.live != o.to.live {
		if to, err = o.open(ctx, o.to); err != nil {
			return err
		}
	}
	replicas, err := o.pin(ctx, from, to)
	if err != nil {
		return err
	}
	if !o.brief {
		if o.dec, err = o.decoder.OpenIfAllowed(ctx, to, o.to.rev); err != nil {
			return err
		}
	}
	n, err := o.print(ctx, p, from, to, replicas)
	if err != nil {
		return err
	}
	warnSealed(o.env, &o.decoder, o.sealed)
	if n > 0 && (replicas || o.exitCode) {
		return cli.Failf(cli.Integrity, "%d keys differ between %s and %s", n, o.from.text, o.to.text)
	}
	return nil
}

func (o *diffOptions) open(ctx context.Context, d side) (keyspace.Source, error) {
	switch {
	case d.path != "":
		return o.source.File(ctx, o.env, d.path)
	case d.endpoint != "":
		return o.source.Member(ctx, o.env, d.endpoint)
	case d.live:
		return o.source.Live(ctx, o.env, o.source.Serializable())
	}
	return o.source.Open(ctx, o.env)
}

// pin fixes both revisions; of two members to the newest that both have. It tells
// whether both sides must be equal: members of one cluster at one revision.
func (o *diffOptions) pin(ctx context.Context, from, to keyspace.Source) (replicas bool, err error) {
	a, err := from.Info(ctx)
	if err != nil {
		return false, err
	}
	b, err := to.Info(ctx)
	if err != nil {
		return false, err
	}
	switch {
	case o.from.endpoint == "" || o.to.endpoint == "":
	case a.ClusterID != b.ClusterID:
		o.env.Warn("%s and %s belong to different clusters", o.from.text, o.to.text)
	default:
		replicas = true
		// A member that is behind lacks what it has not got yet; that is no damage.
		a.Revision = min(a.Revision, b.Revision)
		b.Revision = a.Revision
	}
	for _, x := range []struct {
		side *side
		rev  int64
	}{{&o.from, a.Revision}, {&o.to, b.Revision}} {
		if x.side.rev == 0 {
			x.side.rev = x.rev
		}
	}
	return replicas && o.from.rev == o.to.rev, nil
}

func (o *diffOptions) print(ctx context.Context, p *output.Printer, from, to keyspace.Source, replicas bool) (int, error) {
	ra, rb := keyspace.Prefix([]byte(o.prefix)), keyspace.Prefix([]byte(o.prefix))
	ra.Rev, rb.Rev = o.from.rev, o.to.rev
	s := p.Stream(output.Envelope{})
	n := 0
	for d, err := range inspect.Diff(ctx, from, to, ra, rb) {
		if err != nil {
			return n, err
		}
		if d.Kind == inspect.Rewritten && !o.rewritten && !replicas {
			continue
		}
		n++
		v, err := o.view(d)
		if err != nil {
			return n, err
		}
		if err := s.Write(v); err != nil {
			return n, err
		}
	}
	return n, s.Close(fmt.Sprintf("no difference between revision %d of %s and revision %d of %s", o.from.rev, o.from.text, o.to.rev, o.to.text))
}

// diffView is one key that differs.
type diffView struct {
	Kind      inspect.DifferenceKind `json:"kind"`
	Key       string                 `json:"key,omitempty"`
	KeyBase64 []byte                 `json:"keyBase64,omitempty"` // instead of key when that is no UTF-8
	FromRev   int64                  `json:"fromModRevision,omitempty"`
	ToRev     int64                  `json:"toModRevision,omitempty"`
	FromBytes *int                   `json:"fromValueBytes,omitempty"`
	ToBytes   *int                   `json:"toValueBytes,omitempty"`
	Changes   []inspect.Change       `json:"changes,omitempty"`
	Notes     []string               `json:"notes,omitempty"` // for what has no changes by path

	key   string
	lines []string
	brief bool
}

func (o *diffOptions) view(d inspect.Difference) (diffView, error) {
	v := diffView{Kind: d.Kind, key: string(d.Key()), brief: o.brief}
	if utf8.Valid(d.Key()) {
		v.Key = v.key
	} else {
		v.KeyBase64 = d.Key()
	}
	if d.Old != nil {
		n := len(d.Old.Value)
		v.FromRev, v.FromBytes = d.Old.ModRev, &n
	}
	if d.New != nil {
		n := len(d.New.Value)
		v.ToRev, v.ToBytes = d.New.ModRev, &n
	}
	if o.brief || d.Kind != inspect.Changed {
		if d.Kind == inspect.Rewritten {
			v.lines = []string{fmt.Sprintf("same value; version %d → %d", d.Old.Version, d.New.Version)}
		}
		return v, nil
	}
	var err error
	v.Changes, v.lines, err = changes(o.dec, d.Old, *d.New, o.dec.Value(*d.New), o.managed, &o.sealed)
	if v.Changes == nil {
		v.Notes = v.lines
	}
	return v, err
}

func (v diffView) Table() output.Table {
	t := output.Table{Columns: []output.Column{
		{Name: "KIND", Keep: true}, {Name: "KEY"}, {Name: "FROM REV", Right: true, Keep: true, Drop: true}, {Name: "TO REV", Right: true, Keep: true, Drop: true},
		{Name: "FROM BYTES", Right: true, Wide: true}, {Name: "TO BYTES", Right: true, Wide: true},
	}}
	number := func(n *int) string {
		if n == nil {
			return ""
		}
		return fmt.Sprint(*n)
	}
	row := []string{string(v.Kind), v.key, rev(v.FromRev), rev(v.ToRev), number(v.FromBytes), number(v.ToBytes)}
	if v.brief {
		t.Rows = [][]string{row}
		return t
	}
	addNotes(&t, row, v.lines)
	return t
}

func rev(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
