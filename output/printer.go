package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"k8s.io/client-go/util/jsonpath"
)

// Printer writes views in one format.
type Printer struct {
	Out, Err io.Writer
	Format   Format
	Arg      string // of template and jsonpath
	Width    int    // columns of the terminal; 0: not a terminal, nothing is cut
	Color    bool
	NoHeader bool

	custom *customColumns // parsed Arg
}

// Texter is a view with a form of its own for -w simple.
type Texter interface{ Text() string }

// Print writes one view as one document.
func (p *Printer) Print(v any) error {
	switch p.Format {
	case JSON:
		return p.json(v, "  ")
	case JSONL:
		return p.json(v, "")
	case YAML:
		return p.yaml(v)
	case Template:
		return p.template(v)
	case JSONPath:
		return p.jsonPath(v)
	case CustomColumns:
		t, err := p.customRow(v)
		if err != nil {
			return err
		}
		return p.table(t, true)
	case Simple:
		if t, ok := v.(Texter); ok {
			_, err := io.WriteString(p.Out, t.Text())
			return err
		}
	}
	t, ok := v.(Tabler)
	if !ok {
		return fmt.Errorf("output format %s does not fit this result; use json, yaml, jsonl, template or jsonpath", p.Format)
	}
	return p.table(t.Table(), true)
}

// Rows writes one block of a long table; header says whether this is the first
// block.
func (p *Printer) Rows(t Table, header bool) error { return p.table(t, header) }

func (p *Printer) table(t Table, header bool) error {
	switch p.Format {
	case Simple:
		return p.tabs(t)
	case Fields:
		return p.fields(t)
	}
	if len(t.Rows) == 0 {
		if t.Empty != "" && header {
			_, err := fmt.Fprintln(p.Err, t.Empty)
			return err
		}
		return nil
	}
	s, err := t.render(p.Width, p.Format == Wide, header && !p.NoHeader, p.Color)
	if err != nil {
		return err
	}
	return p.styled(s)
}

// names writes the names of a table's columns.
func (p *Printer) names(t Table) error {
	if p.NoHeader {
		return nil
	}
	s, err := Table{Columns: t.Columns}.render(p.Width, p.Format == Wide, true, p.Color)
	if err != nil {
		return err
	}
	return p.styled(s)
}

func (p *Printer) styled(s string) error {
	if term, ok := p.Out.(*Terminal); ok {
		return term.Styled(s) // render cleaned every cell
	}
	_, err := io.WriteString(p.Out, s)
	return err
}

// AppendCell writes one cell of the simple format: the value as it is, so that a
// script gets exact values; a tab, newline or backslash inside it is escaped so
// that lines stay lines.
func AppendCell(b, cell []byte) []byte {
	start := 0
	for i, c := range cell {
		var esc string
		switch c {
		case '\\':
			esc = `\\`
		case '\t':
			esc = `\t`
		case '\n':
			esc = `\n`
		case '\r':
			esc = `\r`
		default:
			continue
		}
		b = append(append(b, cell[start:i]...), esc...)
		start = i + 1
	}
	return append(b, cell[start:]...)
}

func (p *Printer) tabs(t Table) error {
	var b []byte
	for _, r := range t.Rows {
		first := true
		for i, c := range r {
			if t.Columns[i].Wide {
				continue
			}
			if !first {
				b = append(b, '\t')
			}
			first = false
			b = AppendCell(b, []byte(c))
		}
		b = append(b, '\n')
	}
	_, err := p.Out.Write(b)
	return err
}

func (p *Printer) fields(t Table) error {
	var b strings.Builder
	for i, r := range t.Rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		for j, c := range r {
			fmt.Fprintf(&b, "%q : %q\n", fieldName(t.Columns[j].Name), c)
		}
	}
	_, err := io.WriteString(p.Out, b.String())
	return err
}

// fieldName turns "MOD REV" into "ModRev", as etcdctl writes field names.
func fieldName(column string) string {
	var b strings.Builder
	for w := range strings.FieldsSeq(strings.ToLower(column)) {
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	return b.String()
}

func (p *Printer) json(v any, indent string) error {
	b, err := Marshal(v)
	if err != nil {
		return err
	}
	if indent != "" {
		var i bytes.Buffer
		if err := json.Indent(&i, b, "", indent); err != nil {
			return fmt.Errorf("indent JSON: %w", err)
		}
		b = i.Bytes()
	}
	// Clipped: what lies behind a json.RawMessage is not ours.
	_, err = p.Out.Write(append(slices.Clip(b), '\n'))
	return err
}

// Marshal is json.Marshal without HTML escaping: a key with "<" in it reads as
// it is. A json.RawMessage is passed through.
func Marshal(v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return raw, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (p *Printer) yaml(v any) error {
	b, err := Marshal(v)
	if err != nil {
		return err
	}
	y, err := JSONToYAML(b)
	if err != nil {
		return err
	}
	_, err = p.Out.Write(y)
	return err
}

// generic returns v as maps, slices and numbers: what a template sees are
// the names of the JSON form, whatever our structs are called.
func generic(v any) (any, error) {
	b, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	return decodeNumbers(b)
}

// QueryError says that a template or JSONPath given by the user is wrong.
type QueryError struct {
	Format Format
	Query  string
	Err    error
}

func (e *QueryError) Error() string {
	return fmt.Sprintf("%s %q: %v", e.Format, e.Query, e.Err)
}
func (e *QueryError) Unwrap() error { return e.Err }

func (p *Printer) template(v any) error {
	x, err := generic(v)
	if err != nil {
		return err
	}
	t, err := p.parseTemplate()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, x); err != nil {
		return &QueryError{p.Format, p.Arg, err}
	}
	return p.query(b)
}

func (p *Printer) jsonPath(v any) error {
	x, err := generic(v)
	if err != nil {
		return err
	}
	j, err := p.parseJSONPath()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := j.Execute(&b, x); err != nil {
		return &QueryError{p.Format, p.Arg, err}
	}
	return p.query(b)
}

func (p *Printer) query(b bytes.Buffer) error {
	if b.Len() > 0 && !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	_, err := p.Out.Write(b.Bytes())
	return err
}

func (p *Printer) parseTemplate() (*template.Template, error) {
	t, err := template.New("-w template").Option("missingkey=default").Funcs(functions).Parse(p.Arg)
	if err != nil {
		return nil, &QueryError{p.Format, p.Arg, err}
	}
	return t, nil
}

// parseJSONPath also takes a lone path without braces.
func (p *Printer) parseJSONPath() (*jsonpath.JSONPath, error) {
	text := p.Arg
	if !strings.Contains(text, "{") {
		var err error
		if text, err = relaxed(text); err != nil {
			return nil, &QueryError{p.Format, p.Arg, err}
		}
	}
	j := jsonpath.New("-w jsonpath").AllowMissingKeys(true)
	if err := j.Parse(text); err != nil {
		return nil, &QueryError{p.Format, p.Arg, err}
	}
	return j, nil
}

// CheckQuery parses a template, JSONPath or columns before any work is done.
func (p *Printer) CheckQuery() error {
	var err error
	switch p.Format {
	case Template:
		_, err = p.parseTemplate()
	case JSONPath:
		_, err = p.parseJSONPath()
	case CustomColumns:
		p.custom, err = parseCustomColumns(p.Arg)
	}
	return err
}

// customRow makes the row of one view in the custom-columns format.
func (p *Printer) customRow(v any) (Table, error) {
	if p.custom == nil {
		if err := p.CheckQuery(); err != nil {
			return Table{}, err
		}
	}
	return p.custom.table(v)
}

var errClosed = errors.New("write to a closed stream")
