package dbfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// KVHash is a hash of a keyspace's history, as etcd's HashKV has it. Two hashes say
// something about each other only when both revisions are equal: what a compaction
// removed is not hashed.
type KVHash struct {
	Hash       uint32
	Rev        int64 // of the newest record that counts
	CompactRev int64 // -1: never compacted, as etcd says it
}

// HashKV computes what etcd 3.5 and later, and etcdutl, answer to HashKV at a revision;
// 0 or less is the newest. It is the CRC-32 (Castagnoli) of the bucket's name and of
// every stored key and value up to rev (etcd's server/storage/mvcc/hash.go). Of what
// lies at or below the compact revision only the live record counts that a compaction
// at rev would keep; a compaction that was begun is as good as finished. What the
// write-ahead log adds counts too.
//
// A rev below the compact revision is a *keyspace.CompactedError, one beyond the
// newest a *keyspace.FutureError. A running server answers for the compact revision
// itself with the hash that it computed while it compacted, and with the compact
// revision from before. (etcd 3.4 and releases before 3.5.15 delete
// a tombstone at the compact revision, later ones leave it out of the hash: both come
// to the same.)
//
// Every page is read once, in parts, on all cores. A keyspace that was never compacted
// takes no memory; else it is up to 21 bytes for each distinct key that was written
// after the compaction (half as much again for a moment). When the last compaction was
// cut off half-way, it is that for every key, and what lies below it is read twice.
func (s *Source) HashKV(ctx context.Context, rev int64) (KVHash, error) {
	if err := s.acquire(); err != nil {
		return KVHash{}, err
	}
	defer s.release()
	compacted := max(s.marks.finished, s.marks.scheduled)
	if rev <= 0 {
		rev = s.newest
	}
	var wrong error
	switch {
	case rev > s.newest:
		wrong = &keyspace.FutureError{Rev: rev, Newest: s.newest}
	case rev < compacted:
		wrong = &keyspace.CompactedError{Rev: rev, CompactRev: compacted}
	}
	k := kvHasher{s: s, ctx: ctx, rev: rev, compacted: compacted, all: s.marks.scheduled > s.marks.finished}
	err := wrong
	if wrong == nil {
		err = k.run()
	}
	// The marks that say what is wrong are only as good as the file.
	if damaged := s.trusted(ctx); damaged != nil && (err == nil || err == wrong) { //nolint:errorlint // this very error
		err = damaged
	}
	if err != nil {
		return KVHash{}, err
	}
	out := KVHash{Hash: k.sum, Rev: rev, CompactRev: compacted}
	if compacted == 0 {
		out.CompactRev = -1
	}
	return out, nil
}

// kvHasher is one computation of a KVHash.
type kvHasher struct {
	s              *Source
	ctx            context.Context
	rev, compacted int64
	all            bool // the compaction may have left more than one record a key: table every key
	unfiltered     bool // nothing is live at rev; etcd then hashes all that the compaction has left
	table          *keyTable
	kept           atomic.Int64 // records at or below the compact revision that count
	sum            uint32
}

func (k *kvHasher) run() error {
	bound := appendRevision(nil, keyspace.Revision{Main: k.compacted + 1})
	parts := k.s.hashParts(k.s.key, bound)
	n := 0 // parts at or below the compact revision
	if k.compacted > 0 {
		for n < len(parts)-1 && bytes.Compare(parts[n].to, bound) <= 0 {
			n++
		}
		if n > 0 {
			k.table = newKeyTable(k.s)
		}
	}
	below, above := parts[:n], parts[n:]
	err := inParallel(k.ctx, len(above), func(i int) error { return k.hash(&above[i], k.take) })
	if err != nil {
		return err
	}
	if err := k.tail(func(it item, rk revisionKey) error { return k.note(it, rk) }); err != nil {
		return err
	}
	if k.all {
		err := inParallel(k.ctx, n, func(i int) error { return k.walk(&below[i], k.note) })
		if err != nil {
			return err
		}
	}
	last, err := k.below(below)
	if err == nil && k.table != nil && k.kept.Load() == 0 && !k.table.anyLive() {
		k.unfiltered = true
		if err = k.compact(below); err == nil {
			last, err = k.below(below)
		}
	}
	k.sum = joined(crc32.Update(0, castagnoli, []byte(bucketKey)), append(parts, last))
	return err
}

// compact tables what a compaction that was cut off is to leave, when that is what
// counts.
func (k *kvHasher) compact(parts []hashPart) error {
	if !k.all {
		return nil
	}
	k.table = newKeyTable(k.s)
	err := inParallel(k.ctx, len(parts), func(i int) error { return k.walk(&parts[i], k.note) })
	if err != nil {
		return err
	}
	return k.tail(func(it item, rk revisionKey) error {
		if rk.rev.Main > k.compacted {
			return nil
		}
		return k.note(it, rk)
	})
}

