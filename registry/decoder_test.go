package registry

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

// pb returns length-delimited field n with value v.
func pb(n uint64, v []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, n<<3|2), uint64(len(v))), v...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// wrapped returns a value in Kubernetes' envelope.
func wrapped(apiVersion, kind string, raw []byte, more ...[]byte) []byte {
	meta := join(pb(1, []byte(apiVersion)), pb(2, []byte(kind)))
	return join(append([][]byte{magic, pb(1, meta), pb(2, raw)}, more...)...)
}

// meta is an ObjectMeta with a name.
func meta(name string) []byte { return pb(1, pb(1, []byte(name))) }

func TestUnknownKind(t *testing.T) {
	t.Parallel()
	raw := join(meta("n"), pb(2, join(pb(1, []byte("text")), []byte{0x10, 7})))
	r := NewDecoder(Options{SetResourceVersion: true}).Decode([]byte("/registry/example.org/things/n"), wrapped("example.org/v1", "Thing", raw), 9)
	want := `{"kind":"Thing","apiVersion":"example.org/v1","metadata":{"name":"n","resourceVersion":"9"},"fields":{"2":{"1":"text","2":7}}}`
	if string(r.Object) != want || !errors.Is(r.Err, ErrUnknownKind) || r.Kind != "Thing" || r.Encoding != Protobuf || r.Plain == nil {
		t.Errorf("%s, %v\nwant %s", r.Object, r.Err, want)
	}
}

// TestDamagedKnownKind: a Pod that does not decode is shown by its wire fields, with
// the place of the damage.
func TestDamagedKnownKind(t *testing.T) {
	t.Parallel()
	raw := join(meta("n"), pb(2, pb(2, []byte{0x0a, 0x7f})))
	r := NewDecoder(Options{}).Decode([]byte("/registry/pods/a/n"), wrapped("v1", "Pod", raw), 0)
	if !errors.Is(r.Err, ErrDamaged) || !strings.Contains(r.Err.Error(), "spec.containers[0]") || !bytes.HasPrefix(r.Object, []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n"},"fields":{"2":`)) {
		t.Errorf("%s, %v", r.Object, r.Err)
	}
}

func TestUnknownFieldsAreKept(t *testing.T) {
	t.Parallel()
	value := wrapped("v1", "ConfigMap", join(meta("n"), pb(99, []byte("new"))))
	r := NewDecoder(Options{}).Decode([]byte("/registry/configmaps/a/n"), value, 0)
	want := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n"},"unknownFields":[{"field":99,"value":"new"}]}`
	if string(r.Object) != want || r.UnknownFields != 1 || r.Err != nil {
		t.Errorf("%s, %d, %v\nwant %s", r.Object, r.UnknownFields, r.Err, want)
	}
	r = NewDecoder(Options{SeparateUnknown: true}).Decode([]byte("/registry/configmaps/a/n"), value, 0)
	if string(r.Object) != `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n"}}` || string(r.Unknown) != `[{"field":99,"value":"new"}]` {
		t.Errorf("%s, %s", r.Object, r.Unknown)
	}
}

// TestJSONKeepsEveryDigit: stored JSON comes back as it is but for white space.
func TestJSONKeepsEveryDigit(t *testing.T) {
	t.Parallel()
	value := " {\"kind\": \"Widget\",\n\"apiVersion\":\"x.y/v1\",\"spec\":{\"big\":12345678901234567890.0000000000000000001e+2,\"html\":\"<&>\",\"z\":-0},\"a\":1}\n"
	want := `{"kind":"Widget","apiVersion":"x.y/v1","spec":{"big":12345678901234567890.0000000000000000001e+2,"html":"<&>","z":-0},"a":1}`
	r := NewDecoder(Options{}).Decode([]byte("/registry/x.y/widgets/n"), []byte(value), 5)
	if string(r.Object) != want || r.Err != nil || r.Kind != "Widget" || r.APIVersion != "x.y/v1" || r.Encoding != JSON || string(r.Plain) != value {
		t.Errorf("%s, %v\nwant %s", r.Object, r.Err, want)
	}
}

