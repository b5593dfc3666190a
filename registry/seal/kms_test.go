package seal

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
)

// keys answers with what it has for a ciphertext.
type keys map[string][]byte

func (k keys) Unwrap(_ Header, w WrappedKey) ([]byte, error) {
	if v, ok := k[string(w.Ciphertext)]; ok {
		return v, nil
	}
	return nil, ErrPlugin
}

// asAPIServer reads an envelope with the apiserver's message and checks.
func asAPIServer(b []byte) (*kmstypes.EncryptedObject, error) {
	o := new(kmstypes.EncryptedObject)
	if err := proto.Unmarshal(b, o); err != nil {
		return nil, err
	}
	return o, kmsv2.ValidateEncryptedObject(o)
}

func compareEnvelope(t *testing.T, b []byte) {
	t.Helper()
	want, wantErr := asAPIServer(b)
	got, err := parseObject(b)
	if wantErr != nil {
		return // names of annotations are checked there; a plugin knows what it wrote
	}
	if err != nil {
		t.Fatalf("%x: %v, but the apiserver takes it", b, err)
	}
	same := bytes.Equal(got.data, want.EncryptedData) && got.key.KeyID == want.KeyID && bytes.Equal(got.key.Ciphertext, want.EncryptedDEKSource) &&
		got.seed == (want.EncryptedDEKSourceType == 1) && len(got.key.Annotations) == len(want.Annotations)
	for k, v := range want.Annotations {
		same = same && bytes.Equal(got.key.Annotations[k], v)
	}
	if !same {
		t.Errorf("%x: %+v, want %v", b, got, want)
	}
}

func envelopes(t testing.TB) (out [][]byte) {
	t.Helper()
	for _, o := range []*kmstypes.EncryptedObject{
		{EncryptedData: []byte("data"), KeyID: "id", EncryptedDEKSource: []byte("key")},
		{EncryptedData: []byte("data"), KeyID: "id", EncryptedDEKSource: []byte("key"), EncryptedDEKSourceType: 1, Annotations: map[string][]byte{"a.b.c": []byte("1"), "d.e.f": nil}},
		{EncryptedData: []byte("data"), KeyID: "id", EncryptedDEKSource: []byte("key"), EncryptedDEKSourceType: 2},
		{KeyID: "id", EncryptedDEKSource: []byte("key")},
		{EncryptedData: []byte("data"), EncryptedDEKSource: []byte("key")},
		{EncryptedData: []byte("data"), KeyID: strings.Repeat("i", 1025), EncryptedDEKSource: []byte("key")},
		{EncryptedData: []byte("data"), KeyID: "id", EncryptedDEKSource: bytes.Repeat([]byte("k"), 1025)},
		{EncryptedData: []byte("data"), KeyID: "id", EncryptedDEKSource: []byte("key"), Annotations: map[string][]byte{"a.b.c": make([]byte, 33<<10)}},
	} {
		b, err := proto.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func TestParseObject(t *testing.T) {
	t.Parallel()
	for i, b := range envelopes(t) {
		_, wantErr := asAPIServer(b)
		if _, err := parseObject(b); (err == nil) != (wantErr == nil) || (err == nil) != (i < 2) {
			t.Errorf("%d: %v; the apiserver: %v", i, err, wantErr)
		}
		compareEnvelope(t, b)
		for n := range b {
			compareEnvelope(t, b[:n])
		}
	}
	if _, err := parseObject(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)); err == nil || !strings.Contains(err.Error(), "no data") {
		t.Errorf("a number for the data: %v", err)
	}
}

// TestHostileEnvelopes: damaged envelopes and plugins that give nonsense are
// errors.
func TestHostileEnvelopes(t *testing.T) {
	t.Parallel()
	object := func(seed bool, data, wrapped string) string {
		o := &kmstypes.EncryptedObject{EncryptedData: []byte(data), KeyID: "id", EncryptedDEKSource: []byte(wrapped)}
		if seed {
			o.EncryptedDEKSourceType = 1
		}
		b, _ := proto.Marshal(o)
		return string(b)
	}
	e := NewEnvelopes(keys{"good": make([]byte, 32), "short": make([]byte, 5), "16": make([]byte, 16)})
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		version, body string
		want          error
	}{
		{"v1", "", errShort}, {"v1", "\x00", errShort}, {"v1", "\x00\x05good", errShort}, {"v1", "\x00\x04good", nil},
		{"v1", "\x00\x04good" + long, ErrWrongKey}, {"v1", "\x00\x05short" + long, ErrPlugin}, {"v1", "\x00\x04none" + long, ErrPlugin},
		{"v2", "", nil}, {"v2", "\x0a\xff", nil}, {"v2", object(false, long, "good"), ErrWrongKey}, {"v2", object(true, long, "good"), ErrWrongKey},
		{"v2", object(true, "short", "good"), ErrWrongKey}, {"v2", object(true, long, "16"), ErrWrongKey}, {"v2", object(false, "s", "good"), nil},
		{"v2", object(false, long, "none"), ErrPlugin},
	} {
		plain, err := e.Open(Header{Provider: KMS, Version: c.version, KeyName: "p"}, []byte(c.body), []byte("k"))
		if err == nil || plain != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s %q: %q, %v", c.version, c.body, plain, err)
		}
	}
}

// TestKeysAreBounded: many keys do not fill the memory.
func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	e := NewEnvelopes(keys{})
	for i := range 3 * maxKeys {
		_, _ = e.unwrap(Header{}, WrappedKey{KeyID: strings.Repeat("k", i%7) + string(rune(i))})
	}
	if len(e.keys) > maxKeys {
		t.Errorf("%d keys kept", len(e.keys))
	}
}

// FuzzEnvelope: what the apiserver takes is taken and read alike, and nothing
// panics.
func FuzzEnvelope(f *testing.F) {
	for _, b := range envelopes(f) {
		if len(b) < 2000 {
			f.Add(b)
		}
	}
	f.Add([]byte("\x00\x04good123456789012345678901234567890"))
	e := NewEnvelopes(keys{"good": make([]byte, 32), "key": make([]byte, 32)})
	f.Fuzz(func(t *testing.T, b []byte) {
		compareEnvelope(t, b)
		for _, v := range []string{"v1", "v2"} {
			_, _ = e.Open(Header{Provider: KMS, Version: v}, b, []byte("k"))
		}
	})
}
