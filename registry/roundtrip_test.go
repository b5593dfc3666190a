package registry

import (
	"bytes"
	"context"
	"crypto/aes"
	"encoding/json"
	"fmt"
	"math/big"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubecbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	secretboxtransformer "k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/registry/seal"
)

// storage is one of the forms an apiserver writes.
type storage struct {
	encoding Encoding
	encoder  runtime.Encoder
}

func storages() []storage {
	return []storage{
		{Protobuf, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)},
		{JSON, kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, kubejson.SerializerOptions{})},
		{YAML, kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, kubejson.SerializerOptions{Yaml: true})},
		{CBOR, kubecbor.NewSerializer(scheme.Scheme, scheme.Scheme)},
	}
}

// objects are the golden files of the newest k8s.io/api and the corpus.
func objects(t *testing.T) map[string][]byte {
	t.Helper()
	dir, err := goldenDir()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "HEAD", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		out[filepath.Base(f)] = read(t, f)
	}
	c, err := LoadEncryptionConfig(corpus.EncryptionConfig())
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(Options{Encryption: c, ShowSecrets: true, SeparateUnknown: true})
	for key, s := range live(t, corpus.Snapshot(t)) {
		if r := d.Decode([]byte(key), s.value, 0); r.Object != nil && r.Kind != "" {
			out[key] = r.Object
		}
	}
	return out
}

// meaning is a document without the order of its members; numbers by their exact
// value, since YAML writes 1e+06.
func meaning(t *testing.T, doc []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%.200q: %v", doc, err)
	}
	return exact(t, v)
}

func exact(t *testing.T, v any) any {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			t.Fatalf("no number: %s", v)
		}
		return r.RatString()
	case map[string]any:
		for k := range v {
			v[k] = exact(t, v[k])
		}
	case []any:
		for i := range v {
			v[i] = exact(t, v[i])
		}
	}
	return v
}

// TestRoundTrip: what Kubernetes' serializers write in each form, and its
// transformers seal, comes back as its JSON serializer would print it.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	sealers, config := sealers(t)
	d := NewDecoder(Options{ShowSecrets: true, Encryption: config})
	universal := scheme.Codecs.UniversalDeserializer()
	n, sealed := map[Encoding]int{}, 0
	for name, doc := range objects(t) {
		obj, _, err := universal.Decode(doc, nil, nil)
		typed := err == nil
		if !typed {
			u := new(unstructured.Unstructured)
			if err := u.UnmarshalJSON(doc); err != nil {
				continue // an object without a kind
			}
			obj = u
		}
		want, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range storages() {
			if s.encoding == Protobuf && !typed {
				continue
			}
			var b bytes.Buffer
			if err := s.encoder.Encode(obj, &b); err != nil {
				continue // a type without protobuf
			}
			key := []byte("/registry/things/a/n")
			r := d.Decode(key, b.Bytes(), 0)
			if r.Err != nil || r.Encoding != s.encoding || !reflect.DeepEqual(meaning(t, r.Object), meaning(t, want)) {
				t.Errorf("%s as %s: %s, %v\n%.300s\nwant %.300s", name, s.encoding, r.Encoding, r.Err, r.Object, want)
				continue
			}
			n[s.encoding]++
			// Sealing does not depend on the form: one provider for each will do.
			for _, provider := range []string{seal.AESCBC, seal.AESGCM, seal.Secretbox}[i%3 : i%3+1] {
				box, err := sealers[provider].TransformToStorage(context.Background(), b.Bytes(), value.DefaultContext(key))
				if err != nil {
					t.Fatal(err)
				}
				again := d.Decode(key, append([]byte("k8s:enc:"+provider+":v1:k:"), box...), 0)
				if again.Err != nil || again.Encoding != s.encoding || !again.Seal.Opened || !bytes.Equal(again.Object, r.Object) {
					t.Errorf("%s as %s, sealed with %s: %v", name, s.encoding, provider, again.Err)
				}
				sealed++
			}
		}
	}
	t.Logf("%v, %d sealed", n, sealed)
	if n[Protobuf] < 700 || n[JSON] < 740 || n[YAML] < 740 || n[CBOR] < 740 {
		t.Errorf("only %v compared", n)
	}
}

// sealers are the apiserver's transformers, and the configuration that opens what
// they seal.
func sealers(t *testing.T) (map[string]value.Transformer, *EncryptionConfig) {
	t.Helper()
	key := []byte("0123456789abcdef0123456789abcdef")
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := aestransformer.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: ['*.*']\n  providers:\n")
	for _, p := range []string{seal.AESCBC, seal.AESGCM, seal.Secretbox} {
		fmt.Fprintf(&text, "  - %s: {keys: [{name: k, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}\n", p)
	}
	c, err := ParseEncryptionConfig([]byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]value.Transformer{
		seal.AESCBC: aestransformer.NewCBCTransformer(block), seal.AESGCM: gcm, seal.Secretbox: secretboxtransformer.NewSecretboxTransformer([32]byte(key)),
	}, c
}
