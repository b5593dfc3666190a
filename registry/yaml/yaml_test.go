package yaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	oracle "sigs.k8s.io/yaml"
)

// same compares two JSON documents, numbers as floats: ours keep more digits.
func same(t testing.TB, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Errorf("%q is no JSON: %v", a, err)
		return false
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("the oracle's %q: %v", b, err)
	}
	return reflect.DeepEqual(x, y)
}

// scalars are what YAML 1.1 readers differ on.
var scalars = strings.Fields(`y Y yes Yes YES n N no NO on On off OFF true True false FALSE ~ null Null NULL nULL
	0 -0 +1 1 01 0777 09 0o17 0x1F 0X1f 0b101 -0b11 1_000 1_000.5 _1 1__0 12345678901234567890 18446744073709551615 18446744073709551616 -9223372036854775809
	1.5 1.50 1. .5 -.5 +.5 +1.5 1e3 1E3 1e+3 1.5e-7 1e400 -1e400 .5e3 1e 0x 0xg 1.2.3 1:30 190:20:30 . .. - -- + ... .5_0 0.1e1_0 00.5 0x1p4 Infinity inf nan
	2001-12-14 2001-12-14T21:59:43Z 2001-1-1 2026 !!str !!int !!str:1 !foo a:b a#b <<
	'1' "1" "\x41" "\u00e9" 'it''s' "a\nb" @`)

// TestScalars: each scalar, as value, key and with tags, means what it means to
// Kubernetes.
func TestScalars(t *testing.T) {
	t.Parallel()
	n := 0
	for _, s := range scalars {
		for _, form := range []string{"a: %s\n", "a: [%s]\n", "%s: 1\n", "a: !!str %s\n", "a: !!int %s\n", "a: !!float %s\n", "a: !!bool %s\n", "a: !!null %s\n", "a: !thing %s\n", "a: |\n  %s\n", "a: >-\n  %s\n  %[1]s\n"} {
			doc := fmt.Appendf(nil, form, s)
			want, wantErr := oracle.YAMLToJSON(doc)
			got, err := ToJSON(doc)
			if err == nil && wantErr != nil && len(s) > 18 && s[len(s)-1] <= '9' {
				continue // more digits than the oracle's integers have
			}
			if (err == nil) != (wantErr == nil) {
				t.Errorf("%q: %s, %v; the oracle: %s, %v", doc, got, err, want, wantErr)
				continue
			}
			if err == nil && !same(t, got, want) {
				t.Errorf("%q: %s, want %s", doc, got, want)
			}
			n++
		}
	}
	if n < 800 {
		t.Errorf("only %d documents compared", n)
	}
}

