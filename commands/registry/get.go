package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/completions"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	k8s "github.com/etcdctl-plus/etcdctl-plus/registry"
	"github.com/etcdctl-plus/etcdctl-plus/registry/columns"
)

type getOptions struct {
	reader
	kind      string
	names     []string
	namespace string
	all       bool
	selector  string
	fields    string
	sortBy    string

	choose *chooser
	sort   *sorter // nil: in the order of the keys
	res    k8s.Resource
	cols   *columns.Printer // nil: the kind has no columns of its own
	rows   bool             // rows of tables are wanted
	seen   atomic.Bool      // there was an object to choose from
}

func newGetCmd(env *cli.Env) *cobra.Command {
	o := getOptions{reader: reader{env: env}}
	c := &cobra.Command{
		Use:   "get KIND [NAME…]",
		Short: "Show objects of a kind",
		Long: `Show objects of a kind as they are stored. KIND is a kind, a plural, a short
name, or one of them with its group (deployments.apps). The resourceVersion shown
is the revision of the object's last change, as the API server shows it.

A table has kubectl's columns, of a custom resource those of its definition; -o wide
adds kubectl's others, and then where and how etcd has the object. jsonpath,
go-template, custom-columns, --sort-by and the selectors mean what they mean in
kubectl. --field-selector takes any field of the object.

What is stored may be older than what the API server serves: it converts versions
and fills in defaults on reading; here you see the stored version.

Server cost (live): the objects of the kind are read and sent once, pinned to one
revision; with names, one key each.

An object that cannot be decoded, because it is sealed and no key fits or because
it is damaged, is named with the reason, the others are shown, and the exit code
is 3 (in tables, which show what is sealed, only for damage). A name that does not
exist ends with 4.`,
		Example: `  etcdctl-plus registry get pods -A --db snapshot.db
  etcdctl-plus registry get secret web-tls -n shop -o yaml --encryption-config enc.yaml --db snapshot.db
  etcdctl-plus registry get pods -A --field-selector spec.nodeName=node-1 --sort-by .metadata.creationTimestamp
  etcdctl-plus registry get deploy -n shop -l app=web -o jsonpath='{.items[*].spec.replicas}'`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completions.Kinds,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.define(f)
	f.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the objects")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "objects of all namespaces")
	f.StringVarP(&o.selector, "selector", "l", "", "label selector, such as app=web,tier!=cache or 'env in (a,b)'")
	f.StringVar(&o.fields, "field-selector", "", "select by fields, such as status.phase=Running,spec.nodeName!=node-1")
	f.StringVar(&o.sortBy, "sort-by", "", "order by a JSONPath into the objects, such as .metadata.creationTimestamp; all are held in memory")
	return c
}

func (o *getOptions) complete(args []string) error {
	if len(args) == 0 {
		return cli.WithHint(cli.Usagef("which kind of objects?"), "`registry ls` shows what is there, `registry resources` every kind")
	}
	o.kind, o.names = args[0], args[1:]
	if strings.Contains(o.kind, ",") {
		return cli.WithHint(cli.Usagef("%q: one kind at a time", o.kind), "`registry dump KIND KIND` takes several")
	}
	if kind, name, ok := strings.Cut(o.kind, "/"); ok {
		// As kubectl: pod/a pod/b. A name has no slash.
		o.kind = kind
		for i, n := range o.names {
			k, rest, ok := strings.Cut(n, "/")
			if ok && k != kind {
				return cli.WithHint(cli.Usagef("%q and %q: one kind at a time", args[0], n), "`registry dump KIND KIND` takes several")
			}
			if ok {
				o.names[i] = rest
			}
		}
		o.names = append([]string{name}, o.names...)
	}
	if len(o.names) > 0 && (o.all || o.selector != "" || o.fields != "") {
		return cli.Usagef("a name goes with neither --all-namespaces nor a selector")
	}
	if o.namespace == "" && !o.all {
		return emptyNamespace()
	}
	var err error
	if o.choose, err = newChooser(o.selector, o.fields); err != nil {
		return err
	}
	if o.sortBy != "" {
		o.sort, err = newSorter(o.sortBy)
	}
	return err
}

// emptyNamespace: an unset variable must not mean everything.
func emptyNamespace() error {
	return cli.WithHint(cli.Usagef("--namespace is empty"), "is a variable in your script unset? `registry get -A` looks in all namespaces, and so does `registry dump` without the flag")
}

func (o *getOptions) run(ctx context.Context) error {
	p, err := o.out.printer(output.Tables, output.Wide, output.Name, output.YAML, output.JSON, output.JSONL, output.Raw,
		output.Template, output.JSONPath, output.CustomColumns, output.Simple, output.Fields)
	if err != nil {
		return err
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	if o.res, err = o.find(o.kind); err != nil {
		return err
	}
	if o.cols, err = o.columns(ctx); err != nil {
		return err
	}
	o.rows = slices.Contains([]output.Format{output.Tables, output.Wide, output.Simple, output.Fields}, p.Format)
	w := writer{p: p, o: o, single: len(o.names) == 1 && (p.Format == output.JSON || p.Format == output.Template || p.Format == output.JSONPath)}
	if !w.single && p.Format != output.Raw && p.Format != output.Name {
		w.stream = p.Stream(output.KubernetesList)
	}
	put := w.write
	if o.sort != nil {
		put = o.sort.add
	}
	missing, err := o.each(ctx, put)
	if err != nil {
		return err
	}
	if o.sort != nil {
		if err := o.sort.each(w.write); err != nil {
			return err
		}
	}
	if w.stream != nil {
		if err := w.stream.Close(o.nothing(missing)); err != nil {
			return err
		}
	}
	if f := o.choose.unknown(); f != "" && w.n == 0 && o.seen.Load() {
		o.env.Warn("--field-selector: no %s has a field %s", o.res.Singular, f)
	}
	switch {
	case len(missing) > 0:
		return cli.Failf(cli.Negative, "%s not found: %s%s at revision %d", o.res.Plural, strings.Join(missing, ", "), o.in(), o.rev)
	case w.table() && w.failed > 0 && w.failed == w.sealed:
		o.env.Warn("%d of %d objects are sealed; %s", w.sealed, w.n, w.hint())
	case w.failed > 0:
		return cli.WithHint(cli.Failf(cli.Partial, "%d of %d objects could not be shown", w.failed, w.n), w.hint())
	}
	return nil
}

// columns returns what kubectl would print of the kind. A custom resource's columns
// are in its definition, which is read at the same revision.
func (o *getOptions) columns(ctx context.Context) (*columns.Printer, error) {
	if !o.res.Custom {
		return columns.Builtin(o.res.Group, o.res.Kind), nil
	}
	defs, err := o.dec.Mapper.Find("customresourcedefinitions.apiextensions.k8s.io")
	if err != nil {
		return nil, err
	}
	r := keyspace.One(o.dec.Mapper.Key(&defs[0], "", o.res.Plural+"."+o.res.Group))
	r.Rev = o.rev
	for rec, err := range o.src.Records(ctx, r) {
		if err != nil {
			return nil, fmt.Errorf("read the definition of %s: %w", &o.res, err)
		}
		d := o.dec.NewDecoder(false).Decode(rec.Key, rec.Value, rec.ModRev)
		if d.Object == nil {
			break
		}
		p, err := columns.FromCRD(d.Object, o.res.Versions)
		if err != nil {
			o.env.Warn("%v", err)
		}
		return p, nil
	}
	return nil, nil // the definition is gone: its objects are still there
}

// each calls f for every object asked for and returns the names not found.
func (o *getOptions) each(ctx context.Context, f func(objectView) error) (missing []string, err error) {
	if len(o.names) == 0 {
		ns := o.namespace
		if o.all || !o.res.Namespaced {
			ns = ""
		}
		return nil, o.scan(ctx, o.keys(o.dec.Mapper.KeyPrefix(&o.res, ns)), f)
	}
	for _, name := range o.names {
		r := keyspace.One(o.dec.Mapper.Key(&o.res, o.namespace, name))
		r.Rev = o.rev
		n := 0
		err := o.scan(ctx, r, func(v objectView) error { n++; return f(v) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

func (o *getOptions) scan(ctx context.Context, r keyspace.Range, f func(objectView) error) error {
	// A prefix may hold other resources below it: apps of a custom group, or
	// namespaces of a resource that has none.
	mine := func(rec keyspace.Record) bool {
		k, ok := o.dec.Mapper.Parse(rec.Key)
		return !ok || k.Resource == nil || k.Resource.Prefix == o.res.Prefix
	}
	// Choosing and making rows takes longer than decoding; it runs on all cores, too.
	view := func(x inspect.Object) (objectView, bool) {
		v := o.objectView(x)
		o.seen.Store(true)
		if !o.choose.matches(v) {
			return v, false
		}
		if o.rows {
			t := v.Table()
			v.made = &t
		}
		return v, true
	}
	for v, err := range inspect.Objects(ctx, o.src, r, mine, func() *k8s.Decoder { return o.dec.NewDecoder(true) }, view) {
		if err != nil {
			return err
		}
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

func (o *getOptions) in() string {
	if !o.res.Namespaced || o.all {
		return ""
	}
	return " in namespace " + o.namespace
}

func (o *getOptions) nothing(missing []string) string {
	if len(missing) > 0 {
		return "" // the error names them
	}
	s := "no " + o.res.Plural + o.in()
	if o.res.Namespaced && !o.all {
		s += "; -A looks in all namespaces"
	}
	return s
}

// meta is what the tables need of an object.
type meta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	CreationTimestamp string            `json:"creationTimestamp"`
	Labels            map[string]string `json:"labels"`
}

func metaOf(x inspect.Object) meta {
	var doc struct {
		Metadata meta `json:"metadata"`
	}
	if x.Object != nil {
		// Whatever is not as expected stays empty: the key still names it.
		_ = json.Unmarshal(x.Object, &doc)
	}
	return doc.Metadata
}

// writer prints objects and keeps count of those that did not decode.
type writer struct {
	p      *output.Printer
	o      *getOptions
	stream *output.Stream
	single bool
	n      int
	failed int
	sealed int // thereof

	withheld bool // a Secret's bytes were asked for and not shown
}

// table tells whether the output itself shows which objects are sealed.
func (w *writer) table() bool {
	return w.p.Format == output.Tables || w.p.Format == output.Wide || w.p.Format == output.Name
}

func (w *writer) write(v objectView) error {
	x := v.Object
	w.n++
	switch {
	case x.Object != nil && errors.Is(x.Err, k8s.ErrDamaged):
		w.failed++
		w.o.env.Warn("%s: %v", x.Record.Key, x.Err)
	case x.Object == nil:
		w.failed++
		sealed := x.Seal.Provider != "" && !x.Seal.Opened
		if sealed {
			w.sealed++
		}
		if (!sealed || !w.table()) && !errors.Is(x.Err, k8s.ErrPlugin) { // the plugin's failure was told
			w.o.env.Warn("%s: %v", x.Record.Key, problem(x))
		}
	}
	switch w.p.Format {
	case output.Raw:
		if x.Plain == nil {
			return w.noBytes(x)
		}
		_, err := w.p.Out.Write(x.Plain)
		return err
	case output.Name:
		_, err := fmt.Fprintln(w.p.Out, v.name())
		return err
	}
	if w.single {
		return w.p.Print(v)
	}
	if x.Object != nil && !w.o.rows {
		return w.stream.Write(json.RawMessage(x.Object))
	}
	return w.stream.Write(v)
}

// noBytes counts an object whose bytes must not or cannot be shown.
func (w *writer) noBytes(x inspect.Object) error {
	if x.Object != nil { // else it was told and counted
		w.failed++
		w.withheld = true
		w.o.env.Warn("%s: a Secret's bytes are shown only with --show-secrets", x.Record.Key)
	}
	return nil
}

func (w *writer) hint() string {
	if w.withheld {
		return "--show-secrets shows Secrets as they are"
	}
	if w.sealed > 0 {
		return w.o.decoder.SealedHint()
	}
	return "-o raw gives the bytes as they are (of a Secret with --show-secrets)"
}

func problem(x inspect.Object) error {
	if x.Err != nil {
		return x.Err
	}
	return fmt.Errorf("not an object (%s)", x.Encoding)
}

// objectView is one object; its JSON is the object itself.
type objectView struct {
	inspect.Object
	res  k8s.Resource
	info k8s.KeyInfo
	meta meta
	cols *columns.Printer
	all  bool // of all namespaces
	now  time.Time
	made *output.Table // by whoever had a core for it
	wire []byte        // what is left of a damaged object, by its fields
}

func (o *getOptions) objectView(x inspect.Object) objectView {
	// What is left of a damaged object is none: a field in the wrong place could be
	// taken for a name.
	var wire []byte
	if x.Encoding == k8s.Protobuf && errors.Is(x.Err, k8s.ErrDamaged) {
		x.Object, wire = nil, x.Object
	}
	v := objectView{Object: x, wire: wire, res: o.res, cols: o.cols, all: o.all, now: o.env.Now()}
	v.info, _ = o.dec.Mapper.Parse(x.Record.Key)
	if v.cols == nil { // else the key says all that is needed
		v.meta = metaOf(x)
	}
	if v.meta.Name == "" {
		v.meta.Name, v.meta.Namespace = v.info.Name, v.info.Namespace
	}
	return v
}

// MarshalJSON gives the object, or what is known of one that did not decode.
func (v objectView) MarshalJSON() ([]byte, error) {
	if v.Object.Object != nil {
		return v.Object.Object, nil
	}
	return output.Marshal(struct {
		Kind       string          `json:"kind"`
		Metadata   meta2           `json:"metadata"`
		Key        string          `json:"key"`
		Encryption string          `json:"encryption,omitempty"`
		Problem    string          `json:"problem"`
		Wire       json.RawMessage `json:"wire,omitempty"`
	}{v.res.Kind, meta2{v.meta.Name, v.meta.Namespace}, string(v.Record.Key), cli.Encryption(v.Seal), problem(v.Object).Error(), v.wire})
}

type meta2 struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

func (v objectView) name() string {
	group := ""
	if v.res.Group != "" {
		group = "." + v.res.Group
	}
	return strings.ToLower(v.res.Singular) + group + "/" + v.meta.Name
}

// Table has kubectl's columns, and behind them with -o wide what etcd tells. A kind
// without columns of its own shows the latter at once.
func (v objectView) Table() output.Table {
	if v.made != nil {
		return *v.made
	}
	var t output.Table
	var row []string
	add := func(c output.Column, cell string) {
		t.Columns = append(t.Columns, c)
		row = append(row, cell)
	}
	if v.res.Namespaced && (v.all || v.cols == nil) {
		add(output.Column{Name: "NAMESPACE"}, v.meta.Namespace)
	}
	own := v.cols == nil
	if own {
		add(output.Column{Name: "NAME", Keep: true}, v.meta.Name)
	} else {
		cells := v.cells()
		for i, c := range v.cols.Columns {
			if c.Name == "NAME" && cells[i] == "" {
				cells[i] = v.meta.Name // an object that does not tell: its key does
			}
			add(output.Column{Name: c.Name, Wide: c.Wide, Keep: c.Name == "NAME" || c.Name == "AGE", Wrap: c.Name == "MESSAGE"}, cells[i])
		}
	}
	add(output.Column{Name: "STORED AS", Drop: true, Wide: !own}, v.storedAs())
	add(output.Column{Name: "MOD REV", Right: true, Keep: true, Wide: !own}, fmt.Sprint(v.Record.ModRev))
	add(output.Column{Name: "BYTES", Right: true, Keep: true, Drop: true, Wide: !own}, fmt.Sprint(len(v.Record.Value)))
	add(output.Column{Name: "ENCRYPTION", Drop: true, Wide: !own}, cli.Encryption(v.Seal))
	if own {
		add(output.Column{Name: "AGE", Keep: true}, cli.Age(v.now, v.meta.CreationTimestamp))
	}
	add(output.Column{Name: "CREATE REV", Right: true, Wide: true}, fmt.Sprint(v.Record.CreateRev))
	add(output.Column{Name: "VERSION", Right: true, Wide: true}, fmt.Sprint(v.Record.Version))
	add(output.Column{Name: "LEASE", Wide: true}, cli.LeaseID(v.Record.Lease))
	add(output.Column{Name: "KEY", Wide: true}, string(v.Record.Key))
	t.Rows = [][]string{row}
	return t
}

// cells are kubectl's, or the name and why there is no more.
func (v objectView) cells() []string {
	switch {
	case v.Object.Object != nil:
		return v.cols.Row(v.Object.Object, v.now)
	case v.Seal.Provider != "" && !v.Seal.Opened:
		return v.cols.Placeholder(v.meta.Name, "(sealed with "+cli.Encryption(v.Seal)+")")
	case v.Redacted:
		return v.cols.Placeholder(v.meta.Name, "(withheld)")
	case errors.Is(v.Err, k8s.ErrDamaged):
		return v.cols.Placeholder(v.meta.Name, "(damaged)")
	}
	return v.cols.Placeholder(v.meta.Name, "(not an object)")
}

// storedAs is apiVersion and encoding, or why there is no object.
func (v objectView) storedAs() string {
	if v.Object.Object == nil && v.Seal.Provider != "" && !v.Seal.Opened {
		return "sealed"
	}
	if v.APIVersion == "" {
		return string(v.Encoding)
	}
	return v.APIVersion + " " + string(v.Encoding)
}
