package registry

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/etcdctl-plus/etcdctl-plus/registry/cbor"
	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
	"github.com/etcdctl-plus/etcdctl-plus/registry/seal"
	"github.com/etcdctl-plus/etcdctl-plus/registry/transcode"
	"github.com/etcdctl-plus/etcdctl-plus/registry/yaml"
)

// EncryptionConfig is a parsed EncryptionConfiguration.
type EncryptionConfig = seal.Config

// LoadEncryptionConfig reads an EncryptionConfiguration from a file in YAML or JSON.
func LoadEncryptionConfig(path string) (*EncryptionConfig, error) { return seal.Load(path) }

// ParseEncryptionConfig reads an EncryptionConfiguration in YAML or JSON. Errors
// name the place in it, never a secret.
func ParseEncryptionConfig(b []byte) (*EncryptionConfig, error) { return seal.Parse(b) }

// Errors for errors.Is on Result.Err, besides those of package seal.
var (
	// ErrCRLF: newlines were changed on the way, as terminals do.
	ErrCRLF = errors.New("damaged by a terminal's CRLF")
	// ErrDamaged: the value does not decode as what it says to be.
	ErrDamaged = errors.New("the value is damaged")
	// ErrUnknownKind: no version of Kubernetes in the schema table has the kind.
	ErrUnknownKind = errors.New("unknown kind")
	// ErrNoKey and ErrWrongKey: an encrypted value could not be opened.
	ErrNoKey    = seal.ErrNoKey
	ErrWrongKey = seal.ErrWrongKey
	// ErrPlugin: a KMS plugin is not there, or refused to open the key of a value.
	ErrPlugin = seal.ErrPlugin
)

// UnknownFieldsMember is the member of Result.Object, its last one, that holds the
// fields of a protobuf value which the newest Kubernetes types do not have. It is
// an array of {"path": "spec", "field": 24, "value": …}; a field that an older
// version of Kubernetes had also has "name" and "last", that version. Values
// without a name are a guess from the wire format. At most 1000 are kept.
const UnknownFieldsMember = "unknownFields"

// maxGunzip bounds what a compressed envelope may unfold to.
const maxGunzip = 64 << 20

// Options configure a Decoder. The zero value reads plain values below /registry
// and redacts Secrets.
type Options struct {
	Encryption *EncryptionConfig // nil: encrypted values stay sealed
	KMS        seal.KMSPlugin    // nil: so do those of KMS plugins; safe for concurrent use
	Mapper     *Mapper           // nil: NewMapper("")
	// ShowSecrets leaves the values of Secrets as they are.
	ShowSecrets bool
	// Redactor makes the markers of redacted values; decoders that share one agree
	// on them. nil: one of this Decoder's own.
	Redactor *Redactor
	// SetResourceVersion puts the revision given to Decode into
	// metadata.resourceVersion, where an apiserver would show it; it is not stored.
	SetResourceVersion bool
	// SeparateUnknown leaves UnknownFieldsMember out of Result.Object, which then is
	// exactly what Kubernetes' newest types print. Result.Unknown has them anyway.
	SeparateUnknown bool
	// RetiredInPlace prints fields that only older versions of Kubernetes had at
	// their place in the object, as those versions did, rather than among the
	// unknown ones.
	RetiredInPlace bool
}

// Seal tells about encryption at rest.
type Seal struct {
	Provider string // "aescbc", "aesgcm", "secretbox", "kms"; "" when not encrypted
	Version  string // "v1"; "v2" for newer KMS plugins
	KeyName  string // name of the key or KMS plugin; a guess while not Opened
	Opened   bool
}

// Result is what could be found out about one value.
type Result struct {
	Encoding         Encoding // of the plain value; "" while it is sealed
	Seal             Seal
	APIVersion, Kind string
	// Object is the object as one line of JSON. It is nil when there is none: the
	// value is sealed, is text or binary, or must not be shown.
	Object []byte
	// Plain is the stored value after decryption; nil when it is sealed, or when it
	// holds a Secret and ShowSecrets is off. It may share memory with the value.
	Plain []byte
	// UnknownFields counts the fields the newest types do not have, Unknown lists
	// them as UnknownFieldsMember describes (nil when there are none).
	UnknownFields int
	Unknown       []byte
	// Redacted tells that values were replaced by markers, or withheld.
	Redacted bool
	// Err tells why Object is missing or not the whole truth. A value that is plain
	// text or an unknown binary is no error.
	Err error
}