func TestDigitsAndOrder(t *testing.T) {
	t.Parallel()
	got, err := ToJSON([]byte("z: 1.50\na: 123456789012345678901234567890\nm: {b: -0.0, a: 1e10}\nz2: 10_0\n"))
	if want := `{"z":1.50,"a":123456789012345678901234567890,"m":{"b":-0.0,"a":1e10},"z2":100}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestAliasesAndMerges(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"a: &x {p: 1}\nb: *x\n":                                       `{"a":{"p":1},"b":{"p":1}}`,
		"a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n":                  `{"a":{"p":1,"q":2},"b":{"q":3,"p":1}}`,
		"a: &x {p: 1}\nb: &y {p: 2, r: 4}\nc: {<<: [*x, *y], s: 5}\n": `{"a":{"p":1},"b":{"p":2,"r":4},"c":{"s":5,"p":1,"r":4}}`,
		"a: &x k\nb: {*x : 1}\n":                                      `{"a":"k","b":{"k":1}}`,
		"a: 1\nb: 3\na: 2\n":                                          `{"a":2,"b":3}`,
		"a: &x [*x]\n":                                                "",
		"a: *nowhere\n":                                               "",
		"? [1]\n: 2\n":                                                "",
		"a: {<<: 1}\n":                                                "",
		"null: 1\n":                                                   "",
		"a: .nan\n":                                                   "",
		"a: !!binary aGk=\n":                                          `{"a":"hi"}`,
		"a: !!binary '*'\n":                                           "",
		"a: &b {<<: *b}\n":                                            "",
		strings.Repeat("[", 3*maxDepth) + strings.Repeat("]", 3*maxDepth): "",
	} {
		got, err := ToJSON([]byte(doc))
		if string(got) != want && (want != "" || err == nil) {
			t.Errorf("%.80q: %s, %v; want %s", doc, got, err, want)
		}
	}
}

// TestBombs: what would unfold to gigabytes ends within a second (F54).
func TestBombs(t *testing.T) {
	t.Parallel()
	var laughs, merges strings.Builder
	laughs.WriteString("apiVersion: v1\nkind: X\na0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n")
	merges.WriteString("m0: &m0 {a: 1}\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
		fmt.Fprintf(&merges, "m%d: &m%d {<<: [%s]}\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*m%d,", i-1), 9), ","))
	}
	for name, doc := range map[string]string{
		"aliases":       laughs.String(),
		"merges":        merges.String(),
		"empty lists":   strings.NewReplacer("lol", "[]").Replace(laughs.String()),
		"one long text": "a: &x " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*x,", 100) + "]\n",
		"brackets":      strings.Repeat("[", maxInput),
		"braces":        strings.Repeat("{a: ", maxInput/4),
		"questions":     strings.Repeat("? ", maxInput/2),
		"dashes":        strings.Repeat("- ", maxInput/2),
		"indentation":   deep(2000),
		"too long":      strings.Repeat("a", maxInput+1),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			out, err := ToJSON([]byte(doc))
			took := time.Since(start)
			if err == nil {
				t.Errorf("%d bytes came out", len(out))
			}
			if took > 5*time.Second { // one on a machine that does nothing else
				t.Errorf("took %v", took)
			}
			t.Logf("%v in %v", strings.ReplaceAll(fmt.Sprint(err), "\n", " ")[:min(80, len(fmt.Sprint(err)))], took)
		})
	}
}

// deep is a map in a map in a map.
func deep(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"apiVersion: v1\nkind: Pod\n":            true,
		"kind: Pod\nmetadata: {}\napiVersion: v": true,
		"\"apiVersion\": v1\n'kind' : Pod":       true,
		"apiVersion: v1\n":                       false,
		"a:\n  apiVersion: v1\n  kind: Pod\n":    false,
		"my apiVersion: v1\nkind: Pod\n":         false,
		"apiVersions: v1\nkinds: Pod\n":          false,
		"apiVersion v1\nkind Pod":                false,
		"":                                       false,
	} {
		if got := Is([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// FuzzToJSON: any text gives one line of valid JSON or an error, and where both
// readers take it, it means the same.
func FuzzToJSON(f *testing.F) {
	for _, s := range scalars {
		f.Add([]byte("a: " + s + "\n"))
	}
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: n\n  labels: {a: b}\nspec:\n- 1\n- |\n  x\n"))
	f.Add([]byte("a: &x {p: 1}\nb: {<<: *x, q: *x}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		Is(src)
		got, err := ToJSON(src)
		if err != nil {
			return
		}
		if !json.Valid(got) || bytes.ContainsAny(got, "\n") {
			t.Fatalf("%q: no line of JSON: %q", src, got)
		}
		// The parsers are two versions apart: only documents without anchors, tags
		// and comments are held against the oracle.
		if bytes.ContainsAny(src, "&*!#%?") || bytes.Contains(src, []byte("<<")) {
			return
		}
		want, err := oracle.YAMLToJSONStrict(src)
		if err == nil && !same(t, got, want) {
			t.Errorf("%q: %s, want %s", src, got, want)
		}
	})
}
