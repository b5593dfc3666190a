package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const queried = `{"items":[{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"n":3,"f":1.5,"big":12345678901234567890,"exact":1.50,"flag":true,"none":null,"text":"aGk="}},{"metadata":{"name":"b"},"spec":{"n":10,"ports":[80,443]}}]}`

// queryOutput runs one format over the document above.
func queryOutput(t *testing.T, spec string) (string, error) {
	t.Helper()
	f, arg, err := Parse(spec, []Format{Template, JSONPath, CustomColumns, Tables})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	p := Printer{Out: &b, Format: f, Arg: arg}
	if err := p.CheckQuery(); err != nil {
		return "", err
	}
	err = p.Print(json.RawMessage(queried))
	return b.String(), err
}

// TestQueries: numbers keep their digits and compare, missing values and maps print
// as kubectl prints them.
func TestQueries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for spec, want := range map[string]string{
		"jsonpath={.items[*].metadata.name}":                                   "a b\n",
		"jsonpath=.items[0].spec.n":                                            "3\n",
		"jsonpath=items[0].spec.n":                                             "3\n",
		"jsonpath={.items[?(@.spec.n>5)].metadata.name}":                       "b\n",
		"jsonpath={.items[?(@.spec.f<2.5)].metadata.name}":                     "a\n",
		"jsonpath={.items[?(@.spec.flag==true)].metadata.name}":                "a\n",
		"jsonpath={.items[0].spec.big} {.items[0].spec.exact}":                 "12345678901234567890 1.50\n",
		"jsonpath={.items[0].metadata.labels}{.nothing}":                       "{\"x\":\"1\"}\n",
		`jsonpath={range .items[*]}{.metadata.name}{"\t"}{.spec.n}{"\n"}{end}`: "a\t3\nb\t10\n",
		"template={{range .items}}{{.spec.n}} {{.spec.big}};{{end}}":           "3 12345678901234567890;10 <no value>;\n",
		"go-template={{range .items}}{{if gt .spec.n 5}}{{.metadata.name}}{{end}}{{if gt .spec.n 5.0}}{{.metadata.name}}{{end}}{{end}}":                                                                                         "bb\n",
		"template={{with index .items 0}}{{.spec.exact}} {{.spec.text | base64decode}} {{.spec.none}} {{.metadata.labels}}{{end}}":                                                                                              "1.50 hi <no value> map[x:1]\n",
		`template={{exists . "items"}} {{exists . "items" 1 "spec" "ports"}} {{exists . "items" 0 "spec" "ports"}} {{exists . "items" 5}} {{exists . 0}}`:                                                                       "true true false false false\n",
		`template={{with index .items 0}}{{eq .spec.n 3}} {{eq .spec.n 4 3.0}} {{ne .metadata.name "a"}} {{eq .spec.none nil}} {{eq .spec.flag true}} {{le .spec.f 1.5}} {{lt .metadata.name "b"}} {{ge .spec.exact 1}}{{end}}`: "true true false true true true true true\n",
		"custom-columns=N:.items[*].metadata.name,PORTS:{.items[*].spec.ports[*]},L:.items[0].metadata.labels,NO:nothing,NULL:.items[0].spec.none":                                                                              "N     PORTS    L          NO       NULL\na,b   80,443   map[x:1]   <none>   <nil>\n",
		"jsonpath-file=" + file("p", "{.items[0].metadata.name}\n"):                                                                                                                                                             "a\n",
		"go-template-file=" + file("t", "{{len .items}}\n"):                                                                                                                                                                     "2\n",
		"custom-columns-file=" + file("c", "NAME   COUNT\n{items[0].metadata.name} .items[1].spec.n\n"):                                                                                                                         "NAME   COUNT\na      10\n",
	} {
		if got, err := queryOutput(t, spec); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", spec, got, err, want)
		}
	}
	for spec, want := range map[string]string{
		"jsonpath={.a":                                    "unclosed",
		"jsonpath=":                                       "want a path",
		"jsonpath":                                        "is not one of",
		"template={{.a":                                   "template",
		`template={{lt 1 "a"}}`:                           "cannot compare",
		`template={{eq .items .items}}`:                   "cannot compare",
		`template={{"*" | base64decode}}`:                 "base64",
		"custom-columns=":                                 "HEADER:PATH",
		"custom-columns=A:.a,B":                           "HEADER:PATH",
		"custom-columns=A:{.a":                            "brace",
		"custom-columns=A:{.a}{.b}":                       "want a path",
		"jsonpath-file=" + filepath.Join(dir, "no"):       "no such file",
		"custom-columns-file=" + file("one", "A B"):       "a line of headers",
		"custom-columns-file=" + file("odd", "A B\n.a\n"): "2 headers and 1 paths",
	} {
		if got, err := queryOutput(t, spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %s", spec, got, err, want)
		}
	}
}

// TestCustomColumnsStream: many items make one table.
func TestCustomColumnsStream(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := Printer{Out: &b, Format: CustomColumns, Arg: "N:n"}
	s := p.Stream(KubernetesList)
	for _, doc := range []string{`{"n":1}`, `{"n":"long text"}`, `{}`} {
		if err := s.Write(json.RawMessage(doc)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(""); err != nil || b.String() != "N\n1\nlong text\n<none>\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	var q *QueryError
	p = Printer{Out: &b, Format: CustomColumns, Arg: "N"}
	if err := p.Stream(KubernetesList).Write(json.RawMessage(`{}`)); !errors.As(err, &q) {
		t.Errorf("%v", err)
	}
}
