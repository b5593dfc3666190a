// Package transcode prints protobuf messages of Kubernetes as JSON without the Go
// types of Kubernetes: straight from the bytes, along the table of package schema.
//
// The output is byte for byte what Unmarshal and json.Marshal of the Go type
// print, and what they reject is rejected. In one thing it knows more: fields that
// the newest types do not have are not dropped but collected.
package transcode

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// Limits of what one value may cost. etcd takes requests of 1.5 MiB by default, so
// real values are far below them.
const (
	maxInput   = 1 << 30
	maxDepth   = 500
	maxUnknown = 1000 // unknown fields that are kept; the rest is only counted
	// DefaultMaxJSON is the bound of the output when Transcoder.MaxJSON is 0.
	DefaultMaxJSON = 64 << 20
)

// microLayout is how MicroTime is printed.
const microLayout = "2006-01-02T15:04:05.000000Z07:00"

// Transcoder turns messages into JSON. The zero value is ready; it keeps buffers
// between calls and is not safe for concurrent use.
type Transcoder struct {
	// ResourceVersion, when not empty, is printed as metadata.resourceVersion in
	// place of the stored one, which is always empty.
	ResourceVersion string
	// RetiredInPlace prints fields that the newest types no longer have at their
	// place, behind the others, as the versions that had them did. Otherwise they
	// are collected with the unknown ones.
	RetiredInPlace bool
	// MaxJSON bounds the JSON in bytes; 0 means DefaultMaxJSON.
	MaxJSON int
	// HideUnknown replaces the values of unknown fields, for objects whose values
	// must not be shown.
	HideUnknown func(value []byte) string

	spans    []span
	entries  []entry
	path     []step
	quantity map[string]string
	checked  [8][]byte // JSON that is known to be printed as it is, by its length
	day      int64     // since 1970 in UTC, of the last time that was printed; 0: none
	date     [11]byte  // its "2006-01-02T"
	meta     *schema.Message
	notes    [2]int // where in the output metadata.annotations lies
	notesOf  bool   // metadata was met, so that notes tells
	scratch  []byte
	limit    int
	joined   int // bytes copied so far to merge repeated messages
	input    int
	silent   int // >0: what is unknown was counted before, or does not count
	unknown  []UnknownField
	count    int
}

// UnknownField is a field that the newest type of its message does not have.
type UnknownField struct {
	Path   string // of the message, such as "spec.containers[0]"; "" at the top
	Number uint32
	// Name and Last are set for a field that an older version had: its JSON name and
	// the newest version of k8s.io/api with it.
	Name, Last string
	Value      []byte // JSON: decoded if it has a name, else a guess from the wire
}

// Error tells where a message does not decode.
type Error struct {
	Message string // Go type, without its import path: "v1.Pod"
	Path    string // such as "spec.containers[0].image"; "" at the top
	Offset  int    // in the message at Path's parent; -1 when unknown
	Reason  error
}

func (e *Error) Error() string {
	where := e.Path
	if where == "" {
		where = "top level"
	}
	if e.Offset >= 0 {
		where += fmt.Sprintf(" (byte %d of %s)", e.Offset, e.Message)
	}
	return fmt.Sprintf("decode %s: %s", where, e.Reason)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Reason }

// span is where a field was found in its message.
type span struct {
	first    int32 // the tag of the first occurrence
	from, to int32 // the value of the last one
	next     int32 // behind the last one
	n        int32 // occurrences
}

type entry struct{ key, value []byte }

// step is one part of the path to the message at hand.
type step struct {
	field *schema.Field
	index int32 // in a list, or -1
	entry int32 // in a map: index of Transcoder.entries, or -1
}

// Unknown returns the unknown fields of the last message, in the order they were
// met, and how many there were; at most 1000 are kept.
func (t *Transcoder) Unknown() ([]UnknownField, int) { return t.unknown, t.count }

