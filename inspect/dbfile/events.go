package dbfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"runtime/debug"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// Events yields the changes of r in the order in which they happened.
//
// MinRev 0 starts at the oldest record of the file, which may lie below the
// compact revision; a MinRev that is not above the compact revision (or one whose
// compaction was cut off half-way) is a *keyspace.CompactedError. A MinRev one
// above the newest revision yields nothing, anything beyond is
// a *keyspace.FutureError; a MaxRev beyond it is the newest.
//
// The events stream from the file: a few hundred are held at a time. With Prev
// the walk starts at the oldest record whatever MinRev is, and up to 21 bytes
// for each distinct key in the range are held (half as much again for a moment
// while the table grows), and eight for each change of the current revision.
//
// Prev is the record as it was at the revision before, as etcd's own watch has it:
// a transaction is one step even when it changes a key more than once.
//
// Keys and values point into the file and stay valid until Close.
func (s *Source) Events(ctx context.Context, r keyspace.EventRange) iter.Seq2[keyspace.Event, error] {
	return func(yield func(keyspace.Event, error) bool) {
		if err := s.acquire(); err != nil {
			yield(keyspace.Event{}, err)
			return
		}
		defer s.release()
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // see Records
		err := s.trusted(ctx)
		if err == nil {
			err = s.checkEventRange(r)
		}
		if err != nil {
			yield(keyspace.Event{}, err)
			return
		}
		e := s.eventReader(r)
		for more := true; more; {
			var batch []keyspace.Event
			err := pipeline.Guard(func() (err error) {
				if batch, more, err = e.read(ctx); err != nil {
					return err
				}
				return s.check(ctx)
			})
			if err != nil {
				yield(keyspace.Event{}, err)
				return
			}
			for _, ev := range batch {
				if !yield(ev, nil) {
					return
				}
			}
		}
	}
}

func (s *Source) checkEventRange(r keyspace.EventRange) error {
	oldest := max(s.marks.finished, s.marks.scheduled)
	if r.MinRev > 0 && r.MinRev <= oldest {
		return &keyspace.CompactedError{Rev: r.MinRev, CompactRev: oldest}
	}
	if r.MinRev > s.newest+1 {
		return &keyspace.FutureError{Rev: r.MinRev, Newest: s.newest}
	}
	return nil
}

// eventReader reads the events of a range, some at a time.
type eventReader struct {
	s        *Source
	r        keyspace.EventRange
	max      int64
	cursor   *recordCursor
	previous *lastRecords // as of the revision before; nil unless wanted
	current  []uint64     // places of the records of the current revision
	main     int64        // the current revision
	batch    []keyspace.Event
}

func (s *Source) eventReader(r keyspace.EventRange) *eventReader {
	e := &eventReader{s: s, r: r, max: r.MaxRev, batch: make([]keyspace.Event, 0, step)}
	if e.max <= 0 {
		e.max = math.MaxInt64
	}
	if r.Prev {
		e.previous = newLastRecords(s)
	}
	return e
}

