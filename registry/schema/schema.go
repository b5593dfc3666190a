// Package schema is the table of every protobuf message that Kubernetes stores
// in etcd: k8s.io/api of the versions in Versions (removed kinds included),
// apiextensions, apiregistration and the meta types they use.
//
// The table is a file made by the generator in gen and embedded here. Nothing is
// read until Load is first called, so a program that decodes nothing pays nothing.
package schema

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/merge"
)

//go:generate go run ./gen -out schema.bin

//go:embed schema.bin
var file []byte

// Type is how the value of a field is written on the wire and printed.
type Type uint8

// The types of a value. Those after Nested are messages with a JSON of their own.
const (
	String          Type = iota // length-delimited; JSON string
	Bytes                       // length-delimited; base64 string, null when absent
	Bool                        // varint
	Int32                       // varint, cut to 32 bits
	Int64                       // varint
	Double                      // fixed 64 bits
	Map                         // repeated entries {1: string key, 2: value}
	Nested                      // message; JSON object of its fields
	Array                       // message {1: repeated}; JSON array
	Time                        // meta/v1 Time: seconds
	MicroTime                   // meta/v1 MicroTime: microseconds
	Duration                    // meta/v1 Duration: nanoseconds, printed as "1m0s"
	Quantity                    // resource.Quantity: canonical number and suffix
	IntOrString                 // intstr.IntOrString
	RawJSON                     // message {1: bytes that are JSON}; null when absent, invalid when present but empty
	LooseJSON                   // the same; null when absent or empty
	SchemaOrBool                // apiextensions JSONSchemaPropsOrBool
	SchemaOrArray               // apiextensions JSONSchemaPropsOrArray
	SchemaOrStrings             // apiextensions JSONSchemaPropsOrStringArray
)

// special maps the messages with a JSON of their own to their type.
var special = map[string]Type{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":   Quantity,
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":       Time,
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":  MicroTime,
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":   Duration,
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":   RawJSON,
	"k8s.io/apimachinery/pkg/runtime.RawExtension":    RawJSON,
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": IntOrString,

	apiextensions + "v1.JSON":                              LooseJSON,
	apiextensions + "v1.JSONSchemaPropsOrArray":            SchemaOrArray,
	apiextensions + "v1.JSONSchemaPropsOrBool":             SchemaOrBool,
	apiextensions + "v1.JSONSchemaPropsOrStringArray":      SchemaOrStrings,
	apiextensions + "v1beta1.JSON":                         LooseJSON,
	apiextensions + "v1beta1.JSONSchemaPropsOrArray":       SchemaOrArray,
	apiextensions + "v1beta1.JSONSchemaPropsOrBool":        SchemaOrBool,
	apiextensions + "v1beta1.JSONSchemaPropsOrStringArray": SchemaOrStrings,
}

const apiextensions = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/"

// Table is the loaded table. It is read-only and safe for concurrent use.
type Table struct {
	Versions []string // of k8s.io/api, newest first
	kinds    map[[2]string]*Kind
	messages map[string]*Message
}

// Kind is a kind that can be stored as protobuf.
type Kind struct {
	APIVersion, Kind string
	Message          *Message
	// Last is the newest version of k8s.io/api that has the kind; it differs from
	// Versions[0] when the kind has been removed.
	Last string
}

// Message is one protobuf message.
type Message struct {
	Name   string // Go import path, dot, type name
	Type   Type   // Nested, Array or one of the special types
	Fields []Field
	index  []uint16 // by field number: index of Fields + 1
}

// Field is one field of a message, in the order of the JSON.
type Field struct {
	Number    uint32
	Name      string // JSON name; empty when Inline
	Key       string // `"name":`
	Type      Type
	Message   *Message // of a message or of the values of a map
	Value     Type     // Map: type of its values
	List      bool     // repeated
	Pointer   bool     // absent differs from zero
	OmitEmpty bool     // not printed when empty, as encoding/json understands it
	OmitZero  bool     // not printed when zero, as encoding/json understands it
	Inline    bool     // printed without a name, in the object around it
	Absent    Absent   // what is printed when the field is not on the wire
	Simple    bool     // length-delimited, no map, not retired: nothing to check but the length
	Retired   bool     // gone from the newest definition of its message
	Last      string   // newest version of k8s.io/api that has the field
}

// Absent is what becomes of a field that is not on the wire.
type Absent uint8

// What becomes of an absent field.
const (
	AbsentPrint Absent = iota // its zero value is printed
	AbsentNull                // null is printed
	AbsentSkip                // nothing is
)

// absent works Absent out from the other members.
func (f *Field) absent() Absent {
	nilable := f.Pointer || f.List || f.Type == Map || f.Type == Bytes
	switch {
	case f.Retired, f.OmitZero:
		return AbsentSkip
	case f.Inline:
		if f.Pointer {
			return AbsentSkip
		}
		return AbsentPrint
	case f.OmitEmpty && (nilable || f.Type < Nested || f.Type == Array):
		return AbsentSkip
	case nilable || f.Type == Array:
		return AbsentNull
	}
	return AbsentPrint
}