// Append appends the JSON object of message b of type m to dst. head, such as
// `"kind":"Pod","apiVersion":"v1"`, is put before its members. On an error dst
// comes back as it was.
func (t *Transcoder) Append(dst []byte, m *schema.Message, head string, b []byte) ([]byte, error) {
	t.spans, t.entries, t.path = t.spans[:0], t.entries[:0], t.path[:0]
	t.unknown, t.count, t.joined, t.silent, t.input = nil, 0, 0, 0, len(b)
	t.notes, t.notesOf = [2]int{}, false
	if t.meta == nil {
		t.meta = schema.Load().ObjectMeta()
	}
	if len(b) > maxInput {
		return dst, t.fail(m, nil, -1, errInput)
	}
	t.limit = t.MaxJSON
	if t.limit == 0 {
		t.limit = DefaultMaxJSON
	}
	t.limit += len(dst)
	mark := len(dst)
	dst = append(append(dst, '{'), head...)
	dst, _, err := t.fields(dst, m, b, nil)
	if err != nil {
		return dst[:mark], err
	}
	return append(dst, '}'), nil
}

// Annotations returns the place of metadata.annotations in the last message, in what
// Append returned; it is empty when the object has none. ok is false when the
// message has no metadata of the usual kind.
func (t *Transcoder) Annotations() (from, to int, ok bool) { return t.notes[0], t.notes[1], t.notesOf }

// fail builds the error for field f (or none) of m.
func (t *Transcoder) fail(m *schema.Message, f *schema.Field, offset int, reason error) error {
	e := &Error{Message: shortName(m), Path: t.where(), Offset: offset, Reason: reason}
	if f != nil && !f.Inline && f.Name != "" {
		if e.Path != "" {
			e.Path += "."
		}
		e.Path += f.Name
	}
	return e
}

// shortName cuts "k8s.io/api/core/v1.Pod" to "v1.Pod".
func shortName(m *schema.Message) string {
	return m.Name[bytes.LastIndexByte([]byte(m.Name), '/')+1:]
}

// where prints the path.
func (t *Transcoder) where() string {
	var b []byte
	for _, s := range t.path {
		if s.field != nil && s.field.Name != "" && !s.field.Inline {
			if len(b) > 0 {
				b = append(b, '.')
			}
			b = append(b, s.field.Name...)
		}
		if s.index >= 0 {
			b = append(strconv.AppendInt(append(b, '['), int64(s.index), 10), ']')
		} else if s.entry >= 0 {
			b = append(strconv.AppendQuote(append(b, '['), string(t.entries[s.entry].key)), ']')
		}
	}
	return string(b)
}

// open reads the fields of message b and returns the index of the first of its
// spans, one per field of m, and the set of the fields that are there; the spans of
// others hold anything. ends holds the ends of the pieces when b was joined from
// several occurrences of the message, each of which must be complete.
func (t *Transcoder) open(m *schema.Message, b []byte, ends []int) (base int, seen uint64, err error) {
	base = len(t.spans)
	if base+len(m.Fields) > cap(t.spans) {
		t.spans = slices.Grow(t.spans, len(m.Fields))
	}
	t.spans = t.spans[:base+len(m.Fields)]
	if ends == nil {
		seen, err = t.scan(base, m, b, 0, 0)
		return base, seen, err
	}
	from := 0
	for _, end := range ends {
		if seen, err = t.scan(base, m, b[:end], from, seen); err != nil {
			return base, seen, err
		}
		from = end
	}
	return base, seen, nil
}

func (t *Transcoder) close(base int) { t.spans = t.spans[:base] }

// scan notes where each field of b[i:] lies, and checks what can be checked
// without decoding it. It returns the fields it met besides those in seen.
func (t *Transcoder) scan(base int, m *schema.Message, b []byte, i int, seen uint64) (uint64, error) {
	spans := t.spans[base:]
	for i < len(b) {
		j, from, to := quick(m, b, i)
		next := to
		if j < 0 {
			var err error
			if j, from, to, next, err = t.scanOne(m, b, i); err != nil {
				return seen, err
			}
			if j < 0 {
				i = next
				continue
			}
		}
		s := &spans[j]
		if seen>>uint(j)&1 == 0 {
			seen |= 1 << uint(j)
			s.first, s.n = int32(i), 0
		}
		s.from, s.to, s.next = int32(from), int32(to), int32(next)
		s.n++
		i = next
	}
	return seen, nil
}

