package dbfile

import (
	"bytes"
	"slices"
	"sort"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// interval holds the keys from start on and before end; open has no end.
type interval struct {
	start, end string
	open       bool
}

// keySet holds single keys and ranges of keys. Ranges are merged by seal, after
// which nothing more is added.
type keySet struct {
	single map[string]struct{}
	ranges []interval
}

// add adds what etcd selects by key and end.
func (k *keySet) add(key, end []byte) {
	switch {
	case len(end) == 0:
		if k.single == nil {
			k.single = map[string]struct{}{}
		}
		k.single[string(key)] = struct{}{}
	case len(end) == 1 && end[0] == 0:
		k.ranges = append(k.ranges, interval{start: string(key), open: true})
	case bytes.Compare(key, end) < 0:
		k.ranges = append(k.ranges, interval{start: string(key), end: string(end)})
	}
}

// seal merges ranges that touch, so that a look-up takes one search.
func (k *keySet) seal() {
	slices.SortFunc(k.ranges, func(a, b interval) int { return bytes.Compare([]byte(a.start), []byte(b.start)) })
	merged := k.ranges[:0]
	for _, r := range k.ranges {
		if n := len(merged); n > 0 && (merged[n-1].open || r.start <= merged[n-1].end) {
			last := &merged[n-1]
			if r.open || !last.open && r.end > last.end {
				last.end, last.open = r.end, r.open
			}
			continue
		}
		merged = append(merged, r)
	}
	k.ranges = merged
}

// has tells whether a key is in the set.
func (k *keySet) has(key []byte) bool {
	if _, ok := k.single[string(key)]; ok {
		return true
	}
	i := k.at(key)
	return i >= 0 && (k.ranges[i].open || string(key) < k.ranges[i].end)
}

// at returns the last range that starts at or before key; -1: none.
func (k *keySet) at(key []byte) int {
	return sort.Search(len(k.ranges), func(i int) bool { return k.ranges[i].start > string(key) }) - 1
}

// selects tells whether key lies in the range of start and end.
func selects(start, end []byte, key string) bool {
	return keyspace.Contains(start, end, []byte(key))
}
