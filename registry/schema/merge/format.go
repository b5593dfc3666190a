package merge

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/describe"
)

// The file is a deflate stream of unsigned varints and strings:
//
//	magic
//	strings:  count, then length and bytes of each
//	versions: count, then a string each
//	kinds:    count, then apiVersion, kind, message, last version
//	messages: count, then import path, type name, flags, and the length in bytes
//	          of its fields
//	fields of the messages, one message after the other; of each field
//	          number, name, type, flags, last version, and of a map the type of its
//	          values
//
// Strings are indexes into the strings, messages indexes into the messages, and
// versions indexes into the versions. Types are those of scalars, then come the
// messages. A reader can build one message without looking at the others.
const magic = "etcdctl-plus schema 2\n"

// scalars are the types that are no messages; the number of a message type is its
// index behind them.
var scalars = []string{"string", "bytes", "bool", "int32", "int64", "double", "map"}

// TypeMap is the number of maps, TypeMessage that of the first message.
const (
	TypeMap     = 6
	TypeMessage = 7
)

const (
	flagList = 1 << iota
	flagPointer
	flagOmitEmpty
	flagOmitZero
	flagInline
	flagRetired
)

// Encode returns the bytes of schema.bin.
func Encode(t *Table) ([]byte, error) {
	w := writer{index: map[string]uint64{}, types: map[string]uint64{}}
	for i, s := range scalars {
		w.types[s] = uint64(i)
	}
	for i, m := range t.Messages {
		w.types[m.Name] = uint64(i + TypeMessage)
	}
	w.number(uint64(len(t.Versions)))
	for _, v := range t.Versions {
		w.string(v)
	}
	w.number(uint64(len(t.Kinds)))
	for _, k := range t.Kinds {
		w.string(k.APIVersion)
		w.string(k.Kind.Kind)
		w.number(w.typeOf(k.Message) - TypeMessage)
		w.number(uint64(k.Last))
	}
	w.number(uint64(len(t.Messages)))
	head := w.body
	var all []byte
	for _, m := range t.Messages {
		w.body = nil
		for _, f := range m.Fields {
			w.number(uint64(f.Number))
			w.string(f.Name)
			typ := w.typeOf(f.Type)
			w.number(typ)
			w.number(flags(f))
			w.number(uint64(f.Last))
			if typ == TypeMap {
				w.number(w.typeOf(f.Value))
			}
		}
		fields := w.body
		w.body = head
		i := strings.LastIndexByte(m.Name, '.')
		w.string(m.Name[:i])
		w.string(m.Name[i+1:])
		w.number(uint64(len(m.Fields)))
		w.number(uint64(len(fields)))
		head = w.body
		all = append(all, fields...)
	}
	if w.err != nil {
		return nil, w.err
	}

	b := []byte(magic)
	b = binary.AppendUvarint(b, uint64(len(w.strings)))
	for _, s := range w.strings {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = append(append(b, head...), all...)
	var out bytes.Buffer
	z, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	// The size comes first, so that a reader allocates once.
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), out.Bytes()...), nil
}

func flags(f Field) (n uint64) {
	for i, set := range []bool{f.List, f.Pointer, f.OmitEmpty, f.OmitZero, f.Inline, f.Retired} {
		if set {
			n |= 1 << i
		}
	}
	return n
}

type writer struct {
	strings []string
	index   map[string]uint64
	types   map[string]uint64
	body    []byte
	err     error
}

func (w *writer) number(n uint64) { w.body = binary.AppendUvarint(w.body, n) }

func (w *writer) typeOf(name string) uint64 {
	n, ok := w.types[name]
	if !ok {
		w.err = fmt.Errorf("type %s is not in the table", name)
	}
	return n
}

func (w *writer) string(s string) {
	i, ok := w.index[s]
	if !ok {
		i = uint64(len(w.strings))
		w.index[s] = i
		w.strings = append(w.strings, s)
	}
	w.number(i)
}

// File is an opened schema.bin. Reading it is cheap until fields are asked for.
type File struct {
	Versions []string // newest first
	Kinds    []FileKind
	messages []fileMessage
	strings  []string
}

// FileKind is a kind; Message indexes the messages, Last the versions.
type FileKind struct {
	APIVersion, Kind string
	Message, Last    int
}

type fileMessage struct {
	path, name string
	count      int
	fields     []byte
}

// FileField is a field. Type is below TypeMap for a scalar (string, bytes, bool,
// int32, int64, double), TypeMap for a map, whose values are of type Value, and
// else the index of a message plus TypeMessage.
type FileField struct {
	Number, Type, Value, Last                           int
	Name                                                string
	List, Pointer, OmitEmpty, OmitZero, Inline, Retired bool
}

// maxFile bounds the unpacked size.
const maxFile = 8 << 20

var errDamaged = errors.New("schema table: damaged")

