package dbfile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// index is the live keys of a range at one revision, in key order: of each the
// place of its leaf element in the file.
//
// A file is ordered by revision, so every read of keys has to look at all records
// up to that revision. Building takes 16 bytes for each of them that lies in the
// range (twice that for a moment), and keeps 8 bytes a live key.
type index struct {
	key, end []byte
	rev      int64
	places   []uint64
}

// entry stands for one record while an index is built.
type entry struct {
	// place is where its leaf element lies in the file; the top bit marks
	// a tombstone.
	place uint64
	// head holds eight bytes of its key, from some depth on, as a number that
	// orders like them: most comparisons need not touch the file.
	head uint64
}

const tombstoneBit = 1 << 63

// index returns the index for a range at a revision, from the cache where that
// holds the same range or the whole keyspace at that revision.
func (s *Source) index(ctx context.Context, r keyspace.Range, rev int64) (*index, error) {
	s.mu.Lock()
	cached := s.cache
	s.mu.Unlock()
	if cached != nil && cached.rev == rev && cached.covers(r) {
		return cached, nil
	}
	ix := &index{key: bytes.Clone(r.Key), end: bytes.Clone(r.End), rev: rev}
	err := pipeline.Guard(func() (err error) {
		entries, err := s.collect(ctx, r, rev)
		if err != nil {
			return err
		}
		ix.places, err = s.order(ctx, entries)
		if err != nil {
			return err
		}
		return s.check(ctx)
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.cache = ix
	}
	return ix, nil
}

func (ix *index) covers(r keyspace.Range) bool {
	if bytes.Equal(ix.key, r.Key) && bytes.Equal(ix.end, r.End) {
		return true
	}
	if len(ix.end) == 0 || !keyspace.Contains(ix.key, ix.end, r.Key) {
		return false
	}
	open := func(end []byte) bool { return len(end) == 1 && end[0] == 0 }
	switch {
	case open(ix.end):
		return true
	case len(r.End) == 0:
		return true // one key, and it lies inside
	case open(r.End):
		return false
	}
	return bytes.Compare(r.End, ix.end) <= 0
}

// walkParts is into how many parts a walk over the file is cut: enough that the
// cores end together, and that a compacted end of the file does not matter.
const walkParts = 64

// collect returns the records of a range up to a revision, in revision order. The
// parts of the file are walked on all cores; damage is that of the first part that
// has any.
func (s *Source) collect(ctx context.Context, r keyspace.Range, rev int64) ([]entry, error) {
	cuts := s.pager.splits(s.key, walkParts)
	parts := make([]walk, len(cuts)+2) // the last one is what the write-ahead log adds
	all := len(r.Key) == 1 && r.Key[0] == 0 && len(r.End) == 1 && r.End[0] == 0
	for i := range parts {
		parts[i] = walk{s: s, r: r, rev: rev, all: all}
	}
	if s.kind == keyspace.Member { // a snapshot is read as a whole anyway
		ahead, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); s.readAll(ahead) }()
		defer func() { stop(); <-done }()
	}
	var next atomic.Int64
	var failed atomic.Bool
	work := func() {
		for i := int(next.Add(1)) - 1; i <= len(cuts) && !failed.Load(); i = int(next.Add(1)) - 1 {
			var from, to []byte
			if i > 0 {
				from = cuts[i-1]
			}
			if i < len(cuts) {
				to = cuts[i]
			}
			p := &parts[i]
			// A fault in the mapped file is for the goroutine that meets it to catch.
			p.err = pipeline.Guard(func() error { return p.run(ctx, s.pager.cursor(s.key, from, to).next) })
			if p.err != nil {
				failed.Store(true)
			}
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(cuts)+1) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	last := &parts[len(parts)-1]
	if !failed.Load() {
		last.err = last.run(ctx, (&recordCursor{tail: s.tail}).step)
	}
	total := 0
	for i := range parts {
		if parts[i].err != nil {
			return nil, parts[i].err
		}
		total += parts[i].n
	}
	entries := make([]entry, 0, total)
	for i := range parts {
		for _, c := range parts[i].chunks {
			entries = append(entries, c...)
		}
		parts[i].chunks = nil
	}
	return entries, nil
}

// walk is what one walk over a part of the records has found.
type walk struct {
	s      *Source
	r      keyspace.Range
	rev    int64
	all    bool      // r is everything
	chunks [][]entry // growing one slice would hold the records twice at every step
	n      int
	err    error
}

