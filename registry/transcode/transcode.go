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
	index int    // in a list, or -1
	key   []byte // in a map
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
		} else if s.key != nil {
			b = append(strconv.AppendQuote(append(b, '['), string(s.key)), ']')
		}
	}
	return string(b)
}

// open reads the fields of message b and returns the index of the first of its
// spans, one per field of m. ends holds the ends of the pieces when b was joined
// from several occurrences of the message, each of which must be complete.
func (t *Transcoder) open(m *schema.Message, b []byte, ends []int) (int, error) {
	base := len(t.spans)
	t.spans = slices.Grow(t.spans, len(m.Fields))[:base+len(m.Fields)]
	clear(t.spans[base:])
	if ends == nil {
		return base, t.scan(base, m, b, 0)
	}
	from := 0
	for _, end := range ends {
		if err := t.scan(base, m, b[:end], from); err != nil {
			return base, err
		}
		from = end
	}
	return base, nil
}

func (t *Transcoder) close(base int) { t.spans = t.spans[:base] }

// scan notes where each field of b[i:] lies, and checks what can be checked
// without decoding it.
func (t *Transcoder) scan(base int, m *schema.Message, b []byte, i int) error {
	for i < len(b) {
		// Nearly every field has one byte of tag and one of length.
		if c := b[i]; c < 0x80 && c&7 == wireBytes && i+1 < len(b) && b[i+1] < 0x80 {
			from := i + 2
			to := from + int(b[i+1])
			if j := m.Field(uint32(c >> 3)); j >= 0 && to <= len(b) {
				if f := &m.Fields[j]; f.Simple {
					s := &t.spans[base+j]
					if s.n == 0 {
						s.first = int32(i)
					}
					s.from, s.to, s.next = int32(from), int32(to), int32(to)
					s.n++
					i = to
					continue
				}
			}
		}
		tok, err := read(b, i)
		if err != nil {
			return t.fail(m, nil, i, err)
		}
		j := m.Field(tok.number)
		if j < 0 || m.Fields[j].Retired && !t.RetiredInPlace {
			t.foreign(m, j, b, i, tok)
			i = tok.next
			continue
		}
		f := &m.Fields[j]
		switch f.Type {
		case schema.Bool, schema.Int32, schema.Int64:
			if tok.wire == wireBytes && f.List {
				if tok.next, err = packed(b, tok); err != nil {
					return t.fail(m, f, i, err)
				}
				if tok.next == tok.from {
					i = tok.next // an empty packed list does not even make the list exist
					continue
				}
			} else if tok.wire != wireVarint {
				return t.fail(m, f, i, errWire)
			}
		case schema.Double:
			if tok.wire != wireFixed64 {
				return t.fail(m, f, i, errWire)
			}
		case schema.Map:
			if tok.wire != wireBytes {
				return t.fail(m, f, i, errWire)
			}
			if _, err := t.mapEntry(f, b, tok.from, tok.to, false); err != nil {
				return t.fail(m, f, i, err)
			}
		default:
			if tok.wire != wireBytes {
				return t.fail(m, f, i, errWire)
			}
		}
		s := &t.spans[base+j]
		if s.n == 0 {
			s.first = int32(i)
		}
		s.from, s.to, s.next = int32(tok.from), int32(tok.to), int32(tok.next)
		s.n++
		i = tok.next
	}
	return nil
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
	base, err := t.open(m, b, ends)
	if err != nil {
		return dst, false, err
	}
	override := t.ResourceVersion != "" && len(t.path) == 1 && t.path[0].field != nil && t.path[0].field.Name == "metadata" && m == schema.Load().ObjectMeta()
	nonzero = override
	for j := range m.Fields {
		f := &m.Fields[j]
		s := &t.spans[base+j]
		if override && f.Name == "resourceVersion" {
			dst = AppendString(t.key(dst, f), t.ResourceVersion)
			continue
		}
		if s.n == 0 {
			if f.Absent == schema.AbsentSkip {
				continue
			}
			if f.Absent == schema.AbsentNull {
				dst = append(t.key(dst, f), "null"...)
				continue
			}
		}
		switch {
		case f.List:
			nonzero = true
			dst, err = t.list(t.key(dst, f), m, f, b, *s)
		case f.Type == schema.Map:
			nonzero = true
			dst, err = t.mapping(t.key(dst, f), m, f, b, *s)
		default:
			var nz bool
			dst, nz, err = t.single(dst, m, f, b, *s)
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
func (t *Transcoder) key(dst []byte, f *schema.Field) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(dst, f.Key...)
}

// single prints field f, which is neither a list nor a map, or leaves it out.
func (t *Transcoder) single(dst []byte, m *schema.Message, f *schema.Field, b []byte, s span) (_ []byte, nonzero bool, err error) {
	v := b[s.from:s.to]
	var ends []int
	if s.n > 1 && f.Type.IsMessage() {
		if v, ends, err = t.join(m, f, b, s); err != nil {
			return dst, false, err
		}
	}
	mark := len(dst)
	depth := len(t.path)
	if f.Type.IsMessage() {
		t.path = append(t.path, step{field: f, index: -1})
	}
	if f.Inline {
		dst, nonzero, err = t.fields(dst, f.Message, v, ends)
		t.path = t.path[:depth]
		return dst, nonzero || f.Pointer, err
	}
	dst = t.key(dst, f)
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
	first := true
	comma := func() {
		if !first {
			dst = append(dst, ',')
		}
		first = false
	}
	nested := f.Type.IsMessage()
	if nested {
		t.path = append(t.path, step{field: f})
	}
	for i := int(s.first); i < int(s.next); {
		tok, err := read(b, i)
		if err != nil {
			return dst, t.fail(m, f, i, err)
		}
		i = t.after(m, b, tok)
		if tok.number != f.Number {
			continue
		}
		if tok.wire == wireBytes && isVarint(f.Type) {
			for k := tok.from; k < tok.to; {
				_, end, err := varint(b, k)
				if err != nil {
					return dst, t.fail(m, f, k, err)
				}
				comma()
				if dst, _, err = t.value(dst, m, f, f.Type, nil, b[k:end], nil); err != nil {
					return dst, err
				}
				k = end
			}
			continue
		}
		comma()
		if dst, _, err = t.value(dst, m, f, f.Type, f.Message, b[tok.from:tok.to], nil); err != nil {
			return dst, err
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
	return append(dst, ']'), nil
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

// mapping prints the entries of map f, sorted by key; of equal keys the last wins.
func (t *Transcoder) mapping(dst []byte, m *schema.Message, f *schema.Field, b []byte, s span) (_ []byte, err error) {
	base := len(t.entries)
	sorted := true
	for i := int(s.first); i < int(s.next); {
		tok, err := read(b, i)
		if err != nil {
			return dst, t.fail(m, f, i, err)
		}
		i = t.after(m, b, tok)
		if tok.number != f.Number {
			continue
		}
		e, err := t.mapEntry(f, b, tok.from, tok.to, true)
		if err != nil {
			return dst, t.fail(m, f, tok.from, err)
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
	t.path = append(t.path, step{field: f, index: -1})
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
			t.path[len(t.path)-1].key = e.key
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
	base, err := t.open(sub, v, ends)
	if err != nil {
		return dst, false, err
	}
	s := t.spans[base]
	t.close(base)
	switch {
	case s.n == 0 && made:
		return append(dst, "[]"...), false, nil
	case s.n == 0:
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
	for i := 0; i < len(v); {
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
	}
	at := time.Unix(sec, nsec).UTC()
	if at.IsZero() {
		// Not zero to reflection: Kubernetes makes it a local time.
		return append(dst, "null"...), true, nil
	}
	dst = append(dst, '"')
	dst = at.AppendFormat(dst, layout)
	return append(dst, '"'), true, nil
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