// quick reads a field whose tag and length have one or two bytes each, which nearly
// every one has, and which needs no more checks. j is -1 when it is another one.
func quick(m *schema.Message, b []byte, i int) (j, from, to int) {
	tag := uint(b[i])
	i++
	if tag >= 0x80 {
		if i >= len(b) || b[i] >= 0x80 {
			return -1, 0, 0
		}
		tag = tag&0x7f | uint(b[i])<<7
		i++
	}
	if tag >= uint(len(m.Quick)) || i >= len(b) {
		return -1, 0, 0
	}
	j = int(m.Quick[tag]) - 1
	switch tag & 7 {
	case wireBytes:
		n := uint(b[i])
		i++
		if n >= 0x80 {
			if i >= len(b) || b[i] >= 0x80 {
				return -1, 0, 0
			}
			n = n&0x7f | uint(b[i])<<7
			i++
		}
		if n > uint(len(b)-i) {
			return -1, 0, 0
		}
		return j, i, i + int(n)
	case wireVarint:
		to = i
		for b[to] >= 0x80 {
			if to++; to == len(b) || to-i > 9 {
				return -1, 0, 0
			}
		}
		return j, i, to + 1
	}
	return -1, 0, 0
}

// scanOne is scan for one field of any kind. j is -1 when there is nothing to note.
func (t *Transcoder) scanOne(m *schema.Message, b []byte, i int) (j, from, to, next int, err error) {
	tok, err := read(b, i)
	if err != nil {
		return -1, 0, 0, 0, t.fail(m, nil, i, err)
	}
	j = m.Field(tok.number)
	if j < 0 || m.Fields[j].Retired && !t.RetiredInPlace {
		t.foreign(m, j, b, i, tok)
		return -1, 0, 0, tok.next, nil
	}
	f := &m.Fields[j]
	switch f.Type {
	case schema.Bool, schema.Int32, schema.Int64:
		if tok.wire == wireBytes && f.List {
			if tok.next, err = packed(b, tok); err != nil {
				return -1, 0, 0, 0, t.fail(m, f, i, err)
			}
			if tok.next == tok.from {
				return -1, 0, 0, tok.next, nil // an empty packed list does not even make the list exist
			}
		} else if tok.wire != wireVarint {
			return -1, 0, 0, 0, t.fail(m, f, i, errWire)
		}
	case schema.Double:
		if tok.wire != wireFixed64 {
			return -1, 0, 0, 0, t.fail(m, f, i, errWire)
		}
	case schema.Map:
		if tok.wire != wireBytes {
			return -1, 0, 0, 0, t.fail(m, f, i, errWire)
		}
		if _, ok := pairOf(f, b[tok.from:tok.to]); !ok {
			if _, err := t.mapEntry(f, b, tok.from, tok.to, false); err != nil {
				return -1, 0, 0, 0, t.fail(m, f, i, err)
			}
		}
	default:
		if tok.wire != wireBytes {
			return -1, 0, 0, 0, t.fail(m, f, i, errWire)
		}
	}
	return j, tok.from, tok.to, tok.next, nil
}

// packed returns the end of a packed list of varints. The last number may run past
// the list's announced end; Kubernetes goes on behind it.
func packed(b []byte, tok token) (int, error) {
	i := tok.from
	for i < tok.to {
		var err error
		if _, i, err = varint(b, i); err != nil {
			return 0, err
		}
	}
	return i, nil
}

