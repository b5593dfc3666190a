package dbfile

import (
	"bytes"
	"errors"
	"fmt"
)

// bucket is a tree of pages, or one page inside another's value.
type bucket struct {
	root   uint64
	inline page // when root is 0
}

// bucketOf decodes the value of a leaf element that is a bucket.
func (p *pager) bucketOf(it item) (bucket, error) {
	if !it.isBucket || len(it.value) < bucketLen {
		return bucket{}, p.corrupt(it.page, "%q is not a bucket", it.key)
	}
	if root := le.Uint64(it.value); root != 0 {
		return bucket{root: root}, nil
	}
	pg, err := p.inline(it.page, it.value[bucketLen:], it.valueAt+bucketLen)
	return bucket{inline: pg}, err
}

// bucket finds a bucket of the root by name; found is false when the file has
// none of that name.
func (p *pager) bucket(name string) (b bucket, found bool, err error) {
	it, found, err := p.get(bucket{root: p.meta.root}, []byte(name))
	if !found || err != nil {
		return bucket{}, false, err
	}
	b, err = p.bucketOf(it)
	return b, err == nil, err
}

// get finds one element by its key.
func (p *pager) get(b bucket, key []byte) (item, bool, error) {
	c := p.cursor(b, key, nil)
	it, err := c.next()
	if errors.Is(err, errEnd) {
		return item{}, false, nil
	}
	if err != nil || !bytes.Equal(it.key, key) {
		return item{}, false, err
	}
	return it, true, nil
}

var errEnd = errors.New("end of bucket")

// cursor walks a bucket in key order, all of it or a part. It holds one page
// reference a level and one bit a page of the file. Keys must rise strictly and
// lie where the branch pages say, and every page may come up once: a hostile file
// ends the walk with an error after at most as many steps as it has elements.
type cursor struct {
	p       *pager
	from    []byte // first key wanted; nil: all
	to      []byte // first key not wanted any more; nil: none
	seen    bitmap
	stack   []level
	last    []byte // key given out last
	started bool
	pending error // found while the cursor was placed
}

type level struct {
	page   page
	next   int    // element to take next
	data   uint64 // end of the data of the leaf elements before
	lo, hi []byte // keys lie in [lo, hi); nil: open
}

func (p *pager) cursor(b bucket, from, to []byte) *cursor {
	c := &cursor{p: p, from: from, to: to, seen: newBitmap(p.meta.pages), stack: make([]level, 0, 8)}
	if b.root == 0 {
		c.stack = append(c.stack, level{page: b.inline})
	} else {
		c.pending = c.push(b.root, nil, nil)
	}
	return c
}

func (c *cursor) push(id uint64, lo, hi []byte) error {
	if len(c.stack) >= maxDepth {
		return c.p.corrupt(id, "the tree is more than %d pages deep", maxDepth)
	}
	pg, err := c.p.page(id, c.seen)
	if err != nil {
		return err
	}
	c.stack = append(c.stack, level{page: pg, lo: lo, hi: hi})
	return nil
}

// next returns the next element, errEnd behind the last one.
func (c *cursor) next() (item, error) {
	if c.pending != nil {
		return item{}, c.pending
	}
	it, err := c.step()
	if err != nil {
		c.pending = err
	}
	return it, err
}

func (c *cursor) step() (item, error) {
	for len(c.stack) > 0 {
		top := &c.stack[len(c.stack)-1]
		if top.next >= top.page.count {
			c.stack = c.stack[:len(c.stack)-1]
			continue
		}
		i := top.next
		top.next++
		if top.page.flags == flagBranch {
			if err := c.descend(top, i); err != nil {
				return item{}, err
			}
			continue
		}
		it, err := c.p.leaf(&top.page, i)
		if err != nil {
			return item{}, err
		}
		// Elements that share bytes would make a file hold more than its size.
		if it.dataAt < top.data {
			return item{}, c.p.corrupt(top.page.id, "leaf element %d overlaps the one before", i)
		}
		top.data = it.valueAt + uint64(len(it.value))
		if top.lo != nil && bytes.Compare(it.key, top.lo) < 0 || top.hi != nil && bytes.Compare(it.key, top.hi) >= 0 ||
			c.started && bytes.Compare(it.key, c.last) <= 0 {
			return item{}, c.p.corrupt(top.page.id, "leaf element %d is out of order", i)
		}
		if c.to != nil && bytes.Compare(it.key, c.to) >= 0 {
			return item{}, errEnd
		}
		c.last, c.started = it.key, true
		if c.from != nil && bytes.Compare(it.key, c.from) < 0 {
			continue
		}
		return it, nil
	}
	return item{}, errEnd
}

