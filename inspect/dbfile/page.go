package dbfile

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"runtime"
)

// The file format is bbolt's (go.etcd.io/bbolt, internal/common): pages of equal
// size, numbered from 0. Pages 0 and 1 are meta pages, written in turn. All
// numbers are little-endian.
//
//	page:    id u64 | flags u16 | count u16 | overflow u32 | count elements | data
//	meta:    magic u32 | version u32 | page size u32 | flags u32 | root bucket u64 u64 |
//	         freelist u64 | high-water mark u64 | transaction u64 | FNV-1a of all before u64
//	branch:  data offset u32 | key bytes u32 | page u64
//	leaf:    flags u32 | data offset u32 | key bytes u32 | value bytes u32
//
// An element's data offset counts from the element itself. A page with overflow
// n goes on through the n pages behind it.
const (
	pageHeaderLen = 16
	elementLen    = 16
	bucketLen     = 16 // root u64 | sequence u64, then an inline page when root is 0
	metaLen       = 64

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10

	leafIsBucket = 0x01

	magic       = 0xED0CDAED
	fileVersion = 2

	minPageSize = 512
	maxPageSize = 1 << 20
	// A tree of this depth would hold more records than any file can.
	maxDepth = 48

	noFreelist = ^uint64(0)
)

var le = binary.LittleEndian

// meta is a decoded meta page.
type meta struct {
	pageSize uint64
	root     uint64 // page of the root bucket
	freelist uint64 // page of the freelist; noFreelist: not written
	pages    uint64 // high-water mark: pages in use have smaller numbers
	txid     uint64
}

// parseMeta decodes the meta page that starts at b[0]; reason is empty on success.
func parseMeta(b []byte) (m meta, reason string) {
	if len(b) < pageHeaderLen+metaLen {
		return m, "is not there"
	}
	b = b[pageHeaderLen:]
	if le.Uint32(b) != magic {
		return m, "has no bbolt mark"
	}
	if v := le.Uint32(b[4:]); v != fileVersion {
		return m, fmt.Sprintf("has format version %d, not %d", v, fileVersion)
	}
	if metaSum(b) != le.Uint64(b[metaLen-8:]) {
		return m, "has a wrong checksum"
	}
	m = meta{
		pageSize: uint64(le.Uint32(b[8:])),
		root:     le.Uint64(b[16:]),
		freelist: le.Uint64(b[32:]),
		pages:    le.Uint64(b[40:]),
		txid:     le.Uint64(b[48:]),
	}
	if m.pageSize < minPageSize || m.pageSize > maxPageSize || m.pageSize&(m.pageSize-1) != 0 {
		return meta{}, fmt.Sprintf("names a page size of %d", m.pageSize)
	}
	return m, ""
}

// metaSum is the checksum of a meta page's body.
func metaSum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b[:metaLen-8])
	return h.Sum64()
}

// hasMagic tells whether a meta page could start at b[0].
func hasMagic(b []byte) bool {
	return len(b) >= pageHeaderLen+8 && le.Uint32(b[pageHeaderLen:]) == magic
}

// newestMeta finds the valid meta page with the highest transaction; one valid
// page of the two is enough. With none, reason says what is wrong with the first.
func newestMeta(data []byte) (m meta, reason string) {
	m0, reason0 := parseMeta(data)
	if reason0 == "" {
		if uint64(len(data)) > m0.pageSize {
			if m1, r := parseMeta(data[m0.pageSize:]); r == "" && m1.pageSize == m0.pageSize && m1.txid > m0.txid {
				return m1, ""
			}
		}
		return m0, ""
	}
	// Without the first page nothing says where the second one starts.
	for size := uint64(minPageSize); size <= maxPageSize && size < uint64(len(data)); size *= 2 {
		if m1, r := parseMeta(data[size:]); r == "" && m1.pageSize == size {
			return m1, ""
		}
	}
	return m, reason0
}

// pager gives out the pages of one consistent state of a file. Nothing in it
// trusts a number from the file before it has been compared with the file's size.
type pager struct {
	path string
	data []byte // exactly the pages; no trailer
	meta meta
}

// page is one page with its overflow.
type page struct {
	id    uint64
	flags uint16
	count int
	body  []byte // with header and overflow
	start uint64 // of body in the file
	// elements is where this page's elements start in the file.
	elements uint64
}

func (p *pager) corrupt(id uint64, format string, args ...any) error {
	return &CorruptError{Path: p.path, Page: int64(id), Reason: fmt.Sprintf(format, args...)}
}

// page returns page id. seen, when not nil, notes the pages that were given out:
// a page that comes up twice is an error, so that no walk is longer than the file.
func (p *pager) page(id uint64, seen bitmap) (page, error) {
	if id < 2 || id >= p.meta.pages {
		return page{}, p.corrupt(id, "a reference leads out of the file's %d pages", p.meta.pages)
	}
	start := id * p.meta.pageSize
	head := p.data[start:]
	if got := le.Uint64(head); got != id {
		return page{}, p.corrupt(id, "the page calls itself %d", got)
	}
	overflow := uint64(le.Uint32(head[12:]))
	if overflow >= p.meta.pages-id {
		return page{}, p.corrupt(id, "the page claims %d more pages, beyond the file's %d", overflow, p.meta.pages)
	}
	if seen != nil && !seen.mark(id, overflow+1) {
		return page{}, p.corrupt(id, "the page is referenced twice")
	}
	end := start + (overflow+1)*p.meta.pageSize
	pg := page{
		id:       id,
		flags:    le.Uint16(head[8:]),
		count:    int(le.Uint16(head[10:])),
		body:     p.data[start:end:end],
		start:    start,
		elements: start + pageHeaderLen,
	}
	return pg, p.checkElements(&pg)
}

