package merge

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/describe"
)

// The file is a deflate stream of unsigned varints and strings:
//
//	magic
//	strings:  count, then length and bytes of each
//	versions: count, then a string index each
//	messages: count, then name, number of fields, and of each field
//	          number, name, type, value type, flags, last version
//	kinds:    count, then apiVersion, kind, message name, last version
//
// Names and types are indexes into the strings.
const magic = "etcdctl-plus schema 1\n"

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
	w := writer{index: map[string]uint64{}}
	w.number(uint64(len(t.Versions)))
	for _, v := range t.Versions {
		w.string(v)
	}
	w.number(uint64(len(t.Messages)))
	for _, m := range t.Messages {
		w.string(m.Name)
		w.number(uint64(len(m.Fields)))
		for _, f := range m.Fields {
			w.number(uint64(f.Number))
			w.string(f.Name)
			w.string(f.Type)
			w.string(f.Value)
			w.number(flags(f))
			w.number(uint64(f.Last))
		}
	}
	w.number(uint64(len(t.Kinds)))
	for _, k := range t.Kinds {
		w.string(k.APIVersion)
		w.string(k.Kind.Kind)
		w.string(k.Message)
		w.number(uint64(k.Last))
	}

	head := []byte(magic)
	head = binary.AppendUvarint(head, uint64(len(w.strings)))
	for _, s := range w.strings {
		head = binary.AppendUvarint(head, uint64(len(s)))
		head = append(head, s...)
	}
	var out bytes.Buffer
	z, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(append(head, w.body...)); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
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
	body    []byte
}

func (w *writer) number(n uint64) { w.body = binary.AppendUvarint(w.body, n) }

func (w *writer) string(s string) {
	i, ok := w.index[s]
	if !ok {
		i = uint64(len(w.strings))
		w.index[s] = i
		w.strings = append(w.strings, s)
	}
	w.number(i)
}

// Decode reads what Encode wrote.
func Decode(b []byte) (*Table, error) {
	raw, err := io.ReadAll(flate.NewReader(bytes.NewReader(b)))
	if err != nil {
		return nil, fmt.Errorf("schema table: %w", err)
	}
	r := reader{rest: raw}
	if !bytes.HasPrefix(raw, []byte(magic)) {
		return nil, errors.New("schema table: wrong magic")
	}
	r.rest = raw[len(magic):]
	all := string(raw) // one allocation; every string is a part of it
	r.strings = make([]string, r.count())
	for i := range r.strings {
		n := r.number()
		at := len(raw) - len(r.rest)
		if n > uint64(len(r.rest)) {
			return nil, errors.New("schema table: cut short")
		}
		r.strings[i] = all[at : at+int(n)]
		r.rest = r.rest[n:]
	}
	t := new(Table)
	t.Versions = make([]string, r.count())
	for i := range t.Versions {
		t.Versions[i] = r.string()
	}
	t.Messages = make([]Message, r.count())
	for i := range t.Messages {
		m := &t.Messages[i]
		m.Name = r.string()
		m.Fields = make([]Field, r.count())
		for j := range m.Fields {
			f := &m.Fields[j]
			f.Number = int(r.number())
			f.Name, f.Type, f.Value = r.string(), r.string(), r.string()
			fl := r.number()
			f.List, f.Pointer, f.OmitEmpty = fl&flagList != 0, fl&flagPointer != 0, fl&flagOmitEmpty != 0
			f.OmitZero, f.Inline, f.Retired = fl&flagOmitZero != 0, fl&flagInline != 0, fl&flagRetired != 0
			f.Last = int(r.number())
		}
	}
	t.Kinds = make([]Kind, r.count())
	for i := range t.Kinds {
		k := &t.Kinds[i]
		k.Kind = describe.Kind{APIVersion: r.string(), Kind: r.string(), Message: r.string()}
		k.Last = int(r.number())
	}
	if r.bad || len(r.rest) > 0 {
		return nil, errors.New("schema table: damaged")
	}
	return t, nil
}

type reader struct {
	rest    []byte
	strings []string
	bad     bool
}

func (r *reader) number() uint64 {
	n, w := binary.Uvarint(r.rest)
	if w <= 0 {
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
	if n >= uint64(len(r.strings)) {
		r.bad = true
		return ""
	}
	return r.strings[n]
}
