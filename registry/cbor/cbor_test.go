package cbor

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// kubernetes decodes as the apiserver does; what it has no JSON for is an error.
func kubernetes(src []byte) (out []byte, err error) {
	var v any
	if err := direct.Unmarshal(src, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func compare(t *testing.T, src []byte) {
	t.Helper()
	got, err := ToJSON(src)
	want, wantErr := kubernetes(src)
	if (err == nil) != (wantErr == nil) || !bytes.Equal(got, want) {
		t.Errorf("%x: %s, %v; Kubernetes: %s, %v", src, got, err, want, wantErr)
	}
	if err == nil && !json.Valid(got) {
		t.Errorf("%x: no JSON: %q", src, got)
	}
}

var seeds = []string{
	"d9d9f7a0", "a0", "f6", "f7", "f4", "f5", "e0", "f8ff", "f97e00", "f97c00", "f93c00", "fb3ff199999999999a", "fa7f7fffff", "f90001",
	"1bffffffffffffffff", "1b7fffffffffffffff", "3bffffffffffffffff", "3b7fffffffffffffff", "c249010000000000000000", "c349010000000000000000",
	"d9d9f7a2416101416202", "a2416101416102", "a26161014161 02", "a10102", "a1f601", "d64168", "d54168", "d74168", "d6426869", "d66161", "41ff", "61ff", "7f6161ff", "5f4161ff", "9fff", "bfff",
	"c074323031332d30332d32315432303a30343a30305a", "c11a514b67b0", "c1fb41d452d9e8200000", "c06161", "d8646161", "d9d9f7d9d9f7a0", "a0a0", "", "81", "9b7fffffffffffffff", "bb7fffffffffffffff",
	"5b7fffffffffffffff", "a1d6416101", "1c", "ff",
}

func TestAsKubernetes(t *testing.T) {
	t.Parallel()
	for _, s := range seeds {
		src, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, src)
	}
}

// TestRandomDocuments writes trees with Kubernetes' encoder, and damages them.
func TestRandomDocuments(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 4))
	var tree func(depth int) any
	tree = func(depth int) any {
		switch k := rnd.IntN(9); {
		case k < 2 && depth < 6:
			m := map[string]any{}
			for range rnd.IntN(6) {
				m[string(rune('a'+rnd.IntN(26)))+"<é"] = tree(depth + 1)
			}
			return m
		case k == 2 && depth < 6:
			a := make([]any, rnd.IntN(6))
			for i := range a {
				a[i] = tree(depth + 1)
			}
			return a
		case k == 3:
			return int64(rnd.Uint64())
		case k == 4:
			return rnd.NormFloat64() * 1e9
		case k == 5:
			return []byte(strings.Repeat("x\xff", rnd.IntN(5)))
		case k == 6:
			return nil
		case k == 7:
			return rnd.IntN(2) == 0
		}
		return "text \u2028 \x00"
	}
	for range 2000 {
		src, err := direct.Marshal(tree(0))
		if err != nil {
			t.Fatal(err)
		}
		src = append(bytes.Clone(magic), src...)
		compare(t, src)
		for range 3 {
			bad := bytes.Clone(src)
			bad[rnd.IntN(len(bad))] ^= 1 << rnd.IntN(8)
			compare(t, bad[:len(bad)-rnd.IntN(2)])
		}
	}
}

// TestBombs: lengths that are lies, nesting and sheer size end soon and take little.
func TestBombs(t *testing.T) {
	var before, after runtime.MemStats
	for name, src := range map[string][]byte{
		"an array of 2^30":         {0xd9, 0xd9, 0xf7, 0x9a, 0x40, 0, 0, 0},
		"a map of 2^30":            {0xba, 0x40, 0, 0, 0, 0x41, 'a', 1},
		"text of 2^30":             {0x7a, 0x40, 0, 0, 0, 'a'},
		"nested arrays":            bytes.Repeat([]byte{0x81}, maxInput),
		"nested tags":              bytes.Repeat([]byte{0xc6}, maxInput),
		"nested indefinite maps":   bytes.Repeat([]byte{0xbf, 0x41, 'a'}, maxInput/3),
		"too long":                 make([]byte, maxInput+1),
		"an array with too many":   append([]byte{0x9a, 0, 0x20, 0, 0}, make([]byte, 2<<20)...),
		"more than one document":   {0xa0, 0xa0},
		"a cut self-described one": magic,
	} {
		runtime.ReadMemStats(&before)
		start := time.Now()
		out, err := ToJSON(src)
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: %.40s", name, out)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 || took > 5*time.Second {
			t.Errorf("%s: %d bytes, %v", name, got, took)
		}
	}
	if _, err := ToJSON(nil); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("nothing: %v", err)
	}
}

func FuzzToJSON(f *testing.F) {
	for _, s := range seeds {
		src, _ := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		f.Add(src)
	}
	f.Fuzz(compare)
}