// inline returns the page that a small bucket keeps inside its own value.
func (p *pager) inline(owner uint64, body []byte, start uint64) (page, error) {
	if len(body) < pageHeaderLen {
		return page{}, p.corrupt(owner, "a small bucket is cut short")
	}
	pg := page{
		id:       owner,
		flags:    le.Uint16(body[8:]),
		count:    int(le.Uint16(body[10:])),
		body:     body,
		start:    start,
		elements: start + pageHeaderLen,
	}
	if pg.flags != flagLeaf {
		return page{}, p.corrupt(owner, "a small bucket holds a page of kind %#x", pg.flags)
	}
	return pg, p.checkElements(&pg)
}

func (p *pager) checkElements(pg *page) error {
	if pg.flags != flagLeaf && pg.flags != flagBranch {
		return p.corrupt(pg.id, "a page of a tree is of kind %#x", pg.flags)
	}
	if pageHeaderLen+pg.count*elementLen > len(pg.body) {
		return p.corrupt(pg.id, "%d elements do not fit into the page", pg.count)
	}
	if pg.count == 0 {
		if pg.flags == flagBranch {
			return p.corrupt(pg.id, "a branch page is empty")
		}
		return nil
	}
	// bbolt writes data right behind the last element: a count that became smaller, and
	// hides elements, leaves a gap.
	offset := le.Uint32(pg.body[pageHeaderLen:])
	if pg.flags == flagLeaf {
		offset = le.Uint32(pg.body[pageHeaderLen+4:])
	}
	if offset != uint32(pg.count*elementLen) {
		return p.corrupt(pg.id, "its data does not begin behind its %d elements", pg.count)
	}
	return nil
}

// branch returns key and child of element i.
func (p *pager) branch(pg *page, i int) (key []byte, child uint64, err error) {
	at := uint64(pageHeaderLen + i*elementLen)
	e := pg.body[at : at+elementLen]
	from := at + uint64(le.Uint32(e))
	to := from + uint64(le.Uint32(e[4:]))
	if from < uint64(pageHeaderLen+pg.count*elementLen) || to > uint64(len(pg.body)) {
		return nil, 0, p.corrupt(pg.id, "the key of branch element %d lies outside the page", i)
	}
	return pg.body[from:to:to], le.Uint64(e[8:]), nil
}

// leaf returns element i.
func (p *pager) leaf(pg *page, i int) (item, error) {
	at := uint64(pageHeaderLen + i*elementLen)
	e := pg.body[at : at+elementLen]
	from := at + uint64(le.Uint32(e[4:]))
	mid := from + uint64(le.Uint32(e[8:]))
	to := mid + uint64(le.Uint32(e[12:]))
	if from < uint64(pageHeaderLen+pg.count*elementLen) || to > uint64(len(pg.body)) {
		return item{}, p.corrupt(pg.id, "the data of leaf element %d lies outside the page", i)
	}
	return item{
		page:     pg.id,
		offset:   pg.start + at,
		isBucket: le.Uint32(e)&leafIsBucket != 0,
		key:      pg.body[from:mid:mid],
		value:    pg.body[mid:to:to],
		dataAt:   pg.start + from,
		valueAt:  pg.start + mid,
	}, nil
}

// item is one element of a leaf page.
type item struct {
	page       uint64
	offset     uint64 // of the element in the file
	dataAt     uint64 // of the key in the file; the value follows it
	valueAt    uint64 // of the value in the file
	isBucket   bool
	key, value []byte
}

// itemAt reads the element at offset again. The walk that found it has checked
// its bounds; they are compared with the file once more because another process
// may have written to it since.
func (p *pager) itemAt(offset uint64) (key, value []byte, ok bool) {
	size := uint64(len(p.data))
	if offset+elementLen > size {
		return nil, nil, false
	}
	e := p.data[offset : offset+elementLen]
	from := offset + uint64(le.Uint32(e[4:]))
	mid := from + uint64(le.Uint32(e[8:]))
	to := mid + uint64(le.Uint32(e[12:]))
	if to > size {
		return nil, nil, false
	}
	return p.data[from:mid:mid], p.data[mid:to:to], true
}

// touch reads a byte of the data of each element at places (at most touchAhead of
// them), so that it is in the cache. Places outside the file are passed over.
func (p *pager) touch(places []uint64) {
	var data [touchAhead]uint64
	size := uint64(len(p.data))
	for i, at := range places {
		if at < size && at+elementLen <= size {
			data[i] = at + uint64(le.Uint32(p.data[at+4:]))
		}
	}
	var sum byte
	for _, at := range data[:len(places)] {
		if at < size {
			sum |= p.data[at]
		}
	}
	runtime.KeepAlive(sum) // else the compiler leaves the loops out
}

// bitmap holds one bit a page.
type bitmap []uint64

func newBitmap(n uint64) bitmap { return make(bitmap, n/64+1) }

// has tells whether a bit is set.
func (b bitmap) has(id uint64) bool { return b[id/64]&(1<<(id%64)) != 0 }

// mark sets n bits from id on; false when one was set before.
func (b bitmap) mark(id, n uint64) bool {
	for end := id + n; id < end; id++ {
		if bit := uint64(1) << (id % 64); b[id/64]&bit == 0 {
			b[id/64] |= bit
		} else {
			return false
		}
	}
	return true
}
