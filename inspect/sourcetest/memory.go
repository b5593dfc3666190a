package sourcetest

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Memory is a keyspace in memory, for tests of what reads a Source. It passes the
// same suite as the real ones. The zero value is an empty keyspace at revision 1,
// ready for use by several goroutines.
type Memory struct {
	mu      sync.Mutex
	rev     int64
	compact int64
	events  []keyspace.Event // in order; Prev is not set
	info    keyspace.Info
}

var _ keyspace.HistorySource = (*Memory)(nil)

// Change is one change of a transaction; see Put and Delete.
type Change struct {
	Key, Value []byte
	Lease      int64
	Delete     bool
}

// Put writes one key and returns the revision.
func (m *Memory) Put(key, value string) int64 {
	return m.Apply(Change{Key: []byte(key), Value: []byte(value)})
}

// Delete deletes one key and returns the revision, which stays what it is when
// there is no such key.
func (m *Memory) Delete(key string) int64 {
	return m.Apply(Change{Key: []byte(key), Delete: true})
}

// Apply makes changes in one revision and returns it.
func (m *Memory) Apply(changes ...Change) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	rev, sub := m.newest()+1, int64(0)
	for _, c := range changes {
		last := m.last(c.Key, rev)
		if c.Delete && last == nil {
			continue
		}
		e := keyspace.Event{Rev: keyspace.Revision{Main: rev, Sub: sub}}
		e.Record = keyspace.Record{Key: bytes.Clone(c.Key), ModRev: rev}
		if c.Delete {
			e.Type = keyspace.Delete
		} else {
			e.Record.Value, e.Record.Lease = bytes.Clone(c.Value), c.Lease
			e.Record.CreateRev, e.Record.Version = rev, 1
			if last != nil {
				e.Record.CreateRev, e.Record.Version = last.CreateRev, last.Version+1
			}
		}
		m.events = append(m.events, e)
		sub++
	}
	if sub > 0 {
		m.rev = rev
	}
	return m.newest()
}

// Compact forgets what is not needed to read at rev or later.
func (m *Memory) Compact(rev int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rev <= m.compact {
		return
	}
	m.compact = rev
	newest := map[string]keyspace.Revision{}
	for _, e := range m.events {
		if e.Rev.Main <= rev {
			newest[string(e.Record.Key)] = e.Rev
		}
	}
	m.events = slices.DeleteFunc(m.events, func(e keyspace.Event) bool {
		if e.Rev.Main > rev {
			return false
		}
		return newest[string(e.Record.Key)] != e.Rev || e.Type == keyspace.Delete
	})
}

// SetInfo sets what Info says beside the revisions.
func (m *Memory) SetInfo(info keyspace.Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.info = info
}

func (m *Memory) newest() int64 { return max(m.rev, 1) }

// last returns the record of key as of rev; nil when it does not exist then.
func (m *Memory) last(key []byte, rev int64) *keyspace.Record {
	for i := len(m.events) - 1; i >= 0; i-- {
		e := &m.events[i]
		if e.Rev.Main <= rev && bytes.Equal(e.Record.Key, key) {
			if e.Type == keyspace.Delete {
				return nil
			}
			return &e.Record
		}
	}
	return nil
}

// Info returns what SetInfo set, with the revisions of the moment.
func (m *Memory) Info(ctx context.Context) (keyspace.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	info := m.info
	info.Revision, info.CompactRev = m.newest(), m.compact
	if info.Kind == "" {
		info.Kind = keyspace.Snapshot
	}
	return info, ctx.Err()
}

// Close does nothing; a Memory can be read again.
func (m *Memory) Close() error { return nil }

// Records yields live records in key order.
func (m *Memory) Records(ctx context.Context, r keyspace.Range) iter.Seq2[keyspace.Record, error] {
	return func(yield func(keyspace.Record, error) bool) {
		recs, err := m.records(r)
		if err == nil {
			err = ctx.Err() // also of an empty range
		}
		if err != nil {
			yield(keyspace.Record{}, err)
			return
		}
		for _, rec := range recs {
			if err := ctx.Err(); err != nil {
				yield(keyspace.Record{}, err)
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}

func (m *Memory) records(r keyspace.Range) ([]keyspace.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rev := r.Rev
	switch {
	case rev <= 0:
		rev = m.newest()
	case rev > m.newest():
		return nil, &keyspace.FutureError{Rev: rev, Newest: m.newest()}
	case rev < m.compact:
		return nil, &keyspace.CompactedError{Rev: rev, CompactRev: m.compact}
	}
	live := map[string]keyspace.Record{}
	for _, e := range m.events {
		switch {
		case e.Rev.Main > rev || !r.Contains(e.Record.Key):
		case e.Type == keyspace.Delete:
			delete(live, string(e.Record.Key))
		default:
			live[string(e.Record.Key)] = e.Record
		}
	}
	recs := make([]keyspace.Record, 0, len(live))
	for _, rec := range live {
		if r.KeysOnly {
			rec.Value = nil
		}
		recs = append(recs, rec)
	}
	slices.SortFunc(recs, func(a, b keyspace.Record) int { return bytes.Compare(a.Key, b.Key) })
	if r.Limit > 0 && int64(len(recs)) > r.Limit {
		recs = recs[:r.Limit]
	}
	return recs, nil
}

// Events yields the surviving changes in order. Prev is the record as of the
// revision before, as etcd's watch has it.
func (m *Memory) Events(ctx context.Context, r keyspace.EventRange) iter.Seq2[keyspace.Event, error] {
	return func(yield func(keyspace.Event, error) bool) {
		events, err := m.selected(r)
		if err != nil {
			yield(keyspace.Event{}, err)
			return
		}
		for _, e := range events {
			if err := ctx.Err(); err != nil {
				yield(keyspace.Event{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (m *Memory) selected(r keyspace.EventRange) ([]keyspace.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.MinRev > 0 && r.MinRev <= m.compact {
		return nil, &keyspace.CompactedError{Rev: r.MinRev, CompactRev: m.compact}
	}
	if r.MinRev > m.newest()+1 {
		return nil, &keyspace.FutureError{Rev: r.MinRev, Newest: m.newest()}
	}
	var out []keyspace.Event
	before := map[string]keyspace.Record{}
	done := 0 // events that before knows of: those of earlier revisions
	for _, e := range m.events {
		for ; m.events[done].Rev.Main < e.Rev.Main; done++ {
			old := &m.events[done]
			if delete(before, string(old.Record.Key)); old.Type == keyspace.Put {
				before[string(old.Record.Key)] = old.Record
			}
		}
		if !keyspace.Contains(r.Key, r.End, e.Record.Key) || r.MaxRev > 0 && e.Rev.Main > r.MaxRev {
			continue
		}
		prev, had := before[string(e.Record.Key)]
		if e.Rev.Main < r.MinRev {
			continue
		}
		if r.KeysOnly {
			e.Record.Value, prev.Value = nil, nil
		}
		if r.Prev && had {
			e.Prev = &prev
		}
		out = append(out, e)
	}
	return out, nil
}
