// Package schema is the table of every protobuf message that Kubernetes stores
// in etcd: k8s.io/api of the versions in Versions (removed kinds included),
// apiextensions, apiregistration and the meta types they use.
//
// The table is a file made by the generator in gen and embedded here. Nothing is
// read until Load is first called, so a program that decodes nothing pays nothing.
package schema

import (
	_ "embed"
	"sync"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/merge"
)

//go:generate go run ./gen -out schema.bin

//go:embed schema.bin
var file []byte

// Type is how the value of a field is written on the wire and printed.
type Type uint8

// The types of a value. Those before Nested are numbered as in the file, those after
// it are messages with a JSON of their own.
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

// Table is the loaded table. It is safe for concurrent use. Messages are built
// when a kind that reaches them is first looked up: a command that prints Pods has
// no use for the other thousand.
type Table struct {
	Versions []string // of k8s.io/api, newest first
	file     *merge.File
	index    map[[2]string]int // of file.Kinds

	mu       sync.RWMutex
	kinds    []*Kind    // as file.Kinds; nil: not built
	messages []*Message // as file's; nil: not built
	byName   map[string]*Message
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
	// Shown is the set of fields, by their index, that are printed even when they
	// are not on the wire: those whose Absent is not AbsentSkip.
	Shown uint64
	// Quick is, by a field's tag (number<<3 | wire type), its index + 1 when nothing
	// but its length needs to be checked before it is decoded; 0 for other tags. It
	// may be shorter than a tag.
	Quick []uint8
	index []uint16 // by field number: index of Fields + 1
}

// Field is one field of a message, in the order of the JSON. What decoding looks at
// for every field comes first, to lie in one cache line.
type Field struct {
	Key       string // `,"name":`
	Type      Type
	List      bool // repeated
	Pointer   bool // absent differs from zero
	DropZero  bool // a string, number, boolean or message of this field is not printed when zero
	Inline    bool // printed without a name, in the object around it
	Absent    Absent
	OmitEmpty bool     // not printed when empty, as encoding/json understands it
	OmitZero  bool     // not printed when zero, as encoding/json understands it
	Message   *Message // of a message or of the values of a map
	Number    uint32
	Value     Type   // Map: type of its values
	Retired   bool   // gone from the newest definition of its message
	Name      string // JSON name; empty when Inline
	Last      string // newest version of k8s.io/api that has the field
}

// dropZero works DropZero out from the other members.
func (f *Field) dropZero() bool {
	return !f.Pointer && (f.OmitZero || f.OmitEmpty && f.Type < Nested)
}