// below hashes the parts that were compacted, and returns what the write-ahead log
// adds, of which a compaction may have taken some too.
func (k *kvHasher) below(parts []hashPart) (last hashPart, err error) {
	err = inParallel(k.ctx, len(parts), func(i int) error { return k.hash(&parts[i], k.survives) })
	if err != nil {
		return last, err
	}
	return last, k.tail(func(it item, rk revisionKey) error {
		if rk.rev.Main <= k.compacted {
			if counts, err := k.survives(it, rk); !counts || err != nil {
				return err
			}
		}
		last.crc = crc32.Update(crc32.Update(last.crc, castagnoli, it.key), castagnoli, it.value)
		last.n += int64(len(it.key) + len(it.value))
		return nil
	})
}

// walk calls fn with the records of a part up to the revision.
func (k *kvHasher) walk(p *hashPart, fn func(it item, rk revisionKey) error) error {
	c := k.s.pager.cursor(k.s.key, p.from, p.to)
	for n := 1; ; n++ {
		it, err := c.next()
		if errors.Is(err, errEnd) {
			return nil
		}
		if err == nil && n%8192 == 0 {
			err = k.ctx.Err()
		}
		if err != nil {
			return err
		}
		rk, err := k.s.revisionOf(it)
		if err != nil {
			return err
		}
		if rk.rev.Main > k.rev {
			return nil
		}
		if err := fn(it, rk); err != nil {
			return err
		}
	}
}

// hash hashes the records of a part that take says count.
func (k *kvHasher) hash(p *hashPart, take func(it item, rk revisionKey) (bool, error)) error {
	r := run{data: k.s.pager.data}
	err := k.walk(p, func(it item, rk revisionKey) error {
		counts, err := take(it, rk)
		if counts && err == nil {
			r.add(it)
		}
		return err
	})
	r.flush()
	p.crc, p.n = r.crc, r.n
	return err
}

// take is for records above the compact revision, which all count.
func (k *kvHasher) take(it item, rk revisionKey) (bool, error) { return true, k.note(it, rk) }

// note tables the key of a record.
func (k *kvHasher) note(it item, rk revisionKey) error {
	if k.table == nil {
		return nil
	}
	key, err := k.s.hashedKey(it, rk)
	if err == nil {
		k.table.set(key, it.offset, rk.tombstone)
	}
	return err
}

// survives is for records at or below the compact revision.
func (k *kvHasher) survives(it item, rk revisionKey) (bool, error) {
	if k.unfiltered && !k.all {
		return !rk.tombstone || rk.rev.Main != k.compacted, nil
	}
	if rk.tombstone {
		return false, nil
	}
	key, err := k.s.hashedKey(it, rk)
	if err != nil {
		return false, err
	}
	place, found := k.table.get(key)
	counts := !found || k.all && place == it.offset
	if counts {
		k.kept.Add(1)
	}
	return counts, nil
}