// SealOf tells how a value is sealed, as far as it can be told without opening it; ok is
// false for a plain one.
func SealOf(value []byte) (s Seal, ok bool) {
	if !seal.IsSealed(value) {
		return s, false
	}
	h, ok := seal.ParseHeader(value, nil)
	if !ok {
		h.Provider = "unknown"
	}
	return Seal{Provider: h.Provider, Version: h.Version, KeyName: h.KeyName}, true
}

// Decoder decodes values. It is cheap, keeps buffers, and is not safe for
// concurrent use: make one per goroutine. A Result belongs to the caller.
type Decoder struct {
	o     Options
	t     transcode.Transcoder
	table *schema.Table
	last  typeNames // of the value before
	job   job       // the one at hand; here, since it would be allocated elsewhere
}

// NewDecoder returns a Decoder.
func NewDecoder(o Options) *Decoder {
	if o.Mapper == nil {
		o.Mapper = NewMapper("")
	}
	if o.Redactor == nil {
		o.Redactor = NewRedactor()
	}
	d := &Decoder{o: o, table: schema.Load()}
	d.t.RetiredInPlace = o.RetiredInPlace
	return d
}

// Decode decodes the value stored under key. modRev is the revision of its last
// change, used with Options.SetResourceVersion. Decode never fails and never
// panics; Result.Err tells what is wrong.
func (d *Decoder) Decode(key, value []byte, modRev int64) Result {
	_, r := d.Append(nil, key, value, modRev)
	return r
}

// Append is Decode into a buffer of the caller's: it appends the object, if there is
// one, to dst. Result.Object is that part of what it returns.
func (d *Decoder) Append(dst, key, value []byte, modRev int64) ([]byte, Result) {
	d.job = job{Decoder: d, key: key, resource: d.o.Mapper.resource(key), rev: modRev, dst: dst}
	j := &d.job
	j.run(value)
	r, start := j.r, len(dst)
	dst = j.dst
	d.job = job{}
	switch {
	case len(r.Object) == 0:
		return dst, r
	case cap(dst) > start && &dst[:start+1][start] == &r.Object[0]:
		dst = dst[:start+len(r.Object)]
	case start == 0:
		return r.Object, r
	default:
		dst = append(dst, r.Object...)
	}
	r.Object = dst[start:]
	return dst, r
}

// DecodeValue decodes a value whose key is not known, such as one piped in: key may
// be nil, but an aesgcm value cannot be opened without it. It also takes the
// newline that etcdctl prints behind a value off where that helps.
func (d *Decoder) DecodeValue(key, value []byte) Result {
	r := d.Decode(key, value, 0)
	if r.Err == nil || errors.Is(r.Err, ErrUnknownKind) {
		return r
	}
	for _, end := range []string{"\n", "\r\n"} {
		if cut, ok := bytes.CutSuffix(value, []byte(end)); ok {
			if again := d.Decode(key, cut, 0); again.Err == nil || errors.Is(again.Err, ErrCRLF) && !errors.Is(r.Err, ErrCRLF) || errors.Is(again.Err, ErrUnknownKind) {
				return again
			}
		}
	}
	return r
}

// job is the decoding of one value.
type job struct {
	*Decoder
	key      []byte
	resource *Resource // nil: the key tells nothing
	rev      int64
	dst      []byte // where the object is to be appended
	r        Result
	secret   bool // values must not be shown
}

func (j *job) run(value []byte) {
	plain := value
	if seal.IsSealed(value) {
		var h seal.Header
		var err error
		plain, h, err = seal.Open(j.o.Encryption, j.o.KMS, j.group(), j.key, value)
		j.r.Seal = Seal{Provider: h.Provider, Version: h.Version, KeyName: h.KeyName, Opened: err == nil}
		if j.r.Seal.Provider == "" {
			j.r.Seal.Provider = "unknown"
		}
		if err != nil {
			j.r.Err = err
			return
		}
	}
	j.r.Plain = plain
	j.r.Encoding = DetectEncoding(plain)
	j.secret = j.secretKey()
	switch j.r.Encoding {
	case Protobuf:
		j.protobuf(plain)
		if errors.Is(j.r.Err, ErrDamaged) {
			j.newlines(plain)
		}
	case JSON:
		j.json(plain, false)
	case CBOR:
		j.cbor(plain, false)
	case YAML:
		j.yaml(plain, false)
	default:
		// No Secret looks like this, so at a Secret's key it is a damaged one.
		if j.secret && len(plain) > 0 {
			j.withhold(fmt.Errorf("%w: a Secret should be here, but the value is neither protobuf nor JSON, CBOR or YAML", ErrDamaged))
		}
	}
}

