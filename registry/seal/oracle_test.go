package seal

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	secretboxtransformer "k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
	"k8s.io/klog/v2"
)

// TestMain silences the apiserver's log of every value it cannot open.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// secretOf makes a key of n bytes from a name.
func secretOf(name string, n int) []byte {
	s := sha256.Sum256([]byte(name))
	return s[:n]
}

// transformer is the apiserver's for one provider and its keys.
func transformer(t testing.TB, provider string, keys []Key) value.Transformer {
	t.Helper()
	var inner []value.PrefixTransformer
	for _, k := range keys {
		var tr value.Transformer
		if provider == Secretbox {
			tr = secretboxtransformer.NewSecretboxTransformer([32]byte(k.Secret))
		} else {
			block, err := aes.NewCipher(k.Secret)
			if err != nil {
				t.Fatal(err)
			}
			if tr = aestransformer.NewCBCTransformer(block); provider == AESGCM {
				if tr, err = aestransformer.NewGCMTransformer(block); err != nil {
					t.Fatal(err)
				}
			}
		}
		inner = append(inner, value.PrefixTransformer{Prefix: []byte(k.Name + ":"), Transformer: tr})
	}
	none := errors.New("no matching prefix")
	return value.NewPrefixTransformers(none, value.PrefixTransformer{
		Prefix: []byte("k8s:enc:" + provider + ":v1:"), Transformer: value.NewPrefixTransformers(none, inner...),
	})
}

// apiserverOpen opens a value with the apiserver's transformer, which panics on a
// CBC value that is nothing but an initialisation vector.
func apiserverOpen(tr value.Transformer, key, sealed []byte) (plain []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			plain, err = nil, fmt.Errorf("panic: %v", r)
		}
	}()
	plain, _, err = tr.TransformFromStorage(context.Background(), sealed, value.DefaultContext(key))
	return plain, err
}

// TestOpensWhatTheAPIServerSealed: every provider and key size, key names with
// colons and names that begin other names, values of every length around a block;
// and what is changed afterwards is refused by both or read alike.
func TestOpensWhatTheAPIServerSealed(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	ctx := context.Background()
	names := []string{"key1", "a", "a:b", "a:b:c", "arn:aws:kms:eu-1:key/1", "k-2024.b"}
	for _, provider := range []string{AESCBC, AESGCM, Secretbox} {
		for _, size := range []int{16, 24, 32} {
			if provider == Secretbox && size != 32 {
				continue
			}
			var keys []Key
			for _, n := range names {
				keys = append(keys, Key{n, secretOf(n, size)})
			}
			c := &Config{Rules: []Rule{{Resources: []string{"secrets"}, Providers: []Provider{{Type: Identity}, {Type: provider, Keys: keys}}}}}
			for i, k := range keys {
				write := transformer(t, provider, []Key{k})
				readBack := transformer(t, provider, keys)
				for n := range 40 {
					etcdKey := []byte("/registry/secrets/ns/" + k.Name)
					plain := make([]byte, n)
					for j := range plain {
						plain[j] = byte(rnd.IntN(256))
					}
					sealed, err := write.TransformToStorage(ctx, plain, value.DefaultContext(etcdKey))
					if err != nil {
						t.Fatal(err)
					}
					got, h, err := Open(c, nil, "secrets", etcdKey, sealed)
					if err != nil || !bytes.Equal(got, plain) || h != (Header{provider, "v1", k.Name}) {
						t.Fatalf("%s %d %s: %x, %+v, %v; want %x", provider, size, k.Name, got, h, err, plain)
					}
					if h, ok := ParseHeader(sealed, c); !ok || h.KeyName != k.Name {
						t.Errorf("header %+v, want key %s", h, k.Name)
					}
					for range 4 {
						bad := bytes.Clone(sealed)
						bad[len("k8s:enc:")+rnd.IntN(len(bad)-len("k8s:enc:"))] ^= 1 << rnd.IntN(8)
						if rnd.IntN(3) == 0 {
							bad = bad[:rnd.IntN(len(bad))]
						}
						if !IsSealed(bad) {
							continue
						}
						want, wantErr := apiserverOpen(readBack, etcdKey, bad)
						got, _, err := Open(c, nil, "", etcdKey, bad)
						if provider == AESCBC && len(names[i]) < 6 && wantErr == nil && err == nil && !bytes.Equal(got, want) {
							continue // two names fit, and CBC cannot tell which is right
						}
						if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
							t.Errorf("%s %s damaged to %q: %x, %v; the apiserver: %x, %v", provider, k.Name, bad, got, err, want, wantErr)
						}
					}
				}
			}
		}
	}
}

