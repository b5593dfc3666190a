package tail

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

// event is one line of jsonl. i and n say that it is the ith of n of its revision; a list has
// a line of type BEGIN and one of type END around it, without i and n.
type event struct {
	Revision    int64   `json:"revision"`
	I           int     `json:"i,omitempty"`
	N           int     `json:"n,omitempty"`
	Type        string  `json:"type"`             // PUT, DELETE, BEGIN, END
	Origin      string  `json:"origin,omitempty"` // list, resync; left out: a change
	Key         string  `json:"key,omitempty"`
	KeyBase64   []byte  `json:"keyBase64,omitempty"` // instead of key when that is no UTF-8
	CreateRev   int64   `json:"createRevision,omitempty"`
	ModRev      int64   `json:"modRevision,omitempty"` // of a list's keys
	Version     int64   `json:"version,omitempty"`
	Lease       string  `json:"lease,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Prev        *prior  `json:"prev,omitempty"`
	// With --decode: the object in place of the value where that is one.
	Encoding   string          `json:"encoding,omitempty"`
	Encryption string          `json:"encryption,omitempty"` // provider and key of a sealed value
	Object     json.RawMessage `json:"object,omitempty"`
	Problem    string          `json:"problem,omitempty"` // why it is not, or not wholly, decoded
	// With --diff.
	Changes []inspect.Change `json:"changes,omitempty"`
	Manager string           `json:"manager,omitempty"` // who wrote it, by metadata.managedFields
}

// prior is the record before a change.
type prior struct {
	CreateRev   int64   `json:"createRevision"`
	ModRev      int64   `json:"modRevision"`
	Version     int64   `json:"version"`
	Lease       string  `json:"lease,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`

	Object json.RawMessage `json:"object,omitempty"`
}

func text(b []byte) (s *string, raw []byte) {
	if utf8.Valid(b) {
		v := string(b)
		return &v, nil
	}
	return nil, b
}

func (o *options) renderer() func(dst []byte, s watchtail.Step) ([]byte, int, error) {
	line := func(dst []byte, v *event, e *keyspace.Event) ([]byte, error) { return appendText(dst, v, e), nil }
	switch o.form {
	case output.JSONL:
		line = appendJSON
	case output.Template, output.JSONPath:
		line = o.appendQuery
	}
	return func(dst []byte, s watchtail.Step) (_ []byte, n int, err error) {
		mark := event{Revision: s.Rev, Origin: s.Origin.String()}
		switch s.List {
		case watchtail.ListBegin:
			mark.Type = "BEGIN"
			dst, err = line(dst, &mark, nil)
			return dst, 1, err
		case watchtail.ListEnd:
			mark.Type = "END"
			dst, err = line(dst, &mark, nil)
			return dst, 1, err
		}
		shown, err := o.choose(s)
		if err != nil {
			return nil, 0, err
		}
		for i, c := range shown {
			if s.List == watchtail.NoList {
				c.v.I, c.v.N = i+1, len(shown)
			}
			if dst, err = line(dst, &c.v, c.e); err != nil {
				return nil, 0, err
			}
		}
		return dst, len(shown), nil
	}
}

func eventOf(e *keyspace.Event, prev bool) event {
	r := e.Record
	v := event{Revision: e.Rev.Main, Type: e.Type.String(), Key: string(r.Key), CreateRev: r.CreateRev, Version: r.Version, Lease: cli.LeaseID(r.Lease)}
	if !utf8.Valid(r.Key) {
		v.Key, v.KeyBase64 = "", r.Key
	}
	if e.Type == keyspace.Put {
		v.Value, v.ValueBase64 = text(r.Value)
	}
	if p := e.Prev; p != nil && prev {
		v.Prev = &prior{CreateRev: p.CreateRev, ModRev: p.ModRev, Version: p.Version, Lease: cli.LeaseID(p.Lease)}
		v.Prev.Value, v.Prev.ValueBase64 = text(p.Value)
	}
	return v
}