// fields prints the members of message b, without braces. nonzero tells whether
// the Go struct would differ from its zero value.
func (t *Transcoder) fields(dst []byte, m *schema.Message, b []byte, ends []int) (_ []byte, nonzero bool, err error) {
	if len(t.path) > maxDepth {
		return dst, false, t.fail(m, nil, -1, errDepth)
	}
	base, seen, err := t.open(m, b, ends)
	if err != nil {
		return dst, false, err
	}
	todo := seen | m.Shown
	version := -1 // index of the field that ResourceVersion stands in for
	meta := len(t.path) == 1 && m == t.meta && t.path[0].field != nil && t.path[0].field.Name == "metadata"
	if meta {
		t.notesOf = true
		if t.ResourceVersion != "" {
			nonzero = true
			version = slices.IndexFunc(m.Fields, func(f schema.Field) bool { return f.Name == "resourceVersion" })
			todo |= 1 << uint(version)
		}
	}
	for ; todo != 0; todo &= todo - 1 {
		j := bits.TrailingZeros64(todo)
		f := &m.Fields[j]
		var s span
		if j == version {
			dst = AppendString(key(dst, f), t.ResourceVersion)
			continue
		}
		if seen>>uint(j)&1 != 0 {
			s = t.spans[base+j]
		} else if f.Absent == schema.AbsentNull {
			dst = append(key(dst, f), "null"...)
			continue
		}
		switch {
		case f.List:
			nonzero = true
			dst, err = t.list(key(dst, f), m, f, b, s)
		case f.Type == schema.String:
			if s.from == s.to && f.DropZero {
				continue
			}
			nonzero = nonzero || s.from != s.to || f.Pointer
			dst = appendString(key(dst, f), b[s.from:s.to])
		case isVarint(f.Type):
			n := number(b[s.from:s.to])
			if f.Type == schema.Int32 {
				n = uint64(int32(n))
			}
			if n == 0 && f.DropZero {
				continue
			}
			nonzero = nonzero || n != 0 || f.Pointer
			if dst = key(dst, f); f.Type == schema.Bool {
				dst = strconv.AppendBool(dst, n != 0)
			} else {
				dst = strconv.AppendInt(dst, int64(n), 10)
			}
		case f.Type == schema.Nested && s.n < 2 && !f.Inline:
			mark := len(dst)
			t.path = append(t.path, step{field: f, index: -1, entry: -1})
			var nz bool
			if dst, nz, err = t.fields(append(key(dst, f), '{'), f.Message, b[s.from:s.to], nil); err != nil {
				return dst, false, err
			}
			t.path = t.path[:len(t.path)-1]
			if f.DropZero && !nz {
				dst = dst[:mark]
			} else {
				dst = append(dst, '}')
			}
			nonzero = nonzero || nz || f.Pointer
		case f.Type == schema.Map:
			nonzero = true
			mark := len(dst)
			dst, err = t.mapping(key(dst, f), m, f, b, s)
			if meta && f.Name == "annotations" {
				t.notes = [2]int{mark, len(dst)}
			}
		default:
			var nz bool
			dst, nz, err = t.single(dst, m, f, b, s)
			nonzero = nonzero || nz
		}
		if err != nil {
			return dst, false, err
		}
		if len(dst) > t.limit {
			return dst, false, t.fail(m, f, -1, errSize)
		}
	}
	t.close(base)
	return dst, nonzero, nil
}

// key appends the name of f, after a comma if it is not the first member.
func key(dst []byte, f *schema.Field) []byte {
	if dst[len(dst)-1] != '{' {
		return append(dst, f.Key...)
	}
	return append(dst, f.Key[1:]...)
}

// single prints field f, which is none of those that fields prints itself, or leaves
// it out.
func (t *Transcoder) single(dst []byte, m *schema.Message, f *schema.Field, b []byte, s span) (_ []byte, nonzero bool, err error) {
	v := b[s.from:s.to]
	mark := len(dst)
	var ends []int
	if s.n > 1 && f.Type.IsMessage() {
		if v, ends, err = t.join(m, f, b, s); err != nil {
			return dst, false, err
		}
	}
	depth := len(t.path)
	if f.Type.IsMessage() {
		t.path = append(t.path, step{field: f, index: -1, entry: -1})
	}
	if f.Inline {
		dst, nonzero, err = t.fields(dst, f.Message, v, ends)
		t.path = t.path[:depth]
		return dst, nonzero || f.Pointer, err
	}
	dst = key(dst, f)
	body := len(dst)
	if dst, nonzero, err = t.value(dst, m, f, f.Type, f.Message, v, ends); err != nil {
		return dst, false, err
	}
	t.path = t.path[:depth]
	text := dst[body:]
	switch {
	case f.Pointer:
		if f.OmitZero && zeroByMethod(f.Type, text) {
			dst = dst[:mark]
		}
		return dst, true, nil
	case f.Type == schema.Bytes:
		if f.OmitEmpty && len(v) == 0 {
			dst = dst[:mark]
		}
		return dst, true, nil // present, hence not nil
	case f.OmitEmpty && (f.Type < schema.Bytes || f.Type > schema.Bytes && f.Type <= schema.Double) && !nonzero,
		f.OmitEmpty && f.Type == schema.Array && !nonzero:
		dst = dst[:mark]
	case f.OmitZero:
		switch f.Type {
		case schema.Time, schema.MicroTime, schema.Quantity:
			if zeroByMethod(f.Type, text) {
				dst = dst[:mark]
			}
		default:
			if !nonzero {
				dst = dst[:mark]
			}
		}
	}
	return dst, nonzero, nil
}