// descend goes into child i of a branch page, unless all of its keys come before
// the first one wanted. It returns errEnd when they come behind the last one.
func (c *cursor) descend(top *level, i int) error {
	key, child, err := c.p.branch(&top.page, i)
	if err != nil {
		return err
	}
	hi := top.hi
	if i+1 < top.page.count {
		if hi, _, err = c.p.branch(&top.page, i+1); err != nil {
			return err
		}
		if bytes.Compare(key, hi) >= 0 {
			return c.p.corrupt(top.page.id, "branch elements %d and %d are out of order", i, i+1)
		}
	}
	if top.lo != nil && bytes.Compare(key, top.lo) < 0 || top.hi != nil && bytes.Compare(key, top.hi) >= 0 {
		return c.p.corrupt(top.page.id, "branch element %d is out of order", i)
	}
	if c.from != nil && hi != nil && bytes.Compare(hi, c.from) <= 0 {
		return nil
	}
	if c.to != nil && bytes.Compare(key, c.to) >= 0 {
		return errEnd
	}
	return c.push(child, key, hi)
}

// splits returns at most n-1 keys, in order, which cut a bucket into parts of about
// the same number of pages. What is wrong with the tree is for the walks over the
// parts to find: there are fewer keys then.
func (p *pager) splits(b bucket, n int) [][]byte {
	var keys [][]byte
	ids := []uint64{b.root}
	for depth := 0; b.root != 0 && depth < maxDepth && len(keys) < n; depth++ {
		var below [][]byte
		var children []uint64
		for _, id := range ids {
			pg, err := p.page(id, nil)
			if err != nil || pg.flags != flagBranch {
				return thin(keys, n)
			}
			for i := range pg.count {
				key, child, err := p.branch(&pg, i)
				if err != nil || len(below) > 0 && bytes.Compare(below[len(below)-1], key) >= 0 {
					return thin(keys, n)
				}
				below, children = append(below, key), append(children, child)
			}
		}
		keys, ids = below, children
	}
	return thin(keys, n)
}

// thin takes n-1 of the keys at which children start, without the first: nothing
// comes before it.
func thin(keys [][]byte, n int) [][]byte {
	var out [][]byte
	for i := range min(n, len(keys)) {
		if at := i * len(keys) / min(n, len(keys)); at > 0 {
			out = append(out, keys[at])
		}
	}
	return out
}

// lastItem returns the element with the greatest key; found is false in an empty
// bucket.
func (p *pager) lastItem(b bucket) (it item, found bool, err error) {
	pg := b.inline
	if b.root != 0 {
		seen := newBitmap(p.meta.pages)
		id := b.root
		for depth := 0; ; depth++ {
			if depth >= maxDepth {
				return item{}, false, p.corrupt(id, "the tree is more than %d pages deep", maxDepth)
			}
			if pg, err = p.page(id, seen); err != nil {
				return item{}, false, err
			}
			if pg.flags == flagLeaf {
				break
			}
			if _, id, err = p.branch(&pg, pg.count-1); err != nil {
				return item{}, false, err
			}
		}
	}
	if pg.count == 0 {
		return item{}, false, nil
	}
	it, err = p.leaf(&pg, pg.count-1)
	return it, err == nil, err
}

// describeKey shows a bucket key in an error.
func describeKey(k []byte) string {
	if len(k) > 32 {
		return fmt.Sprintf("%q…", k[:32])
	}
	return fmt.Sprintf("%q", k)
}
