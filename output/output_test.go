package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type row struct {
	Name  string `json:"name"`
	Bytes int64  `json:"dbBytes"`
}

func (r row) Table() Table {
	return Table{
		Columns: []Column{{Name: "NAME"}, {Name: "DB BYTES", Right: true, Keep: true}, {Name: "NOTE", Wide: true}},
		Rows:    [][]string{{r.Name, fmt.Sprint(r.Bytes), "n:" + r.Name}},
	}
}

var rows = []row{{"a", 1}, {"a longer name with\ttab", 23456}, {"世界<&>", 7}}

func printed(t *testing.T, format string, width int) string {
	t.Helper()
	f, arg, err := Parse(format, append(Views(), Protobuf))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p := &Printer{Out: &b, Err: &b, Format: f, Arg: arg, Width: width}
	s := p.Stream(Envelope{})
	for _, r := range rows {
		if err := s.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close("nothing"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A row with a huge cell does not pad the others, and stays where it is.
func TestStreamLongRow(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("h", 100_000)
	list := func(names ...string) string {
		var b bytes.Buffer
		s := (&Printer{Out: &b, Err: &b, Format: Tables}).Stream(Envelope{})
		for _, n := range names {
			if err := s.Write(row{n, 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close("nothing"); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got, want := list("a", "b", huge, "c", "d"), "NAME   DB BYTES\na             1\nb             1\n"+huge+"   1\nc   1\nd   1\n"; got != want {
		t.Errorf("in the middle: %d bytes, want %d: %.200s", len(got), len(want), got)
	}
	if got, want := list(huge, "a"), "NAME   DB BYTES\n"+huge+"   1\na   1\n"; got != want {
		t.Errorf("first: %d bytes, want %d: %.200s", len(got), len(want), got)
	}
	if got, want := list("a", huge), "NAME   DB BYTES\na             1\n"+huge+"   1\n"; got != want {
		t.Errorf("last: %d bytes, want %d: %.200s", len(got), len(want), got)
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"table": "NAME                      DB BYTES\n" +
			"a                                1\n" +
			"a longer name with\\ttab      23456\n" +
			"世界<&>                          7\n",
		"wide": "NAME                      DB BYTES   NOTE\n" +
			"a                                1   n:a\n" +
			"a longer name with\\ttab      23456   n:a longer name with\\ttab\n" +
			"世界<&>                          7   n:世界<&>\n",
		"simple": "a\t1\na longer name with\\ttab\t23456\n世界<&>\t7\n",
		"fields": "\"Name\" : \"a\"\n\"DbBytes\" : \"1\"\n\"Note\" : \"n:a\"\n\n" +
			"\"Name\" : \"a longer name with\\ttab\"\n\"DbBytes\" : \"23456\"\n\"Note\" : \"n:a longer name with\\ttab\"\n\n" +
			"\"Name\" : \"世界<&>\"\n\"DbBytes\" : \"7\"\n\"Note\" : \"n:世界<&>\"\n",
		"jsonl": "{\"name\":\"a\",\"dbBytes\":1}\n{\"name\":\"a longer name with\\ttab\",\"dbBytes\":23456}\n{\"name\":\"世界<&>\",\"dbBytes\":7}\n",
		"json": "{\"items\":[\n  {\n    \"name\": \"a\",\n    \"dbBytes\": 1\n  },\n  {\n    \"name\": \"a longer name with\\ttab\",\n    \"dbBytes\": 23456\n  },\n" +
			"  {\n    \"name\": \"世界<&>\",\n    \"dbBytes\": 7\n  }\n]}\n",
		"yaml":                                         "name: a\ndbBytes: 1\n---\nname: \"a longer name with\\ttab\"\ndbBytes: 23456\n---\nname: 世界<&>\ndbBytes: 7\n",
		"template={{len .items}}":                      "3\n",
		"jsonpath={.items[*].dbBytes}":                 "1 23456 7\n",
		"go-template={{(index .items 2).name}}":        "世界<&>\n",
		`jsonpath={range .items[*]}{.name}{"\n"}{end}`: "a\na longer name with\ttab\n世界<&>\n",
	} {
		if got := printed(t, format, 0); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", format, got, want)
		}
	}
}

// Sizes and sums are for people; a script gets numbers and rows.
func TestPeopleAndScripts(t *testing.T) {
	t.Parallel()
	tab := Table{Columns: []Column{{Name: "N"}, {Name: "SIZE", Right: true, Bytes: true}}, Rows: [][]string{{"a", "2048"}}, Footer: [][]string{{"total", "2048"}}}
	for f, want := range map[Format]string{Tables: "N          SIZE\na       2.0 KiB\ntotal   2.0 KiB\n", Simple: "a\t2048\n", Fields: "\"N\" : \"a\"\n\"Size\" : \"2048\"\n"} {
		var b bytes.Buffer
		if err := (&Printer{Out: &b, Err: &b, Format: f}).Rows(tab, true); err != nil || b.String() != want {
			t.Errorf("%s: %q, want %q (%v)", f, b.String(), want, err)
		}
	}
}

func TestTableFitsTerminal(t *testing.T) {
	t.Parallel()
	want := "NAME             DB BYTES\na                       1\na longer name…      23456\n世界<&>                 7\n"
	if got := printed(t, "table", 25); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(printed(t, "wide", 40)) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 40 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// A column that is the point of the table wraps, one that is not goes.
func TestWrapAndDrop(t *testing.T) {
	t.Parallel()
	tab := Table{
		Columns: []Column{{Name: "NAME", Keep: true}, {Name: "LESS", Drop: true, Keep: true}, {Name: "CHANGE", Wrap: true}},
		Rows:    [][]string{{"a-rather-long-name", "0123456789", ".spec.replicas: 3 to 4, because"}, {"b", "", "x"}},
	}
	for width, want := range map[int]string{
		0:  "NAME                 LESS         CHANGE\na-rather-long-name   0123456789   .spec.replicas: 3 to 4, because\nb                                 x\n",
		50: "NAME                 CHANGE\na-rather-long-name   .spec.replicas: 3 to 4,\n                     because\nb                    x\n",
	} {
		var b bytes.Buffer
		if err := (&Printer{Out: &b, Err: &b, Format: Tables, Width: width}).Rows(tab, true); err != nil || b.String() != want {
			t.Errorf("%d columns:\n%s\nwant\n%s(%v)", width, b.String(), want, err)
		}
	}
}

func TestStreamOfNothing(t *testing.T) {
	t.Parallel()
	for format, want := range map[Format]string{JSON: "{\"items\":[]}\n", JSONL: "", YAML: "", Tables: "nothing here\n", Simple: ""} {
		var b bytes.Buffer
		p := &Printer{Out: &b, Err: &b, Format: format}
		s := p.Stream(Envelope{})
		if err := s.Close("nothing here"); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%s: %q, want %q", format, b.String(), want)
		}
	}
}

// A long table comes in blocks; the header once.
func TestLongTable(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &Printer{Out: &b, Err: &b, Format: Tables}
	s := p.Stream(Envelope{})
	n := 3*blockRows + 7
	for i := range n {
		if err := s.Write(row{fmt.Sprintf("%05d", i), int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(""); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != n+1 || strings.Count(b.String(), "NAME") != 1 || !strings.HasPrefix(lines[n], fmt.Sprintf("%05d", n-1)) {
		t.Errorf("%d lines, %d headers, last %q", len(lines), strings.Count(b.String(), "NAME"), lines[len(lines)-1])
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"xml", "template", "jsonpath", "json=x", "", "protobuf"} {
		var unknown *UnknownFormatError
		if _, _, err := Parse(bad, Views()); !errors.As(err, &unknown) {
			t.Errorf("Parse(%q): %v", bad, err)
		}
	}
	p := Printer{Format: JSONPath, Arg: "{.a"}
	var q *QueryError
	if err := p.CheckQuery(); !errors.As(err, &q) {
		t.Errorf("bad JSONPath: %v", err)
	}
	p = Printer{Format: Template, Arg: "{{.a"}
	if err := p.CheckQuery(); !errors.As(err, &q) {
		t.Errorf("bad template: %v", err)
	}
}

// FuzzYAML: what JSONToYAML writes reads back as the same document. The oracle
// is another YAML reader.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"b":[true,null,"x\ny"],"c":{}}`, `{"n":12345678901234567890.12345678901234567890}`, `"yes"`, `["1","0x1","~","null","- a","a: b","#","\u0001","🙂"," x "]`,
		`{"":"","<<":1,"=":2,"2026-11-30":"2026-11-30T00:00:00Z"}`, `"tab\tend \n"`, `[[],{},[[1]]]`, `1e400`, `-0`, `"\u2028\ufeff"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		var want any
		if json.Unmarshal([]byte(doc), &want) != nil {
			return
		}
		y, err := JSONToYAML([]byte(doc))
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		var got any
		if err := yaml.Unmarshal(y, &got); err != nil {
			t.Fatalf("%q became %q, which does not read: %v", doc, y, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q became %q, which reads as %#v", doc, y, got)
		}
	})
}

func TestYAMLKeepsDigits(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"1.10", "123456789012345678901234567890", "0.1000000000000000055511151231257827", "1e400", "100000000000000000000.0"} {
		y, err := JSONToYAML([]byte(`{"n":` + n + `}`))
		if err != nil || string(y) != "\"n\": "+n+"\n" {
			t.Errorf("%s became %q, %v", n, y, err)
		}
	}
}

// Strings that some YAML reader takes for something else are quoted, others not.
func TestYAMLQuotes(t *testing.T) {
	t.Parallel()
	for s, quoted := range map[string]bool{
		"yes": true, "0o17": true, "1_000": true, "1:20": true, "1.33": true, "12e03": true, "-1.5e-3": true, "0x1F": true, ".5": true, "<<": true,
		"10.0.0.1": false, ".": false, "1.2.3": false, "648c971e-038a-4019-ab40-540e1fb3dc02": false, "v1": false, "a": false, "apps/v1": false,
	} {
		y, err := JSONToYAML([]byte(`{"k":"` + s + `"}`))
		if got := strings.Contains(string(y), `"`+s+`"`); err != nil || got != quoted {
			t.Errorf("%s became %s, %v", s, y, err)
		}
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 5 << 30: "5.0 GiB", -2048: "-2.0 KiB", 1<<63 - 1: "8.0 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}