// zeroByMethod tells whether the type has an IsZero method that holds for the
// printed value.
func zeroByMethod(typ schema.Type, text []byte) bool {
	switch typ {
	case schema.Time, schema.MicroTime:
		return string(text) == "null"
	case schema.Quantity:
		return string(text) == `"0"`
	}
	return false
}

// join puts the pieces of a message that occurs more than once together: protobuf
// merges them, which is the same as reading one after the other.
func (t *Transcoder) join(m *schema.Message, f *schema.Field, b []byte, s span) (v []byte, ends []int, err error) {
	last := f.Type == schema.Time || f.Type == schema.MicroTime // these do not merge: the last one counts
	for i := int(s.first); i < int(s.next); {
		tok, err := read(b, i)
		if err != nil {
			return nil, nil, t.fail(m, f, i, err)
		}
		if tok.number == f.Number {
			piece := b[tok.from:tok.to]
			if last {
				if err := t.check(m, f, f.Type, f.Message, piece); err != nil {
					return nil, nil, err
				}
				v = piece
			} else {
				v = append(v, piece...)
				ends = append(ends, len(v))
				if t.joined += len(piece); t.joined > 32*t.input {
					// Copies of copies, level by level: nothing but an attack looks so.
					return nil, nil, t.fail(m, f, -1, errSize)
				}
			}
		}
		i = t.after(m, b, tok)
	}
	return v, ends, nil
}

// after is where the field behind tok begins. It differs from tok.next when tok is
// a packed list whose last number runs over.
func (t *Transcoder) after(m *schema.Message, b []byte, tok token) int {
	if tok.wire != wireBytes {
		return tok.next
	}
	if j := m.Field(tok.number); j >= 0 && m.Fields[j].List && isVarint(m.Fields[j].Type) && (t.RetiredInPlace || !m.Fields[j].Retired) {
		if end, err := packed(b, tok); err == nil {
			return end
		}
	}
	return tok.next
}

func isVarint(typ schema.Type) bool { return typ >= schema.Bool && typ <= schema.Int64 }

// check decodes a value that will not be printed because a later one replaces it;
// Kubernetes would reject the object if it were damaged.
func (t *Transcoder) check(m *schema.Message, f *schema.Field, typ schema.Type, sub *schema.Message, v []byte) error {
	t.silent++
	scratch, _, err := t.value(append(t.scratch[:0], '{'), m, f, typ, sub, v, nil)
	t.silent--
	t.scratch = scratch[:0]
	return err
}

// list prints every occurrence of f.
func (t *Transcoder) list(dst []byte, m *schema.Message, f *schema.Field, b []byte, s span) (_ []byte, err error) {
	dst = append(dst, '[')
	nested := f.Type.IsMessage()
	if nested {
		t.path = append(t.path, step{field: f, entry: -1})
	}
	for i := int(s.first); i < int(s.next); {
		j, from, to := quick(m, b, i)
		if j >= 0 && &m.Fields[j] != f {
			i = to
			continue
		}
		if j < 0 || isVarint(f.Type) {
			tok, err := read(b, i)
			if err != nil {
				return dst, t.fail(m, f, i, err)
			}
			if tok.number != f.Number {
				i = t.after(m, b, tok)
				continue
			}
			if isVarint(f.Type) {
				if dst, i, err = t.numbers(dst, m, f, b, tok); err != nil {
					return dst, err
				}
				continue
			}
			from, to = tok.from, tok.to
			i = tok.next
		} else {
			i = to
		}
		switch f.Type {
		case schema.String:
			dst = append(appendString(dst, b[from:to]), ',')
		case schema.Nested:
			if dst, _, err = t.fields(append(dst, '{'), f.Message, b[from:to], nil); err != nil {
				return dst, err
			}
			dst = append(dst, "},"...)
		default:
			if dst, _, err = t.value(dst, m, f, f.Type, f.Message, b[from:to], nil); err != nil {
				return dst, err
			}
			dst = append(dst, ',')
		}
		if nested {
			t.path[len(t.path)-1].index++
		}
		if len(dst) > t.limit {
			return dst, t.fail(m, f, -1, errSize)
		}
	}
	if nested {
		t.path = t.path[:len(t.path)-1]
	}
	dst[len(dst)-1] = ']' // in place of the last comma: a list that is there has an element
	return dst, nil
}

