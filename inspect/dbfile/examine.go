package dbfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// Finding is one thing that is wrong with a file, and where.
type Finding struct {
	// Warning marks what is odd but legal; everything else is damage.
	Warning bool
	// Records is set for what is wrong with a record or an entry of a bucket, and not
	// with the pages that hold it.
	Records bool
	Page    int64 // -1: of no one page
	Bucket  string
	Rev     keyspace.Revision // the zero Revision when it is about none
	Key     []byte            // of the keyspace; nil when it is about none
	Reason  string
}

func (f Finding) String() string {
	var b bytes.Buffer
	if f.Page >= 0 {
		fmt.Fprintf(&b, "page %d, ", f.Page)
	}
	if f.Bucket != "" {
		fmt.Fprintf(&b, "bucket %q, ", f.Bucket)
	}
	if f.Rev != (keyspace.Revision{}) {
		fmt.Fprintf(&b, "revision %v, ", f.Rev)
	}
	if f.Key != nil {
		fmt.Fprintf(&b, "key %s, ", describeKey(f.Key))
	}
	if b.Len() == 0 {
		return f.Reason
	}
	b.Truncate(b.Len() - 2)
	return b.String() + ": " + f.Reason
}

// Examined sums up what Examine looked at.
type Examined struct {
	Pages      int64 // in use, without meta pages
	FreePages  int64 // -1: the file keeps no list of them
	Records    int64 // of bucket "key", tombstones included
	Tombstones int64
	Keys       int64 // live at the newest revision
	Leases     int64
}

// Examine reads every page in use and every record, and reports all that is wrong,
// not only the first: behind a damaged page it goes on with the next. It does not wait
// for the checksum of a snapshot, so that a damaged one can be looked at.
//
// Of pages it checks what bbolt relies on: kind, number, bounds, order, that none is
// used twice or both used and free. Of records: their revisions, that they decode and
// say the revision they lie under, that no revision is missing behind the last
// compaction, and that versions and creations of each key follow each other from its first surviving revision on; the marks of compactions; leases,
// members, users, roles and alarms. A key whose lease is gone is a warning.
//
// It takes 24 bytes of memory a record. An error is none of the file's content: ctx is
// done, or another process writes to the file.
func (s *Source) Examine(ctx context.Context, report func(Finding)) (Examined, error) {
	return s.ExamineEach(ctx, report, nil)
}

// ExamineEach is Examine that also calls each with every record that decodes, superseded
// ones too and tombstones not, in the order of their revisions; nil: with none.
func (s *Source) ExamineEach(ctx context.Context, report func(Finding), each func(keyspace.Record)) (Examined, error) {
	if err := s.acquire(); err != nil {
		return Examined{}, err
	}
	defer s.release()
	x := s.examiner(ctx, report)
	x.each = each
	err := pipeline.Guard(x.run)
	return x.sum, err
}

func (s *Source) examiner(ctx context.Context, report func(Finding)) *examiner {
	x := &examiner{s: s, p: &s.pager, ctx: ctx, seen: newBitmap(s.pager.meta.pages), leases: map[int64]bool{}}
	x.report = func(f Finding) {
		x.reported++
		report(f)
	}
	return x
}

type examiner struct {
	s      *Source
	p      *pager
	ctx    context.Context
	report func(Finding)
	seen   bitmap
	sum    Examined
	leases map[int64]bool
	steps  int

	entries  []entry
	last     keyspace.Revision
	before   keyspace.Revision // the record before in the tree; of sequence
	reported int               // findings so far
	each     func(keyspace.Record)

	entry         func(bucket string, it item) error // of Salvage: takes what is sound
	taken, carved int64
	failed        error // of entry
}

// found reports damage to pages.
func (x *examiner) found(page uint64, bucket, format string, a ...any) {
	x.report(Finding{Page: int64(page), Bucket: bucket, Reason: fmt.Sprintf(format, a...)})
}

// because reports an error of the pager.
func (x *examiner) because(bucket string, err error) {
	var c *CorruptError
	if errors.As(err, &c) {
		x.report(Finding{Page: c.Page, Bucket: bucket, Rev: c.Rev, Reason: c.Reason})
		return
	}
	x.report(Finding{Page: -1, Bucket: bucket, Reason: err.Error()})
}