// run takes records up to errEnd or to the first one behind the revision.
func (w *walk) run(ctx context.Context, next func() (item, error)) error {
	const chunk = 1 << 15
	var cur []entry
	keep := func() {
		if len(cur) > 0 {
			w.chunks, w.n = append(w.chunks, cur), w.n+len(cur)
		}
	}
	for n := 1; ; n++ {
		it, err := next()
		if errors.Is(err, errEnd) {
			break
		}
		if err == nil && n%8192 == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		rk, err := w.s.revisionOf(it)
		if err != nil {
			return err
		}
		if rk.rev.Main > w.rev {
			break
		}
		key := keyOf(it.value)
		if len(key) == 0 {
			if len(it.value) == 0 && !rk.tombstone {
				continue // left by "snapshot restore --bump-revision": a revision without a record
			}
			return w.s.badRecord(it.page, rk.rev, "does not decode, or has no key")
		}
		if !w.all && !w.r.Contains(key) {
			continue
		}
		e := entry{place: it.offset, head: headOf(key, 0)}
		if rk.tombstone {
			e.place |= tombstoneBit
		}
		if len(cur) == cap(cur) {
			keep()
			// Small ranges stay small.
			cur = make([]entry, 0, min(chunk, max(64, 2*cap(cur))))
		}
		cur = append(cur, e)
	}
	keep()
	return nil
}

func (s *Source) badRecord(page uint64, rev keyspace.Revision, reason string) error {
	return &CorruptError{Path: s.file, Page: int64(page), Rev: rev, Reason: "the record " + reason}
}

// order sorts entries by key, keeps the newest record of each key and drops the
// keys whose newest record is a tombstone.
func (s *Source) order(ctx context.Context, entries []entry) ([]uint64, error) {
	o := orderer{s: s, ctx: ctx, places: make([]uint64, 0, len(entries))}
	o.sort(entries, 0)
	if o.err != nil {
		return nil, o.err
	}
	return slices.Clip(o.places), nil
}

type orderer struct {
	s      *Source
	ctx    context.Context
	places []uint64
	err    error
	half   bool // one of two that share the work: does not split again
	all    bool // keep every record, in the order of revisions, tombstones marked
}

// splitFrom is from how many entries on two cores share the work.
const splitFrom = 1 << 15

// smallRun is a run that is cheaper to compare key by key.
const smallRun = 16

// sort takes entries whose keys agree in their first depth bytes, and whose head
// holds the next eight.
func (o *orderer) sort(es []entry, depth int) {
	if o.err == nil {
		o.err = o.ctx.Err()
	}
	if o.err != nil {
		return
	}
	if len(es) >= splitFrom && !o.half && o.split(es, depth) {
		return
	}
	sortHeads(es, 56)
	for len(es) > 0 && o.err == nil {
		n := 1
		for n < len(es) && es[n].head == es[0].head {
			n++
		}
		o.run(es[:n], depth)
		es = es[n:]
	}
}

// sortHeads orders entries by their heads, of which the bits above shift+7 are equal.
// It sorts by one byte after the other, the highest first, in place: what is called
// American flag sort. Comparing heads takes 0.1 s more for 1.2 million entries.
func sortHeads(es []entry, shift int) {
	const few = 64 // so many are sorted faster by comparing
	if len(es) <= few || shift < 0 {
		if shift >= 0 {
			slices.SortFunc(es, func(a, b entry) int { return cmp.Compare(a.head, b.head) })
		}
		return
	}
	var counts [256]int
	for i := range es {
		counts[byte(es[i].head>>shift)]++
	}
	if counts[byte(es[0].head>>shift)] == len(es) {
		sortHeads(es, shift-8)
		return
	}
	var next, end [256]int
	at := 0
	for b, n := range counts {
		next[b] = at
		at += n
		end[b] = at
	}
	for b := range counts {
		for next[b] < end[b] {
			e := es[next[b]]
			// Put what lies here where it belongs, until something belongs here.
			for to := byte(e.head >> shift); int(to) != b; to = byte(e.head >> shift) {
				e, es[next[to]] = es[next[to]], e
				next[to]++
			}
			es[next[b]] = e
			next[b]++
		}
	}
	for b, n := range counts {
		sortHeads(es[end[b]-n:end[b]], shift-8)
	}
}

// split orders entries in two halves on two cores. It is false when their heads
// are too much alike to make halves; nothing has been done then.
func (o *orderer) split(es []entry, depth int) bool {
	sample := make([]uint64, 0, 1025)
	for i := 0; i < len(es); i += len(es)/1024 + 1 {
		sample = append(sample, es[i].head)
	}
	slices.Sort(sample)
	pivot := sample[len(sample)/2]
	if below := sort.Search(len(sample), func(i int) bool { return sample[i] >= pivot }); below < len(sample)/8 {
		return false
	}
	i, j := 0, len(es)
	for i < j {
		if es[i].head < pivot {
			i++
		} else {
			j--
			es[i], es[j] = es[j], es[i]
		}
	}
	upper := orderer{s: o.s, ctx: o.ctx, places: make([]uint64, 0, len(es)-i), half: true, all: o.all}
	done := make(chan error, 1)
	go func() {
		// A fault in the mapped file is this goroutine's own to catch.
		done <- pipeline.Guard(func() error {
			upper.sort(es[i:], depth)
			return upper.err
		})
	}()
	lower := orderer{s: o.s, ctx: o.ctx, places: o.places, half: true, all: o.all}
	func() {
		// Whatever happens here, the other one must not outlive it.
		defer func() { o.err = cmp.Or[error](o.err, <-done) }()
		lower.sort(es[:i], depth)
		o.err = lower.err
	}()
	lower.places = append(lower.places, upper.places...)
	o.places = lower.places
	return true
}

