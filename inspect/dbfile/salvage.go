package dbfile

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// Salvaged sums up what Salvage took out of a file.
type Salvaged struct {
	Examined
	Entries int64 // of all buckets
	// Carved are the records among them that no branch page led to any more.
	Carved int64
}

// Salvage calls take with every entry of every bucket that is sound by itself, and
// report with everything that is wrong, as Examine does. The file should be opened with
// Options.Damaged. An entry that was reported is not taken; keys and values stay valid
// until Close. An error of take ends it and is returned.
//
// Where pages of the tree are lost, leaf pages that nothing leads to any more are looked
// for in the whole file. Their records count only when they are newer than the last
// compaction: etcd removes records in no other way, and what is at a revision never
// changes, so they belong to the history whatever page holds them. An older one may have
// been compacted away, and would bring a deleted key back. When even the mark of the last
// compaction is lost an old copy of it counts, and without one all records do; a finding
// says what that can mean.
func (s *Source) Salvage(ctx context.Context, take func(bucket string, key, value []byte) error, report func(Finding)) (Salvaged, error) {
	if err := s.acquire(); err != nil {
		return Salvaged{}, err
	}
	defer s.release()
	x := s.examiner(ctx, report)
	x.entry = func(bucket string, it item) error {
		x.taken++
		return take(bucket, it.key, it.value)
	}
	err := pipeline.Guard(x.run)
	return Salvaged{Examined: x.sum, Entries: x.taken, Carved: x.carved}, err
}

// Damaged tells whether the file was opened with Options.Damaged, so that what it
// answers may be anything.
func (s *Source) Damaged() bool { return s.damaged }

// carve looks for lost leaf pages of records.
func (x *examiner) carve() error {
	floor := x.compacted()
	if !x.s.marked {
		var err error
		if floor, err = x.oldMarks(); err != nil {
			return err
		}
	}
	have := make(map[[2]int64]bool)
	for _, e := range x.entries {
		if k, _, ok := x.p.itemAt(e.place &^ tombstoneBit); ok {
			if rev, _, reason := parseRevision(k); reason == "" && rev.Main > floor {
				have[[2]int64{rev.Main, rev.Sub}] = true
			}
		}
	}
	return x.lostLeaves(func(it item) (bool, error) {
		rev, _, reason := parseRevision(it.key)
		if reason != "" || it.isBucket || rev.Main <= floor || have[[2]int64{rev.Main, rev.Sub}] {
			return true, nil
		}
		before := x.reported
		if x.record(it); x.reported != before {
			return true, nil
		}
		have[[2]int64{rev.Main, rev.Sub}] = true
		x.carved++
		return true, x.entry(bucketKey, it)
	})
}

// lostLeaves calls fn with the entries of leaf pages that the tree does not lead to, page
// by page, until it says that the page is of no use.
func (x *examiner) lostLeaves(fn func(item) (more bool, err error)) error {
	for id := uint64(2); id < x.p.meta.pages; id++ {
		if x.steps++; x.steps%256 == 0 {
			if err := x.s.check(x.ctx); err != nil {
				return err
			}
		}
		if x.seen.has(id) {
			continue
		}
		pg, err := x.p.page(id, nil)
		if err != nil || pg.flags != flagLeaf {
			continue
		}
		for i := range pg.count {
			it, err := x.p.leaf(&pg, i)
			if err != nil {
				break
			}
			more, err := fn(it)
			if err != nil {
				return err
			}
			if !more {
				break
			}
		}
	}
	return nil
}

// oldMarks looks for old copies of bucket "meta", and returns the newest compaction that
// they know of; 0 when there is no copy. Its entries are taken from the newest copy.
func (x *examiner) oldMarks() (compacted int64, err error) {
	var best map[string]item
	var newest uint64
	var page uint64
	var now map[string]item
	compacted = -1
	flush := func() {
		index, ok := now["consistent_index"]
		if !ok || len(index.value) != 8 {
			return
		}
		compacted = max(compacted, 0)
		for _, name := range []string{"finishedCompactRev", "scheduledCompactRev"} {
			if rev, _, reason := parseRevision(now[name].value); reason == "" {
				compacted = max(compacted, rev.Main)
			}
		}
		if n := binary.BigEndian.Uint64(index.value); best == nil || n > newest {
			best, newest = now, n
		}
	}
	note := func(it item) (isMark bool) {
		switch string(it.key) {
		case "confState", "consistent_index", "finishedCompactRev", "scheduledCompactRev", "storageVersion", "term":
			now[string(it.key)] = it
			return true
		}
		return false
	}
	err = x.lostLeaves(func(it item) (bool, error) {
		if it.page != page {
			flush()
			page, now = it.page, map[string]item{}
		}
		if !it.isBucket {
			return note(it) || len(now) > 0, nil
		}
		// A small bucket lies inside the root page, an old one of which may be there.
		if b, err := x.p.bucketOf(it); err == nil && b.root == 0 && string(it.key) == bucketMeta {
			for i := range b.inline.count {
				if in, err := x.p.leaf(&b.inline, i); err == nil {
					note(in)
				}
			}
		}
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	if flush(); best == nil {
		x.report(Finding{Page: -1, Bucket: bucketMeta, Reason: "how far the keyspace is compacted is lost; keys that were deleted before its last compaction may have come back"})
		return 0, nil
	}
	x.report(Finding{Page: int64(best["consistent_index"].page), Bucket: bucketMeta, Reason: fmt.Sprintf("an old copy says that the keyspace is compacted at revision %d; keys that were deleted before a later compaction may have come back", compacted)})
	for _, it := range best {
		if err := x.entry(bucketMeta, it); err != nil {
			return 0, err
		}
	}
	return compacted, nil
}

// missing reports the buckets that etcd cannot do without.
func (x *examiner) missing(names map[string]bool) {
	for _, name := range []string{bucketKey, bucketMeta} {
		if !names[name] {
			x.report(Finding{Page: int64(x.p.meta.root), Reason: fmt.Sprintf("bucket %q is missing", name)})
		}
	}
}