func (x *examiner) run() error {
	if x.s.cut != nil {
		x.report(Finding{Page: -1, Reason: x.s.cut.Error()})
	}
	if t := x.s.truncated; t != nil {
		x.report(Finding{Page: -1, Reason: fmt.Sprintf("the file has %d bytes, its pages need %d: cut short", t.Have, t.Want)})
	}
	x.metas()
	before := x.reported
	if err := x.buckets(); err != nil {
		return err
	}
	if x.entry != nil && x.reported > before {
		if err := x.carve(); err != nil {
			return err
		}
	}
	x.free()
	x.marks()
	if err := x.chains(); err != nil {
		return err
	}
	return x.s.check(x.ctx)
}

// metas looks at both meta pages. A snapshot is written with two good ones; of a
// member's own file one may be half written after a crash.
func (x *examiner) metas() {
	for id := range uint64(2) {
		at := id * x.p.meta.pageSize
		if _, reason := parseMeta(x.p.data[min(at, uint64(len(x.p.data))):]); reason != "" {
			x.report(Finding{Page: int64(id), Warning: x.s.kind == keyspace.Member, Reason: "this meta page " + reason})
		}
	}
}

// buckets walks every bucket of the root.
func (x *examiner) buckets() error {
	var roots []item
	err := x.tree(bucket{root: x.p.meta.root}, "", func(it item) {
		if !it.isBucket {
			x.found(it.page, "", "%s lies among the buckets and is none", describeKey(it.key))
			return
		}
		roots = append(roots, it)
	})
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, it := range roots {
		names[string(it.key)] = true
	}
	x.missing(names)
	// Leases first: records are held against them.
	slices.SortStableFunc(roots, func(a, b item) int {
		return bool2int(string(b.key) == bucketLease) - bool2int(string(a.key) == bucketLease)
	})
	for _, it := range roots {
		name := string(it.key)
		b, err := x.p.bucketOf(it)
		if err != nil {
			x.because(name, err)
			continue
		}
		take := x.keeping(name, x.taker(name))
		if name == bucketKey {
			x.before = keyspace.Revision{Main: max(1, x.compacted())}
			keep := take
			take = func(it item) { x.sequence(it); keep(it) }
		}
		if err := x.tree(b, name, take); err != nil {
			return err
		}
		if x.failed != nil {
			return x.failed
		}
	}
	return nil
}

// keeping hands on to Salvage what look has nothing to say about.
func (x *examiner) keeping(name string, look func(item)) func(item) {
	if x.entry == nil {
		return look
	}
	return func(it item) {
		before := x.reported
		if look(it); x.reported == before && !it.isBucket && x.failed == nil {
			x.failed = x.entry(name, it)
		}
	}
}