// secretKey tells whether the value lies where Secrets do, and must not be shown.
func (j *job) secretKey() bool {
	return !j.o.ShowSecrets && j.resource != nil && j.resource.Group == "" && j.resource.Plural == "secrets"
}

// group names the resource as encryption configurations do: "secrets",
// "widgets.example.org".
func (j *job) group() string {
	if j.resource == nil {
		return ""
	}
	return j.resource.String()
}

// withhold drops everything that could show a secret.
func (j *job) withhold(err error) {
	j.r.Plain, j.r.Object, j.r.Unknown, j.r.Redacted = nil, nil, nil, true
	if err != nil {
		j.r.Err = err
	}
}

func (j *job) protobuf(value []byte) {
	e, err := parseEnvelope(value, &j.last)
	j.r.APIVersion, j.r.Kind = e.apiVersion, e.kind
	if !j.o.ShowSecrets {
		// A broken envelope can have lost the kind.
		j.secret = j.secret || isSecretKind(e.apiVersion, e.kind) || err != nil && e.kind == "" && mentionsSecret(value)
	}
	if err != nil {
		j.r.Err = fmt.Errorf("%w: protobuf envelope: %w", ErrDamaged, err)
		if j.secret {
			j.withhold(nil)
			return
		}
		j.setup()
		j.r.Object = j.t.AppendWire(make([]byte, 0, len(value)*2), value[len(magic):])
		return
	}
	raw := e.raw
	if e.contentEncoding != "" {
		if raw, err = unpack(e); err != nil {
			j.r.Err = err
			if j.secret {
				j.withhold(nil)
			}
			return
		}
	}
	switch e.contentType {
	case "application/json":
		j.json(raw, true)
		return
	case "application/cbor":
		j.cbor(raw, true)
		return
	case "application/yaml":
		j.yaml(raw, true)
		return
	}
	names := j.names(e.apiVersion, e.kind)
	list := isListKind(e.apiVersion, e.kind)
	if list && !j.o.ShowSecrets && names.known == nil {
		// The items of a list of unknown kind may be Secrets.
		j.secret = j.secret || mentionsSecret(raw)
	}
	j.setup()
	head, k := names.head, names.known
	if e.kind == "" && e.apiVersion == "" && j.watchEvent(raw) {
		return
	}
	if k == nil {
		reason := fmt.Sprintf("no Kubernetes from %s to %s has %s %s", minor(j.table.Versions[len(j.table.Versions)-1]), minor(j.table.Versions[0]), e.apiVersion, e.kind)
		if e.kind == "" {
			reason = "the value does not name its kind"
		}
		j.r.Err = fmt.Errorf("%w: %s; shown by its wire fields", ErrUnknownKind, reason)
		j.r.Object = j.dump(raw, head, strings.HasSuffix(e.kind, "List"))
		j.plainSecret()
		return
	}
	start := len(j.dst)
	if j.dst == nil {
		j.dst = make([]byte, 0, len(raw)*2+256)
	}
	obj, err := j.t.Append(j.dst, k.Message, head, raw)
	j.dst = obj[:start] // it may have grown
	if err != nil {
		j.r.Err = fmt.Errorf("%w: %s %s: %w", ErrDamaged, e.apiVersion, e.kind, err)
		j.r.Object = j.dump(raw, head, strings.HasSuffix(e.kind, "List"))
		j.plainSecret()
		return
	}
	if j.secret {
		// Damage can make a value the name of another, or part of the metadata,
		// without making the Secret unreadable.
		if err := transcode.Canonical(k.Message, raw); err != nil {
			j.withhold(fmt.Errorf("%w: %s %s is not as an apiserver writes it (%w); it is withheld because a secret value may lie in the wrong place", ErrDamaged, e.apiVersion, e.kind, err))
			return
		}
	}
	// Of an object that is neither a Secret nor a list, the redaction below changes
	// nothing but the annotations.
	suspect := obj
	if from, to, ok := j.t.Annotations(); ok {
		suspect = obj[from:to]
	}
	obj = obj[start:]
	if j.secret || !j.o.ShowSecrets && (list || mayHoldSecret(suspect)) {
		var hit bool
		obj, hit = j.o.Redactor.object(obj, j.secret)
		j.secret = j.secret || hit
	}
	j.r.Object = obj
	j.unknown()
	j.plainSecret()
}

