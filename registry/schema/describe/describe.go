// Package describe reads the protobuf and JSON shape of Go structs off their
// tags. The generator of the schema table compiles this one file against many
// versions of k8s.io/api, so it may import nothing but the standard library and
// must compile with modules as old as v0.17.
package describe

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

// Table is the shape of a set of types. Slices are sorted, so that equal tables
// print equally.
type Table struct {
	Kinds    []Kind    `json:"kinds"`
	Messages []Message `json:"messages"`
}

// Kind names the message in which objects of one apiVersion and kind are stored.
type Kind struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Message    string `json:"message"`
}

// Message is one protobuf message. Fields are in the order in which encoding/json
// prints them.
type Message struct {
	Name   string  `json:"name"` // import path, dot, type name
	Fields []Field `json:"fields"`
}

// Field is one member of a message.
type Field struct {
	Number    int    `json:"n"`              // protobuf field number
	Name      string `json:"j,omitempty"`    // JSON name; empty when Inline
	Type      string `json:"t"`              // string, bytes, bool, int32, int64, map, or the name of a message
	Value     string `json:"v,omitempty"`    // map: type of the values; keys are strings
	List      bool   `json:"list,omitempty"` // repeated
	Pointer   bool   `json:"ptr,omitempty"`  // absent differs from zero
	OmitEmpty bool   `json:"oe,omitempty"`
	OmitZero  bool   `json:"oz,omitempty"`
	Inline    bool   `json:"inl,omitempty"` // the members of the message are printed in its place
}

// unmarshaler is what every generated message implements.
type unmarshaler interface{ Unmarshal([]byte) error }

var (
	tUnmarshaler = reflect.TypeOf((*unmarshaler)(nil)).Elem()
	tMarshaler   = reflect.TypeOf((*json.Marshaler)(nil)).Elem()
)

// Special lists the types whose JSON is not that of their fields. The reader of
// the table prints them by rules of its own; any other type with a MarshalJSON
// makes Describe fail, so that a new one cannot slip in unseen.
var Special = map[string]bool{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":     true,
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":         true,
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":    true,
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":     true,
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":     true,
	"k8s.io/apimachinery/pkg/apis/meta/v1.Fields":       true,
	"k8s.io/apimachinery/pkg/apis/meta/v1.GroupVersion": true,
	"k8s.io/apimachinery/pkg/runtime.RawExtension":      true,
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":   true,

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                              true,
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":            true,
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":             true,
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray":      true,
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1.JSON":                         true,
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1.JSONSchemaPropsOrArray":       true,
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1.JSONSchemaPropsOrBool":        true,
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1.JSONSchemaPropsOrStringArray": true,
}

// Types describes kinds, a map from "apiVersion\x00kind" to the Go type, and
// every message they reach. It fails on a shape the table cannot hold.
func Types(kinds map[string]reflect.Type) (*Table, error) {
	d := describer{seen: map[reflect.Type]bool{}}
	keys := make([]string, 0, len(kinds))
	for k := range kinds {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		t := kinds[k]
		if !reflect.PointerTo(t).Implements(tUnmarshaler) {
			continue // registered, but never stored as protobuf (WatchEvent of old, Status lists)
		}
		i := strings.IndexByte(k, 0)
		d.table.Kinds = append(d.table.Kinds, Kind{APIVersion: k[:i], Kind: k[i+1:], Message: name(t)})
		if err := d.message(t); err != nil {
			return nil, fmt.Errorf("%s %s: %w", k[:i], k[i+1:], err)
		}
	}
	sort.Slice(d.table.Messages, func(i, j int) bool { return d.table.Messages[i].Name < d.table.Messages[j].Name })
	return &d.table, nil
}

type describer struct {
	seen  map[reflect.Type]bool
	table Table
}

// name returns import path and type name. Vendored paths are cut to the real one.
func name(t reflect.Type) string {
	p := t.PkgPath()
	if i := strings.LastIndex(p, "/vendor/"); i >= 0 {
		p = p[i+len("/vendor/"):]
	}
	return p + "." + t.Name()
}

