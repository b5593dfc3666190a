package transcode

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/registry/cbor"
	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

var errNoFields = errors.New("managed fields are an object")

var errUnion = errors.New("the type of a number-or-string is neither")

// special prints the messages whose JSON is not that of their fields.
func (t *Transcoder) special(dst []byte, m *schema.Message, f *schema.Field, typ schema.Type, sub *schema.Message, v []byte, ends []int) (_ []byte, nonzero bool, err error) {
	base, seen, err := t.open(sub, v, ends)
	if err != nil {
		return dst, false, err
	}
	u := union{t: t, m: sub, b: v, base: base, seen: seen}
	switch typ {
	case schema.Duration:
		n := int64(number(u.bytes(1)))
		dst, nonzero = AppendString(dst, time.Duration(n).String()), n != 0
	case schema.IntOrString:
		kind, n, s := int64(number(u.bytes(1))), int32(number(u.bytes(2))), u.bytes(3)
		nonzero = kind != 0 || n != 0 || len(s) > 0
		switch kind {
		case 0:
			dst = strconv.AppendInt(dst, int64(n), 10)
		case 1:
			dst = AppendString(dst, s)
		default:
			err = t.fail(m, f, -1, errUnion)
		}
	case schema.RawJSON, schema.LooseJSON:
		raw := u.bytes(1)
		nonzero = u.has(1)
		switch {
		case !nonzero, len(raw) == 0 && loose(typ, sub):
			dst = append(dst, "null"...)
		default:
			if managed := managedFields(sub); cbor.Is(raw) || managed && cborObject(raw) {
				if raw, err = cbor.ToJSON(raw); err == nil && managed && raw[0] != '{' && raw[0] != 'n' {
					err = errNoFields
				}
				if err != nil {
					return dst, nonzero, t.fail(m, f, -1, fmt.Errorf("CBOR: %w", err))
				}
			}
			if dst, err = t.json(dst, raw); err != nil {
				err = t.fail(m, f, -1, err)
			}
		}
	case schema.SchemaOrBool:
		nonzero = number(u.bytes(1)) != 0 || u.has(2)
		if u.has(2) {
			dst, err = u.print(dst, 2)
		} else {
			dst = strconv.AppendBool(dst, nonzero)
		}
	case schema.SchemaOrArray:
		nonzero = u.has(1) || u.has(2)
		switch {
		case u.has(2):
			dst, err = u.print(dst, 2)
			if err == nil && u.has(1) {
				err = u.check(1)
			}
		case u.has(1):
			dst, err = u.print(dst, 1)
		default:
			dst = append(dst, "null"...)
		}
	case schema.SchemaOrStrings:
		nonzero = u.has(1) || u.has(2)
		switch {
		case u.has(2):
			dst, err = u.print(dst, 2)
			if err == nil && u.has(1) {
				err = u.check(1)
			}
		case u.has(1):
			dst, err = u.print(dst, 1)
		default:
			dst = append(dst, "null"...)
		}
	}
	t.close(base)
	return dst, nonzero, err
}

// loose tells whether an empty but present value is null rather than invalid.
func loose(typ schema.Type, m *schema.Message) bool {
	return typ == schema.LooseJSON || managedFields(m)
}

func managedFields(m *schema.Message) bool {
	return m.Name == "k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1"
}

// cborObject tells whether managed fields are CBOR: a map or a tag, which begins
// with a byte that no JSON begins with. No tag tells it before.
func cborObject(raw []byte) bool {
	return len(raw) > 0 && (raw[0] >= 0xa0 && raw[0] <= 0xbf || raw[0] >= 0xc6 && raw[0] <= 0xdb || raw[0] == 0xf6)
}

// union is an opened message of which one field or another is printed.
type union struct {
	t    *Transcoder
	m    *schema.Message
	b    []byte
	base int
	seen uint64
}

func (u *union) span(number uint32) span {
	if j := u.m.Field(number); j >= 0 && u.seen>>uint(j)&1 != 0 {
		return u.t.spans[u.base+j]
	}
	return span{}
}

func (u *union) has(number uint32) bool { return u.span(number).n > 0 }

// bytes returns the last value of a field, nil when there is none.
func (u *union) bytes(number uint32) []byte {
	s := u.span(number)
	return u.b[s.from:s.to]
}

// print prints a field that is present, without its name.
func (u *union) print(dst []byte, number uint32) ([]byte, error) {
	f, s := &u.m.Fields[u.m.Field(number)], u.span(number)
	if f.List {
		return u.t.list(dst, u.m, f, u.b, s)
	}
	v, ends := u.b[s.from:s.to], []int(nil)
	if s.n > 1 {
		var err error
		if v, ends, err = u.t.join(u.m, f, u.b, s); err != nil {
			return dst, err
		}
	}
	u.t.path = append(u.t.path, step{index: -1, entry: -1})
	dst, _, err := u.t.value(dst, u.m, f, f.Type, f.Message, v, ends)
	u.t.path = u.t.path[:len(u.t.path)-1]
	return dst, err
}

// check decodes a field without printing it: the other one of the union is shown.
func (u *union) check(number uint32) error {
	u.t.silent++
	_, err := u.print([]byte{'{'}, number)
	u.t.silent--
	return err
}