func bool2int(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tree walks one bucket and goes on behind what is damaged.
func (x *examiner) tree(b bucket, name string, take func(item)) error {
	w := &walker{x: x, name: name, take: take}
	if b.root == 0 {
		w.leaves(&b.inline, nil, nil)
		return nil
	}
	return w.page(b.root, nil, nil, 0)
}

// walker is one walk over a bucket.
type walker struct {
	x    *examiner
	name string
	take func(item)
	last []byte // the key before, in whatever page
}

func (w *walker) page(id uint64, lo, hi []byte, depth int) error {
	x := w.x
	if x.steps++; x.steps%256 == 0 {
		if err := x.s.check(x.ctx); err != nil {
			return err
		}
	}
	if depth >= maxDepth {
		x.found(id, w.name, "the tree is more than %d pages deep", maxDepth)
		return nil
	}
	pg, err := x.p.page(id, x.seen)
	if err != nil {
		x.because(w.name, err)
		return nil
	}
	x.sum.Pages += int64(uint64(len(pg.body)) / x.p.meta.pageSize)
	if pg.flags == flagLeaf {
		w.leaves(&pg, lo, hi)
		return nil
	}
	return w.branches(&pg, lo, hi, depth)
}

func (w *walker) branches(pg *page, lo, hi []byte, depth int) error {
	x := w.x
	end := uint64(pageHeaderLen + pg.count*elementLen)
	for i := range pg.count {
		key, child, err := x.p.branch(pg, i)
		if err != nil {
			x.because(w.name, err)
			end = 0
			continue
		}
		at := uint64(pageHeaderLen + i*elementLen)
		if at += uint64(le.Uint32(pg.body[at:])); end != 0 && at != end {
			x.found(pg.id, w.name, "the key of branch element %d does not follow what comes before it: elements are missing, or overlap", i)
		}
		end = at + uint64(len(key))
		from, to := key, hi
		if i+1 < pg.count {
			if next, _, err := x.p.branch(pg, i+1); err == nil {
				to = next
			}
		}
		if lo != nil && bytes.Compare(key, lo) < 0 || to != nil && bytes.Compare(key, to) >= 0 {
			x.found(pg.id, w.name, "branch element %d is out of order", i)
			from, to = nil, nil // what lies below is looked at for itself
		}
		if err := w.page(child, from, to, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) leaves(pg *page, lo, hi []byte) {
	x := w.x
	// bbolt writes the data of elements without gaps behind the last element: a count
	// that became smaller leaves one.
	end := pg.start + pageHeaderLen + uint64(pg.count)*elementLen
	for i := range pg.count {
		it, err := x.p.leaf(pg, i)
		if err != nil {
			x.because(w.name, err)
			end = 0
			continue
		}
		if end != 0 && it.dataAt != end {
			x.found(pg.id, w.name, "the data of leaf element %d does not follow what comes before it: elements are missing, or overlap", i)
		}
		end = it.valueAt + uint64(len(it.value))
		if lo != nil && bytes.Compare(it.key, lo) < 0 || hi != nil && bytes.Compare(it.key, hi) >= 0 ||
			w.last != nil && bytes.Compare(it.key, w.last) <= 0 {
			x.found(pg.id, w.name, "leaf element %d is out of order", i)
		}
		w.last = it.key
		w.take(it)
	}
}

// free compares the list of free pages with what is in use.
func (x *examiner) free() {
	x.sum.FreePages = -1
	id, pages := x.p.meta.freelist, x.p.meta.pages
	if id == noFreelist {
		return
	}
	if id < 2 || id >= pages {
		x.found(id, "", "the list of free pages lies outside the file's %d pages", pages)
		return
	}
	start := id * x.p.meta.pageSize
	head := x.p.data[start:]
	overflow := uint64(le.Uint32(head[12:]))
	switch {
	case le.Uint64(head) != id || le.Uint16(head[8:]) != flagFreelist:
		x.found(id, "", "there is no list of free pages where the meta page says")
		return
	case overflow >= pages-id:
		x.found(id, "", "the list of free pages claims %d more pages, beyond the file's %d", overflow, pages)
		return
	case !x.seen.mark(id, overflow+1):
		x.found(id, "", "the list of free pages lies on pages in use")
		return
	}
	body := x.p.data[start+pageHeaderLen : start+(overflow+1)*x.p.meta.pageSize]
	count := uint64(le.Uint16(head[10:]))
	if count == 0xffff && len(body) >= 8 { // too many for the header
		count, body = le.Uint64(body), body[8:]
	}
	if count > uint64(len(body))/8 {
		x.found(id, "", "the list of free pages claims %d entries and has room for %d", count, len(body)/8)
		return
	}
	x.sum.FreePages = int64(count)
	last := uint64(1)
	for i := range count {
		free := le.Uint64(body[8*i:])
		switch {
		case free <= last:
			x.found(id, "", "entry %d of the list of free pages is out of order", i)
		case free >= pages:
			x.found(id, "", "page %d, called free, lies outside the file's %d pages", free, pages)
		case !x.seen.mark(free, 1):
			x.found(free, "", "the page is in use, and called free")
		}
		last = max(last, free)
	}
	lost := int64(0)
	for id := uint64(2); id < pages; id++ {
		if x.seen.mark(id, 1) {
			lost++
		}
	}
	if lost > 0 {
		x.report(Finding{Page: -1, Warning: true, Reason: fmt.Sprintf("%d pages are neither in use nor called free", lost)})
	}
}

// entryFinding reports what is wrong with an entry of a bucket.
func (x *examiner) entryFinding(it item, bucket, format string, a ...any) {
	x.report(Finding{Page: int64(it.page), Bucket: bucket, Records: true, Reason: fmt.Sprintf(format, a...)})
}

// taker returns what looks at the entries of a bucket.
func (x *examiner) taker(name string) func(item) {
	decodes := func(it item, m proto.Message, what string) {
		if err := proto.Unmarshal(it.value, m); err != nil {
			x.entryFinding(it, name, "%s %s does not decode", what, describeKey(it.key))
		}
	}
	switch name {
	case bucketKey:
		return x.record
	case bucketLease:
		return func(it item) {
			l, ok := decodeLease(it.value)
			if !ok || len(it.key) != 8 || int64(binary.BigEndian.Uint64(it.key)) != l.ID {
				x.entryFinding(it, name, "lease %x does not decode", it.key)
				return
			}
			x.leases[l.ID] = true
			x.sum.Leases++
		}
	case bucketMembers:
		return func(it item) {
			var m Member
			if err := json.Unmarshal(it.value, &m); err != nil {
				x.entryFinding(it, name, "member %s does not decode: %v", describeKey(it.key), err)
			}
		}
	case "authUsers":
		return func(it item) { decodes(it, &authpb.User{}, "user") }
	case "authRoles":
		return func(it item) { decodes(it, &authpb.Role{}, "role") }
	case bucketAlarm:
		return func(it item) {
			if err := proto.Unmarshal(it.key, &pb.AlarmMember{}); err != nil {
				x.entryFinding(it, name, "alarm %x does not decode", it.key)
			}
		}
	case bucketAuth:
		return func(it item) {
			switch k := string(it.key); {
			case k == "authEnabled" && (len(it.value) != 1 || it.value[0] > 1):
				x.entryFinding(it, name, "authEnabled is %x", it.value)
			case k == "authRevision" && len(it.value) != 8:
				x.entryFinding(it, name, "authRevision has %d bytes, not 8", len(it.value))
			}
		}
	case bucketMeta:
		return func(it item) {
			switch k := string(it.key); {
			case k == "consistent_index" || k == "term":
				if len(it.value) != 8 {
					x.entryFinding(it, name, "%s has %d bytes, not 8", k, len(it.value))
				}
			case k == "finishedCompactRev" || k == "scheduledCompactRev":
				if _, _, reason := parseRevision(it.value); reason != "" && len(it.value) > 0 {
					x.entryFinding(it, name, "%s: %s", k, reason)
				}
			}
		}
	}
	return func(item) {}
}

// compacted is the revision up to which records may be missing.
func (x *examiner) compacted() int64 { return max(x.s.marks.finished, x.s.marks.scheduled) }

// sequence holds the revision of a record against the one before. Behind the last
// compaction nothing is ever removed: every revision is there, and its changes are
// counted from 0. Only "snapshot restore --bump-revision" leaves a gap, with a mark
// behind it.
func (x *examiner) sequence(it item) {
	rev, tombstone, reason := parseRevision(it.key)
	if reason != "" || it.isBucket {
		return // found for itself
	}
	before := x.before
	if !before.Less(rev) || rev.Main <= x.compacted() {
		return // out of order, which is found by the page, or of no interest
	}
	x.before = rev
	say := func(format string, a ...any) {
		x.report(Finding{Page: int64(it.page), Bucket: bucketKey, Records: true, Rev: rev, Reason: fmt.Sprintf(format, a...)})
	}
	switch {
	case rev.Main == before.Main && rev.Sub != before.Sub+1:
		say("the changes before it in the same revision are missing, from %d on", before.Sub+1)
	case rev.Main == before.Main:
	case rev.Sub != 0:
		say("the changes before it in the same revision are missing")
	case rev.Main > before.Main+1 && (tombstone || len(it.value) > 0):
		say("the revisions before it are missing, from %d on", before.Main+1)
	}
}

// record looks at one record for itself and notes it for chains.
func (x *examiner) record(it item) {
	say := func(rev keyspace.Revision, key []byte, format string, a ...any) {
		x.report(Finding{Page: int64(it.page), Bucket: bucketKey, Records: true, Rev: rev, Key: key, Reason: fmt.Sprintf(format, a...)})
	}
	rk, err := x.s.revisionOf(it)
	if err != nil {
		say(keyspace.Revision{}, nil, "%s: %s", describeKey(it.key), revisionReason(it))
		return
	}
	x.sum.Records++
	if rk.tombstone {
		x.sum.Tombstones++
	} else if len(it.value) == 0 {
		x.sum.Records-- // left by "snapshot restore --bump-revision"
		return
	}
	rec, ok := decodeRecord(it.value)
	switch {
	case !ok:
		say(rk.rev, nil, "the record does not decode")
		return
	case len(rec.Key) == 0 || !bytes.Equal(rec.Key, keyOf(it.value)):
		say(rk.rev, nil, "the record has no key, or two")
		return
	}
	if !rk.tombstone {
		switch {
		case rec.ModRev != rk.rev.Main:
			say(rk.rev, rec.Key, "the record says that it was written at revision %d", rec.ModRev)
		case rec.CreateRev < 1 || rec.CreateRev > rec.ModRev:
			say(rk.rev, rec.Key, "the record was created at revision %d, after it was written", rec.CreateRev)
		case rec.Version < 1:
			say(rk.rev, rec.Key, "the record has version %d", rec.Version)
		}
	}
	if x.last.Main == rk.rev.Main && x.last.Sub == rk.rev.Sub {
		say(rk.rev, rec.Key, "the revision is there as a record and as a tombstone")
	}
	x.last = rk.rev
	if x.each != nil && !rk.tombstone {
		x.each(rec)
	}
	e := entry{place: it.offset, head: headOf(rec.Key, 0)}
	if rk.tombstone {
		e.place |= tombstoneBit
	}
	x.entries = append(x.entries, e)
}

func revisionReason(it item) string {
	if it.isBucket {
		return "a bucket lies among the records"
	}
	_, _, reason := parseRevision(it.key)
	return reason
}

// marks looks at what the file says of its compactions.
func (x *examiner) marks() {
	m := x.s.marks
	say := func(format string, a ...any) {
		x.report(Finding{Page: -1, Bucket: bucketMeta, Records: true, Reason: fmt.Sprintf(format, a...)})
	}
	if m.finished > m.scheduled && m.scheduled != 0 {
		say("the last finished compaction, %d, is newer than the last one that was begun, %d", m.finished, m.scheduled)
	}
}

// chains holds the versions of each key against each other.
func (x *examiner) chains() error {
	o := orderer{s: x.s, ctx: x.ctx, places: make([]uint64, 0, len(x.entries)), all: true}
	o.sort(x.entries, 0)
	if o.err != nil {
		return o.err
	}
	x.entries = nil
	c := chain{x: x}
	for i, place := range o.places {
		if i%touchAhead == 0 {
			if err := x.ctx.Err(); err != nil {
				return err
			}
			ahead := o.places[i:min(i+touchAhead, len(o.places))]
			var at [touchAhead]uint64
			for j, p := range ahead {
				at[j] = p &^ tombstoneBit
			}
			x.p.touch(at[:len(ahead)])
		}
		k, v, ok := x.s.itemAt(place &^ tombstoneBit)
		rev, _, reason := parseRevision(k)
		rec, decoded := decodeRecord(v)
		if !ok || reason != "" || !decoded {
			return &ChangedError{Path: x.s.file, How: "a record is not what it was"}
		}
		c.add(place, rev, rec)
	}
	c.end()
	return nil
}

// chain is the history of one key so far.
type chain struct {
	x     *examiner
	key   []byte
	place uint64
	rev   keyspace.Revision
	rec   keyspace.Record
	dead  bool
	any   bool
}

func (c *chain) add(place uint64, rev keyspace.Revision, rec keyspace.Record) {
	dead := place&tombstoneBit != 0
	first := !c.any || !bytes.Equal(rec.Key, c.key)
	say := func(format string, a ...any) {
		at := place &^ tombstoneBit
		c.x.report(Finding{Page: int64(at / c.x.p.meta.pageSize), Bucket: bucketKey, Records: true, Rev: rev, Key: rec.Key, Reason: fmt.Sprintf(format, a...)})
	}
	compacted := c.x.compacted()
	switch {
	case first && dead:
		// A compaction keeps a tombstone at its own revision alone.
		if c.end(); rev.Main > compacted {
			say("the key was deleted, and nothing before that is there")
		}
	case first:
		c.end()
		switch began := rec.Version == 1; {
		case began != (rec.CreateRev == rev.Main):
			say("version %d was created at revision %d", rec.Version, rec.CreateRev)
		case !began && rev.Main > compacted:
			say("version %d is the first one there, and nothing was compacted since", rec.Version)
		}
	case dead && c.dead:
		say("the key was deleted twice in a row")
	case dead:
	case c.dead && (rec.Version != 1 || rec.CreateRev != rev.Main):
		say("version %d, created at revision %d, follows a deletion", rec.Version, rec.CreateRev)
	case !c.dead && (rec.Version != c.rec.Version+1 || rec.CreateRev != c.rec.CreateRev):
		say("version %d, created at revision %d, follows version %d, created at %d, of revision %v", rec.Version, rec.CreateRev, c.rec.Version, c.rec.CreateRev, c.rev)
	}
	c.key, c.place, c.rev, c.rec, c.dead, c.any = rec.Key, place, rev, rec, dead, true
}

// end closes the history of a key.
func (c *chain) end() {
	if !c.any || c.dead {
		return
	}
	c.x.sum.Keys++
	if l := c.rec.Lease; l != 0 && !c.x.leases[l] {
		c.x.report(Finding{
			Page: int64(c.place / c.x.p.meta.pageSize), Bucket: bucketKey, Records: true, Warning: true, Rev: c.rev, Key: c.key,
			Reason: fmt.Sprintf("lease %016x of the key is not in the file; restored, the key would never expire", uint64(l)),
		})
	}
}