func TestResourceVersionInJSON(t *testing.T) {
	t.Parallel()
	d := NewDecoder(Options{SetResourceVersion: true})
	for _, c := range []struct{ value, want string }{
		{`{"metadata":{"creationTimestamp":"t","name":"n","uid":"u"}}`, `{"metadata":{"creationTimestamp":"t","name":"n","resourceVersion":"7","uid":"u"}}`},
		{`{"metadata":{"name":"n","uid":"u","creationTimestamp":null}}`, `{"metadata":{"name":"n","uid":"u","resourceVersion":"7","creationTimestamp":null}}`},
		{`{"metadata":{"name":"n","resourceVersion":"3"}}`, `{"metadata":{"name":"n","resourceVersion":"7"}}`},
		{`{"metadata":{}}`, `{"metadata":{"resourceVersion":"7"}}`},
		{`{"metadata":null,"a":[]}`, `{"metadata":null,"a":[]}`},
		{`{"a":{"metadata":{}}}`, `{"a":{"metadata":{}}}`},
		{`{}`, `{}`},
	} {
		if r := d.Decode(nil, []byte(c.value), 7); string(r.Object) != c.want || r.Err != nil {
			t.Errorf("%s: %s, %v; want %s", c.value, r.Object, r.Err, c.want)
		}
	}
}

