package transcode

import (
	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// foreign notes a field of m that the newest type does not have; j is its index in
// the table when an older version had it, else -1.
func (t *Transcoder) foreign(m *schema.Message, j int, b []byte, i int, tok token) {
	u := UnknownField{Path: t.where(), Number: tok.number}
	if j >= 0 {
		f := &m.Fields[j]
		u.Name, u.Last = f.Name, f.Last
		if t.keep() && t.HideUnknown == nil {
			u.Value = t.retired(m, f, b, i, tok)
		}
	}
	t.note(u, b[i:tok.next])
}

// whereField is the path of a value that has no fields of its own.
func (t *Transcoder) whereField(f *schema.Field) string {
	p := t.where()
	if len(t.path) > 0 && t.path[len(t.path)-1].field == f || f == nil {
		return p
	}
	if p != "" {
		p += "."
	}
	return p + f.Name
}

func (t *Transcoder) keep() bool { return t.silent == 0 && len(t.unknown) < maxUnknown }

// note counts a field and keeps it; raw is the field with its tag.
func (t *Transcoder) note(u UnknownField, raw []byte) {
	if t.silent > 0 {
		return
	}
	t.count++
	if !t.keep() {
		return
	}
	switch {
	case u.Value != nil:
	case t.HideUnknown != nil:
		u.Value = AppendString(nil, t.HideUnknown(raw))
	default:
		u.Value = dumpField(nil, raw)
	}
	t.unknown = append(t.unknown, u)
}

// retired decodes a field that only older versions had. It returns nil when that
// does not work, which is no reason to reject the object: Kubernetes would not have
// looked at it.
func (t *Transcoder) retired(m *schema.Message, f *schema.Field, b []byte, i int, tok token) []byte {
	spans, entries, path := len(t.spans), len(t.entries), len(t.path)
	t.silent++
	defer func() {
		t.silent--
		t.spans, t.entries, t.path = t.spans[:spans], t.entries[:entries], t.path[:path]
	}()
	if path > maxDepth/2 {
		return nil
	}
	wantVarint := isVarint(f.Type)
	v := b[tok.from:tok.to]
	var out []byte
	var err error
	switch {
	case f.Type == schema.Map && tok.wire == wireBytes:
		out, err = t.mapping(nil, m, f, b, span{first: int32(i), next: int32(tok.next), n: 1})
	case wantVarint == (tok.wire == wireVarint) && (tok.wire == wireVarint || tok.wire == wireBytes) || f.Type == schema.Double && tok.wire == wireFixed64:
		out, _, err = t.value([]byte{}, m, f, f.Type, f.Message, v, nil)
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	return out
}
