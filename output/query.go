package output

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"text/template"

	"k8s.io/client-go/util/jsonpath"
)

// maxQuery bounds the file that a query is read from.
const maxQuery = 1 << 20

// fileFormats are the formats whose argument is a file with the query in it.
var fileFormats = map[string]Format{
	"jsonpath-file": JSONPath, "go-template-file": Template, "template-file": Template, "custom-columns-file": CustomColumns,
}

// readQuery reads the file of a format such as jsonpath-file.
func readQuery(format, path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the query of %s: %w", format, err)
	}
	if len(b) > maxQuery {
		return "", fmt.Errorf("read the query of %s %s: %d bytes are more than the limit of %d", format, path, len(b), maxQuery)
	}
	if format == "custom-columns-file" {
		return columnsFile(string(b))
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

// columnsFile turns a line of headers over a line of paths into the form that a
// command line has.
func columnsFile(text string) (string, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) < 2 {
		return "", errors.New("a custom-columns file has a line of headers and a line of paths")
	}
	headers, paths := strings.Fields(lines[0]), strings.Fields(lines[1])
	if len(headers) != len(paths) {
		return "", fmt.Errorf("the custom-columns file has %d headers and %d paths", len(headers), len(paths))
	}
	for i := range headers {
		headers[i] += ":" + paths[i]
	}
	return strings.Join(headers, ","), nil
}

// relaxed completes a JSONPath as kubectl does: metadata.name, .metadata.name and
// {metadata.name} are {.metadata.name}.
func relaxed(path string) (string, error) {
	inner, braced := strings.CutPrefix(path, "{")
	if braced {
		var ok bool
		if inner, ok = strings.CutSuffix(inner, "}"); !ok {
			return "", errors.New("the brace is not closed")
		}
	}
	if inner = strings.TrimPrefix(inner, "."); inner == "" || strings.ContainsAny(inner, "{}") {
		return "", errors.New("want a path such as .metadata.name")
	}
	return "{." + inner + "}", nil
}

// Path is one JSONPath into a document.
type Path struct {
	text   string
	parsed *jsonpath.JSONPath
}

// ParsePath reads a JSONPath, with or without its braces and its first dot.
func ParsePath(text string) (*Path, error) {
	full, err := relaxed(text)
	if err != nil {
		return nil, &QueryError{JSONPath, text, err}
	}
	p := jsonpath.New("path").AllowMissingKeys(true)
	if err := p.Parse(full); err != nil {
		return nil, &QueryError{JSONPath, text, err}
	}
	return &Path{full, p}, nil
}

// String returns the path with its braces.
func (p *Path) String() string { return p.text }

// Find returns the values at the path in a JSON document, none if there is none.
// Whole numbers are int64, others float64, or json.Number where that would lose a
// digit.
//
// It may be called by several goroutines at once.
func (p *Path) Find(doc []byte) ([]any, error) {
	x, err := decodeNumbers(doc)
	if err != nil {
		return nil, err
	}
	return p.find(x)
}

func (p *Path) find(x any) ([]any, error) {
	parsed := *p.parsed // it keeps count in itself while it looks
	results, err := parsed.FindResults(x)
	if err != nil {
		return nil, &QueryError{JSONPath, p.text, err}
	}
	var out []any
	for _, set := range results {
		for _, v := range set {
			out = append(out, plainValue(v))
		}
	}
	return out, nil
}

func plainValue(v reflect.Value) any {
	if !v.IsValid() || !v.CanInterface() {
		return nil
	}
	return v.Interface()
}

// customColumns are the columns of the custom-columns format.
type customColumns struct {
	headers []string
	paths   []*Path
}

func parseCustomColumns(spec string) (*customColumns, error) {
	c := new(customColumns)
	for _, part := range strings.Split(spec, ",") {
		header, path, ok := strings.Cut(part, ":")
		if !ok || header == "" {
			return nil, &QueryError{CustomColumns, spec, fmt.Errorf("%q: want HEADER:PATH", part)}
		}
		p, err := ParsePath(path)
		if err != nil {
			return nil, err
		}
		c.headers, c.paths = append(c.headers, header), append(c.paths, p)
	}
	return c, nil
}

