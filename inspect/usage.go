// Package inspect answers questions about a keyspace: how large, what changed,
// what is in it. Every function takes a keyspace.Source, so each works on a live
// cluster, a snapshot and a member's file alike.
package inspect

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Usage is what the keys under one prefix take up. Bytes are those of keys and
// values; what the database adds for pages and revisions is not in them.
type Usage struct {
	Prefix    string `json:"prefix"`
	Keys      int64  `json:"keys"`
	LiveBytes int64  `json:"liveBytes"` // key and value of every live key

	// The rest is known only when the history was read.

	// HistoryBytes are those of superseded versions and tombstones.
	HistoryBytes int64 `json:"historyBytes,omitempty"`
	Revisions    int64 `json:"revisions,omitempty"` // surviving versions and tombstones, live ones included
	Tombstones   int64 `json:"tombstones,omitempty"`
}

// UsageReport is the usage of every prefix and the sum of all.
type UsageReport struct {
	Revision   int64   `json:"revision"`
	CompactRev int64   `json:"compactRevision"`
	History    bool    `json:"history"` // whether the history was read
	Prefixes   []Usage `json:"prefixes"`
	Total      Usage   `json:"total"`
}

// UsageOptions of UsageByPrefix.
type UsageOptions struct {
	Prefix string
	Rev    int64 // 0: newest
	// Depth is how many path segments below Prefix make a group; at least 1.
	Depth int
	// History reads every surviving event too. On a live cluster that streams
	// a snapshot of the whole database.
	History  bool
	Progress func(keys int64)
}

// UsageByPrefix groups keys by the first Depth segments (separated by "/") below
// a prefix, in key order. Keys that lie higher are counted under the folder they
// lie in. It holds one Usage per group, no keys.
func UsageByPrefix(ctx context.Context, src keyspace.Source, o UsageOptions) (*UsageReport, error) {
	info, err := src.Info(ctx)
	if err != nil {
		return nil, err
	}
	g := newGroups(o.Prefix, max(o.Depth, 1))
	r := keyspace.Prefix([]byte(o.Prefix))
	r.Rev = cmp.Or(o.Rev, info.Revision)
	var n int64
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			return nil, err
		}
		u := g.of(rec.Key)
		u.Keys++
		u.LiveBytes += size(rec)
		if n++; o.Progress != nil && n%1024 == 0 {
			o.Progress(n)
		}
	}
	rep := &UsageReport{Revision: r.Rev, CompactRev: info.CompactRev, History: o.History}
	if o.History {
		if err := g.addHistory(ctx, src, r); err != nil {
			return nil, err
		}
	}
	rep.Prefixes, rep.Total = g.report(o.Prefix)
	return rep, nil
}

func size(r keyspace.Record) int64 { return int64(len(r.Key) + len(r.Value)) }

// groups maps the prefixes of a walk in key order to their usage.
type groups struct {
	root  int // bytes of the prefix that are not counted as segments
	depth int
	m     map[string]*Usage
	last  []byte
	cur   *Usage
}

func newGroups(prefix string, depth int) *groups {
	return &groups{root: len(prefix), depth: depth, m: map[string]*Usage{}}
}

func (g *groups) of(key []byte) *Usage {
	p := key[:groupEnd(key, g.root, g.depth)]
	if g.cur != nil && bytes.Equal(p, g.last) {
		return g.cur
	}
	u := g.m[string(p)]
	if u == nil {
		u = &Usage{Prefix: string(p)}
		g.m[u.Prefix] = u
	}
	g.last, g.cur = append(g.last[:0], p...), u
	return u
}

// groupEnd returns where the group's name ends inside key: behind the depth-th
// separator after root, or behind the last one there is. A separator right at
// root (the leading "/") opens the first segment and is not counted.
func groupEnd(key []byte, root, depth int) int {
	end := min(root, len(key))
	i := end
	if i < len(key) && key[i] == '/' {
		i++
		end = i
	}
	for ; depth > 0; depth-- {
		j := bytes.IndexByte(key[i:], '/')
		if j < 0 {
			break
		}
		i += j + 1
		end = i
	}
	return end
}

// addHistory counts all surviving events up to r.Rev, then takes the live ones
// off again.
func (g *groups) addHistory(ctx context.Context, src keyspace.Source, r keyspace.Range) error {
	h, ok := src.(keyspace.HistorySource)
	if !ok {
		return errNoHistory
	}
	for e, err := range h.Events(ctx, keyspace.EventRange{Key: r.Key, End: r.End, MaxRev: r.Rev}) {
		if err != nil {
			return err
		}
		u := g.of(e.Record.Key)
		u.Revisions++
		u.HistoryBytes += size(e.Record)
		if e.Type == keyspace.Delete {
			u.Tombstones++
		}
	}
	for _, u := range g.m {
		u.HistoryBytes -= u.LiveBytes
	}
	return nil
}

func (g *groups) report(prefix string) ([]Usage, Usage) {
	total := Usage{Prefix: prefix}
	list := make([]Usage, 0, len(g.m))
	for _, u := range g.m {
		list = append(list, *u)
		total.Keys += u.Keys
		total.LiveBytes += u.LiveBytes
		total.HistoryBytes += u.HistoryBytes
		total.Revisions += u.Revisions
		total.Tombstones += u.Tombstones
	}
	slices.SortFunc(list, func(a, b Usage) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return list, total
}