// read returns the next events, and whether there may be more. It stops early
// after a stretch without any, so that its caller can look around.
func (e *eventReader) read(ctx context.Context) (batch []keyspace.Event, more bool, err error) {
	if e.cursor == nil {
		var from []byte
		if e.r.MinRev > 0 && !e.r.Prev {
			from = appendRevision(nil, keyspace.Revision{Main: e.r.MinRev})
		}
		e.cursor = e.s.records(from)
	}
	batch = e.batch[:0]
	for range 64 * step {
		it, err := e.cursor.step()
		if errors.Is(err, errEnd) {
			return batch, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		rk, err := e.s.revisionOf(it)
		if err != nil {
			return nil, false, err
		}
		if rk.rev.Main > e.max {
			return batch, false, nil
		}
		if len(it.value) == 0 && !rk.tombstone {
			continue // left by "snapshot restore --bump-revision"
		}
		key := keyOf(it.value)
		if len(key) > 0 && !keyspace.Contains(e.r.Key, e.r.End, key) {
			continue
		}
		ev, err := e.event(it, rk)
		if err != nil {
			return nil, false, err
		}
		if rk.rev.Main < e.r.MinRev {
			continue // only to know what was before
		}
		if batch = append(batch, ev); len(batch) == step {
			break
		}
	}
	return batch, true, ctx.Err()
}

func (e *eventReader) event(it item, rk revisionKey) (keyspace.Event, error) {
	rec, err := e.s.record(it.page, rk.rev, rk.tombstone, it.value)
	if err != nil {
		return keyspace.Event{}, err
	}
	ev := keyspace.Event{Type: keyspace.Put, Rev: rk.rev, Record: rec}
	if rk.tombstone {
		ev.Type = keyspace.Delete
	}
	if e.previous != nil {
		e.turnTo(rk.rev.Main)
		place := it.offset
		if rk.tombstone {
			place |= tombstoneBit
		}
		e.current = append(e.current, place)
		if rk.rev.Main >= e.r.MinRev {
			if ev.Prev, err = e.before(ev); err != nil {
				return keyspace.Event{}, err
			}
		}
	}
	if e.r.KeysOnly {
		ev.Record.Value = nil
	}
	return ev, nil
}

// turnTo notes the records of the revision that is over.
func (e *eventReader) turnTo(main int64) {
	if main == e.main {
		return
	}
	for _, place := range e.current {
		e.previous.set(e.s.keyAt(place), place)
	}
	e.current, e.main = e.current[:0], main
}

// before returns the record that ev changed; nil when there was none or it is gone.
func (e *eventReader) before(ev keyspace.Event) (*keyspace.Record, error) {
	place, found := e.previous.get(ev.Record.Key)
	if !found || place&tombstoneBit != 0 {
		return nil, nil
	}
	batch, err := e.s.load(make([]keyspace.Record, 0, 1), []uint64{place}, e.r.KeysOnly)
	if err != nil {
		return nil, err
	}
	prev := &batch[0]
	// Up to a compaction that was cut off half-way, the one before may be gone and
	// this be an older one.
	if e.s.marks.scheduled > e.s.marks.finished && ev.Rev.Main <= e.s.marks.scheduled &&
		ev.Type == keyspace.Put && (prev.CreateRev != ev.Record.CreateRev || prev.Version != ev.Record.Version-1) {
		return nil, nil
	}
	return prev, nil
}

// lastRecords remembers the place of the last record of every key: an open hash
// table of eight bytes a slot, whose keys are in the file.
type lastRecords struct {
	s     *Source
	seed  maphash.Seed
	slots []uint64 // place+1 in the low bits, 0: free; the rest is of the hash
	used  int
}

// A slot holds 47 bits of place (128 TB), the tombstone's bit, and 16 bits of hash.
const (
	placeBits = 47
	placeMask = 1<<placeBits - 1
	slotTomb  = 1 << placeBits
	hashShift = placeBits + 1
)

func newLastRecords(s *Source) *lastRecords {
	return &lastRecords{s: s, seed: maphash.MakeSeed(), slots: make([]uint64, 1<<10)}
}

// get returns the last place of key.
func (t *lastRecords) get(key []byte) (place uint64, found bool) {
	i, found := t.find(maphash.Bytes(t.seed, key), key)
	if !found {
		return 0, false
	}
	place = t.slots[i]&placeMask - 1
	if t.slots[i]&slotTomb != 0 {
		place |= tombstoneBit
	}
	return place, true
}

// set notes the last place of key.
func (t *lastRecords) set(key []byte, place uint64) {
	hash := maphash.Bytes(t.seed, key)
	i, found := t.find(hash, key)
	slot := hash>>hashShift<<hashShift | (place&^tombstoneBit + 1)
	if place&tombstoneBit != 0 {
		slot |= slotTomb
	}
	t.slots[i] = slot
	if !found {
		if t.used++; t.used*4 > len(t.slots)*3 {
			t.grow()
		}
	}
}

// find returns the slot of key, or the free one where it belongs.
func (t *lastRecords) find(hash uint64, key []byte) (i uint64, found bool) {
	mask := uint64(len(t.slots) - 1)
	for i = hash & mask; ; i = (i + 1) & mask {
		slot := t.slots[i]
		if slot == 0 {
			return i, false
		}
		if slot>>hashShift == hash>>hashShift && (key != nil && bytes.Equal(t.s.keyAt(slot&placeMask-1), key)) {
			return i, true
		}
	}
}

func (t *lastRecords) grow() {
	old := t.slots
	t.slots = make([]uint64, 2*len(old))
	for _, slot := range old {
		if slot == 0 {
			continue
		}
		// All keys differ: a free slot is what is wanted.
		i, _ := t.find(maphash.Bytes(t.seed, t.s.keyAt(slot&placeMask-1)), nil)
		t.slots[i] = slot
	}
}

// String describes the source for logs.
func (s *Source) String() string { return fmt.Sprintf("%s %s", s.kind, s.file) }