// watchEvent reads the one message that Kubernetes writes without its kind. It is
// never stored, but a value piped in may be one. The object in it may be a Secret.
func (j *job) watchEvent(raw []byte) bool {
	k := j.table.Kind("v1", "WatchEvent")
	obj, err := j.t.Append(nil, k.Message, "", raw)
	if _, n := j.t.Unknown(); err != nil || n > 0 || j.secret {
		return false
	}
	seen := 0
	eachMember(obj, func(name string, _, value []byte) {
		if name == "type" && len(value) > 2 || name == "object" && value[0] == '{' {
			seen++
		}
	})
	if seen != 2 {
		return false
	}
	if !j.o.ShowSecrets {
		obj, j.secret = mapMember(obj, "object", func(inner []byte) ([]byte, bool) { return j.o.Redactor.object(inner, false) })
	}
	j.r.APIVersion, j.r.Kind, j.r.Object = k.APIVersion, k.Kind, obj
	j.plainSecret()
	return true
}

// names returns what is known of a kind. It is kept for the next value, which most
// often has the same.
func (d *Decoder) names(apiVersion, kind string) typeNames {
	if d.last.head == "" || d.last.apiVersion != apiVersion || d.last.kind != kind {
		d.last = typeNames{apiVersion, kind, head(apiVersion, kind), d.table.Kind(apiVersion, kind)}
	}
	return d.last
}

// head is the beginning of an object, in Kubernetes' order.
func head(apiVersion, kind string) string {
	var b []byte
	if kind != "" {
		b = transcode.AppendString(append(b, `"kind":`...), kind)
	}
	if apiVersion != "" {
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = transcode.AppendString(append(b, `"apiVersion":`...), apiVersion)
	}
	return string(b)
}

// minor cuts "v0.37.2" to "1.37", the version of Kubernetes it belongs to.
func minor(api string) string {
	_, rest, _ := strings.Cut(api, ".")
	n, _, _ := strings.Cut(rest, ".")
	return "1." + n
}

// setup readies the transcoder for this value.
func (j *job) setup() {
	j.t.ResourceVersion = ""
	if j.o.SetResourceVersion && j.rev > 0 {
		j.t.ResourceVersion = strconv.FormatInt(j.rev, 10)
	}
	j.t.HideUnknown = nil
	if j.secret {
		j.t.HideUnknown = j.o.Redactor.Marker
	}
}

// dump shows a message by its wire fields.
func (j *job) dump(raw []byte, head string, list bool) []byte {
	j.setup()
	return j.t.AppendDump(make([]byte, 0, len(raw)*2+256), head, raw, list)
}

// unknown adds the fields the table does not know.
func (j *job) unknown() {
	fields, n := j.t.Unknown()
	j.r.UnknownFields = n
	if n == 0 {
		return
	}
	b := []byte{'['}
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		if f.Path != "" {
			b = append(transcode.AppendString(append(b, `"path":`...), f.Path), ',')
		}
		b = strconv.AppendUint(append(b, `"field":`...), uint64(f.Number), 10)
		if f.Name != "" {
			b = transcode.AppendString(append(b, `,"name":`...), f.Name)
			b = transcode.AppendString(append(b, `,"last":`...), minor(f.Last))
		}
		b = append(append(append(b, `,"value":`...), f.Value...), '}')
	}
	b = append(b, ']')
	j.r.Unknown = b
	if !j.o.SeparateUnknown {
		obj := j.r.Object[:len(j.r.Object)-1]
		if len(obj) > 1 {
			obj = append(obj, ',')
		}
		obj = append(obj, `"`+UnknownFieldsMember+`":`...)
		j.r.Object = append(append(obj, b...), '}')
	}
}

// plainSecret withholds the stored bytes of a Secret, whose Object is safe.
func (j *job) plainSecret() {
	if j.secret {
		j.r.Plain, j.r.Redacted = nil, true
	}
}

// json takes an object stored as JSON; every digit of its numbers is kept.
func (j *job) json(value []byte, enveloped bool) {
	var compact bytes.Buffer
	compact.Grow(len(value))
	if err := json.Compact(&compact, value); err != nil {
		what := fmt.Errorf("%w: JSON: %w", ErrDamaged, err)
		if (j.secret || mentionsSecret(value)) && !j.o.ShowSecrets {
			j.withhold(what)
			return
		}
		j.r.Err = what
		return
	}
	obj := compact.Bytes()
	if utf8.Valid(obj) {
		j.object(obj, enveloped)
		return
	}
	j.object(bytes.ToValidUTF8(obj, []byte("\ufffd")), enveloped)
	if j.r.Err == nil {
		j.r.Err = fmt.Errorf("%w: JSON with bytes that are no UTF-8, shown as U+FFFD", ErrDamaged)
	}
}