func TestOddValues(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(meta("n"))
	_ = z.Close()
	var bomb bytes.Buffer
	z, _ = gzip.NewWriterLevel(&bomb, gzip.BestCompression)
	for range maxGunzip>>20 + 2 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	for _, c := range []struct {
		name, value string
		encoding    Encoding
		object      string // "": none
		err         error
	}{
		{"a number", "1590", Text, "", nil},
		{"empty", "", Text, "", nil},
		{"a list", "[1]", Text, "", nil},
		{"bytes", "\x00\x01\xff", Binary, "", nil},
		{"cut CBOR", "\xd9\xd9\xf7\xa1", CBOR, "", ErrDamaged},
		{"CBOR", "\xd9\xd9\xf7\xa2\x41n\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x41b\xd6\x42hi", CBOR, `{"b":"aGk=","n":9223372036854775807}`, nil},
		{"CBOR that is no object", "\xd9\xd9\xf7\x01", CBOR, "", ErrDamaged},
		{"CBOR in an envelope", string(wrapped("v1", "Pod", []byte("\xa1\x41n\x01"), pb(4, []byte("application/cbor")))), Protobuf, `{"n":1}`, nil},
		{"YAML", "kind: W\napiVersion: a.b/v1\nspec: {m: 1.50, big: 12345678901234567890123, yes: on, \"q\": '1'}\n", YAML, `{"kind":"W","apiVersion":"a.b/v1","spec":{"m":1.50,"big":12345678901234567890123,"true":true,"q":"1"}}`, nil},
		{"YAML in an envelope", string(wrapped("v1", "Pod", []byte("m: 0x10"), pb(4, []byte("application/yaml")))), Protobuf, `{"m":16}`, nil},
		{"two YAML documents", "kind: W\napiVersion: v1\n---\na: 1\n", YAML, "", ErrDamaged},
		{"broken YAML", "kind: W\napiVersion: v1\na: [\n", YAML, "", ErrDamaged},
		{"text with a kind", "kind: of magic\n", Text, "", nil},
		{"cut JSON", `{"a":`, JSON, "", ErrDamaged},
		{"JSON with more behind it", `{"a":1} x`, JSON, "", ErrDamaged},
		{"JSON that is no UTF-8", "{\"a\":\"\xff\"}", JSON, "{\"a\":\"\ufffd\"}", ErrDamaged},
		{"the magic alone", "k8s\x00", Protobuf, `{"fields":{}}`, ErrUnknownKind},
		{"a broken envelope", "k8s\x00\x12\x7fabc", Protobuf, `{"fields":{},"undecoded":"En9hYmM=","problem":"byte 0: the data ends too early"}`, ErrDamaged},
		{"JSON in an envelope", string(wrapped("v1", "Pod", []byte(`{"kind":"Pod", "apiVersion":"v1","n":1.50}`), pb(4, []byte("application/json")))), Protobuf, `{"kind":"Pod","apiVersion":"v1","n":1.50}`, nil},
		{"gzip in an envelope", string(wrapped("v1", "ConfigMap", packed.Bytes(), pb(3, []byte("gzip")))), Protobuf, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n"}}`, nil},
		{"a gzip bomb", string(wrapped("v1", "ConfigMap", bomb.Bytes(), pb(3, []byte("gzip")))), Protobuf, "", ErrDamaged},
		{"another content encoding", string(wrapped("v1", "ConfigMap", nil, pb(3, []byte("zip")))), Protobuf, "", ErrDamaged},
	} {
		r := NewDecoder(Options{}).Decode([]byte("/registry/odd"), []byte(c.value), 0)
		if r.Encoding != c.encoding || string(r.Object) != c.object || !errors.Is(r.Err, c.err) || (r.Err == nil) != (c.err == nil) || string(r.Plain) != c.value {
			t.Errorf("%s: %s %s, %v", c.name, r.Encoding, r.Object, r.Err)
		}
	}
}

// TestCRLF: a terminal put carriage returns before newlines, or took them away.
func TestCRLF(t *testing.T) {
	t.Parallel()
	d := NewDecoder(Options{})
	n := 0
	for key, s := range live(t, corpus.Snapshot(t)) {
		// Only what has newlines and no \r\n of its own can be brought back whole.
		if !bytes.HasPrefix(s.value, magic) || !bytes.Contains(s.value, []byte("\n")) || bytes.Contains(s.value, []byte("\r\n")) {
			continue
		}
		n++
		good := d.Decode([]byte(key), s.value, 0)
		bad := bytes.ReplaceAll(s.value, []byte("\n"), []byte("\r\n"))
		if r := d.Decode([]byte(key), bad, 0); !errors.Is(r.Err, ErrCRLF) || !strings.Contains(r.Err.Error(), "decodes") || !bytes.Equal(r.Object, good.Object) {
			t.Errorf("%s: %v", key, r.Err)
		}
		// What `etcdctl get --print-value-only` prints on a terminal.
		if r := d.DecodeValue(nil, append(bad, "\r\n"...)); !errors.Is(r.Err, ErrCRLF) || r.Object == nil {
			t.Errorf("%s, printed: %v", key, r.Err)
		}
		if r := d.DecodeValue(nil, append(bytes.Clone(s.value), '\n')); r.Err != nil || !bytes.Equal(r.Object, good.Object) {
			t.Errorf("%s with a newline behind it: %v", key, r.Err)
		}
	}
	if n < 400 {
		t.Errorf("only %d values tried", n)
	}
	lost := wrapped("v1", "ConfigMap", join(meta("n"), pb(2, join(pb(1, []byte("k")), pb(2, []byte("a\r\nb"))))))
	r := d.Decode(nil, bytes.ReplaceAll(lost, []byte("\r\n"), []byte("\n")), 0)
	if !errors.Is(r.Err, ErrCRLF) || !errors.Is(r.Err, ErrDamaged) || !strings.Contains(r.Err.Error(), "1 bytes are missing") {
		t.Errorf("lost carriage return: %v", r.Err)
	}
	if r := d.Decode(nil, lost, 0); r.Err != nil {
		t.Errorf("a value with \\r\\n of its own: %v", r.Err)
	}
}

const hidden = "hunter2-hunter2" // the value that must not be shown

// TestSecretsDoNotLeak: whatever is wrong with a Secret and wherever it lies, its
// values are in no part of the Result.
func TestSecretsDoNotLeak(t *testing.T) {
	t.Parallel()
	secretKey, otherKey := "/registry/secrets/a/n", "/registry/pods/a/n"
	data := pb(2, join(pb(1, []byte("password")), pb(2, []byte(hidden))))
	note := pb(1, join(pb(1, []byte("n")), pb(12, join(pb(1, []byte(lastApplied)), pb(2, []byte(`{"kind":"Secret", "stringData":{"password":"`+hidden+`"}}`))))))
	good := join(note, data)
	secretJSON := `{"kind":"Secret","apiVersion":"v1","metadata":{"annotations":{"` + lastApplied + `":"{\"data\":{\"p\":\"` + hidden + `\"}}","other":"{broken ` + hidden + `"}},"data":{"p":"` + hidden + `"},"D\u0061ta":{"q":"` + hidden + `"},"stringData":{"p":["` + hidden + `"]},"stringdata":"` + hidden + `"}`
	secretYAML := "apiVersion: v1\nkind: Secret\nmetadata: {annotations: {a: 'b'}}\nextra: {deep: [" + hidden + "]}\ndata: {p: " + hidden + "}\n# " + hidden + "\n"
	var tree any
	if err := json.Unmarshal([]byte(secretJSON), &tree); err != nil {
		t.Fatal(err)
	}
	secretCBOR, err := direct.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	secretCBOR = join([]byte("\xd9\xd9\xf7"), secretCBOR)
	copied := func(kind string) string {
		s, _ := json.Marshal(secretJSON)
		return `{"kind":"` + kind + `","apiVersion":"v1","metadata":{"annotations":{"` + lastApplied + `":` + string(s) + `}}}`
	}
	d := NewDecoder(Options{})
	show := NewDecoder(Options{ShowSecrets: true})
	for _, c := range []struct {
		name, key string
		value     []byte
		object    bool // there is something to show
	}{
		{"good", secretKey, wrapped("v1", "Secret", good), true},
		{"under another key", otherKey, wrapped("v1", "Secret", good), true},
		{"without a key", "", wrapped("v1", "Secret", good), true},
		{"in an unknown version", otherKey, wrapped("v2", "Secret", good), true},
		{"with an unknown field", otherKey, wrapped("v1", "Secret", join(good, pb(77, []byte(hidden)))), true},
		{"cut", otherKey, wrapped("v1", "Secret", good[:len(good)-1]), true},
		{"in a broken envelope", otherKey, wrapped("v1", "Secret", good)[:60], false},
		{"in an envelope that lost its kind", "", join(magic, pb(2, join(good, []byte("Secret"))), []byte{0x0a, 0x7f}), false},
		{"of another kind at a Secret's key", secretKey, wrapped("v1", "Pod", good), true},
		{"of no kind", secretKey, join(magic, pb(2, good)), true},
		{"with other content", secretKey, wrapped("v1", "Secret", good, pb(3, []byte("gzip"))), false},
		{"in a list", "", wrapped("v1", "SecretList", pb(2, good)), true},
		{"in a List", "", wrapped("v1", "List", pb(2, pb(1, []byte(secretJSON)))), true},
		{"in a list of unknown kind", "", wrapped("v1", "OddList", join(pb(2, good), pb(3, []byte("Secret")))), true},
		{"in a watch event", "", join(magic, pb(2, join(pb(1, []byte("ADDED")), pb(2, pb(1, []byte(secretJSON)))))), true},
		{"JSON", "", []byte(secretJSON), true},
		{"JSON in an envelope", "", wrapped("v1", "Secret", []byte(secretJSON), pb(4, []byte("application/json"))), true},
		{"JSON of no kind", secretKey, []byte(strings.Replace(secretJSON, `"kind":"Secret",`, "", 1)), true},
		{"cut JSON", "", []byte(secretJSON[:len(secretJSON)-1]), false},
		{"JSON list", "", []byte(`{"kind":"List","apiVersion":"v1","items":[` + secretJSON + `,{"kind":"Pod"}]}`), true},
		{"JSON SecretList", "", []byte(`{"kind":"SecretList","apiVersion":"v1","items":[{"data":{"a":"` + hidden + `"}},"` + hidden + `"]}`), true},
		{"JSON with a field nobody knows", "", []byte(`{"kind":"Secret","apiVersion":"v1","new":{"p":["` + hidden + `"]},"n2":"` + hidden + `","type":{"a":"` + hidden + `"},"immutable":"` + hidden + `"}`), true},
		{"JSON with odd metadata", "", []byte(`{"kind":"Secret","apiVersion":"v1","metadata":"` + hidden + `","Metadata":{"annotations":"` + hidden + `"}}`), true},
		{"JSON with an odd annotation", "", []byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"annotations":{"a":["` + hidden + `"]}}}`), true},
		{"YAML", "", []byte(secretYAML), true},
		{"YAML at a Secret's key", secretKey, []byte(strings.Replace(secretYAML, "kind: Secret", "kind: S", 1)), true},
		{"broken YAML", "", []byte(secretYAML + " : ["), false},
		{"YAML behind another document", otherKey, []byte("kind: P\napiVersion: v1\n---\n" + secretYAML), false},
		{"YAML in an envelope", "", wrapped("v1", "Secret", []byte(secretYAML), pb(4, []byte("application/yaml"))), true},
		{"CBOR", "", secretCBOR, true},
		{"cut CBOR", "", secretCBOR[:len(secretCBOR)-1], false},
		{"CBOR in an envelope", "", wrapped("v1", "Secret", secretCBOR, pb(4, []byte("application/cbor"))), true},
		{"in another object's annotation", otherKey, wrapped("v1", "Pod", note), true},
		{"in another JSON object's annotation", otherKey, []byte(copied("Pod")), true},
		{"in the annotation of a custom resource", "/registry/a.b/ws/n", []byte(strings.Replace(copied("W"), `"v1"`, `"a.b/v1"`, 1)), true},
		{"in the annotation of a list's item", "", []byte(`{"kind":"List","apiVersion":"v1","items":[` + copied("Pod") + `]}`), true},
		{"text at a Secret's key", secretKey, []byte(hidden), false},
		{"bytes at a Secret's key", secretKey, []byte("\x00" + hidden), false},
	} {
		var key []byte
		if c.key != "" {
			key = []byte(c.key)
		}
		r := d.Decode(key, c.value, 0)
		all := join(r.Object, r.Plain, r.Unknown, []byte(r.Kind), []byte(r.APIVersion))
		if r.Err != nil {
			all = append(all, r.Err.Error()...)
		}
		for _, leak := range []string{hidden, "aHVudGVyMi1odW50ZXIy"} {
			if bytes.Contains(all, []byte(leak)) {
				t.Errorf("%s: leaked in %s, %v", c.name, r.Object, r.Err)
			}
		}
		if !r.Redacted || (r.Object != nil) != c.object || r.Object != nil && !json.Valid(r.Object) {
			t.Errorf("%s: redacted %v, %s, %v", c.name, r.Redacted, r.Object, r.Err)
		}
		if s := show.Decode(key, c.value, 0); s.Redacted || !bytes.Equal(s.Plain, c.value) {
			t.Errorf("%s: hidden although asked for", c.name)
		}
	}
}

// TestMutatedSecretsDoNotLeak damages a sealed-off Secret at random.
func TestMutatedSecretsDoNotLeak(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	data := pb(2, join(pb(1, []byte("password")), pb(2, []byte(hidden))))
	var meta []byte // as an apiserver writes it, with all the empty fields
	for n, v := range []string{"n", "", "a", "", "uid", ""} {
		meta = append(meta, pb(uint64(n+1), []byte(v))...)
	}
	meta = append(meta, 0x38, 0, 0x42, 0)
	good := wrapped("v1", "Secret", join(pb(1, meta), data, pb(3, []byte("Opaque"))))
	d := NewDecoder(Options{})
	for range 20000 {
		bad := bytes.Clone(good)
		i := rnd.IntN(len(bad))
		switch rnd.IntN(3) {
		case 0:
			bad[i] = byte(rnd.IntN(256))
		case 1:
			bad = append(bad[:i], bad[i+1:]...)
		case 2:
			bad = append(bad[:i], append([]byte{byte(rnd.IntN(256))}, bad[i:]...)...)
		}
		r := d.Decode([]byte("/registry/secrets/a/n"), bad, 0)
		if all := join(r.Object, r.Plain, r.Unknown); bytes.Contains(all, []byte("hunter2")) || bytes.Contains(all, []byte("aHVudGVy")) {
			t.Fatalf("%q leaked: %s", bad, all)
		}
	}
}

// TestMarkers: equal values look equal within a run and differ between runs, and
// data and stringData compare.
func TestMarkers(t *testing.T) {
	t.Parallel()
	r := NewRedactor()
	a := NewDecoder(Options{Redactor: r}).Decode(nil, []byte(`{"kind":"Secret","apiVersion":"v1","data":{"p":"aGk="},"stringData":{"p":"hi","q":"ho"}}`), 0)
	p, q := r.Marker([]byte("hi")), r.Marker([]byte("ho"))
	want := `{"kind":"Secret","apiVersion":"v1","data":{"p":"` + p + `"},"stringData":{"p":"` + p + `","q":"` + q + `"}}`
	if string(a.Object) != want || p == q || p == NewRedactor().Marker([]byte("hi")) || !strings.HasPrefix(p, "[redacted: 2 bytes, hmac ") {
		t.Errorf("%s\nwant %s", a.Object, want)
	}
}

// TestNotEverySecretIsSecret: only core Secrets are, whatever else has the word in
// its name.
func TestNotEverySecretIsSecret(t *testing.T) {
	t.Parallel()
	d := NewDecoder(Options{})
	for key, value := range map[string]string{
		"/registry/example.org/secrets/n":   `{"kind":"Secret","apiVersion":"example.org/v1","data":{"a":"b"}}`,
		"/registry/configmaps/a/my-secret":  `{"kind":"ConfigMap","apiVersion":"v1","data":{"secrets":"Secret"}}`,
		"/registry/secretstores.x/stores/n": `{"kind":"SecretStore","apiVersion":"secretstores.x/v1","data":{"a":"b"}}`,
	} {
		if r := d.Decode([]byte(key), []byte(value), 0); r.Redacted || string(r.Object) != value || r.Plain == nil {
			t.Errorf("%s: %s", key, r.Object)
		}
	}
}

// FuzzDecode: any value at any key gives a Result that is whole: valid JSON or the
// reason why there is none.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("/registry/pods/a/n"), wrapped("v1", "Pod", meta("n")))
	f.Add([]byte("/registry/secrets/a/n"), []byte(`{"kind":"Secret","apiVersion":"v1","data":{"a":"YQ=="}}`))
	f.Add([]byte("/registry/x.y/z/n"), wrapped("x.y/v1", "Z", meta("n")))
	f.Add([]byte("k"), []byte("k8s:enc:aescbc:v1:k:"+strings.Repeat("x", 48)))
	f.Add([]byte(nil), []byte("k8s\x00\r\n\x04"))
	f.Add([]byte("/registry/x.y/z/n"), []byte("\xd9\xd9\xf7\xa2\x44kind\x41Z\x4aapiVersion\x46x.y/v1"))
	f.Add([]byte("/registry/secrets/a/n"), []byte("\xd9\xd9\xf7\xa1\x44data\xa1\x41a\xd6\x42hi"))
	f.Add([]byte("/registry/x.y/z/n"), []byte("kind: Z\napiVersion: x.y/v1\nmetadata: {name: n}\n"))
	f.Add([]byte("/registry/pods/a/n"), []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"data\":{\"a\":\"YQ==\"}}"}}}`))
	c, err := LoadEncryptionConfig(corpus.EncryptionConfig())
	if err != nil {
		f.Fatal(err)
	}
	d := NewDecoder(Options{Encryption: c, SetResourceVersion: true})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r := d.Decode(key, value, 3)
		if r.Object != nil && (!json.Valid(r.Object) || !utf8.Valid(r.Object) || bytes.ContainsAny(r.Object, "\n")) {
			t.Errorf("not a line of JSON: %q", r.Object)
		}
		if r.Object == nil && r.Err == nil && r.Encoding != Text && r.Encoding != Binary {
			t.Errorf("no object and no reason: %+v", r)
		}
		if r.Unknown != nil && (!json.Valid(r.Unknown) || r.UnknownFields == 0) {
			t.Errorf("unknown fields %s", r.Unknown)
		}
		if isSecretKind(r.APIVersion, r.Kind) && r.Plain != nil {
			t.Error("a Secret's bytes are shown")
		}
	})
}

