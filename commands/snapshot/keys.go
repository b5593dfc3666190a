package snapshot

import (
	"bytes"
	"context"
	"slices"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// ranges turns arguments into ranges that do not overlap: a key, and what is below it
// behind a slash. One that ends in a slash is what is below it. With bare, each is
// a prefix whatever byte comes next. None is everything.
func ranges(args []string, bare bool) []keyspace.Range {
	var all []keyspace.Range
	if len(args) == 0 {
		return []keyspace.Range{keyspace.All()}
	}
	for _, a := range args {
		key := []byte(a)
		switch {
		case bare || a == "" || key[len(key)-1] == '/':
			all = append(all, keyspace.Prefix(key))
		default:
			all = append(all, keyspace.Range{Key: key, End: append(bytes.Clone(key), 0)}, keyspace.Prefix(append(bytes.Clone(key), '/')))
		}
	}
	slices.SortFunc(all, func(a, b keyspace.Range) int { return bytes.Compare(a.Key, b.Key) })
	open := func(end []byte) bool { return len(end) == 1 && end[0] == 0 }
	merged := all[:1]
	for _, r := range all[1:] {
		last := &merged[len(merged)-1]
		switch {
		case !open(last.End) && bytes.Compare(r.Key, last.End) >= 0:
			merged = append(merged, r)
		case open(last.End):
		case open(r.End) || bytes.Compare(r.End, last.End) > 0:
			last.End = r.End
		}
	}
	return merged
}

// allThere fails unless there is something below each of the arguments: one that is
// mistyped should not go unnoticed beside others.
func allThere(ctx context.Context, src keyspace.Source, args []string, bare bool, rev int64, file string) error {
	for _, a := range args {
		found := false
		for _, r := range ranges([]string{a}, bare) {
			r.Rev, r.Limit, r.KeysOnly = rev, 1, true
			for _, err := range src.Records(ctx, r) {
				if err != nil {
					return err
				}
				found = true
			}
		}
		if !found {
			return cli.Failf(cli.Negative, "no key %q in %s; nothing was done", a, file)
		}
	}
	return nil
}