// TestWrongKey: the error names provider and key, and no rule's resources keep a
// value from being read.
func TestWrongKey(t *testing.T) {
	t.Parallel()
	key := []byte("/registry/secrets/ns/a")
	for _, provider := range []string{AESCBC, AESGCM, Secretbox} {
		right, wrong := Key{"k:1", secretOf("right", 32)}, Key{"k:1", secretOf("wrong", 32)}
		// Of CBC a wrong key is found out by the padding only; this text is long
		// enough for most, so take a value for which it is.
		var sealed []byte
		wrongOnly := &Config{Rules: []Rule{{Resources: []string{"configmaps"}, Providers: []Provider{{Type: provider, Keys: []Key{wrong}}}}}}
		for range 100 {
			var err error
			if sealed, err = transformer(t, provider, []Key{right}).TransformToStorage(context.Background(), []byte("hello"), value.DefaultContext(key)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Open(wrongOnly, nil, "secrets", key, sealed); err != nil {
				break
			}
		}
		_, h, err := Open(wrongOnly, nil, "secrets", key, sealed)
		if !errors.Is(err, ErrWrongKey) || !strings.Contains(err.Error(), provider+" k:1") || h.KeyName != "k:1" {
			t.Errorf("%s: %+v, %v", provider, h, err)
		}
		for _, c := range []*Config{nil, {}, {Rules: []Rule{{Providers: []Provider{{Type: provider, Keys: []Key{{"other", right.Secret}}}}}}}} {
			_, h, err := Open(c, nil, "secrets", key, sealed)
			// The name is a guess here, and the sealed bytes may look like more of it.
			if !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), provider+" k:1") || h.Provider != provider || !strings.HasPrefix(h.KeyName, "k:1") {
				t.Errorf("%s: %+v, %v", provider, h, err)
			}
		}
		// Both keys under one name, in a rule for something else: the right one opens.
		both := &Config{Rules: []Rule{
			{Resources: []string{"secrets"}, Providers: []Provider{{Type: Identity}}},
			{Resources: []string{"*.apps"}, Providers: []Provider{{Type: provider, Keys: []Key{{"k", wrong.Secret}, right}}}},
		}}
		if got, _, err := Open(both, nil, "secrets", key, sealed); err != nil || string(got) != "hello" {
			t.Errorf("%s: %q, %v", provider, got, err)
		}
		// aesgcm is bound to its key in etcd, the others are not.
		_, _, err = Open(both, nil, "secrets", []byte("/registry/secrets/ns/moved"), sealed)
		if (err != nil) != (provider == AESGCM) {
			t.Errorf("%s at another key: %v", provider, err)
		}
		if provider == AESGCM && !strings.Contains(err.Error(), "/registry/secrets/ns/moved") {
			t.Errorf("the error does not name the key: %v", err)
		}
		if _, _, err = Open(both, nil, "", nil, sealed); provider == AESGCM && (err == nil || !strings.Contains(err.Error(), "was not given")) {
			t.Errorf("aesgcm without a key: %v", err)
		}
	}
}

func TestSealedTwice(t *testing.T) {
	t.Parallel()
	k := Key{"k", secretOf("k", 32)}
	key := []byte("/registry/secrets/ns/a")
	tr := transformer(t, Secretbox, []Key{k})
	once, err := tr.TransformToStorage(context.Background(), []byte("hello"), value.DefaultContext(key))
	if err != nil {
		t.Fatal(err)
	}
	twice, err := tr.TransformToStorage(context.Background(), once, value.DefaultContext(key))
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{Rules: []Rule{{Providers: []Provider{{Type: Secretbox, Keys: []Key{k}}}}}}
	if plain, _, err := Open(c, nil, "", key, twice); !errors.Is(err, ErrTwice) || plain != nil {
		t.Errorf("%q, %v", plain, err)
	}
}

// plugin is a KMS plugin that remembers what it was asked.
type plugin struct {
	header    Header
	body, key []byte
}

func (p *plugin) Open(h Header, body, key []byte) ([]byte, error) {
	p.header, p.body, p.key = h, body, key
	return []byte("opened"), nil
}