// TestAppend: an object comes to the caller's buffer whatever way it takes, and is
// what Decode returns.
func TestAppend(t *testing.T) {
	t.Parallel()
	lastApplied := pb(1, join(pb(1, []byte("n")), pb(12, join(pb(1, []byte(lastApplied)), pb(2, []byte(`{"kind":"Secret","data":{"k":"c2VjcmV0"}}`))))))
	values := [][]byte{
		wrapped("v1", "ConfigMap", lastApplied),
		wrapped("v1", "Pod", lastApplied),
		wrapped("v1", "Pod", meta("n")),
		wrapped("v1", "Secret", join(meta("n"), pb(2, join(pb(1, []byte("k")), pb(2, []byte("secret")))))),
		wrapped("v1", "ConfigMap", join(meta("n"), pb(99, []byte("new")))),
		wrapped("v1", "Pod", join(meta("n"), pb(2, pb(2, []byte{0x0a, 0x7f})))),
		wrapped("x.y/v1", "Thing", meta("n")),
		bytes.ReplaceAll(wrapped("v1", "Pod", meta("a\nb")), []byte("\n"), []byte("\r\n")),
		[]byte(`{"kind":"Widget","apiVersion":"x.y/v1"}`), []byte("text"), {0xff}, nil,
	}
	for _, s := range live(t, corpus.Snapshot(t)) {
		values = append(values, s.value)
	}
	o := Options{Redactor: NewRedactor(), SetResourceVersion: true}
	fresh, kept := NewDecoder(o), NewDecoder(o)
	buf := make([]byte, 0, 4096)
	for _, v := range values {
		want := fresh.Decode([]byte("/registry/pods/a/n"), v, 7)
		for _, room := range [][]byte{nil, buf, buf[:0:0], []byte("before"), append(buf, "before"...)} {
			before := string(room)
			dst, got := kept.Append(room, []byte("/registry/pods/a/n"), v, 7)
			if string(dst) != before+string(want.Object) || string(got.Object) != string(want.Object) || (got.Object == nil) != (want.Object == nil) {
				t.Errorf("%q: got %.300q, want %.300q behind %q", v, dst, want.Object, before)
			}
			if got.Redacted != want.Redacted || (got.Err == nil) != (want.Err == nil) || got.Kind != want.Kind || !bytes.Equal(got.Plain, want.Plain) {
				t.Errorf("%q: got %+v, want %+v", v, got, want)
			}
			if bytes.Contains(dst, []byte("c2VjcmV0")) {
				t.Errorf("%q: %s", v, dst)
			}
		}
	}
}
