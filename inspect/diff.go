package inspect

import (
	"bytes"
	"context"
	"iter"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// DifferenceKind says how a key differs between two keyspaces.
type DifferenceKind string

// The kinds of difference.
const (
	Added     DifferenceKind = "added"
	Removed   DifferenceKind = "removed"
	Changed   DifferenceKind = "changed"   // another value or lease
	Rewritten DifferenceKind = "rewritten" // the same value, but written again: other revisions
)

// Difference is one key that is not the same in both. Old is nil when it was
// added, New when it was removed.
type Difference struct {
	Kind     DifferenceKind
	Old, New *keyspace.Record
}

// Key returns the key.
func (d Difference) Key() []byte {
	if d.New != nil {
		return d.New.Key
	}
	return d.Old.Key
}

// Diff yields what differs between two keyspaces, in key order. The ranges say
// what is compared, and at which revision of each. Both are read once, side by
// side; it holds one record of each. The records of a difference stay valid as
// long as their source allows.
func Diff(ctx context.Context, from, to keyspace.Source, fromRange, toRange keyspace.Range) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		nextOld, stopOld := iter.Pull2(from.Records(ctx, fromRange))
		defer stopOld()
		nextNew, stopNew := iter.Pull2(to.Records(ctx, toRange))
		defer stopNew()
		a, b := &side{next: nextOld}, &side{next: nextNew}
		a.advance()
		b.advance()
		for {
			if a.err != nil || b.err != nil {
				yield(Difference{}, firstError(a.err, b.err))
				return
			}
			d, ok := compare(a, b)
			if d.Kind != "" && !yield(d, nil) || !ok {
				return
			}
		}
	}
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// side is one of the two streams with its current record.
type side struct {
	next func() (keyspace.Record, error, bool)
	rec  keyspace.Record
	ok   bool
	err  error
}

func (s *side) advance() {
	s.rec, s.err, s.ok = s.next()
	if s.err != nil {
		s.ok = false
	}
}

// take returns the current record and moves on.
func (s *side) take() *keyspace.Record {
	r := s.rec
	s.advance()
	return &r
}

// compare takes the smaller key off the streams, or both when they are equal.
// The kind is empty when nothing differs; ok is false at the end of both.
func compare(a, b *side) (d Difference, ok bool) {
	switch {
	case !a.ok && !b.ok:
		return d, false
	case !b.ok:
		return Difference{Kind: Removed, Old: a.take()}, true
	case !a.ok:
		return Difference{Kind: Added, New: b.take()}, true
	}
	switch c := bytes.Compare(a.rec.Key, b.rec.Key); {
	case c < 0:
		return Difference{Kind: Removed, Old: a.take()}, true
	case c > 0:
		return Difference{Kind: Added, New: b.take()}, true
	}
	d = Difference{Kind: kindOf(a.rec, b.rec)}
	old, current := a.take(), b.take()
	if d.Kind != "" {
		d.Old, d.New = old, current
	}
	return d, true
}

func kindOf(a, b keyspace.Record) DifferenceKind {
	switch {
	case !bytes.Equal(a.Value, b.Value) || a.Lease != b.Lease:
		return Changed
	case a.ModRev != b.ModRev || a.CreateRev != b.CreateRev || a.Version != b.Version:
		return Rewritten
	}
	return ""
}
