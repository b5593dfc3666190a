package inspect

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func lines(t *testing.T, old, current string) string {
	t.Helper()
	ch, err := Changes([]byte(old), []byte(current))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range ch {
		b.WriteString(c.Path + ": " + string(c.Old) + " > " + string(c.New) + "\n")
	}
	return b.String()
}

func TestChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, old, current, want string }{
		{"equal but for space", `{"a": 1}`, `{"a":1}`, ""},
		{"value", `{"a":1,"b":2}`, `{"a":1,"b":3}`, ".b: 2 > 3\n"},
		{"added and removed", `{"a":1}`, `{"b":{"c":[]}}`, ".b:  > {\"c\":[]}\n.a: 1 > \n"},
		{"names that need quotes", `{"x":{"a.b/c":1,"":2}}`, `{"x":{"a.b/c":2,"":3}}`, ".x[\"a.b/c\"]: 1 > 2\n.x[\"\"]: 2 > 3\n"},
		{"digits", `{"n":1.10}`, `{"n":1.1}`, ".n: 1.10 > 1.1\n"},
		{"big numbers", `{"n":12345678901234567890}`, `{"n":12345678901234567891}`, ".n: 12345678901234567890 > 12345678901234567891\n"},
		{"kind of value", `{"a":[1]}`, `{"a":{"b":1}}`, ".a: [1] > {\"b\":1}\n"},
		{"list by name", `{"c":[{"name":"a","i":1},{"name":"b","i":1}]}`, `{"c":[{"name":"b","i":2},{"name":"a","i":1},{"name":"n"}]}`,
			".c[name=b].i: 1 > 2\n.c[name=n]:  > {\"name\":\"n\"}\n"},
		{"list item removed", `{"c":[{"name":"a"},{"name":"b"}]}`, `{"c":[{"name":"b"}]}`, ".c[name=a]: {\"name\":\"a\"} > \n"},
		{"list by type", `[{"type":"R","s":"F"}]`, `[{"type":"R","s":"T"}]`, "[type=R].s: \"F\" > \"T\"\n"},
		{"names not distinct", `[{"name":"a"},{"name":"a"}]`, `[{"name":"a"},{"name":"b"}]`, "[1].name: \"a\" > \"b\"\n"},
		{"plain list", `[1,2]`, `[1,3,4]`, "[1]: 2 > 3\n[2]:  > 4\n"},
		{"whole", ``, `{"a":1}`, ".:  > {\"a\":1}\n"},
		{"gone", `5`, ``, ".: 5 > \n"},
		{"nothing", ``, ``, ""},
	} {
		if got := lines(t, c.old, c.current); got != c.want {
			t.Errorf("%s:\n%swant\n%s", c.name, got, c.want)
		}
	}
	if _, err := Changes([]byte(`{"a":`), nil); err == nil {
		t.Error("half a document")
	}
}

// FuzzChanges: there are changes exactly when the documents differ, and going
// back names the same paths.
func FuzzChanges(f *testing.F) {
	for _, s := range [][2]string{{`{"a":[{"name":"x"}]}`, `{"a":[]}`}, {`[1,[2,{"":3}]]`, `[1,[2,{"":4}]]`}, {`"\u00e9"`, `1e5`}, {`{"a":1,"a":2}`, `{"a":2}`}} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		forth, err := Changes(a, b)
		if err != nil {
			return
		}
		back, err := Changes(b, a)
		if err != nil {
			t.Fatal(err)
		}
		var x, y bytes.Buffer
		if len(a) > 0 && json.Compact(&x, a) != nil || len(b) > 0 && json.Compact(&y, b) != nil {
			t.Fatalf("accepted %q and %q", a, b)
		}
		if bytes.Equal(x.Bytes(), y.Bytes()) && len(forth) > 0 {
			t.Errorf("%q is %q, but %v", a, b, forth)
		}
		paths := map[string]bool{}
		for _, c := range forth {
			paths[c.Path] = true
		}
		for _, c := range back {
			if !paths[c.Path] {
				t.Errorf("%q to %q: only back %s", a, b, c.Path)
			}
		}
	})
}