// Field returns the index of the field with the given number, or -1.
func (m *Message) Field(number uint32) int {
	if number < uint32(len(m.index)) {
		return int(m.index[number]) - 1
	}
	return -1
}

// IsMessage tells whether a value of type t is a message on the wire.
func (t Type) IsMessage() bool { return t >= Nested }

// Kind looks a kind up; nil when no version of Kubernetes in the table has it.
func (t *Table) Kind(apiVersion, kind string) *Kind { return t.kinds[[2]string{apiVersion, kind}] }

// Message looks a message up by its name; nil when the table lacks it.
func (t *Table) Message(name string) *Message { return t.messages[name] }

// Kinds calls f for every kind, in no particular order.
func (t *Table) Kinds(f func(*Kind)) {
	for _, k := range t.kinds {
		f(k)
	}
}

// ObjectMeta is the metadata message that every object has as its first field.
func (t *Table) ObjectMeta() *Message {
	return t.messages["k8s.io/apimachinery/pkg/apis/meta/v1.ObjectMeta"]
}

// Load returns the embedded table. The first call unpacks it. A damaged table is
// a defect of the build, not of any input, hence the panic.
var Load = sync.OnceValue(func() *Table {
	m, err := merge.Decode(file)
	if err != nil {
		panic(err)
	}
	t, err := build(m)
	if err != nil {
		panic(err)
	}
	return t
})

func build(in *merge.Table) (*Table, error) {
	t := &Table{
		Versions: in.Versions,
		kinds:    make(map[[2]string]*Kind, len(in.Kinds)),
		messages: make(map[string]*Message, len(in.Messages)),
	}
	all := make([]Message, len(in.Messages))
	fields, numbers := 0, 0
	for i, m := range in.Messages {
		all[i].Name = m.Name
		all[i].Type = Nested
		if s, ok := special[m.Name]; ok {
			all[i].Type = s
		} else if len(m.Fields) == 1 && m.Fields[0].Name == "" && !m.Fields[0].Inline {
			all[i].Type = Array
		}
		t.messages[m.Name] = &all[i]
		fields += len(m.Fields)
		numbers += highest(m.Fields) + 1
	}
	slab := make([]Field, fields)
	index := make([]uint16, numbers)
	for i, m := range in.Messages {
		out := &all[i]
		out.Fields, slab = slab[:len(m.Fields):len(m.Fields)], slab[len(m.Fields):]
		n := highest(m.Fields) + 1
		out.index, index = index[:n:n], index[n:]
		for j, f := range m.Fields {
			d := &out.Fields[j]
			*d = Field{
				Number: uint32(f.Number), Name: f.Name, List: f.List, Pointer: f.Pointer, OmitEmpty: f.OmitEmpty,
				OmitZero: f.OmitZero, Inline: f.Inline, Retired: f.Retired, Last: in.Versions[f.Last],
			}
			if !f.Inline {
				d.Key = `"` + f.Name + `":`
			}
			out.index[f.Number] = uint16(j + 1)
			ok := true
			if f.Type == "map" {
				d.Type = Map
				d.Value, d.Message, ok = t.typeOf(f.Value)
			} else {
				d.Type, d.Message, ok = t.typeOf(f.Type)
			}
			if !ok {
				return nil, fmt.Errorf("schema table: %s: field %s of unknown type", m.Name, f.Name)
			}
			d.Absent = d.absent()
			d.Simple = !d.Retired && (d.Type == String || d.Type == Bytes || d.Type.IsMessage())
		}
	}
	for _, k := range in.Kinds {
		m := t.messages[k.Message]
		if m == nil {
			return nil, fmt.Errorf("schema table: %s %s has no message", k.APIVersion, k.Kind.Kind)
		}
		t.kinds[[2]string{k.APIVersion, k.Kind.Kind}] = &Kind{
			APIVersion: k.APIVersion, Kind: k.Kind.Kind, Message: m, Last: in.Versions[k.Last],
		}
	}
	return t, nil
}

func (t *Table) typeOf(s string) (Type, *Message, bool) {
	switch s {
	case "string":
		return String, nil, true
	case "bytes":
		return Bytes, nil, true
	case "bool":
		return Bool, nil, true
	case "int32":
		return Int32, nil, true
	case "int64":
		return Int64, nil, true
	case "double":
		return Double, nil, true
	}
	if m := t.messages[s]; m != nil {
		return m.Type, m, true
	}
	return 0, nil, false
}

func highest(fields []merge.Field) int {
	n := 0
	for _, f := range fields {
		n = max(n, f.Number)
	}
	return n
}
