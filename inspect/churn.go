package inspect

import (
	"cmp"
	"context"
	"slices"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Churn is how often the keys under one prefix, or one key, were written.
type Churn struct {
	Prefix  string `json:"prefix"` // or the key
	Puts    int64  `json:"puts"`
	Deletes int64  `json:"deletes"`
	Keys    int64  `json:"keys"` // distinct keys that changed
	// Bytes are those of the keys and values written.
	Bytes   int64 `json:"bytes"`
	LastRev int64 `json:"lastRevision"`
}

// ChurnReport is the churn between two revisions, both included.
type ChurnReport struct {
	FromRev  int64   `json:"fromRevision"`
	ToRev    int64   `json:"toRevision"`
	Prefixes []Churn `json:"prefixes"`
	Total    Churn   `json:"total"`
}

// ChurnOptions of CountChurn.
type ChurnOptions struct {
	Prefix         string
	Depth          int   // path segments below Prefix that make a group; 0: each key by itself
	MinRev, MaxRev int64 // 0: the oldest that survives, the newest
}

// CountChurn counts changes by prefix, the busiest first. It holds every key that
// changed. A MaxRev that does not exist yet is a *keyspace.FutureError.
func CountChurn(ctx context.Context, src keyspace.HistorySource, o ChurnOptions) (*ChurnReport, error) {
	info, err := src.Info(ctx)
	if err != nil {
		return nil, err
	}
	all := keyspace.Prefix([]byte(o.Prefix))
	groups, keys := map[string]*Churn{}, map[string]struct{}{}
	rep := &ChurnReport{FromRev: cmp.Or(o.MinRev, info.CompactRev+1), ToRev: cmp.Or(o.MaxRev, info.Revision), Total: Churn{Prefix: o.Prefix}}
	if o.MaxRev > info.Revision {
		return nil, &keyspace.FutureError{Rev: o.MaxRev, Newest: info.Revision}
	}
	for e, err := range src.Events(ctx, keyspace.EventRange{Key: all.Key, End: all.End, MinRev: rep.FromRev, MaxRev: rep.ToRev}) {
		if err != nil {
			return nil, err
		}
		name := e.Record.Key
		if o.Depth > 0 {
			name = name[:groupEnd(name, len(o.Prefix), o.Depth)]
		}
		c := groups[string(name)]
		if c == nil {
			c = &Churn{Prefix: string(name)}
			groups[c.Prefix] = c
		}
		_, seen := keys[string(e.Record.Key)]
		if !seen {
			keys[string(e.Record.Key)] = struct{}{}
		}
		for _, c := range []*Churn{c, &rep.Total} {
			c.add(e, !seen)
		}
	}
	for _, c := range groups {
		rep.Prefixes = append(rep.Prefixes, *c)
	}
	slices.SortFunc(rep.Prefixes, func(a, b Churn) int {
		return cmp.Or(cmp.Compare(b.Puts+b.Deletes, a.Puts+a.Deletes), cmp.Compare(a.Prefix, b.Prefix))
	})
	return rep, nil
}

func (c *Churn) add(e keyspace.Event, first bool) {
	if first {
		c.Keys++
	}
	if e.Type == keyspace.Delete {
		c.Deletes++
	} else {
		c.Puts++
	}
	c.Bytes += size(e.Record)
	c.LastRev = e.Rev.Main
}