func TestKMS(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		sealed := []byte("k8s:enc:kms:" + version + ":vault:\x00\x10body:more")
		key := []byte("/registry/secrets/ns/a")
		_, h, err := Open(nil, nil, "secrets", key, sealed)
		if want := (Header{KMS, version, "vault"}); h != want || !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), `KMS plugin "vault"`) {
			t.Errorf("%+v, %v", h, err)
		}
		var p plugin
		got, h, err := Open(nil, &p, "secrets", key, sealed)
		if err != nil || string(got) != "opened" || p.header != h || string(p.body) != "\x00\x10body:more" || string(p.key) != string(key) {
			t.Errorf("%q, %+v, %v; the plugin saw %+v", got, h, err, p)
		}
		c := &Config{Rules: []Rule{{Providers: []Provider{{Type: KMS, KMS: &KMSConfig{APIVersion: version, Name: "vault"}}}}}}
		if _, h, err := Open(c, nil, "", key, sealed); !errors.Is(err, ErrNoKey) || h.KeyName != "vault" {
			t.Errorf("%+v, %v", h, err)
		}
	}
}

// TestHeaderGuess: key names without a configuration.
func TestHeaderGuess(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("\xf0\xf1\xf2\xf3", 16)
	for _, c := range []struct {
		value string
		want  Header
	}{
		{"k8s:enc:aescbc:v1:key1:" + body, Header{AESCBC, "v1", "key1"}},
		{"k8s:enc:aesgcm:v1:a:b:c:" + body, Header{AESGCM, "v1", "a:b:c"}},
		{"k8s:enc:secretbox:v1:x:ab" + body, Header{Secretbox, "v1", "x"}},
		{"k8s:enc:aescbc:v1:key1:short", Header{AESCBC, "v1", ""}},
		{"k8s:enc:new:v3:key:" + body, Header{"new", "v3", "key"}},
		{"k8s:enc:aescbc:v1:", Header{AESCBC, "v1", ""}},
		{"k8s:enc:aescbc", Header{}},
		{"k8s:enc:\x00\x01:v1:k:" + body, Header{}},
	} {
		if h, ok := ParseHeader([]byte(c.value), nil); !ok || h != c.want {
			t.Errorf("%q: %+v, want %+v", c.value, h, c.want)
		}
		if _, _, err := Open(nil, nil, "", nil, []byte(c.value)); !errors.Is(err, ErrNoKey) {
			t.Errorf("%q: %v", c.value, err)
		}
	}
	if _, ok := ParseHeader([]byte("k8s\x00"), nil); ok {
		t.Error("a plain value has a header")
	}
}

// FuzzOpen: no header makes it panic, and what opens is what the apiserver opens.
func FuzzOpen(f *testing.F) {
	keys := []Key{{"a", secretOf("a", 32)}, {"a:b", secretOf("b", 32)}}
	c := &Config{Rules: []Rule{{Resources: []string{"secrets"}, Providers: []Provider{
		{Type: AESCBC, Keys: keys}, {Type: AESGCM, Keys: keys}, {Type: Secretbox, Keys: keys}, {Type: KMS, KMS: &KMSConfig{APIVersion: "v2", Name: "a"}},
	}}}}
	key := []byte("/registry/secrets/a/b")
	for _, p := range []string{AESCBC, AESGCM, Secretbox} {
		for _, k := range keys {
			sealed, err := transformer(f, p, []Key{k}).TransformToStorage(context.Background(), []byte("hello"), value.DefaultContext(key))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(sealed)
		}
	}
	f.Add([]byte("k8s:enc:kms:v2:a:body"))
	f.Add([]byte("k8s:enc:aescbc:v1:a:"))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		h, ok := ParseHeader(sealed, c)
		got, h2, err := Open(c, nil, "", key, sealed)
		if ok != IsSealed(sealed) || ok && h.Provider != h2.Provider {
			t.Errorf("%+v and %+v", h, h2)
		}
		if ok && err == nil && (h2.Provider == AESGCM || h2.Provider == Secretbox) {
			want, wantErr := apiserverOpen(transformer(t, h2.Provider, keys), key, sealed)
			if wantErr != nil || !bytes.Equal(got, want) {
				t.Errorf("%q, but the apiserver: %q, %v", got, want, wantErr)
			}
		}
	})
}

// strict is the apiserver's reader of configurations.
var strict = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiserver.AddToScheme, apiserverv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(s, serializer.EnableStrict)
}()

// apiserverParse reads a configuration as the apiserver does.
func apiserverParse(b []byte) (*apiserver.EncryptionConfiguration, error) {
	o, _, err := strict.UniversalDecoder().Decode(b, nil, nil)
	if err != nil {
		return nil, err
	}
	c, ok := o.(*apiserver.EncryptionConfiguration)
	if !ok {
		return nil, errors.New("another kind")
	}
	return c, validation.ValidateEncryptionConfiguration(c, false).ToAggregate()
}