func appendJSON(dst []byte, v *event, _ *keyspace.Event) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// appendQuery prints a line as the template or path of -w says.
func (o *options) appendQuery(dst []byte, v *event, _ *keyspace.Event) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	p := *o.printer
	p.Out = b
	err := p.Print(v)
	return b.Bytes(), err
}

func appendText(dst []byte, v *event, e *keyspace.Event) []byte {
	dst = strconv.AppendInt(dst, v.Revision, 10)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, int64(v.I), 10)
	dst = append(dst, '/')
	dst = strconv.AppendInt(dst, int64(v.N), 10)
	verb := v.Type
	if verb == "PUT" {
		verb = "UPDATE"
		if v.Version == 1 {
			verb = "CREATE"
		}
	}
	if v.Origin != "" && v.Origin != "change" && e != nil {
		verb = v.Origin
	}
	dst = append(append(dst, ' '), verb...)
	if e == nil {
		return append(append(append(dst, ' '), v.Origin...), '\n')
	}
	dst = append(append(dst, ' '), output.CleanLine(string(e.Record.Key))...)
	if e.Type == keyspace.Put {
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, int64(len(e.Record.Value)), 10)
		dst = append(dst, " B"...)
	}
	if v.Lease != "" {
		dst = append(append(dst, " lease "...), v.Lease...)
	}
	for i, c := range v.Changes {
		if i == changesShown {
			dst = fmt.Appendf(dst, "; … and %d more", len(v.Changes)-i)
			break
		}
		sep := "; "
		if i == 0 {
			sep = "  "
		}
		dst = append(append(dst, sep...), output.CleanLine(short(c))...)
	}
	if v.Manager != "" && len(v.Changes) > 0 {
		dst = append(append(dst, " by "...), output.CleanLine(v.Manager)...)
	}
	if v.Problem != "" {
		dst = append(append(dst, "  "...), output.CleanLine(v.Problem)...)
	}
	return append(dst, '\n')
}

// changesShown is how many changes a line of text has at most.
const changesShown = 8

// short says a change in few characters: spec.replicas 3→0.
func short(c inspect.Change) string {
	const most = 60
	cut := func(b []byte) string {
		if r := []rune(string(b)); len(r) > most {
			return string(r[:most]) + "…"
		}
		return string(b)
	}
	p := strings.TrimPrefix(c.Path, ".")
	switch {
	case c.Old == nil:
		return p + " +" + cut(c.New)
	case c.New == nil:
		return p + " -" + cut(c.Old)
	}
	return p + " " + cut(c.Old) + "→" + cut(c.New)
}

// parser reads lines back.
func (o *options) parser() watchtail.ParseLine {
	if o.form == output.JSONL {
		return parseJSON
	}
	return parseText
}

func parseJSON(b []byte) (watchtail.Line, bool) {
	var v struct {
		Revision int64  `json:"revision"`
		I        int    `json:"i"`
		N        int    `json:"n"`
		Type     string `json:"type"`
	}
	if json.Unmarshal(b, &v) != nil || v.Revision < 1 || v.Type == "" {
		return watchtail.Line{}, false
	}
	return watchtail.Line{Rev: v.Revision, I: v.I, N: v.N, Begin: v.Type == "BEGIN", End: v.Type == "END"}, true
}

func parseText(b []byte) (watchtail.Line, bool) {
	f := bytes.SplitN(b, []byte(" "), 4)
	if len(f) < 4 {
		return watchtail.Line{}, false
	}
	i, n, ok := bytes.Cut(f[1], []byte("/"))
	var l watchtail.Line
	var errs [3]error
	l.Rev, errs[0] = strconv.ParseInt(string(f[0]), 10, 64)
	l.I, errs[1] = strconv.Atoi(string(i))
	l.N, errs[2] = strconv.Atoi(string(n))
	if !ok || errs != [3]error{} || l.Rev < 1 {
		return watchtail.Line{}, false
	}
	if l.I == 0 {
		l.Begin, l.End = string(f[2]) == "BEGIN", string(f[2]) == "END"
	}
	return l, true
}
