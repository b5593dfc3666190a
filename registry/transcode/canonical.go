package transcode

import (
	"fmt"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// Canonical tells whether message b of type m is written as Kubernetes writes it:
// fields in ascending order, single ones once, map entries of one key and then one
// value. The error names the first deviation.
//
// Decoders take more than that, so that a damaged message may still decode, with
// bytes of one field shown as another. Who must not show certain fields wants to
// know.
func Canonical(m *schema.Message, b []byte) error { return canonical(m, b, 0) }

func canonical(m *schema.Message, b []byte, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	last := uint32(0)
	for i := 0; i < len(b); {
		tok, err := read(b, i)
		if err != nil {
			return fmt.Errorf("%s, byte %d: %w", shortName(m), i, err)
		}
		deviation := func(what string) error {
			return fmt.Errorf("%s, byte %d: field %d %s", shortName(m), i, tok.number, what)
		}
		if tok.number < last {
			return deviation(fmt.Sprintf("comes after field %d", last))
		}
		repeated := tok.number == last
		last = tok.number
		if j := m.Field(tok.number); j >= 0 {
			f := &m.Fields[j]
			v := b[tok.from:tok.to]
			switch {
			case repeated && !f.List && f.Type != schema.Map:
				return deviation("is there twice")
			case f.Type == schema.Map && !pair(v):
				return deviation("is no pair of a key and a value")
			case f.Type == schema.Nested && tok.wire == wireBytes:
				if err := canonical(f.Message, v, depth+1); err != nil {
					return err
				}
			}
		}
		i = tok.next
	}
	return nil
}

// pair tells whether a map entry is a key and then a value.
func pair(v []byte) bool {
	if len(v) == 0 {
		return false
	}
	key, err := read(v, 0)
	if err != nil || key.number != 1 || key.wire != wireBytes || key.next == len(v) {
		return false
	}
	value, err := read(v, key.next)
	return err == nil && value.number == 2 && value.next == len(v)
}
