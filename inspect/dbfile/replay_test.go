package dbfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

var whole = keyspace.EventRange{Key: []byte{0}, End: []byte{0}}

// randomKey picks keys that are hard to put in order by eight bytes at a time:
// few different bytes, from both ends of the alphabet, and all lengths.
func randomKey(rng *rand.Rand) []byte {
	alphabet := []byte{0, 1, 0x7f, 0x80, 0xff}
	k := make([]byte, 1+rng.IntN(30))
	for i := range k {
		k[i] = alphabet[0]
		if rng.IntN(3) == 0 {
			k[i] = alphabet[rng.IntN(len(alphabet))]
		}
	}
	return k
}

// Every page size bbolt can have, and keys that are hard to order; the source in
// memory is the oracle, which etcd itself has tested.
func TestReplay(t *testing.T) {
	for _, pageSize := range []int{1024, 2048, 4096, 8192, 16384, 32768, 65536} {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, uint64(pageSize)))
			var m sourcetest.Memory
			keys := make([][]byte, 300)
			for i := range keys {
				keys[i] = randomKey(rng)
			}
			for range 1000 {
				var changes []sourcetest.Change
				for range 1 + rng.IntN(3) {
					k := keys[rng.IntN(len(keys))]
					if rng.IntN(5) == 0 {
						k = keys[0] // one key with a long history
					}
					// Also the same key twice, which nested transactions can do.
					changes = append(changes, sourcetest.Change{Key: k, Value: make([]byte, rng.IntN(100)), Lease: rng.Int64N(2), Delete: rng.IntN(4) == 0})
				}
				m.Apply(changes...)
			}
			b := build(t, pageSize)
			b.events(events(t, &m, whole))
			path := b.done()
			if pageSize == 4096 {
				seal(t, path)
			}
			sourcetest.Untouched(t, path)
			s := open(t, path, dbfile.Options{})
			same(t, rng, &m, s, keys)
		})
	}
}

// same compares two sources over everything and over random ranges.
func same(t *testing.T, rng *rand.Rand, want, got keyspace.HistorySource, keys [][]byte) {
	t.Helper()
	wi, err := want.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gi, err := got.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if gi.Revision != wi.Revision {
		t.Errorf("revision %d, want %d", gi.Revision, wi.Revision)
	}
	for range 40 {
		r := keyspace.All()
		a, b := keys[rng.IntN(len(keys))], keys[rng.IntN(len(keys))]
		switch rng.IntN(4) {
		case 0:
			r = keyspace.One(a)
		case 1:
			r = keyspace.Range{Key: a, End: b} // also when b comes first
		case 2:
			r = keyspace.From(a)
		}
		er := keyspace.EventRange{Key: r.Key, End: r.End, Prev: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			r.Rev = 1 + rng.Int64N(wi.Revision)
			er.MinRev, er.MaxRev = 1+rng.Int64N(wi.Revision), r.Rev
		}
		w, g := records(t, want, r), records(t, got, r)
		if d := differ(w, g, func(r keyspace.Record) string { return fmt.Sprintf("%+v", r) }); d != "" {
			t.Fatalf("Records(%q to %q at %d): %s", r.Key, r.End, r.Rev, d)
		}
		we, ge := events(t, want, er), events(t, got, er)
		show := func(e keyspace.Event) string {
			return fmt.Sprintf("%v %v %+v, before %s", e.Type, e.Rev, e.Record, showRecord(e.Prev))
		}
		if d := differ(we, ge, show); d != "" {
			t.Fatalf("Events(%q to %q, %d to %d): %s", er.Key, er.End, er.MinRev, er.MaxRev, d)
		}
	}
}

func showRecord(r *keyspace.Record) string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("%+v", *r)
}

func differ[T any](want, got []T, show func(T) string) string {
	for i := range min(len(want), len(got)) {
		if w, g := show(want[i]), show(got[i]); w != g {
			return fmt.Sprintf("number %d is %s\nwant %s", i, g, w)
		}
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d of them, want %d", len(got), len(want))
	}
	return ""
}

