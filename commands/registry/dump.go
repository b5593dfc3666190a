package registry

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/completions"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	k8s "github.com/etcdctl-plus/etcdctl-plus/registry"
	"github.com/etcdctl-plus/etcdctl-plus/registry/transcode"
)

type dumpOptions struct {
	reader
	kinds     []string
	namespace string

	sealed, broken, unknown atomic.Int64
}

func newDumpCmd(env *cli.Env) *cobra.Command {
	o := &dumpOptions{reader: reader{env: env}}
	c := &cobra.Command{
		Use:   "dump [KIND…]",
		Short: "Every object, a JSON line each",
		Long: `Every value under the registry prefix, or of the given kinds, decoded, a JSON line
each in key order:

  {"key", "createRevision", "modRevision", "version", "lease", "encoding",
   "encryption", "object"}

lease is hexadecimal and left out when there is none; encryption is
"provider:key name", "" for none. A value that is no object comes as "text" or
"base64" instead; "problem" says why one was not decoded, "unknownFields" how many
fields the schema does not know. The object is as stored: without the
resourceVersion, which is modRevision.

A dump with values that are sealed or damaged is whole all the same and ends with
exit code 3.

Server cost (live): every value is read and sent once, pinned to one revision.`,
		Example: `  etcdctl-plus registry dump --db snapshot.db --encryption-config enc.yaml --show-secrets > objects.jsonl
  etcdctl-plus registry dump deployments --db snapshot.db`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completions.Kinds,
		RunE: func(c *cobra.Command, args []string) error {
			o.kinds = args
			if o.namespace == "" && c.Flags().Changed("namespace") {
				return emptyNamespace()
			}
			return o.run(c.Context())
		},
	}
	o.define(c.Flags())
	c.Flags().StringVarP(&o.namespace, "namespace", "n", "", "only objects of this namespace (default: all)")
	return c
}

