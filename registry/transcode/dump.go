package transcode

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// maxGuess bounds how deep the dump looks for messages in bytes.
const maxGuess = 32

var metadataField = &schema.Field{Name: "metadata", Type: schema.Nested}

// AppendDump appends an object for a message whose type is unknown, or that does
// not decode as what it says to be: head, then metadata if field 1 is an ObjectMeta
// (a ListMeta with list), then "fields" with everything else by field number.
//
// A field that occurs once is shown by its value, several times by an array of
// them. Varints are numbers; bytes are an object when they read as a message, a
// string when they are text, else {"bytes": base64}; fixed-size fields are
// {"fixed64": "0x…"}. If the message breaks off, "undecoded" holds the rest in
// base64 and "problem" says why. It never fails.
func (t *Transcoder) AppendDump(dst []byte, head string, b []byte, list bool) []byte {
	return t.dump(dst, head, b, func(dst []byte, fields []part) ([]byte, []part) {
		i := slices.IndexFunc(fields, func(f part) bool { return f.number == 1 })
		if i < 0 || fields[i].wire != wireBytes {
			return dst, fields
		}
		out, ok := t.metadata(dst, fields, i, list)
		if !ok {
			return dst, fields
		}
		return out, slices.DeleteFunc(fields, func(f part) bool { return f.number == 1 })
	})
}

// AppendWire is AppendDump for bytes that are no object, such as a broken envelope:
// what is field 1 there could be taken for metadata.
func (t *Transcoder) AppendWire(dst []byte, b []byte) []byte {
	return t.dump(dst, "", b, func(dst []byte, fields []part) ([]byte, []part) { return dst, fields })
}

func (t *Transcoder) dump(dst []byte, head string, b []byte, metadata func([]byte, []part) ([]byte, []part)) []byte {
	dst = append(append(dst, '{'), head...)
	fields, rest, err := dissect(b, false)
	if t.HideUnknown != nil {
		return append(t.hide(dst, b), '}')
	}
	dst, fields = metadata(dst, fields)
	dst = appendName(dst, "fields")
	dst = appendParts(dst, fields, 0)
	if err != nil {
		dst = append(appendName(dst, "undecoded"), '"')
		dst = base64.StdEncoding.AppendEncode(dst, rest)
		dst = append(dst, '"')
		dst = AppendString(appendName(dst, "problem"), fmt.Sprintf("byte %d: %s", len(b)-len(rest), err))
	}
	return append(dst, '}')
}

// hide stands in for everything that cannot be shown.
func (t *Transcoder) hide(dst, b []byte) []byte {
	return AppendString(appendName(dst, "fields"), t.HideUnknown(b))
}

func appendName(dst []byte, name string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(append(append(dst, '"'), name...), `":`...)
}

// metadata appends field 1 as metadata. It must be the only occurrence.
func (t *Transcoder) metadata(dst []byte, fields []part, i int, list bool) ([]byte, bool) {
	n := 0
	for _, f := range fields {
		if f.number == 1 {
			n++
		}
	}
	t.meta = schema.Load().ObjectMeta()
	m := t.meta
	if list {
		m = schema.Load().Message("k8s.io/apimachinery/pkg/apis/meta/v1.ListMeta")
	}
	if n != 1 || m == nil {
		return dst, false
	}
	t.spans, t.entries, t.unknown, t.count, t.joined, t.silent = t.spans[:0], t.entries[:0], nil, 0, 0, 0
	t.input, t.limit = len(fields[i].value), DefaultMaxJSON+len(dst)
	t.path = append(t.path[:0], step{field: metadataField, index: -1, entry: -1})
	out, _, err := t.fields(append(appendName(dst, "metadata"), '{'), m, fields[i].value, nil)
	t.path = t.path[:0]
	// A message of another type may read as one of unknown fields alone.
	if err != nil || t.count > 0 {
		t.unknown, t.count = nil, 0
		return dst, false
	}
	return append(out, '}'), true
}