func put(m *sourcetest.Memory, keys ...string) {
	for _, k := range keys {
		m.Put(k, "value of "+k)
	}
}

// "snapshot restore --bump-revision" leaves a revision without a record and asks
// for a compaction right there.
func TestBumpedRevision(t *testing.T) {
	t.Parallel()
	var m sourcetest.Memory
	put(&m, "a", "b", "a")
	b := build(t, 4096)
	b.events(events(t, &m, whole))
	b.put("key", string(revKey(keyspace.Revision{Main: 1000})), nil)
	b.put("meta", "scheduledCompactRev", revKey(keyspace.Revision{Main: 1000}))
	s := open(t, b.done(), dbfile.Options{})
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Revision != 1000 || info.CompactRev != 0 || info.CompactScheduled != 1000 || info.OldestRev() != 1000 {
		t.Errorf("Info = %+v", info)
	}
	if got := records(t, s, keyspace.All()); len(got) != 2 || string(got[0].Key) != "a" || got[0].Version != 2 {
		t.Errorf("records %v", got)
	}
	if got := events(t, s, whole); len(got) != 3 {
		t.Errorf("%d events, want 3", len(got))
	}
	var gone *keyspace.CompactedError
	for _, err := range s.Records(t.Context(), keyspace.Range{Key: []byte("a"), Rev: 4}) {
		if !errors.As(err, &gone) || gone.CompactRev != 1000 {
			t.Errorf("read at 4: %v", err)
		}
	}
}

// A compaction that was cut off half-way has removed some of what it would.
func TestHalfFinishedCompaction(t *testing.T) {
	t.Parallel()
	var m sourcetest.Memory
	put(&m, "a", "b", "a", "b") // 2 3 4 5
	m.Delete("b")               // 6
	put(&m, "a", "b", "c")      // 7 8 9
	all := events(t, &m, whole)
	b := build(t, 4096)
	// Scheduled at 7, where it would keep 7 alone; it has come up to 3.
	b.events(all[2:])
	b.put("meta", "finishedCompactRev", revKey(keyspace.Revision{Main: 2}))
	b.put("meta", "scheduledCompactRev", revKey(keyspace.Revision{Main: 7}))
	s := open(t, b.done(), dbfile.Options{})
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.CompactRev != 2 || info.CompactScheduled != 7 || info.OldestRev() != 7 {
		t.Errorf("Info = %+v", info)
	}
	for rev := int64(1); rev <= 9; rev++ {
		r := keyspace.All()
		r.Rev = rev
		var got []string
		var err error
		for rec, e := range s.Records(t.Context(), r) {
			got, err = append(got, string(rec.Key)), e
		}
		var gone *keyspace.CompactedError
		if rev < 7 {
			if !errors.As(err, &gone) || gone.CompactRev != 7 {
				t.Errorf("read at %d: %v, %v", rev, got, err)
			}
			continue
		}
		want := map[int64]string{7: "[a]", 8: "[a b]", 9: "[a b c]"}[rev]
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("read at %d: %v, %v; want %s", rev, got, err, want)
		}
	}
	// What was changed at 4 was an older version than what is left of it.
	er := whole
	er.Prev = true
	for _, e := range events(t, s, er) {
		switch {
		case e.Rev.Main == 4 && e.Prev != nil:
			t.Errorf("the record before %v is gone, got %+v", e.Rev, e.Prev)
		case e.Rev.Main == 7 && (e.Prev == nil || e.Prev.ModRev != 4):
			t.Errorf("the record before %v is that of 4, got %s", e.Rev, showRecord(e.Prev))
		}
	}
	er.MinRev = 7
	for _, err := range s.Events(t.Context(), er) {
		if !errors.Is(err, keyspace.ErrCompacted) {
			t.Errorf("events from 7: %v", err)
		}
	}
}

