// Package reply prints what etcd answered: in etcdctl's formats byte for byte as
// etcdctl does, and in ours.
//
// In the JSON of our own name ids are strings, as a JSON number above 2^53 loses
// digits in most readers; with --hex they are hexadecimal. Under the name etcdctl
// they are what etcdctl makes them.
package reply

import (
	"context"
	"encoding/json"
	"regexp"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// Form is one of etcdctl's formats that not every answer has. Simple and JSON all have.
type Form int

// The forms.
const (
	Fields Form = 1 << iota
	Protobuf
	Boxes // -w table as etcdctl draws it; under our own name every answer with a Table has one
	Lines // fields without a header: the answer is of several endpoints
)

// Printer prints answers.
type Printer struct {
	env *cli.Env
	Hex bool
	*output.Printer
}

// New chooses the format for a command whose answer has the given forms, before
// anything is asked of a server. The error is a wrong -w.
func New(env *cli.Env, forms Form) (*Printer, error) {
	s, err := env.Settings()
	if err != nil {
		return nil, err
	}
	formats := []output.Format{output.Simple}
	if forms&(Fields|Lines) != 0 {
		formats = append(formats, output.Fields)
	}
	formats = append(formats, output.JSON)
	if forms&Protobuf != 0 {
		formats = append(formats, output.Protobuf)
	}
	if forms&Boxes != 0 && env.DropIn() {
		formats = append(formats, output.Tables)
	}
	p, err := env.Printer(Formats(env, formats...)...)
	if err != nil {
		return nil, err
	}
	return &Printer{env: env, Hex: s.Hex, Printer: p}, nil
}

// Begin is how a command of one request begins: the printer as New makes it, the client,
// and a context that --command-timeout bounds.
func Begin(ctx context.Context, env *cli.Env, forms Form) (*Printer, *clientv3.Client, context.Context, context.CancelFunc, error) {
	p, err := New(env, forms)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	client, err := env.Client(ctx)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	ctx, cancel, err := env.CommandContext(ctx)
	return p, client, ctx, cancel, err
}

// Formats are etcdctl's given formats, and under our own name ours too.
func Formats(env *cli.Env, etcd ...output.Format) []output.Format {
	if env.DropIn() {
		return etcd
	}
	return append(etcd, output.JSONL, output.YAML, output.Tables, output.Wide, output.Template, output.JSONPath)
}

// Answer is one answer of etcd.
type Answer struct {
	// Simple appends etcdctl's text.
	Simple func(b []byte) []byte
	// Header comes first in the fields format; Fields appends what follows and may be nil.
	Header *pb.ResponseHeader
	Fields func(b []byte) []byte
	// Message is the answer itself, for protobuf and, without JSON, for JSON.
	Message proto.Message
	// JSON is what etcdctl marshals where that is not Message.
	JSON any
	// HexJSON says that etcdctl's --hex changes the ids in the JSON of this answer.
	HexJSON bool
	// Header and rows of etcdctl's own table.
	Boxes func() (header []string, rows [][]string)
	// View is the answer in our own formats; nil: the document of JSON.
	View any
	// Table is what people see under our own name; nil: View's own.
	Table func() output.Table
}

// Print writes one answer as one document.
func (p *Printer) Print(a Answer) error {
	var b []byte
	switch p.Format {
	case output.Simple:
		b = a.Simple(nil)
	case output.Fields:
		if a.Header != nil || a.Message != nil {
			b = AppendHeader(nil, a.Header, p.Hex)
		}
		if a.Fields != nil {
			b = a.Fields(b)
		}
	case output.JSON:
		var err error
		if b, err = p.JSON(a); err != nil {
			return err
		}
	case output.Protobuf:
		var err error
		if b, err = proto.Marshal(a.Message); err != nil {
			return err
		}
	case output.Tables, output.Wide:
		if p.env.DropIn() {
			header, rows := a.Boxes()
			text, err := output.Boxed(header, rows)
			if err != nil {
				return err
			}
			b = []byte(text)
			break
		}
		if a.Table != nil {
			return p.Printer.Print(tabled(a.Table))
		}
		return p.Printer.Print(a.View)
	default:
		return p.own(a)
	}
	_, err := p.Out.Write(b)
	return err
}

func (p *Printer) own(a Answer) error {
	if a.View != nil {
		return p.Printer.Print(a.View)
	}
	b, err := p.JSON(a)
	if err != nil {
		return err
	}
	return p.Printer.Print(json.RawMessage(b[:len(b)-1]))
}

// Reason is an error in a cell: without gRPC's own words, on one line.
func Reason(err error) string {
	return output.CleanLine(grpcWords.ReplaceAllString(err.Error(), ""))
}

var grpcWords = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// tabled is a view that only has a table.
type tabled func() output.Table

func (t tabled) Table() output.Table { return t() }

// JSON is the document of -w json, with its line break.
func (p *Printer) JSON(a Answer) ([]byte, error) {
	v := a.JSON
	if v == nil {
		v = a.Message
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(p.IDs(b, a.HexJSON), '\n'), nil
}

// IDs writes the ids in etcd's JSON as this program's name and --hex want them. As
// etcdctl they are hexadecimal only where hexJSON says that etcdctl does so too.
func (p *Printer) IDs(b []byte, hexJSON bool) []byte {
	switch {
	case p.Hex && (hexJSON || !p.env.DropIn()):
		return quoteIDs(b, true)
	case !p.env.DropIn():
		return quoteIDs(b, false)
	}
	return b
}