// table makes the row of one view, as kubectl does: several values are joined, a
// missing one is <none>.
func (c *customColumns) table(v any) (Table, error) {
	x, err := generic(v)
	if err != nil {
		return Table{}, err
	}
	t := Table{Rows: [][]string{nil}}
	for i, p := range c.paths {
		values, err := p.find(x)
		if err != nil {
			return Table{}, err
		}
		cells := make([]string, len(values))
		for j, v := range values {
			cells[j] = fmt.Sprint(v)
		}
		if len(cells) == 0 {
			cells = []string{"<none>"}
		}
		t.Columns = append(t.Columns, Column{Name: c.headers[i]})
		t.Rows[0] = append(t.Rows[0], strings.Join(cells, ","))
	}
	return t, nil
}

// decodeNumbers reads JSON into maps and slices with numbers that compare with the
// numbers of a query.
func decodeNumbers(doc []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var x any
	if err := d.Decode(&x); err != nil {
		return nil, fmt.Errorf("read back JSON: %w", err)
	}
	return numbers(x), nil
}

func numbers(x any) any {
	switch x := x.(type) {
	case json.Number:
		return goNumber(x)
	case map[string]any:
		for k, v := range x {
			x[k] = numbers(v)
		}
	case []any:
		for i, v := range x {
			x[i] = numbers(v)
		}
	}
	return x
}

// goNumber is an int64 or a float64 if that prints the same digits, else n.
func goNumber(n json.Number) any {
	if i, err := n.Int64(); err == nil && strconv.FormatInt(i, 10) == string(n) {
		return i
	}
	if f, err := n.Float64(); err == nil && fmt.Sprint(f) == string(n) {
		return f
	}
	return n
}

// functions are what templates have besides Go's own, and the comparisons, which
// take whole numbers and fractions together: kubectl's templates compare with 1.0,
// ours could with 1.
var functions = template.FuncMap{
	"base64decode": func(s string) (string, error) {
		b, err := base64.StdEncoding.DecodeString(s)
		return string(b), err
	},
	"exists": exists,
	"eq": func(a any, list ...any) (bool, error) {
		for _, b := range list {
			if same, err := equal(a, b); same || err != nil {
				return same, err
			}
		}
		return false, nil
	},
	"ne": func(a, b any) (bool, error) { same, err := equal(a, b); return !same, err },
	"lt": func(a, b any) (bool, error) { c, err := order(a, b); return c < 0, err },
	"le": func(a, b any) (bool, error) { c, err := order(a, b); return c <= 0, err },
	"gt": func(a, b any) (bool, error) { c, err := order(a, b); return c > 0, err },
	"ge": func(a, b any) (bool, error) { c, err := order(a, b); return c >= 0, err },
}

// exists tells whether a chain of names and indices leads to something.
func exists(x any, path ...any) bool {
	for _, p := range path {
		switch v := x.(type) {
		case map[string]any:
			name, ok := p.(string)
			if !ok {
				return false
			}
			if x, ok = v[name]; !ok {
				return false
			}
		case []any:
			i, ok := p.(int)
			if !ok || i < 0 || i >= len(v) {
				return false
			}
			x = v[i]
		default:
			return false
		}
	}
	return true
}

func equal(a, b any) (bool, error) {
	if a == nil || b == nil {
		return a == b, nil
	}
	if c, err := order(a, b); err == nil {
		return c == 0, nil
	}
	x, y := reflect.TypeOf(a), reflect.TypeOf(b)
	if x != y || !x.Comparable() {
		return false, fmt.Errorf("cannot compare %T with %T", a, b)
	}
	return a == b, nil
}

// order compares two numbers or two texts.
func order(a, b any) (int, error) {
	if x, ok := toInt(a); ok {
		if y, ok := toInt(b); ok {
			return compareOrdered(x, y), nil
		}
	}
	if x, ok := toFloat(a); ok {
		if y, ok := toFloat(b); ok {
			return compareOrdered(x, y), nil
		}
	}
	x, okX := a.(string)
	y, okY := b.(string)
	if okX && okY {
		return strings.Compare(x, y), nil
	}
	return 0, fmt.Errorf("cannot compare %T with %T", a, b)
}

func compareOrdered[T int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func toInt(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

func toFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	}
	i, ok := toInt(v)
	return float64(i), ok
}