// Open unpacks what Encode wrote.
func Open(b []byte) (*File, error) {
	if len(b) < 4 {
		return nil, errDamaged
	}
	size := binary.BigEndian.Uint32(b)
	if size > maxFile {
		return nil, errDamaged
	}
	raw := make([]byte, size)
	z := flate.NewReader(bytes.NewReader(b[4:]))
	if _, err := io.ReadFull(z, raw); err != nil {
		return nil, fmt.Errorf("schema table: %w", err)
	}
	if n, err := z.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return nil, errDamaged
	}
	rest, ok := bytes.CutPrefix(raw, []byte(magic))
	if !ok {
		return nil, errors.New("schema table: wrong magic")
	}
	f := new(File)
	r := reader{rest: rest, file: f}
	f.strings = make([]string, r.count())
	lengths := r.rest
	total := 0
	for range f.strings { // measure, so that all strings are parts of one
		n := int(r.number())
		if n > len(r.rest) {
			return nil, errDamaged
		}
		r.rest = r.rest[n:]
		total += n
	}
	var all strings.Builder
	all.Grow(total)
	p := reader{rest: lengths}
	for i := range f.strings {
		n := int(p.number())
		from := all.Len()
		all.Write(p.rest[:n])
		p.rest = p.rest[n:]
		f.strings[i] = all.String()[from:]
	}
	f.Versions = make([]string, r.count())
	for i := range f.Versions {
		f.Versions[i] = r.string()
	}
	f.Kinds = make([]FileKind, r.count())
	for i := range f.Kinds {
		f.Kinds[i] = FileKind{APIVersion: r.string(), Kind: r.string(), Message: int(r.number()), Last: int(r.number())}
	}
	f.messages = make([]fileMessage, r.count())
	lens := make([]int, len(f.messages))
	for i := range f.messages {
		f.messages[i] = fileMessage{path: r.string(), name: r.string(), count: int(r.number())}
		lens[i] = int(r.number())
	}
	for i, n := range lens {
		if n > len(r.rest) || f.messages[i].count > n {
			return nil, errDamaged
		}
		f.messages[i].fields, r.rest = r.rest[:n], r.rest[n:]
	}
	for _, k := range f.Kinds {
		r.bad = r.bad || k.Message >= len(f.messages) || k.Last >= len(f.Versions)
	}
	if r.bad || len(r.rest) > 0 {
		return nil, errDamaged
	}
	return f, nil
}

// Len returns the number of messages.
func (f *File) Len() int { return len(f.messages) }

// Name returns the name of message i: import path, dot, type name.
func (f *File) Name(i int) string { return f.messages[i].path + "." + f.messages[i].name }

// Fields calls yield for the fields of message i; count is how many there are.
func (f *File) Fields(i int, yield func(count int, d FileField)) error {
	m := &f.messages[i]
	r := reader{rest: m.fields, file: f}
	for range m.count {
		d := FileField{Number: int(r.number()), Name: r.string(), Type: int(r.number())}
		fl := r.number()
		d.List, d.Pointer, d.OmitEmpty = fl&flagList != 0, fl&flagPointer != 0, fl&flagOmitEmpty != 0
		d.OmitZero, d.Inline, d.Retired = fl&flagOmitZero != 0, fl&flagInline != 0, fl&flagRetired != 0
		d.Last = int(r.number())
		if d.Type == TypeMap {
			d.Value = int(r.number())
		}
		limit := TypeMessage + len(f.messages)
		if r.bad || d.Last >= len(f.Versions) || d.Type >= limit || d.Value >= limit || d.Number <= 0 || d.Number > 1<<16 {
			return errDamaged
		}
		yield(m.count, d)
	}
	if len(r.rest) > 0 {
		return errDamaged
	}
	return nil
}

// Decode reads all that Encode wrote.
func Decode(b []byte) (*Table, error) {
	f, err := Open(b)
	if err != nil {
		return nil, err
	}
	t := &Table{Versions: f.Versions}
	for _, k := range f.Kinds {
		t.Kinds = append(t.Kinds, Kind{describe.Kind{APIVersion: k.APIVersion, Kind: k.Kind, Message: f.Name(k.Message)}, k.Last})
	}
	typeName := func(i int) string {
		if i < TypeMessage {
			return scalars[i]
		}
		return f.Name(i - TypeMessage)
	}
	for i := range f.Len() {
		m := Message{Name: f.Name(i)}
		err := f.Fields(i, func(_ int, d FileField) {
			g := Field{Last: d.Last, Retired: d.Retired, Field: describe.Field{
				Number: d.Number, Name: d.Name, Type: typeName(d.Type), List: d.List, Pointer: d.Pointer,
				OmitEmpty: d.OmitEmpty, OmitZero: d.OmitZero, Inline: d.Inline,
			}}
			if d.Type == TypeMap {
				g.Value = typeName(d.Value)
			}
			m.Fields = append(m.Fields, g)
		})
		if err != nil {
			return nil, err
		}
		t.Messages = append(t.Messages, m)
	}
	return t, nil
}

type reader struct {
	rest []byte
	file *File
	bad  bool
}

// number reads a number below 2^31; there are no larger ones.
func (r *reader) number() uint64 {
	n, w := binary.Uvarint(r.rest)
	if w <= 0 || n > 1<<31 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[w:]
	return n
}

// count reads the length of a list; every element takes at least one byte.
func (r *reader) count() int {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return 0
	}
	return int(n)
}

func (r *reader) string() string {
	n := r.number()
	if n >= uint64(len(r.file.strings)) {
		r.bad = true
		return ""
	}
	return r.file.strings[n]
}
