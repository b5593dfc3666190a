package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/registry"
	"github.com/etcdctl-plus/etcdctl-plus/registry/kmsclient"
	"github.com/etcdctl-plus/etcdctl-plus/registry/seal"
)

// DecodeFlags says how Kubernetes values are read.
type DecodeFlags struct {
	EncryptionConfig string
	ShowSecrets      bool
	Prefix           string // "": found by itself

	// Tell hears of each KMS plugin's first failure; values say only that they stay
	// sealed. nil: a warning on stderr.
	Tell func(error)

	env    *Env
	loaded *registry.Options
	flags  *pflag.FlagSet
	failed *atomic.Pointer[kmsclient.Error] // the first failure of a KMS plugin
}

// Unused complains about decoding flags where nothing is decoded; what names the
// flag that would.
func (d *DecodeFlags) Unused(what string) error {
	if d.flags == nil {
		return nil
	}
	for _, name := range []string{"encryption-config", "show-secrets", "registry-prefix"} {
		if d.flags.Changed(name) {
			return Usagef("--%s goes with %s", name, what)
		}
	}
	return nil
}

// Define adds the flags.
func (d *DecodeFlags) Define(env *Env, f *pflag.FlagSet) {
	d.DefineKeys(env, f)
	f.BoolVar(&d.ShowSecrets, "show-secrets", false, "show the values of Secrets (else their length and a fingerprint that is equal for equal values)")
}

// DefineKeys adds only the flags of commands that show no values.
func (d *DecodeFlags) DefineKeys(env *Env, f *pflag.FlagSet) {
	d.env, d.flags = env, f
	f.StringVar(&d.EncryptionConfig, "encryption-config", "", "the API server's EncryptionConfiguration file, to open sealed values")
	f.StringVar(&d.Prefix, "registry-prefix", "", "where Kubernetes' keys begin (default: found by itself, such as /registry)")
}

// Decoding turns stored values into objects.
type Decoding struct {
	Mapper *registry.Mapper
	Note   string // what an operator should know; "" for nothing
	opts   registry.Options
	dec    *registry.Decoder
}

// Options reads the encryption configuration, once. Commands call it before they
// open a source: a wrong flag should not cost a long read.
func (d *DecodeFlags) Options() (registry.Options, error) {
	if d.loaded == nil {
		o, err := d.load()
		if err != nil {
			return o, err
		}
		d.loaded = &o
	}
	return *d.loaded, nil
}

func (d *DecodeFlags) load() (registry.Options, error) {
	// One redactor for all decoders, so that equal values look equal.
	o := registry.Options{ShowSecrets: d.ShowSecrets, Redactor: registry.NewRedactor()}
	if d.EncryptionConfig == "" && d.flags.Changed("encryption-config") {
		return o, WithHint(Usagef("--encryption-config is empty"), "is a variable in your script unset?")
	}
	fromContext := false
	if d.EncryptionConfig == "" {
		s, err := d.env.Settings()
		if err != nil {
			return o, err
		}
		d.EncryptionConfig, fromContext = s.EncryptionConfig, s.Context != "" && s.EncryptionFrom == "context "+s.Context
	}
	if d.EncryptionConfig != "" {
		c, err := registry.LoadEncryptionConfig(d.EncryptionConfig)
		if err != nil && fromContext {
			// Whoever may not read the API server's keys can still read what is not sealed.
			d.env.Warn("%v (from context %s); sealed values stay sealed", err, d.env.settings.Context)
			d.EncryptionConfig = ""
			return o, nil
		}
		if err != nil {
			code := Config
			if errors.Is(err, fs.ErrPermission) {
				code = Permission
			}
			return o, &Error{Code: code, Err: err, Hint: "it is the file that the API server's --encryption-provider-config names"}
		}
		o.Encryption = c
		if client := kmsclient.New(c, d.pluginFailed); client != nil {
			d.failed = new(atomic.Pointer[kmsclient.Error])
			d.env.OnClose(client.Close)
			o.KMS = seal.NewEnvelopes(client)
		}
	}
	return o, nil
}

