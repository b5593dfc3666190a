package columns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/jsonpath"
)

// crd is what tables need of a CustomResourceDefinition, v1 or v1beta1.
type crd struct {
	Metadata meta
	Spec     struct {
		Version                  string
		AdditionalPrinterColumns []printerColumn // v1beta1, for every version
		Versions                 []struct {
			Name                     string
			Served                   bool
			AdditionalPrinterColumns []printerColumn
		}
	}
}

type printerColumn struct {
	Name, Type, Format, JSONPath string
	Priority                     int
}

// FromCRD returns the Printer of the objects that a CustomResourceDefinition (its
// JSON, v1 or v1beta1) defines. The columns are those of the version that kubectl
// would ask for: the first of prefer that is served.
//
// A column with a path that cannot be read is an error, and the Printer then has
// NAME alone, as in the API server.
func FromCRD(object []byte, prefer []string) (*Printer, error) {
	var d crd
	if err := json.Unmarshal(object, &d); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition: %w", err)
	}
	list := d.Spec.AdditionalPrinterColumns
	rank := func(name string) int {
		if i := slices.Index(prefer, name); i >= 0 {
			return i
		}
		return len(prefer)
	}
	best := -1
	for i, v := range d.Spec.Versions {
		if v.Served && (best < 0 || rank(v.Name) < rank(d.Spec.Versions[best].Name)) {
			best = i
		}
	}
	if best >= 0 && len(d.Spec.Versions[best].AdditionalPrinterColumns) > 0 {
		list = d.Spec.Versions[best].AdditionalPrinterColumns
	}
	if len(list) == 0 {
		list = []printerColumn{{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}}
	}
	c := custom{columns: list}
	p := &Printer{Columns: []Column{{Name: "NAME"}}, row: c.row}
	for _, col := range list {
		// The tokens are parsed again for each row: a parsed path keeps state.
		if err := jsonpath.New(col.Name).Parse("{" + col.JSONPath + "}"); err != nil {
			c.columns = nil
			return &Printer{Columns: []Column{{Name: "NAME"}}, row: custom{}.row}, fmt.Errorf("CustomResourceDefinition %s: column %q: path %q: %w", d.Metadata.Name, col.Name, col.JSONPath, err)
		}
		p.Columns = append(p.Columns, Column{Name: strings.ToUpper(col.Name), Wide: col.Priority > 0})
	}
	return p, nil
}

// custom makes rows along the paths of a definition.
type custom struct{ columns []printerColumn }

func (c custom) row(object []byte, now time.Time) []any {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var doc map[string]any
	_ = d.Decode(&doc) // of what is no object nothing is found below
	name, _ := dig(doc, "metadata", "name").(string)
	cells := []any{name}
	for _, col := range c.columns {
		cells = append(cells, col.cell(doc, now))
	}
	return cells
}

func dig(v any, path ...string) any {
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

// cell returns the first value at the column's path, nil when there is none or it is
// of another type than the column.
func (c *printerColumn) cell(doc map[string]any, now time.Time) any {
	path := jsonpath.New(c.Name).AllowMissingKeys(true)
	if err := path.Parse("{" + c.JSONPath + "}"); err != nil {
		return nil
	}
	results, err := path.FindResults(doc)
	if err != nil || len(results) == 0 || len(results[0]) == 0 || !results[0][0].CanInterface() {
		return nil
	}
	v := results[0][0].Interface()
	if c.Type == "string" {
		var b bytes.Buffer
		if v == nil || path.PrintResults(&b, []reflect.Value{reflect.ValueOf(v)}) != nil {
			return nil
		}
		return b.String()
	}
	switch v := v.(type) {
	case json.Number:
		return number(c.Type, v)
	case bool:
		if c.Type == "boolean" {
			return v
		}
	case string:
		if c.Type != "date" {
			return nil
		}
		if v == "" || v == "null" {
			return "<unknown>"
		}
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			return "<invalid>"
		}
		return since(now, v)
	}
	return nil
}

// number prints a number for a column of whole ones or of any.
func number(typ string, n json.Number) any {
	switch typ {
	case "integer":
		if i, err := n.Int64(); err == nil {
			return i
		}
		if f, err := n.Float64(); err == nil {
			return int64(f)
		}
	case "number":
		if f, err := n.Float64(); err == nil {
			return f
		}
	}
	return nil
}
