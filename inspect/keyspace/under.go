package keyspace

import (
	"bytes"
	"context"
	"iter"
)

// Under returns the part of src whose keys start with prefix, as a source of its
// own: keys are given and yielded without the prefix. It has events when src has.
// A key that is the prefix itself is not in it, as an empty key is none. With an
// empty prefix it is src.
//
// Info is of the whole of src. Closing it closes src.
func Under(prefix []byte, src Source) Source {
	if len(prefix) == 0 {
		return src
	}
	u := under{Source: src, prefix: bytes.Clone(prefix)}
	if h, ok := src.(HistorySource); ok {
		return &underHistory{under: u, history: h}
	}
	return &u
}

// Base returns the source that src is a part of by Under; of any other, src.
func Base(src Source) Source {
	for {
		u, ok := src.(interface{ base() Source })
		if !ok {
			return src
		}
		src = u.base()
	}
}

type under struct {
	Source
	prefix []byte
}

func (u *under) base() Source { return u.Source }

// full translates a range of keys.
func (u *under) full(key, end []byte) (fullKey, fullEnd []byte) { return Within(u.prefix, key, end) }

// Within translates a range of keys that are given without a prefix. With an empty prefix
// it is the range itself.
func Within(prefix, key, end []byte) (fullKey, fullEnd []byte) {
	if len(prefix) == 0 {
		return key, end
	}
	fullKey = append(bytes.Clone(prefix), key...)
	switch {
	case len(end) == 0:
	case len(end) == 1 && end[0] == 0:
		fullEnd = PrefixEnd(prefix)
	default:
		fullEnd = append(bytes.Clone(prefix), end...)
	}
	return fullKey, fullEnd
}

// Records yields the records of the part.
func (u *under) Records(ctx context.Context, r Range) iter.Seq2[Record, error] {
	r.Key, r.End = u.full(r.Key, r.End)
	return func(yield func(Record, error) bool) {
		for rec, err := range u.Source.Records(ctx, r) {
			if err == nil {
				rec.Key = rec.Key[len(u.prefix):]
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// Count counts the records of the part.
func (u *under) Count(ctx context.Context, r Range) (int64, error) {
	if c, ok := u.Source.(Counter); ok {
		r.Key, r.End = u.full(r.Key, r.End)
		return c.Count(ctx, r)
	}
	r.KeysOnly = true
	n := int64(0)
	for _, err := range u.Records(ctx, r) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

type underHistory struct {
	under
	history HistorySource
}

// Events yields the events of the part.
func (u *underHistory) Events(ctx context.Context, r EventRange) iter.Seq2[Event, error] {
	r.Key, r.End = u.full(r.Key, r.End)
	return func(yield func(Event, error) bool) {
		for e, err := range u.history.Events(ctx, r) {
			if err == nil {
				e.Record.Key = e.Record.Key[len(u.prefix):]
				if e.Prev != nil {
					prev := *e.Prev
					prev.Key = prev.Key[len(u.prefix):]
					e.Prev = &prev
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