// pluginFailed is called once for each plugin, from any goroutine.
func (d *DecodeFlags) pluginFailed(err error) {
	var e *kmsclient.Error
	if errors.As(err, &e) {
		d.failed.CompareAndSwap(nil, e)
		if d.Tell == nil {
			err = fmt.Errorf("%w; values it sealed stay sealed; %s", err, e.Hint())
		}
	}
	if d.Tell != nil {
		d.Tell(err)
		return
	}
	d.env.Warn("%v", err)
}

// SealedHint says what would open the values that stayed sealed.
func (d *DecodeFlags) SealedHint() string {
	switch {
	case d.failed != nil && d.failed.Load() != nil:
		if d.Tell == nil {
			return "what the KMS plugin lacks is said above"
		}
		return d.failed.Load().Hint()
	case d.EncryptionConfig != "":
		return "no key of " + d.EncryptionConfig + " fits them; was a key rotated out of it?"
	}
	return "give the API server's EncryptionConfiguration with --encryption-config"
}

// Open makes a Decoding for src at a revision (0: the newest): it finds the
// registry prefix and learns the custom resources defined there. Decoding.Note
// says when nothing there looks like Kubernetes.
func (d *DecodeFlags) Open(ctx context.Context, src keyspace.Source, rev int64) (*Decoding, error) {
	o, err := d.Options()
	if err != nil {
		return nil, err
	}
	if _, ok := keyspace.Base(src).(*dbfile.Source); ok {
		// A file is ordered by revision: to look for anything is to walk all of it.
		// One walk for the whole keyspace serves every read that follows, here and
		// in the command.
		if _, err := firstKey(ctx, src, rev, []byte{0}, nil); err != nil {
			return nil, err
		}
	}
	first := func(from, end []byte) ([]byte, error) { return firstKey(ctx, src, rev, from, end) }
	prefix, note := d.Prefix, ""
	if prefix == "" {
		if prefix, err = registry.DetectPrefix(first); err != nil {
			return nil, fmt.Errorf("look for Kubernetes' keys: %w", err)
		}
		// Keys where Kubernetes puts them count, whatever is in them.
		under := keyspace.Prefix([]byte(registry.DefaultPrefix + "/"))
		k, err := first(under.Key, under.End)
		if err != nil {
			return nil, err
		}
		if prefix == "" && k == nil {
			note = "nothing here looks like Kubernetes' keys"
		}
	}
	o.Mapper = registry.NewMapper(prefix)
	if d.Prefix != "" {
		under := keyspace.Prefix([]byte(o.Mapper.Prefix() + "/"))
		k, err := first(under.Key, under.End)
		if err != nil {
			return nil, err
		}
		if k == nil {
			note = fmt.Sprintf("no key under %s/", o.Mapper.Prefix())
		}
	}
	dec := &Decoding{Mapper: o.Mapper, Note: note, opts: o}
	defs, err := o.Mapper.Find("customresourcedefinitions.apiextensions.k8s.io")
	if err != nil {
		return nil, fmt.Errorf("look for custom resource definitions: %w", err)
	}
	crds := registry.NewDecoder(o)
	all := keyspace.Prefix(o.Mapper.KeyPrefix(&defs[0], ""))
	all.Rev = rev
	for rec, err := range src.Records(ctx, all) {
		if err != nil {
			return nil, fmt.Errorf("read custom resource definitions: %w", err)
		}
		if r := crds.Decode(rec.Key, rec.Value, rec.ModRev); r.Object != nil {
			// A definition that cannot be read only means that its objects
			// go by their path; reading them goes on.
			_ = o.Mapper.AddCRD(r.Object)
		}
	}
	return dec, nil
}

// Objects is Open in the form in which verifying and drilling want it.
func (d *DecodeFlags) Objects() func(context.Context, keyspace.Source) (*backup.ObjectReader, error) {
	return func(ctx context.Context, src keyspace.Source) (*backup.ObjectReader, error) {
		dec, err := d.Open(ctx, src, 0)
		if err != nil {
			return nil, err
		}
		return &backup.ObjectReader{Mapper: dec.Mapper, NewDecoder: func() *registry.Decoder { return dec.NewDecoder(false) }}, nil
	}
}