// numbers prints one occurrence of a list of numbers, which may be packed, with a
// comma behind each, and returns where the field behind it begins.
func (t *Transcoder) numbers(dst []byte, m *schema.Message, f *schema.Field, b []byte, tok token) (_ []byte, next int, err error) {
	to := tok.to
	if tok.wire == wireBytes {
		to = t.after(m, b, tok)
	}
	for k := tok.from; k < to; {
		_, end, err := varint(b, k)
		if err != nil {
			return dst, 0, t.fail(m, f, k, err)
		}
		if dst, _, err = t.value(dst, m, f, f.Type, nil, b[k:end], nil); err != nil {
			return dst, 0, err
		}
		dst = append(dst, ',')
		if len(dst) > t.limit {
			return dst, 0, t.fail(m, f, -1, errSize)
		}
		k = end
	}
	return dst, to, nil
}

// mapEntry reads one entry of map f, b[from:to]. Like Kubernetes it takes a key or
// a value that runs past the end of the entry but not past that of the message,
// and does not look at their wire types. With deep it also decodes values that a
// later one in the same entry replaces.
func (t *Transcoder) mapEntry(f *schema.Field, b []byte, from, to int, deep bool) (e entry, err error) {
	seen := false
	for i := from; i < to; {
		tag, j, err := varint(b, i)
		if err != nil {
			return e, err
		}
		switch int32(tag >> 3) {
		case 1:
			a, z, err := length(b, j)
			if err != nil {
				return e, err
			}
			e.key, i = b[a:z], z
		case 2:
			if seen && deep && f.Value.IsMessage() {
				if err := t.check(f.Message, f, f.Value, f.Message, e.value); err != nil {
					return e, err
				}
			}
			seen = true
			a := j
			var z int
			if isVarint(f.Value) {
				_, z, err = varint(b, j)
			} else {
				a, z, err = length(b, j)
			}
			if err != nil {
				return e, err
			}
			e.value, i = b[a:z], z
		default:
			tok, err := skip(b, i)
			if err != nil {
				return e, err
			}
			if tok.next > to {
				return e, errShort
			}
			i = tok.next
		}
	}
	return e, nil
}

// pairOf reads an entry of map f as Kubernetes writes it, a key and then a value, with
// lengths of one byte, as nearly all have. ok is false for others.
func pairOf(f *schema.Field, b []byte) (e entry, ok bool) {
	if len(b) < 2 || b[0] != 1<<3|wireBytes || b[1] >= 0x80 {
		return e, false
	}
	v := 2 + int(b[1])
	if len(b) < v+2 || b[v] != 2<<3|wireBytes || isVarint(f.Value) || int(b[v+1]) != len(b)-v-2 || b[v+1] >= 0x80 {
		return e, false
	}
	return entry{b[2:v], b[v+2:]}, true
}