// The last records were tombstones and went with the compaction: the revision is
// that of the compaction.
func TestCompactedToNothing(t *testing.T) {
	t.Parallel()
	b := build(t, 4096)
	b.put("meta", "finishedCompactRev", revKey(keyspace.Revision{Main: 40}))
	b.put("meta", "scheduledCompactRev", revKey(keyspace.Revision{Main: 40}))
	s := open(t, b.done(), dbfile.Options{})
	info, err := s.Info(t.Context())
	if err != nil || info.Revision != 40 || info.CompactRev != 40 || info.CompactScheduled != 0 {
		t.Errorf("Info = %+v, %v", info, err)
	}
	if got := records(t, s, keyspace.All()); len(got) != 0 {
		t.Errorf("records %v", got)
	}
}

// What a record says about itself is compared with where it lies.
func TestWrongRecords(t *testing.T) {
	t.Parallel()
	good := keyspace.Record{Key: []byte("k"), Value: []byte("v"), CreateRev: 5, ModRev: 5, Version: 1}
	for name, c := range map[string]struct {
		change func(*keyspace.Record)
		want   string
	}{
		"other revision": {func(r *keyspace.Record) { r.ModRev = 6 }, "revision 5: the record says that it was written at another revision"},
		"no version":     {func(r *keyspace.Record) { r.Version = 0 }, "the record has no version"},
		"created later":  {func(r *keyspace.Record) { r.CreateRev = 9 }, "was created after it was written"},
		"no key":         {func(r *keyspace.Record) { r.Key = nil }, "has no key"},
	} {
		r := good
		c.change(&r)
		b := build(t, 4096)
		b.events([]keyspace.Event{{Rev: keyspace.Revision{Main: 5}, Record: r}})
		s := open(t, b.done(), dbfile.Options{})
		for _, err := range s.Records(t.Context(), keyspace.All()) {
			wantError(t, name+", records", err, keyspace.ErrCorrupt, c.want)
		}
		for _, err := range s.Events(t.Context(), whole) {
			wantError(t, name+", events", err, keyspace.ErrCorrupt, c.want)
		}
		if err := s.Check(t.Context()); !errors.Is(err, keyspace.ErrCorrupt) {
			t.Errorf("%s: Check = %v", name, err)
		}
	}
}

// The index of a whole keyspace answers for its parts, at the same revision only.
func TestIndexIsUsedAgain(t *testing.T) {
	t.Parallel()
	var m sourcetest.Memory
	put(&m, "a", "b", "b/1", "b/2", "c")
	b := build(t, 4096)
	b.events(events(t, &m, whole))
	s := open(t, b.done(), dbfile.Options{})
	for _, rev := range []int64{0, 3, 0, 6, 4} {
		for _, r := range []keyspace.Range{keyspace.All(), keyspace.Prefix([]byte("b")), keyspace.One([]byte("b")), keyspace.From([]byte("b/2")), keyspace.One([]byte("x")), keyspace.All()} {
			r.Rev = rev
			if d := differ(records(t, &m, r), records(t, s, r), func(r keyspace.Record) string { return string(r.Key) }); d != "" {
				t.Errorf("%q to %q at %d: %s", r.Key, r.End, rev, d)
			}
		}
	}
}

func TestReadersTogether(t *testing.T) {
	t.Parallel()
	var m sourcetest.Memory
	for i := range 2000 {
		put(&m, fmt.Sprintf("k%d", i%700))
	}
	b := build(t, 4096)
	b.events(events(t, &m, whole))
	path := b.done()
	seal(t, path)
	s := open(t, path, dbfile.Options{})
	done := make(chan error)
	for i := range 8 {
		go func() {
			n := 0
			r := keyspace.All()
			r.Rev = int64(1000 + i%3)
			var last []byte
			for rec, err := range s.Records(t.Context(), r) {
				if err != nil {
					done <- err
					return
				}
				if bytes.Compare(rec.Key, last) <= 0 {
					done <- fmt.Errorf("%q after %q", rec.Key, last)
					return
				}
				last = rec.Key
				n++
			}
			if n != 700 {
				done <- fmt.Errorf("%d keys", n)
				return
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