// OpenIfAllowed is Open for a command that works without Kubernetes as well: where
// the user may not look for its keys, it goes on as Plain does.
func (d *DecodeFlags) OpenIfAllowed(ctx context.Context, src keyspace.Source, rev int64) (*Decoding, error) {
	dec, err := d.Open(ctx, src, rev)
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return d.Plain()
	}
	return dec, err
}

// Plain makes a Decoding without looking at any source: custom resources go by
// their path.
func (d *DecodeFlags) Plain() (*Decoding, error) {
	o, err := d.Options()
	if err != nil {
		return nil, err
	}
	o.Mapper = registry.NewMapper(d.Prefix)
	return &Decoding{Mapper: o.Mapper, opts: o}, nil
}

// firstKey returns the first key in [from, end); nil for none. No end: to the
// end of the keyspace.
func firstKey(ctx context.Context, src keyspace.Source, rev int64, from, end []byte) ([]byte, error) {
	r := keyspace.From(from)
	if len(end) > 0 {
		r.End = end
	}
	r.Rev, r.Limit, r.KeysOnly = rev, 1, true
	for rec, err := range src.Records(ctx, r) {
		return bytes.Clone(rec.Key), err
	}
	return nil, nil
}

// NewDecoder makes a decoder for one goroutine. resourceVersion puts the mod
// revision into each object, as the API server shows it.
func (d *Decoding) NewDecoder(resourceVersion bool) *registry.Decoder {
	o := d.opts
	o.SetResourceVersion = resourceVersion
	return registry.NewDecoder(o)
}

// Value is a stored value in the form that says most: an object, text or bytes.
// At most one of Object, Text and Bytes is set.
type Value struct {
	Encoding   string
	Encryption string // "aescbc:key1"; "" when not sealed
	Object     json.RawMessage
	Text       *string
	Bytes      []byte
	Problem    string // why it is not, or not wholly, decoded
	Damaged    bool   // Object is what is left of one, by its fields
	size       int
}

// Value decodes one record. It is not safe for concurrent use.
func (d *Decoding) Value(r keyspace.Record) Value {
	if d.dec == nil {
		d.dec = d.NewDecoder(false)
	}
	return ValueOf(d.dec.Decode(r.Key, r.Value, r.ModRev), len(r.Value))
}

// ValueOf sums up a decoded value of size stored bytes.
func ValueOf(res registry.Result, size int) Value {
	v := Value{Encoding: string(res.Encoding), Encryption: Encryption(res.Seal), size: size}
	if res.Err != nil {
		v.Problem = res.Err.Error()
		v.Damaged = res.Encoding == registry.Protobuf && errors.Is(res.Err, registry.ErrDamaged)
	}
	switch {
	case res.Object != nil:
		v.Object = res.Object
	case res.Plain == nil: // sealed, or held back
	case utf8.Valid(res.Plain):
		s := string(res.Plain)
		v.Text = &s
	default:
		v.Bytes = res.Plain
	}
	return v
}

// Encryption names provider and key of a seal.
func Encryption(s registry.Seal) string {
	if s.Provider == "" {
		return ""
	}
	return s.Provider + ":" + s.KeyName
}

// Sealed tells that the value could not be opened.
func (v Value) Sealed() bool {
	return v.Encryption != "" && v.Object == nil && v.Text == nil && v.Bytes == nil
}

// JSON returns the value as a JSON document when it is one.
func (v Value) JSON() []byte {
	switch {
	case v.Damaged:
		return nil
	case v.Object != nil:
		return v.Object
	case v.Text != nil && json.Valid([]byte(*v.Text)):
		return []byte(*v.Text)
	}
	return nil
}

// String is the value on one line for people.
func (v Value) String() string {
	switch {
	case v.Object != nil:
		return string(v.Object)
	case v.Text != nil:
		return *v.Text
	case v.Sealed():
		return fmt.Sprintf("(%d bytes, sealed with %s)", v.size, v.Encryption)
	}
	return fmt.Sprintf("(%d bytes)", v.size)
}