func (o *dumpOptions) run(ctx context.Context) error {
	p, err := o.out.printer(output.JSONL)
	if err != nil {
		return err
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	ranges, err := o.ranges()
	if err != nil {
		return err
	}
	progress := o.env.Progress("bytes written")
	defer progress.Done()
	var written int64
	w := &dumpWorkers{decoders: sync.Pool{New: func() any { return o.dec.NewDecoder(false) }}}
	for _, r := range ranges {
		for chunk, err := range pipeline.Map(ctx, o.records(ctx, r), pipeline.Options{}, o.lines(w)) {
			if err != nil {
				return err
			}
			if _, err := p.Out.Write(*chunk); err != nil {
				return err
			}
			written += int64(len(*chunk))
			progress.Set(written, 0)
			if cap(*chunk) <= maxKept {
				w.chunks.Put(chunk)
			}
		}
	}
	progress.Done()
	return o.tell()
}

func (o *dumpOptions) ranges() ([]keyspace.Range, error) {
	if len(o.kinds) == 0 {
		return []keyspace.Range{o.keys([]byte(o.dec.Mapper.Prefix() + "/"))}, nil
	}
	var out []keyspace.Range
	for _, k := range o.kinds {
		res, err := o.find(k)
		if err != nil {
			return nil, err
		}
		ns := o.namespace
		if !res.Namespaced {
			ns = ""
		}
		out = append(out, o.keys(o.dec.Mapper.KeyPrefix(&res, ns)))
	}
	return out, nil
}

// records reads a range, without other namespaces when one was asked for.
func (o *dumpOptions) records(ctx context.Context, r keyspace.Range) func(func(keyspace.Record, error) bool) {
	if o.namespace == "" {
		return o.src.Records(ctx, r)
	}
	return func(yield func(keyspace.Record, error) bool) {
		for rec, err := range o.src.Records(ctx, r) {
			if k, ok := o.dec.Mapper.Parse(rec.Key); err == nil && (!ok || k.Namespace != o.namespace) {
				continue
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// maxKept bounds the buffers that are used again: a batch of large objects must not
// hold its memory until the end.
const maxKept = 4 << 20

// dumpWorkers keeps what the workers use again and again: decoders, and the buffers
// of chunks that were written.
type dumpWorkers struct{ decoders, chunks sync.Pool }

// lines turns a batch of records into a chunk of lines.
func (o *dumpOptions) lines(w *dumpWorkers) func(context.Context, []keyspace.Record) (*[]byte, error) {
	return func(_ context.Context, recs []keyspace.Record) (*[]byte, error) {
		d := w.decoders.Get().(*k8s.Decoder)
		defer w.decoders.Put(d)
		chunk, _ := w.chunks.Get().(*[]byte)
		if chunk == nil {
			chunk = new([]byte)
		}
		b := (*chunk)[:0]
		for _, rec := range recs {
			b = o.line(b, d, rec)
		}
		*chunk = b
		return chunk, nil
	}
}

// usual is what stands between a record's numbers and its object unless there is
// something to tell.
const usual = `,"encoding":"protobuf","encryption":"","object":`

func (o *dumpOptions) line(b []byte, d *k8s.Decoder, rec keyspace.Record) []byte {
	b = transcode.AppendString(append(b, `{"key":`...), rec.Key)
	b = strconv.AppendInt(append(b, `,"createRevision":`...), rec.CreateRev, 10)
	b = strconv.AppendInt(append(b, `,"modRevision":`...), rec.ModRev, 10)
	b = strconv.AppendInt(append(b, `,"version":`...), rec.Version, 10)
	if rec.Lease != 0 {
		b = append(append(append(b, `,"lease":"`...), cli.LeaseID(rec.Lease)...), '"')
	}
	// The object is decoded to its place in nearly every line; in others it is moved.
	mark := len(b)
	b, r := d.Append(append(b, usual...), rec.Key, rec.Value, rec.ModRev)
	if r.Encoding != k8s.Protobuf || r.Seal.Provider != "" || r.UnknownFields > 0 || r.Err != nil || r.Object == nil {
		b = slices.Replace(b, mark, mark+len(usual), o.remarks(r)...)
	}
	return append(b, "}\n"...)
}

// remarks is what stands in place of usual: all that a line says of a value besides
// its object.
func (o *dumpOptions) remarks(r k8s.Result) []byte {
	b := transcode.AppendString([]byte(`,"encoding":`), string(r.Encoding))
	b = transcode.AppendString(append(b, `,"encryption":`...), cli.Encryption(r.Seal))
	if r.UnknownFields > 0 {
		o.unknown.Add(1)
		b = strconv.AppendInt(append(b, `,"unknownFields":`...), int64(r.UnknownFields), 10)
	}
	if r.Err != nil {
		if r.Seal.Provider != "" && !r.Seal.Opened {
			o.sealed.Add(1)
		} else {
			o.broken.Add(1)
		}
		b = transcode.AppendString(append(b, `,"problem":`...), r.Err.Error())
	}
	switch {
	case r.Object != nil:
		b = append(b, `,"object":`...)
	case r.Plain == nil:
	case utf8.Valid(r.Plain):
		b = transcode.AppendString(append(b, `,"text":`...), r.Plain)
	default:
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"base64":"`...), r.Plain), '"')
	}
	return b
}

// tell sums up what was not wholly decoded.
func (o *dumpOptions) tell() error {
	if n := o.unknown.Load(); n > 0 {
		o.env.Warn("%d objects have fields this version does not know; they are kept", n)
	}
	sealed, broken := o.sealed.Load(), o.broken.Load()
	switch {
	case broken > 0:
		return cli.Failf(cli.Partial, "%d values could not be decoded and %d are sealed; their lines say why", broken, sealed)
	case sealed > 0:
		return cli.WithHint(cli.Failf(cli.Partial, "%d values are sealed", sealed), o.decoder.SealedHint())
	}
	return nil
}