// part is one field of a message of unknown type.
type part struct {
	number uint32
	wire   uint8
	value  []byte // without the tag; a group without its end tag
}

// dissect takes a message apart. On an error it returns what came before and the
// rest. With strict it gives up early on what is hardly a message.
func dissect(b []byte, strict bool) (parts []part, rest []byte, err error) {
	for i := 0; i < len(b); {
		tok, err := read(b, i)
		if err != nil {
			return parts, b[i:], err
		}
		if strict && (tok.number > 1<<16 || tok.number >= 19000 && tok.number < 20000) {
			return nil, b, errTag
		}
		v := b[tok.from:tok.to]
		if tok.wire == wireStart && len(v) > 0 {
			// The end tag is one byte for numbers below 16, else longer.
			_, w := binary.Uvarint(binary.AppendUvarint(nil, uint64(tok.number)<<3|wireEnd))
			v = v[:max(len(v)-w, 0)]
		}
		parts = append(parts, part{tok.number, tok.wire, v})
		i = tok.next
	}
	return parts, nil, nil
}

// appendParts appends fields as an object, ordered by number.
func appendParts(dst []byte, parts []part, depth int) []byte {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b part) int { return int(a.number) - int(b.number) })
	dst = append(dst, '{')
	for i := 0; i < len(parts); {
		j := i + 1
		for j < len(parts) && parts[j].number == parts[i].number {
			j++
		}
		dst = appendName(dst, strconv.FormatUint(uint64(parts[i].number), 10))
		if j == i+1 {
			dst = appendPart(dst, parts[i], depth)
		} else {
			dst = append(dst, '[')
			for k := i; k < j; k++ {
				if k > i {
					dst = append(dst, ',')
				}
				dst = appendPart(dst, parts[k], depth)
			}
			dst = append(dst, ']')
		}
		i = j
	}
	return append(dst, '}')
}

func appendPart(dst []byte, p part, depth int) []byte {
	switch p.wire {
	case wireVarint:
		return strconv.AppendUint(dst, number(p.value), 10)
	case wireFixed32:
		return fmt.Appendf(dst, `{"fixed32":"%#08x"}`, binary.LittleEndian.Uint32(p.value))
	case wireFixed64:
		return fmt.Appendf(dst, `{"fixed64":"%#016x"}`, binary.LittleEndian.Uint64(p.value))
	case wireStart:
		if parts, _, err := dissect(p.value, false); err == nil && depth < maxGuess {
			dst = appendParts(append(dst, `{"group":`...), parts, depth+1)
			return append(dst, '}')
		}
		return appendBytes(dst, p.value)
	}
	text := isText(p.value)
	// A message that begins with field 1 begins with a newline and a length, so
	// that a short one can look like text.
	if len(p.value) > 0 && depth < maxGuess && (!text || p.value[0] < ' ') {
		if parts, _, err := dissect(p.value, true); err == nil {
			return appendParts(dst, parts, depth+1)
		}
	}
	if text {
		return AppendString(dst, p.value)
	}
	return appendBytes(dst, p.value)
}

func appendBytes(dst, v []byte) []byte {
	dst = append(dst, `{"bytes":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, v)
	return append(dst, `"}`...)
}

// dumpField appends the value of one field, given with its tag.
func dumpField(dst, raw []byte) []byte {
	parts, rest, err := dissect(raw, false)
	if err != nil || len(parts) != 1 {
		return appendBytes(dst, rest)
	}
	return appendPart(dst, parts[0], 0)
}

// isText tells whether v is text that a person would recognise as such.
func isText(v []byte) bool {
	return utf8.Valid(v) && strings.IndexFunc(string(v), func(r rune) bool {
		return !unicode.IsPrint(r) && r != '\n' && r != '\r' && r != '\t'
	}) < 0
}