func (d *describer) message(t reflect.Type) error {
	if d.seen[t] {
		return nil
	}
	d.seen[t] = true
	n := name(t)
	m := Message{Name: n}
	if t.Kind() == reflect.Slice {
		// A named slice that is a message of its own, such as metav1.Verbs:
		// field 1 is repeated and the JSON is the array alone.
		f := Field{Number: 1, List: true}
		if err := d.element(&f.Type, t.Elem()); err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		m.Fields = []Field{f}
		d.table.Messages = append(d.table.Messages, m)
		return nil
	}
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("%s is neither a struct nor a slice", n)
	}
	special := Special[n]
	if !special && (t.Implements(tMarshaler) || reflect.PointerTo(t).Implements(tMarshaler)) {
		return fmt.Errorf("%s has a MarshalJSON this package does not know", n)
	}
	for i := 0; i < t.NumField(); i++ {
		sf := t.Field(i)
		pb := sf.Tag.Get("protobuf")
		if pb == "" || pb == "-" || sf.PkgPath != "" && !sf.Anonymous {
			continue
		}
		parts := strings.Split(pb, ",")
		if len(parts) < 3 {
			return fmt.Errorf("%s.%s: protobuf tag %q", n, sf.Name, pb)
		}
		num, err := strconv.Atoi(parts[1])
		if err != nil || num <= 0 {
			return fmt.Errorf("%s.%s: protobuf tag %q", n, sf.Name, pb)
		}
		f := Field{Number: num}
		js := strings.Split(sf.Tag.Get("json"), ",")
		f.Name = js[0]
		for _, o := range js[1:] {
			switch o {
			case "omitempty":
				f.OmitEmpty = true
			case "omitzero":
				f.OmitZero = true
			case "inline", "":
			default:
				return fmt.Errorf("%s.%s: json option %q", n, sf.Name, o)
			}
		}
		f.Inline = f.Name == "" && sf.Anonymous
		if special || f.Name == "" && !f.Inline {
			f.Name = sf.Name
		}
		if f.Name == "-" {
			return fmt.Errorf("%s.%s is in protobuf but not in JSON", n, sf.Name)
		}
		if err := d.field(&f, sf.Type); err != nil {
			return fmt.Errorf("%s.%s: %w", n, sf.Name, err)
		}
		m.Fields = append(m.Fields, f)
	}
	d.table.Messages = append(d.table.Messages, m)
	return nil
}

// field fills in the type of f.
func (d *describer) field(f *Field, t reflect.Type) error {
	if t.Kind() == reflect.Pointer {
		f.Pointer = true
		t = t.Elem()
	}
	isMessage := reflect.PointerTo(t).Implements(tUnmarshaler)
	switch {
	case isMessage && t.Kind() == reflect.Slice:
		return d.element(&f.Type, t)
	case f.Pointer && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map):
		return fmt.Errorf("pointer to %s", t)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		f.List = true
		return d.element(&f.Type, t.Elem())
	case t.Kind() == reflect.Map:
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("map with keys of type %s", t.Key())
		}
		f.Type = "map"
		return d.element(&f.Value, t.Elem())
	}
	return d.element(&f.Type, t)
}

// element names a type that is no list, pointer or map.
func (d *describer) element(s *string, t reflect.Type) error {
	if reflect.PointerTo(t).Implements(tUnmarshaler) {
		*s = name(t)
		return d.message(t)
	}
	switch t.Kind() {
	case reflect.String:
		*s = "string"
	case reflect.Bool:
		*s = "bool"
	case reflect.Int32:
		*s = "int32"
	case reflect.Int64, reflect.Int:
		*s = "int64"
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return fmt.Errorf("unsigned %s is not supported", t)
	case reflect.Float32, reflect.Float64:
		*s = "double"
		if t.Kind() == reflect.Float32 {
			return fmt.Errorf("float32 is not supported")
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			*s = "bytes"
			return nil
		}
		return fmt.Errorf("list of %s in a list or map", t.Elem())
	default:
		return fmt.Errorf("type %s", t)
	}
	return nil
}
