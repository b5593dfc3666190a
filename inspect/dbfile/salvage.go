package dbfile

import (
	"context"
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
// been compacted away, and would bring a deleted key back.
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

// carve looks for lost leaf pages of records.
func (x *examiner) carve() error {
	if !x.s.marked {
		x.report(Finding{Page: -1, Bucket: bucketMeta, Reason: "how far the keyspace is compacted is lost, so records outside of the tree are not looked for"})
		return nil
	}
	floor := max(x.s.marks.finished, x.s.marks.scheduled)
	have := make(map[[2]int64]bool)
	for _, e := range x.entries {
		if k, _, ok := x.p.itemAt(e.place &^ tombstoneBit); ok {
			if rev, _, reason := parseRevision(k); reason == "" && rev.Main > floor {
				have[[2]int64{rev.Main, rev.Sub}] = true
			}
		}
	}
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
			rev, _, reason := parseRevision(it.key)
			if reason != "" || it.isBucket || rev.Main <= floor || have[[2]int64{rev.Main, rev.Sub}] {
				continue
			}
			before := x.reported
			x.record(it)
			if x.reported != before {
				continue
			}
			have[[2]int64{rev.Main, rev.Sub}] = true
			x.carved++
			if err := x.entry(bucketKey, it); err != nil {
				return err
			}
		}
	}
	return nil
}

// missing reports the buckets that etcd cannot do without.
func (x *examiner) missing(names map[string]bool) {
	for _, name := range []string{bucketKey, bucketMeta} {
		if !names[name] {
			x.report(Finding{Page: int64(x.p.meta.root), Reason: fmt.Sprintf("bucket %q is missing", name)})
		}
	}
}