// run orders entries with the same head.
func (o *orderer) run(es []entry, depth int) {
	if len(es) == 1 {
		o.keep(es[0])
		return
	}
	if len(es) <= smallRun {
		slices.SortFunc(es, o.compare)
		o.newest(es)
		return
	}
	// All keys of the run may agree in much more than a head: as far as that goes
	// there is nothing to sort by. A sample tells how far; looking at each key once,
	// rather than twice, is what counts in a large file.
	first := o.s.keyAt(es[0].place)
	common := o.commonOf(es, first, max(1, len(es)/64))
	same := true
	for i, exact := 0, false; i < len(es); i++ {
		if i%touchAhead == 0 {
			o.s.touchEntries(es[i:min(i+touchAhead, len(es))])
		}
		k := o.s.keyAt(es[i].place)
		if !bytes.HasPrefix(k, first[:common]) {
			if exact {
				o.err = o.s.unstable()
				return
			}
			common, exact = o.commonOf(es, first, 1), true
			i, same = -1, true
			continue
		}
		same = same && len(k) == len(first)
		es[i].head = headOf(k, common)
	}
	if same && common == len(first) {
		if o.all {
			slices.SortFunc(es, o.compareRevisions)
			o.newest(es)
			return
		}
		o.keep(slices.MaxFunc(es, o.compareRevisions))
		return
	}
	// A key that ends inside its head looks as if zeros followed; such keys cannot
	// be told apart by their heads and end up in one run.
	if common < depth+8 {
		slices.SortFunc(es, o.compare)
		o.newest(es)
		return
	}
	o.sort(es, common)
}

// commonOf returns how many bytes every stride-th key has in common with first.
func (o *orderer) commonOf(es []entry, first []byte, stride int) int {
	common := len(first)
	for i := 0; i < len(es); i += stride {
		common = commonPrefix(first[:common], o.s.keyAt(es[i].place))
	}
	return common
}

// newest keeps the last record of each key of a sorted run.
func (o *orderer) newest(es []entry) {
	for i, e := range es {
		if o.all || i+1 == len(es) || !bytes.Equal(o.s.keyAt(e.place), o.s.keyAt(es[i+1].place)) {
			o.keep(e)
		}
	}
}

func (o *orderer) keep(e entry) {
	if o.all || e.place&tombstoneBit == 0 {
		o.places = append(o.places, e.place)
	}
}

// compare orders by key, then by revision.
func (o *orderer) compare(a, b entry) int {
	if c := bytes.Compare(o.s.keyAt(a.place), o.s.keyAt(b.place)); c != 0 {
		return c
	}
	return o.compareRevisions(a, b)
}

func (o *orderer) compareRevisions(a, b entry) int {
	ka, _, _ := o.s.itemAt(a.place &^ tombstoneBit)
	kb, _, _ := o.s.itemAt(b.place &^ tombstoneBit)
	return bytes.Compare(ka, kb)
}

// touchAhead is how many records are touched before they are read one by one.
const touchAhead = 256

// touchEntries brings the records of entries into the processor's cache. Read one
// by one, each would wait for memory twice, for its element and for its data; a
// loop that does nothing else has many such waits under way at once.
func (s *Source) touchEntries(es []entry) {
	var places [touchAhead]uint64
	for i, e := range es {
		places[i] = e.place &^ tombstoneBit
	}
	s.pager.touch(places[:len(es)])
}

// keyAt returns the key of the record at a place that a walk has found. It is nil
// when the file has changed since; check finds that out.
func (s *Source) keyAt(place uint64) []byte {
	_, v, _ := s.itemAt(place &^ tombstoneBit)
	return keyOf(v)
}

// itemAt reads a record of the file or of its tail again.
func (s *Source) itemAt(place uint64) (key, value []byte, ok bool) {
	if place >= tailBase {
		return s.tail.at(place)
	}
	return s.pager.itemAt(place)
}

// unstable says that a key was read twice and was not the same.
func (s *Source) unstable() error {
	return &ChangedError{Path: s.file, How: "a key is not what it was"}
}

// headOf returns the eight bytes of key from depth on as a number that orders
// like them; behind the key's end come zeros.
func headOf(key []byte, depth int) uint64 {
	if len(key) >= depth+8 {
		return binary.BigEndian.Uint64(key[depth:])
	}
	var b [8]byte
	if depth < len(key) {
		copy(b[:], key[depth:])
	}
	return binary.BigEndian.Uint64(b[:])
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// slice returns the part of the index that lies in r.
func (s *Source) slice(ix *index, r keyspace.Range) []uint64 {
	at := func(key []byte) int {
		return sort.Search(len(ix.places), func(i int) bool { return bytes.Compare(s.keyAt(ix.places[i]), key) >= 0 })
	}
	from, to := at(r.Key), len(ix.places)
	switch {
	case len(r.End) == 0:
		to = from
		if from < len(ix.places) && bytes.Equal(s.keyAt(ix.places[from]), r.Key) {
			to++
		}
	case len(r.End) == 1 && r.End[0] == 0:
	default:
		to = max(from, at(r.End))
	}
	return ix.places[from:to]
}