// quick tells for which wire type a field has nothing to check but its length.
func (f *Field) quick() (wire int, ok bool) {
	switch {
	case f.Retired:
		return 0, false
	case f.Type == Bool, f.Type == Int32, f.Type == Int64:
		return 0, true
	case f.Type == Double:
		return 1, true
	}
	return 2, f.Type != Map
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
func (t *Table) Kind(apiVersion, kind string) *Kind {
	i, ok := t.index[[2]string{apiVersion, kind}]
	if !ok {
		return nil
	}
	t.mu.RLock()
	k := t.kinds[i]
	t.mu.RUnlock()
	if k != nil {
		return k
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kinds[i] == nil {
		f := t.file.Kinds[i]
		t.kinds[i] = &Kind{APIVersion: f.APIVersion, Kind: f.Kind, Message: t.build(f.Message), Last: t.Versions[f.Last]}
	}
	return t.kinds[i]
}

// Has tells whether some version of Kubernetes in the table has a kind.
func (t *Table) Has(apiVersion, kind string) bool {
	_, ok := t.index[[2]string{apiVersion, kind}]
	return ok
}

// Message looks a message up by its name; nil when the table lacks it.
func (t *Table) Message(name string) *Message {
	t.mu.RLock()
	m := t.byName[name]
	t.mu.RUnlock()
	if m != nil {
		return m
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.file.Len() {
		if t.file.Name(i) == name {
			t.byName[name] = t.build(i)
			return t.byName[name]
		}
	}
	return nil
}

// Names calls f for the apiVersion and kind of every kind, ordered by both.
func (t *Table) Names(f func(apiVersion, kind string)) {
	for _, k := range t.file.Kinds {
		f(k.APIVersion, k.Kind)
	}
}

// ObjectMeta is the metadata message that every object has as its first field.
func (t *Table) ObjectMeta() *Message { return t.Message(objectMeta) }

const objectMeta = "k8s.io/apimachinery/pkg/apis/meta/v1.ObjectMeta"

// Load returns the embedded table. The first call unpacks it. A damaged table is
// a defect of the build, not of any input, hence the panic.
var Load = sync.OnceValue(func() *Table {
	t, err := open(file)
	if err != nil {
		panic(err)
	}
	return t
})

func open(b []byte) (*Table, error) {
	f, err := merge.Open(b)
	if err != nil {
		return nil, err
	}
	t := &Table{
		Versions: f.Versions,
		file:     f,
		index:    make(map[[2]string]int, len(f.Kinds)),
		kinds:    make([]*Kind, len(f.Kinds)),
		messages: make([]*Message, f.Len()),
		byName:   map[string]*Message{},
	}
	for i, k := range f.Kinds {
		t.index[[2]string{k.APIVersion, k.Kind}] = i
	}
	return t, nil
}

// build returns message i with every message it reaches. The caller holds the lock;
// whoever gets a message from the table later has taken it too, and so sees it
// complete.
func (t *Table) build(i int) *Message {
	if t.messages[i] == nil {
		todo := []int{i}
		t.messages[i] = t.shell(i)
		for len(todo) > 0 {
			n := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			todo = t.fill(n, todo)
		}
	}
	return t.messages[i]
}

// shell returns message i without its fields, but with its type, which those who
// refer to it need.
func (t *Table) shell(i int) *Message {
	m := &Message{Name: t.file.Name(i), Type: Nested}
	if s, ok := special[m.Name]; ok {
		m.Type = s
		return m
	}
	// A single field without a name is a list that is a message of its own.
	t.each(i, func(count int, f merge.FileField) {
		if count == 1 && f.Name == "" && !f.Inline {
			m.Type = Array
		}
	})
	return m
}

func (t *Table) each(i int, f func(count int, d merge.FileField)) {
	if err := t.file.Fields(i, f); err != nil {
		panic(err) // as in Load
	}
}

// fill reads the fields of message i and appends the messages that it is the first
// to refer to.
func (t *Table) fill(i int, todo []int) []int {
	m := t.messages[i]
	highest := 0
	refer := func(typ int) (Type, *Message) {
		if typ < merge.TypeMessage {
			return Type(typ), nil
		}
		typ -= merge.TypeMessage
		if t.messages[typ] == nil {
			t.messages[typ] = t.shell(typ)
			todo = append(todo, typ)
		}
		return t.messages[typ].Type, t.messages[typ]
	}
	t.each(i, func(count int, f merge.FileField) {
		if m.Fields == nil {
			m.Fields = make([]Field, 0, count)
		}
		d := Field{
			Number: uint32(f.Number), Name: f.Name, List: f.List, Pointer: f.Pointer, OmitEmpty: f.OmitEmpty,
			OmitZero: f.OmitZero, Inline: f.Inline, Retired: f.Retired, Last: t.Versions[f.Last],
		}
		if !f.Inline {
			d.Key = `,"` + f.Name + `":`
		}
		d.Type, d.Message = refer(f.Type)
		if d.Type == Map {
			d.Value, d.Message = refer(f.Value)
		}
		d.Absent = d.absent()
		d.DropZero = d.dropZero()
		m.Fields = append(m.Fields, d)
		highest = max(highest, f.Number)
	})
	if len(m.Fields) > 64 {
		panic(m.Name + " has more fields than Shown has bits") // as in Load
	}
	m.index = make([]uint16, highest+1)
	m.Quick = make([]uint8, 8*(highest+1))
	for j := range m.Fields {
		f := &m.Fields[j]
		m.index[f.Number] = uint16(j + 1)
		if wire, ok := f.quick(); ok {
			m.Quick[int(f.Number)<<3|wire] = uint8(j + 1)
		}
		if f.Absent != AbsentSkip {
			m.Shown |= 1 << j
		}
	}
	return todo
}
