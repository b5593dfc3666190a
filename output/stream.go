package output

import (
	"bytes"
	"encoding/json"
	"io"
)

// Envelope is what a stream puts around its items in the json, template and
// jsonpath formats. The zero value is {"items":[…]}.
type Envelope struct {
	Open, Close string // JSON before the first and after the last item, e.g. `{"items":[` and `]}`
}

// KubernetesList wraps objects the way kubectl does.
var KubernetesList = Envelope{
	Open:  `{"apiVersion":"v1","kind":"List","items":[`,
	Close: `],"metadata":{"resourceVersion":""}}`,
}

// blockRows is how many rows a table holds back to line up its columns.
const blockRows = 500

// Longer cells, in bytes, make their row a block of its own: the rows of a block are
// all padded to its longest cell. Behind the last column the padding is taken off
// again, and only memory is to be spared.
const (
	longCell     = 512
	longLastCell = 32 << 10
)

// Stream writes many items of one kind. In json it writes one document, item by
// item; in jsonl a line each; in yaml a document each; a table comes in blocks
// of rows, so that memory stays bounded however many items there are. Only
// template and jsonpath hold all items, because the query is over the list.
type Stream struct {
	p      *Printer
	env    Envelope
	n      int
	all    bytes.Buffer
	block  Table
	blocks int
	closed bool
}

// Stream starts a stream. Close must be called, also after no item at all.
func (p *Printer) Stream(env Envelope) *Stream {
	if env.Open == "" {
		env = Envelope{Open: `{"items":[`, Close: "]}"}
	}
	return &Stream{p: p, env: env}
}

// Write adds one item. A Tabler contributes its rows; the columns of the first
// item count for all.
func (s *Stream) Write(v any) error {
	if s.closed {
		return errClosed
	}
	s.n++
	switch s.p.Format {
	case JSONL:
		return s.p.json(v, "")
	case YAML:
		if s.n > 1 {
			if _, err := io.WriteString(s.p.Out, "---\n"); err != nil {
				return err
			}
		}
		return s.p.yaml(v)
	case JSON:
		return s.item(s.p.Out, v, true)
	case Template, JSONPath:
		return s.item(&s.all, v, false)
	}
	var tab Table
	if s.p.Format == CustomColumns {
		var err error
		if tab, err = s.p.customRow(v); err != nil {
			return err
		}
	} else if t, ok := v.(Tabler); ok {
		tab = t.Table()
	} else {
		return s.p.Print(v)
	}
	if s.block.Columns == nil {
		s.block = Table{Columns: tab.Columns, Empty: tab.Empty}
	}
	for _, row := range tab.Rows {
		if s.long(row) {
			if err := s.alone(row); err != nil {
				return err
			}
			continue
		}
		s.block.Rows = append(s.block.Rows, row)
	}
	if len(s.block.Rows) >= blockRows {
		return s.flush()
	}
	return nil
}

// long tells whether a row would blow up its block: nobody pads the formats for
// machines, and a terminal cuts cells.
func (s *Stream) long(row []string) bool {
	if s.p.Width > 0 || s.p.Format == Simple || s.p.Format == Fields {
		return false
	}
	most := longLastCell
	for i := min(len(row), len(s.block.Columns)) - 1; i >= 0; i-- {
		if s.block.Columns[i].Wide && s.p.Format != Wide {
			continue
		}
		if len(row[i]) > most {
			return true
		}
		most = longCell
	}
	return false
}

// alone writes a row as a block of its own, and the columns' names before it, where
// they are still to come, as another: they would be padded too.
func (s *Stream) alone(row []string) error {
	if err := s.Flush(); err != nil {
		return err
	}
	if s.blocks == 0 {
		if err := s.p.names(s.block); err != nil {
			return err
		}
		s.blocks++
	}
	s.block.Rows = append(s.block.Rows, row)
	return s.flush()
}

// Flush writes rows that wait for their block to fill; for streams that people
// watch as they grow.
func (s *Stream) Flush() error {
	if len(s.block.Rows) == 0 {
		return nil
	}
	return s.flush()
}

// Close ends the document. empty, when not "", is told to a person if there was
// no item.
func (s *Stream) Close(empty string) error {
	if s.closed {
		return nil
	}
	s.closed = true
	switch s.p.Format {
	case JSON:
		return s.end(s.p.Out, true)
	case Template, JSONPath:
		if err := s.end(&s.all, false); err != nil {
			return err
		}
		return s.p.Print(json.RawMessage(s.all.Bytes()))
	case JSONL, YAML:
		return nil
	}
	if s.n == 0 {
		s.block.Empty = empty
	}
	if s.blocks > 0 && len(s.block.Rows) == 0 {
		return nil
	}
	return s.flush()
}

func (s *Stream) flush() error {
	header := s.blocks == 0
	if !header && s.p.Format == Fields {
		if _, err := io.WriteString(s.p.Out, "\n"); err != nil {
			return err
		}
	}
	err := s.p.table(s.block, header)
	s.blocks++
	s.block.Rows = s.block.Rows[:0]
	return err
}

func (s *Stream) item(w io.Writer, v any, indent bool) error {
	b, err := Marshal(v)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if s.n == 1 {
		out.WriteString(s.env.Open)
	} else {
		out.WriteByte(',')
	}
	if indent {
		out.WriteString("\n  ")
		if err := json.Indent(&out, b, "  ", "  "); err != nil {
			return err
		}
	} else {
		out.Write(b)
	}
	_, err = w.Write(out.Bytes())
	return err
}

func (s *Stream) end(w io.Writer, newline bool) error {
	tail := s.env.Close
	if s.n == 0 {
		tail = s.env.Open + tail
	} else if newline {
		tail = "\n" + tail
	}
	if newline {
		tail += "\n"
	}
	_, err := io.WriteString(w, tail)
	return err
}
