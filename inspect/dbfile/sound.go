package dbfile

import (
	"context"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// Sound calls take with every entry of a damaged file that can still be read and that
// etcd can bear: behind a damaged page it goes on with the next, a record has to have
// a revision and to decode. Buckets in buckets are left out. Entries come bucket by
// bucket, as a rule in order, but where pages are out of order so are they, and one
// may come twice. Keys and values point into the file. What Examine reports is what is
// missing. An error of take ends the walk and is returned.
//
// It does not wait for the checksum of a snapshot.
func (s *Source) Sound(ctx context.Context, take func(bucket string, key, value []byte) error) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	x := &examiner{s: s, p: &s.pager, ctx: ctx, report: func(Finding) {}, seen: newBitmap(s.pager.meta.pages)}
	return pipeline.Guard(func() error {
		var roots []item
		err := x.tree(bucket{root: s.pager.meta.root}, "", func(it item) {
			if it.isBucket {
				roots = append(roots, it)
			}
		})
		if err != nil {
			return err
		}
		for _, root := range roots {
			name := string(root.key)
			b, err := s.pager.bucketOf(root)
			if err != nil {
				continue
			}
			var failed error
			err = x.tree(b, name, func(it item) {
				if failed == nil && !it.isBucket && s.bearable(name, it) {
					failed = take(name, it.key, it.value)
				}
			})
			if failed != nil {
				return failed
			}
			if err != nil {
				return err
			}
		}
		return s.check(ctx)
	})
}

// bearable tells whether etcd can start on an entry: what does not decode ends it.
func (s *Source) bearable(bucket string, it item) bool {
	switch bucket {
	case bucketKey:
		rk, err := s.revisionOf(it)
		if err != nil {
			return false
		}
		if len(it.value) == 0 {
			return !rk.tombstone // left by "snapshot restore --bump-revision"
		}
		rec, ok := decodeRecord(it.value)
		return ok && len(rec.Key) > 0
	case bucketLease:
		l, ok := decodeLease(it.value)
		return ok && len(it.key) == 8 && l.ID != 0
	}
	return len(it.key) > 0
}