// cbor takes an object stored as CBOR.
func (j *job) cbor(value []byte, enveloped bool) { j.converted("CBOR", value, cbor.ToJSON, enveloped) }

// yaml takes an object stored as YAML.
func (j *job) yaml(value []byte, enveloped bool) { j.converted("YAML", value, yaml.ToJSON, enveloped) }

// converted takes an object written in a form that becomes JSON first.
func (j *job) converted(form string, value []byte, toJSON func([]byte) ([]byte, error), enveloped bool) {
	obj, err := toJSON(value)
	if err == nil {
		j.object(obj, enveloped)
		return
	}
	if !j.o.ShowSecrets && (j.secret || mentionsSecret(value) || isSecretKind(j.r.APIVersion, j.r.Kind)) {
		// The reason may quote the value.
		j.withhold(fmt.Errorf("%w: %s that cannot be read", ErrDamaged, form))
		return
	}
	j.r.Err = fmt.Errorf("%w: %s: %w", ErrDamaged, form, err)
}

// object takes an object as one line of JSON.
func (j *job) object(obj []byte, enveloped bool) {
	if len(obj) == 0 || obj[0] != '{' {
		j.r.Err = fmt.Errorf("%w: what is stored is no object", ErrDamaged)
		if j.secret {
			j.withhold(nil)
		}
		return
	}
	apiVersion, kind := typeMeta(obj)
	if !enveloped || kind != "" {
		j.r.APIVersion, j.r.Kind = apiVersion, kind
	}
	if !j.o.ShowSecrets {
		var hit bool
		obj, hit = j.o.Redactor.object(obj, j.secret || isSecretKind(j.r.APIVersion, j.r.Kind))
		j.secret = j.secret || hit
	}
	if j.o.SetResourceVersion && j.rev > 0 {
		obj = setResourceVersion(obj, strconv.FormatInt(j.rev, 10))
	}
	j.r.Object = obj
	j.plainSecret()
}

// mentionsSecret is the last resort for values too damaged to tell their kind.
func mentionsSecret(value []byte) bool { return bytes.Contains(value, []byte("Secret")) }

// unpack undoes the content encoding of an envelope.
func unpack(e envelope) ([]byte, error) {
	if e.contentEncoding != "gzip" {
		return nil, fmt.Errorf("%w: envelope with unknown content encoding %q", ErrDamaged, e.contentEncoding)
	}
	z, err := gzip.NewReader(bytes.NewReader(e.raw))
	if err != nil {
		return nil, fmt.Errorf("%w: gzip in the envelope: %w", ErrDamaged, err)
	}
	b, err := io.ReadAll(io.LimitReader(z, maxGunzip+1))
	if err != nil {
		return nil, fmt.Errorf("%w: gzip in the envelope: %w", ErrDamaged, err)
	}
	if len(b) > maxGunzip {
		return nil, fmt.Errorf("%w: gzip in the envelope unfolds to more than %d bytes", ErrDamaged, maxGunzip)
	}
	return b, nil
}

// newlines looks whether a terminal damaged the value, and reads it as it was.
func (j *job) newlines(value []byte) {
	if repaired, ok := withoutCR(value); ok {
		again := job{Decoder: j.Decoder, key: j.key, resource: j.resource, rev: j.rev, r: Result{Encoding: Protobuf, Seal: j.r.Seal, Plain: repaired}, secret: j.secretKey()}
		again.protobuf(repaired)
		if again.r.Err == nil || errors.Is(again.r.Err, ErrUnknownKind) {
			plain := j.r.Plain
			j.r = again.r
			if j.r.Plain != nil {
				j.r.Plain = plain
			}
			j.r.Err = fmt.Errorf("%w: every newline byte was turned into carriage return and newline; without the carriage returns the value decodes, and is shown so", ErrCRLF)
			return
		}
	}
	if lostCR(value) {
		j.r.Err = fmt.Errorf("%w, or cut: %d bytes are missing, as if carriage returns before newlines had been dropped: %w", ErrCRLF, missing(value), j.r.Err)
	}
}
