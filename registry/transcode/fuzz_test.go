package transcode

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
)

// FuzzTranscode compares with Kubernetes: equal bytes, or both reject.
func FuzzTranscode(f *testing.F) {
	files, err := golden()
	if err != nil {
		f.Fatal(err)
	}
	for i, s := range files {
		if i%17 == 0 && len(s.raw) < 4096 {
			f.Add(s.apiVersion, s.kind, s.raw)
		}
	}
	f.Add("0", "APIVersions", []byte("0"))
	f.Fuzz(func(t *testing.T, apiVersion, kind string, raw []byte) {
		var tr Transcoder
		if diff := compare(&tr, apiVersion, kind, raw); diff != "" {
			t.Error(diff)
		}
	})
}

// FuzzDump: whatever the bytes, the dump is valid JSON and not much larger.
func FuzzDump(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte("\x0a\x05\x0a\x03abc\x10\x07\x1d\x01\x02\x03\x04"), false)
	f.Add([]byte("\x0b\x08\x01\x0c\x12\x03\xff\xfe\xfd\x19"), true)
	f.Fuzz(func(t *testing.T, raw []byte, list bool) {
		var tr Transcoder
		got := tr.AppendDump(nil, `"kind":"X"`, raw, list)
		if !json.Valid(got) || !utf8.Valid(got) {
			t.Errorf("not JSON: %s", got)
		}
		if len(got) > 200+40*len(raw) {
			t.Errorf("%d bytes became %d", len(raw), len(got))
		}
	})
}

// FuzzQuantity compares with resource.ParseQuantity.
func FuzzQuantity(f *testing.F) {
	for _, s := range strings.Fields(`0 1 -1 +1 1.5 1.500 .5 5. . + - 100m 0.1 1Ki 1.5Ki 1025Mi 1024Ki -1024Ki 8Ei 7Ei 9223372036854775807
		9223372036854775808 1e3 1E3 12e-3 1e-10 1n 0.5n 1000E 1000000 0001 +01Ki 0Ki 3u 1.0000000001Gi 1e 1E e1 Ki 123456789012345678901234567890 1.1.1 1kk 1Ki2`) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if huge(s) {
			t.Skip("Kubernetes would compute forever")
		}
		got, err := CanonicalQuantity(s)
		q, wantErr := resource.ParseQuantity(s)
		if errors.Is(err, errQuantityHuge) || len(s) > maxQuantity {
			return
		}
		switch {
		case (err == nil) != (wantErr == nil):
			t.Errorf("%q: %q, %v; Kubernetes: %s, %v", s, got, err, q.String(), wantErr)
		case err == nil && got != q.String():
			t.Errorf("%q: %q; Kubernetes: %q", s, got, q.String())
		}
	})
}

// huge tells whether s has an exponent Kubernetes would try to write out.
func huge(s string) bool {
	i := strings.LastIndexAny(s, "eE")
	return i >= 0 && len(s)-i > 5
}

func TestHugeQuantityIsRefused(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"1e1000000000", "1e-2147483648", "-3E999999", strings.Repeat("9", maxQuantity+1)} {
		if got, err := CanonicalQuantity(s); err == nil && len(got) > 100 {
			t.Errorf("%.20q: %d bytes", s, len(got))
		}
	}
}

func TestDoubleAsKubernetes(t *testing.T) {
	t.Parallel()
	for _, f := range []float64{0, math.Copysign(0, -1), 1, 0.1, 1e-6, 9.9e-7, 1e-9, 1e-10, 1e20, 1e21, 1.5e300, -2.5e-100, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		want, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := appendDouble(nil, math.Float64bits(f)); err != nil || string(got) != string(want) {
			t.Errorf("%v: %s, %v; want %s", f, got, err, want)
		}
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := appendDouble(nil, math.Float64bits(f)); err == nil {
			t.Errorf("%v was printed", f)
		}
	}
}

// FuzzString compares the escapes with encoding/json.
func FuzzString(f *testing.F) {
	for _, s := range []string{"", "a<b>&c", "\u2028\u2029", "\xff\xc3", "\x00\x1f\x7f\"\\", "grüße\t\b\f\n\r", "\xe2\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendString(nil, s); string(got) != string(want) {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	})
}

// FuzzEmbeddedJSON compares with what json.Marshal makes of a MarshalJSON's result.
func FuzzEmbeddedJSON(f *testing.F) {
	for _, s := range []string{`{"a":{"b":[1,2.5,-3,"x\u00e9"]}}`, ` { } `, `[]`, `null`, `{"<":"&"}`, `{"a":1,}`, `{"a":01}`, "\"\u2028\"", `{"f:a":{".":{}}}`, `tru`, `{]`, "{\"\xff\":1}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want, wantErr := json.Marshal(json.RawMessage(b))
		got, err := appendJSON(nil, b)
		if (err == nil) != (wantErr == nil) || err == nil && string(got) != string(want) {
			t.Errorf("%q: %q, %v; want %q, %v", b, got, err, want, wantErr)
		}
	})
}