// mapping prints the entries of map f, sorted by key; of equal keys the last wins.
func (t *Transcoder) mapping(dst []byte, m *schema.Message, f *schema.Field, b []byte, s span) (_ []byte, err error) {
	base := len(t.entries)
	sorted := true
	for i := int(s.first); i < int(s.next); {
		tok, err := read(b, i)
		if err != nil {
			return dst, t.fail(m, f, i, err)
		}
		if tok.number != f.Number {
			i = t.after(m, b, tok)
			continue
		}
		i = tok.next
		e, ok := pairOf(f, b[tok.from:tok.to])
		if !ok {
			if e, err = t.mapEntry(f, b, tok.from, tok.to, true); err != nil {
				return dst, t.fail(m, f, tok.from, err)
			}
		}
		if n := len(t.entries); n > base && bytes.Compare(t.entries[n-1].key, e.key) >= 0 {
			sorted = false
		}
		t.entries = append(t.entries, e)
	}
	if !sorted {
		slices.SortStableFunc(t.entries[base:], func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	}
	nested := f.Value.IsMessage()
	t.path = append(t.path, step{field: f, index: -1, entry: -1})
	dst = append(dst, '{')
	for n, end := base, len(t.entries); n < end; n++ {
		e := t.entries[n]
		if n+1 < end && bytes.Equal(e.key, t.entries[n+1].key) {
			if nested {
				if err := t.check(m, f, f.Value, f.Message, e.value); err != nil {
					return dst, err
				}
			}
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		if nested {
			t.path[len(t.path)-1].entry = int32(n)
		}
		dst = append(AppendString(dst, e.key), ':')
		if dst, _, err = t.value(dst, m, f, f.Value, f.Message, e.value, nil); err != nil {
			return dst, err
		}
		if len(dst) > t.limit {
			return dst, t.fail(m, f, -1, errSize)
		}
	}
	t.path = t.path[:len(t.path)-1]
	t.entries = t.entries[:base]
	return append(dst, '}'), nil
}

// value prints one value. m and f name the field it belongs to, for errors; sub is
// the message type. nonzero is as in fields.
func (t *Transcoder) value(dst []byte, m *schema.Message, f *schema.Field, typ schema.Type, sub *schema.Message, v []byte, ends []int) (_ []byte, nonzero bool, err error) {
	switch typ {
	case schema.String:
		return AppendString(dst, v), len(v) > 0, nil
	case schema.Bytes:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v)
		return append(dst, '"'), len(v) > 0, nil
	case schema.Bool:
		n := number(v)
		return strconv.AppendBool(dst, n != 0), n != 0, nil
	case schema.Int32:
		n := int32(number(v))
		return strconv.AppendInt(dst, int64(n), 10), n != 0, nil
	case schema.Int64:
		n := int64(number(v))
		return strconv.AppendInt(dst, n, 10), n != 0, nil
	case schema.Double:
		var bits uint64
		for i := len(v) - 1; i >= 0; i-- {
			bits = bits<<8 | uint64(v[i])
		}
		if dst, err = appendDouble(dst, bits); err != nil {
			return dst, false, t.fail(m, f, -1, err)
		}
		return dst, bits != 0, nil
	case schema.Nested:
		dst = append(dst, '{')
		if dst, nonzero, err = t.fields(dst, sub, v, ends); err != nil {
			return dst, false, err
		}
		return append(dst, '}'), nonzero, nil
	case schema.Array:
		// The Go value of a pointer or in a map is made before it is filled: without
		// elements it is an empty list there, but nil, hence null, in a plain field.
		return t.array(dst, sub, v, ends, f.Pointer || f.Type != schema.Array || f.List)
	case schema.Time, schema.MicroTime:
		return t.time(dst, m, f, typ, v)
	case schema.Quantity:
		return t.amount(dst, m, f, v, ends)
	}
	return t.special(dst, m, f, typ, sub, v, ends)
}

// number is a varint that was checked before; nothing is 0.
func number(v []byte) uint64 {
	n, _, _ := varint(v, 0)
	return n
}

// array prints a message whose only field is a list, as that list. made tells
// whether it is [] rather than null without elements.
func (t *Transcoder) array(dst []byte, sub *schema.Message, v []byte, ends []int, made bool) ([]byte, bool, error) {
	base, seen, err := t.open(sub, v, ends)
	if err != nil {
		return dst, false, err
	}
	s := t.spans[base]
	t.close(base)
	switch {
	case seen == 0 && made:
		return append(dst, "[]"...), false, nil
	case seen == 0:
		return append(dst, "null"...), false, nil
	}
	dst, err = t.list(dst, sub, &sub.Fields[0], v, s)
	return dst, true, err
}

// time prints a timestamp {1: seconds, 2: nanoseconds}. The year 1 is null.
func (t *Transcoder) time(dst []byte, m *schema.Message, f *schema.Field, typ schema.Type, v []byte) ([]byte, bool, error) {
	if len(v) == 0 {
		return append(dst, "null"...), false, nil
	}
	var sec, nsec int64
	i := 0
	if v[0] == 1<<3|wireVarint {
		// Kubernetes writes both numbers, and of a Time the second one is 0.
		if n, end, err := varint(v, 1); err == nil && end+2 == len(v) && v[end] == 2<<3|wireVarint && v[end+1] == 0 {
			sec, i = int64(n), len(v)
		}
	}
	for i < len(v) {
		tok, err := read(v, i)
		if err != nil {
			return dst, false, t.fail(m, f, i, err)
		}
		if tok.number <= 2 && tok.wire != wireVarint {
			return dst, false, t.fail(m, f, i, errWire)
		}
		switch tok.number {
		case 1:
			sec = int64(number(v[tok.from:tok.to]))
		case 2:
			nsec = int64(int32(number(v[tok.from:tok.to])))
		default:
			t.note(UnknownField{Path: t.whereField(f), Number: tok.number}, v[i:tok.next])
		}
		i = tok.next
	}
	layout := time.RFC3339
	if typ == schema.MicroTime {
		layout = microLayout
		nsec -= nsec % 1000
	} else {
		nsec = 0
		if day := sec / secondsADay; day > 0 && day == t.day {
			return t.sameDay(dst, int(sec%secondsADay)), true, nil
		}
	}
	at := time.Unix(sec, nsec).UTC()
	if at.IsZero() {
		// Not zero to reflection: Kubernetes makes it a local time.
		return append(dst, "null"...), true, nil
	}
	dst = append(dst, '"')
	mark := len(dst)
	dst = at.AppendFormat(dst, layout)
	if day := sec / secondsADay; day > 0 && len(dst)-mark == len(time.RFC3339)-len("07:00") {
		t.day = day
		copy(t.date[:], dst[mark:])
	}
	return append(dst, '"'), true, nil
}

const secondsADay = 24 * 60 * 60

// sameDay prints a time of the day that was printed before: the times of an object
// are close to each other, and to work out a date costs more than the rest.
func (t *Transcoder) sameDay(dst []byte, sec int) []byte {
	h, m, s := sec/3600, sec/60%60, sec%60
	dst = append(append(dst, '"'), t.date[:]...)
	return append(dst, byte('0'+h/10), byte('0'+h%10), ':', byte('0'+m/10), byte('0'+m%10), ':', byte('0'+s/10), byte('0'+s%10), 'Z', '"')
}

// amount prints a quantity {1: text} in its canonical form.
func (t *Transcoder) amount(dst []byte, m *schema.Message, f *schema.Field, v []byte, ends []int) ([]byte, bool, error) {
	if ends == nil {
		ends = []int{len(v)}
	}
	i, found, text := 0, false, "0"
	for _, end := range ends {
		for i < end {
			tok, err := read(v[:end], i)
			if err != nil {
				return dst, false, t.fail(m, f, i, err)
			}
			switch {
			case tok.number != 1:
				t.note(UnknownField{Path: t.whereField(f), Number: tok.number}, v[i:tok.next])
			case tok.wire != wireBytes:
				return dst, false, t.fail(m, f, i, errWire)
			default:
				found = true
				if text, err = t.canonical(v[tok.from:tok.to]); err != nil {
					return dst, false, t.fail(m, f, i, err)
				}
			}
			i = tok.next
		}
	}
	dst = append(dst, '"')
	dst = append(dst, text...)
	return append(dst, '"'), found, nil
}

// canonical remembers canonical quantities: a cluster has few different ones.
func (t *Transcoder) canonical(v []byte) (string, error) {
	if s, ok := t.quantity[string(v)]; ok {
		return s, nil
	}
	s, err := CanonicalQuantity(string(v))
	if err != nil {
		return "", err
	}
	if t.quantity == nil || len(t.quantity) > 4096 {
		t.quantity = map[string]string{}
	}
	if len(v) <= 64 {
		t.quantity[string(v)] = s
	}
	return s, nil
}