// tail calls fn with what the write-ahead log adds up to the revision.
func (k *kvHasher) tail(fn func(it item, rk revisionKey) error) error {
	if k.s.tail == nil {
		return nil
	}
	for i, t := range k.s.tail.items {
		it := item{offset: tailBase + uint64(i), key: t.key, value: t.value}
		rk, err := k.s.revisionOf(it)
		if err == nil && rk.rev.Main > k.rev {
			return nil
		}
		if err == nil {
			err = fn(it, rk)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hashedKey returns the key of a record. What "snapshot restore --bump-revision" left
// has none, and is a record of the empty key to etcd.
func (s *Source) hashedKey(it item, rk revisionKey) ([]byte, error) {
	if len(it.value) == 0 && !rk.tombstone {
		return []byte{}, nil
	}
	key := keyOf(it.value)
	if len(key) == 0 {
		return nil, s.badRecord(it.page, rk.rev, "does not decode, or has no key")
	}
	return key, nil
}

// keyTable holds the place of the newest record of each key, for several writers at
// once: see lastRecords.
type keyTable struct {
	seed   maphash.Seed
	shards [64]keyShard
}

type keyShard struct {
	mu sync.Mutex
	t  *lastRecords
	_  [48]byte // shards do not share a line of the cache
}

func newKeyTable(s *Source) *keyTable {
	k := &keyTable{seed: maphash.MakeSeed()}
	for i := range k.shards {
		k.shards[i].t = newLastRecords(s)
	}
	return k
}

func (k *keyTable) shard(key []byte) *keyShard {
	return &k.shards[maphash.Bytes(k.seed, key)%uint64(len(k.shards))]
}

// set notes a record of key, unless a newer one is there.
func (k *keyTable) set(key []byte, place uint64, tombstone bool) {
	sh := k.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if have, found := sh.t.get(key); found && sh.t.s.newer(have, place) {
		return
	}
	if tombstone {
		place |= tombstoneBit
	}
	sh.t.set(key, place)
}

// newer tells whether the record at a is of a later revision than the one at b.
func (s *Source) newer(a, b uint64) bool {
	ka, _, _ := s.itemAt(a &^ tombstoneBit)
	kb, _, _ := s.itemAt(b &^ tombstoneBit)
	return bytes.Compare(ka, kb) > 0
}

// get is for when nobody sets any more.
func (k *keyTable) get(key []byte) (place uint64, found bool) { return k.shard(key).t.get(key) }

func (k *keyTable) anyLive() bool {
	for i := range k.shards {
		for _, slot := range k.shards[i].t.slots {
			if slot != 0 && slot&slotTomb == 0 {
				return true
			}
		}
	}
	return false
}

// Contents is what a file holds, as etcdutl's "snapshot status" counts it.
type Contents struct {
	// Hash is the CRC-32 (Castagnoli) of the names, keys and values of all buckets.
	Hash       uint32
	LastRev    int64 // of the last record there is; 0: there is none
	Records    int64 // tombstones included
	Tombstones int64
	// Bumps are revisions without a record, left by "snapshot restore --bump-revision".
	Bumps int64
}

// Contents reads and hashes every bucket, in parts, on all cores. It does not look at
// what a write-ahead log adds, nor wait for the checksum of a snapshot.
func (s *Source) Contents(ctx context.Context) (Contents, error) {
	if err := s.acquire(); err != nil {
		return Contents{}, err
	}
	defer s.release()
	var out Contents
	var roots []item
	err := pipeline.Guard(func() error {
		c := s.pager.cursor(bucket{root: s.pager.meta.root}, nil, nil)
		for {
			it, err := c.next()
			if errors.Is(err, errEnd) {
				return nil
			}
			if err != nil {
				return err
			}
			roots = append(roots, it)
		}
	})
	if err != nil {
		return Contents{}, err
	}
	for _, it := range roots {
		if err := s.addContents(ctx, it, &out); err != nil {
			return Contents{}, err
		}
	}
	return out, pipeline.Guard(func() error { return s.check(ctx) })
}

func (s *Source) addContents(ctx context.Context, root item, out *Contents) error {
	var parts []hashPart
	var b bucket
	err := pipeline.Guard(func() (err error) {
		if b, err = s.pager.bucketOf(root); err == nil {
			parts = s.hashParts(b, nil)
		}
		return err
	})
	if err != nil {
		return err
	}
	isKeys := string(root.key) == bucketKey
	counts := make([]Contents, len(parts))
	err = inParallel(ctx, len(parts), func(i int) error { return s.hashPart(ctx, b, &parts[i], isKeys, &counts[i]) })
	if err != nil {
		return err
	}
	out.Hash = joined(crc32.Update(out.Hash, castagnoli, root.key), parts)
	for _, c := range counts {
		out.LastRev = max(out.LastRev, c.LastRev)
		out.Records += c.Records
		out.Tombstones += c.Tombstones
		out.Bumps += c.Bumps
	}
	return nil
}

func (s *Source) hashPart(ctx context.Context, b bucket, p *hashPart, isKeys bool, out *Contents) error {
	c := s.pager.cursor(b, p.from, p.to)
	r := run{data: s.pager.data}
	for n := 1; ; n++ {
		it, err := c.next()
		if errors.Is(err, errEnd) {
			break
		}
		if err == nil && n%8192 == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if it.isBucket {
			it.value = nil // as bbolt has it for a bucket in a bucket
		}
		r.add(it)
		if !isKeys {
			continue
		}
		rk, err := s.revisionOf(it)
		if err != nil {
			return err
		}
		out.LastRev = rk.rev.Main
		switch {
		case rk.tombstone:
			out.Records++
			out.Tombstones++
		case len(it.value) == 0:
			out.Bumps++
		default:
			out.Records++
		}
	}
	r.flush()
	p.crc, p.n = r.crc, r.n
	return nil
}

// SizeInPages is the size of the database by its own bookkeeping, in bytes; the file may
// be longer.
func (s *Source) SizeInPages() int64 { return int64(s.pager.meta.pages * s.pager.meta.pageSize) }

// Keys counts the live keys at the newest revision. It takes a walk over all records;
// see Records for what that costs.
func (s *Source) Keys(ctx context.Context) (int64, error) {
	if err := s.acquire(); err != nil {
		return 0, err
	}
	defer s.release()
	all := keyspace.Range{Key: []byte{0}, End: []byte{0}}
	ix, err := s.index(ctx, all, s.newest)
	if err != nil {
		return 0, err
	}
	return int64(len(ix.places)), nil
}

// Sum returns the SHA-256 of the file's pages. A snapshot has it behind them: one that
// does not fit is a *ChecksumError, also with Options.IgnoreChecksum, and the sum that
// is returned with it is the one computed.
func (s *Source) Sum(ctx context.Context) (sum [sha256.Size]byte, err error) {
	if err := s.acquire(); err != nil {
		return sum, err
	}
	defer s.release()
	if s.kind == keyspace.Snapshot {
		err := checkSeal(ctx, s.file, s.f, s.pager.data)
		var wrong *ChecksumError
		if errors.As(err, &wrong) {
			return wrong.Got, err
		}
		if err == nil {
			sum, _, err = s.Trailer()
		}
		if err != nil {
			return sum, err
		}
		return sum, pipeline.Guard(func() error { return s.check(ctx) })
	}
	h := sha256.New()
	err = pipeline.Guard(func() error {
		for part := range slices.Chunk(s.pager.data, 1<<20) {
			if err := ctx.Err(); err != nil {
				return err
			}
			h.Write(part)
		}
		return s.check(ctx)
	})
	h.Sum(sum[:0])
	return sum, err
}

// Trailer returns the checksum that stands behind a snapshot's pages, unchecked; false:
// there is none.
func (s *Source) Trailer() (sum [sha256.Size]byte, ok bool, err error) {
	if err := s.acquire(); err != nil {
		return sum, false, err
	}
	defer s.release()
	if s.kind != keyspace.Snapshot {
		return sum, false, nil
	}
	if _, err := s.f.ReadAt(sum[:], int64(len(s.pager.data))); err != nil {
		return sum, false, fmt.Errorf("read the SHA-256 behind %s: %w", s.file, err)
	}
	return sum, true, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hashPart is a part of a bucket and the CRC of what counts in it.
type hashPart struct {
	from, to []byte // nil: open
	crc      uint32
	n        int64 // bytes
}

// hashParts cuts a bucket into parts; one cut is at bound, when that is not nil.
func (s *Source) hashParts(b bucket, bound []byte) []hashPart {
	cuts := s.pager.splits(b, walkParts)
	if bound != nil {
		if i, found := slices.BinarySearchFunc(cuts, bound, bytes.Compare); !found {
			cuts = slices.Insert(cuts, i, bound)
		}
	}
	parts := make([]hashPart, len(cuts)+1)
	for i, c := range cuts {
		parts[i].to, parts[i+1].from = c, c
	}
	return parts
}

// run hashes elements. Key and value of one lie behind each other in the file, and the
// next one of the page behind them: as a rule a page is hashed in one go.
type run struct {
	data     []byte
	from, to uint64
	crc      uint32
	n        int64
}

func (r *run) add(it item) {
	if it.dataAt != r.to {
		r.flush()
		r.from = it.dataAt
	}
	r.to = it.dataAt + uint64(len(it.key)+len(it.value))
}

func (r *run) flush() {
	r.crc = crc32.Update(r.crc, castagnoli, r.data[r.from:r.to])
	r.n += int64(r.to - r.from)
	r.from = r.to
}

// joined is the CRC of what crc is of, and of the parts behind it.
func joined(crc uint32, parts []hashPart) uint32 {
	for _, p := range parts {
		crc = behind(crc, p.n) ^ p.crc
	}
	return crc
}

// behind moves a CRC before n more bytes: it multiplies by x^8n, modulo Castagnoli's
// polynomial. Bits are reversed, as everywhere with this CRC: the top one is x^0.
func behind(crc uint32, n int64) uint32 {
	power := uint32(1) << 31
	for square := uint32(1) << (31 - 8); n > 0; n >>= 1 {
		if n&1 != 0 {
			power = times(power, square)
		}
		square = times(square, square)
	}
	return times(power, crc)
}

func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			product ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crc32.Castagnoli
		}
	}
	return product
}

// inParallel calls do for 0..n-1 on all cores. The error is that of the first part
// that has one.
func inParallel(ctx context.Context, n int, do func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var failed atomic.Bool
	work := func() {
		for i := int(next.Add(1)) - 1; i < n && !failed.Load(); i = int(next.Add(1)) - 1 {
			// A fault in the mapped file is for the goroutine that meets it to catch.
			if errs[i] = pipeline.Guard(func() error { return do(i) }); errs[i] != nil {
				failed.Store(true)
			}
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
