package dbfile

import (
	"bytes"
	"context"
	"iter"
	"runtime"
	"runtime/debug"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// step is how many records are read between two looks at whether the file is
// still the same.
const step = 256

// Records yields the live records of r in key order as of r.Rev; 0 or less is the
// newest revision. Rev may be the compact revision itself. In a file whose last
// compaction was cut off half-way, Rev must not be below that compaction.
//
// The first record comes after one walk over all records up to r.Rev and, for
// a snapshot, after its checksum. A walk takes 32 bytes for each record in the
// range, of which 8 for each live key are kept for the next call: asking again
// for the same range, or for a part of it, at the same revision takes no walk.
//
// Keys and values point into the file and stay valid until Close. KeysOnly leaves
// out the value alone. When the file is cut short while the loop's body looks at
// a record, that is a fault in the caller: see pipeline.Guard.
func (s *Source) Records(ctx context.Context, r keyspace.Range) iter.Seq2[keyspace.Record, error] {
	return func(yield func(keyspace.Record, error) bool) {
		if err := s.acquire(); err != nil {
			yield(keyspace.Record{}, err)
			return
		}
		defer s.release()
		// For the loop's body too: there a fault is then a panic that Guard can
		// catch further up, not the end of the process.
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		places, err := s.lookup(ctx, r)
		if err != nil {
			yield(keyspace.Record{}, err)
			return
		}
		next, stop := s.batches(ctx, places, r.KeysOnly)
		defer stop()
		for {
			batch, err := next()
			if err != nil {
				yield(keyspace.Record{}, err)
				return
			}
			if len(batch) == 0 {
				return
			}
			for _, rec := range batch {
				if !yield(rec, nil) {
					return
				}
			}
		}
	}
}

// loaded is a batch of records, or why there is none.
type loaded struct {
	batch []keyspace.Record
	err   error
}

// batches reads the records at places in order; an empty batch is behind the last
// one, and next is not called again after it or an error. A batch is valid until
// the next call. Where there is more than one, other cores read ahead: in key order
// each record is somewhere else in the file, and most of the time goes into waiting
// for memory. stop ends that; it must be called.
func (s *Source) batches(ctx context.Context, places []uint64, keysOnly bool) (next func() ([]keyspace.Record, error), stop func()) {
	read := func(into []keyspace.Record, places []uint64) (l loaded) {
		l.err = pipeline.Guard(func() (err error) {
			if l.batch, err = s.load(into, places, keysOnly); err != nil {
				return err
			}
			return s.check(ctx)
		})
		return l
	}
	if len(places) <= step {
		return func() ([]keyspace.Record, error) {
			if len(places) == 0 {
				return nil, nil
			}
			l := read(make([]keyspace.Record, 0, len(places)), places)
			places = nil
			return l.batch, l.err
		}, func() {}
	}
	// Each reader takes every so manieth batch. One of its batches may be in the
	// consumer's hands, some wait, one is being read.
	const waiting = 2
	readers := min(runtime.GOMAXPROCS(0), 4)
	ahead, quit := make([]chan loaded, readers), make(chan struct{})
	for r := range ahead {
		ahead[r] = make(chan loaded, waiting)
		go func() {
			defer close(ahead[r])
			var buffers [waiting + 2][]keyspace.Record
			for i, n := r*step, 0; i < len(places); i, n = i+readers*step, n+1 {
				b := &buffers[n%len(buffers)]
				if *b == nil {
					*b = make([]keyspace.Record, 0, step)
				}
				l := read((*b)[:0], places[i:min(i+step, len(places))])
				select {
				case ahead[r] <- l:
				case <-quit:
					return
				}
				if l.err != nil {
					return
				}
			}
		}()
	}
	turn := 0
	next = func() ([]keyspace.Record, error) {
		l := <-ahead[turn] // closed: behind the last one
		turn = (turn + 1) % readers
		return l.batch, l.err
	}
	stop = func() {
		close(quit)
		for _, a := range ahead {
			for range a { // the source may be closed once nobody reads any more
			}
		}
	}
	return next, stop
}

// lookup returns the places of the records that r selects.
func (s *Source) lookup(ctx context.Context, r keyspace.Range) (places []uint64, err error) {
	rev := r.Rev
	oldest := max(s.marks.finished, s.marks.scheduled)
	switch {
	case rev <= 0:
		rev = s.newest
	case rev > s.newest:
		err = &keyspace.FutureError{Rev: rev, Newest: s.newest}
	case rev < oldest:
		err = &keyspace.CompactedError{Rev: rev, CompactRev: oldest}
	}
	if err != nil {
		// The marks that say so are only as good as the file.
		if damaged := s.trusted(ctx); damaged != nil {
			return nil, damaged
		}
		return nil, err
	}
	ix, err := s.index(ctx, r, rev)
	if err != nil {
		return nil, err
	}
	if err := s.trusted(ctx); err != nil {
		return nil, err
	}
	err = pipeline.Guard(func() error {
		places = s.slice(ix, r)
		return nil
	})
	if r.Limit > 0 && int64(len(places)) > r.Limit {
		places = places[:r.Limit]
	}
	return places, err
}

// load decodes the records at places.
func (s *Source) load(batch []keyspace.Record, places []uint64, keysOnly bool) ([]keyspace.Record, error) {
	for i, place := range places {
		if i%touchAhead == 0 {
			s.pager.touch(places[i:min(i+touchAhead, len(places))])
		}
		k, v, ok := s.itemAt(place)
		if !ok {
			return nil, &ChangedError{Path: s.file, How: "a record is not where it was"}
		}
		rev, _, reason := parseRevision(k)
		if reason != "" {
			return nil, &ChangedError{Path: s.file, How: reason}
		}
		rec, err := s.record(place/s.pager.meta.pageSize, rev, false, v)
		if err != nil {
			return nil, err
		}
		if keysOnly {
			rec.Value = nil
		}
		batch = append(batch, rec)
	}
	return batch, nil
}

// record decodes a stored record and compares it with the revision it lies under.
func (s *Source) record(page uint64, rev keyspace.Revision, tombstone bool, v []byte) (keyspace.Record, error) {
	rec, ok := decodeRecord(v)
	if !ok {
		return keyspace.Record{}, s.badRecord(page, rev, "does not decode")
	}
	if len(rec.Key) == 0 || !bytes.Equal(rec.Key, keyOf(v)) {
		return keyspace.Record{}, s.badRecord(page, rev, "has no key, or two")
	}
	if tombstone {
		return keyspace.Record{Key: rec.Key, ModRev: rev.Main}, nil
	}
	switch {
	case rec.ModRev != rev.Main:
		return keyspace.Record{}, s.badRecord(page, rev, "says that it was written at another revision")
	case rec.CreateRev < 1 || rec.CreateRev > rec.ModRev:
		return keyspace.Record{}, s.badRecord(page, rev, "was created after it was written")
	case rec.Version < 1:
		return keyspace.Record{}, s.badRecord(page, rev, "has no version")
	}
	return rec, nil
}
